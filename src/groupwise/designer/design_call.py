"""One design call from a file of requirements: what is asked, what came of it, and where what was learned is kept."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from groupwise.config.sections import GenerationSettings
from groupwise.designer.explanation import (
    Baseline,
    Explanation,
    ParetoRow,
    baseline_of,
    explain,
    in_a_line,
    pareto_rows,
)
from groupwise.designer.familiarity import WARY, far_outside, notes
from groupwise.designer.memory import open_memory
from groupwise.designer.outcome import ConvergenceReading, DesignOutcome, Generation, convergence_table
from groupwise.designer.pipeline import Designer
from groupwise.designer.policy import PRETRAINED, GraphPolicy, load_policy, save_policy
from groupwise.designer.problem import DesignProblem
from groupwise.designer.tasks import PreparedRequirements, score_design
from groupwise.errors import ConfigError
from groupwise.workflows.blocks import Design
from groupwise.workflows.feasibility import insist_feasible
from groupwise.workflows.requirements import Requirements, read_requirements
from groupwise.workflows.scoring import DesignScore

LEARNED = Path("designer.safetensors")
Watch: TypeAlias = Callable[[Generation], None]
Stop: TypeAlias = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class DesignOptions:
    """What is asked for; `memory` and `policy` are files."""

    requirements: Path
    evaluations: int = 32
    learn: bool = False
    memory: Path | None = None
    policy: Path | None = None
    seed: int = 0
    check: bool = False

    @property
    def learned(self) -> Path:
        """Where learned weights are kept: beside the memory, or in the folder one is in."""
        return self.memory.with_suffix(".safetensors") if self.memory is not None else LEARNED

    @property
    def weights(self) -> str | Path:
        """The weights to begin with: those asked for, what was learned before, or those that ship."""
        if self.policy is not None:
            return self.policy
        return self.learned if self.learn and self.learned.exists() else PRETRAINED


@dataclass(frozen=True, slots=True)
class DesignReport:
    """What came of it: the outcome, the account of it against the start, notes, and the file of learned weights."""

    requirements: Requirements
    outcome: DesignOutcome
    explain: Explanation
    start: Design
    notes: tuple[str, ...]
    learned: Path | None = None

    @property
    def design(self) -> Design:
        return self.outcome.best.design

    @property
    def score(self) -> DesignScore:
        assert self.outcome.best.score is not None
        return self.outcome.best.score

    def rows(self) -> list[ParetoRow]:
        return pareto_rows(self.outcome.pareto, self.outcome.best)

    def convergence(self) -> tuple[ConvergenceReading, ...]:
        return convergence_table(self.outcome.generations, self.outcome.hit_rate)

    def as_dict(self) -> dict[str, Any]:
        outcome = self.outcome
        return {
            "requirements": self.requirements.name,
            **self.score.as_dict(),
            "design": in_a_line(self.design),
            "servers": dict(self.design.servers),
            "evaluations": outcome.evaluations,
            "stages": dict(outcome.stages),
            "pareto": [asdict(row) for row in self.rows()],
            "generations": [asdict(generation) for generation in outcome.generations],
            "convergence": {one.target.name: one.value for one in self.convergence()},
            "checked": outcome.analysis.lines() if outcome.analysis else None,
            **self.account.as_dict(),
            "learned": str(self.learned) if self.learned else None,
        }


def design_for(request: DesignOptions, watch: Watch, stop: Stop) -> DesignReport:
    """Design for the requirements in a file. `watch` is told every generation; `stop` ends the search early."""
    requirements = read_requirements(request.requirements)
    insist_feasible(requirements)
    start = baseline_of(requirements, request.requirements.parent)
    policy = load_policy(request.weights)
    problem = DesignProblem(requirements)
    settings = WARY if far_outside(problem) else GenerationSettings()
    memory = open_memory(request.memory) if request.memory is not None else None
    with (
        memory or nullcontext(),
        Designer(policy, memory, settings, learn=request.learn, seed=request.seed) as designer,
    ):
        call = designed(designer, requirements, start, request.evaluations, watch, stop, check=request.check)
        told = memory.notices if memory is not None else ()
    learned = keep(request, policy) if request.learn else None
    return replace(call, notes=(*call.notes, *told, *notes(problem)), learned=learned)


def designed(
    designer: Designer,
    requirements: Requirements,
    start: Baseline,
    evaluations: int,
    watch: Watch = lambda generation: None,
    stop: Stop = lambda: False,
    *,
    check: bool = False,
) -> DesignReport:
    """One call of a designer, compared with a start; with `check` the best is simulated too."""
    outcome = searched(designer, requirements, evaluations, watch, stop, check)
    before = score_design(PreparedRequirements.of(outcome.requirements), start.design, designer.seed)
    told = explain(start, before, outcome.best, requirements)
    worse = f"the start is better than all that was found; {4 * evaluations} evaluations may find more"
    said = (*start.notes, *outcome.notes, *([worse] if before.total > outcome.best.total else ()))
    return DesignReport(requirements, outcome, told, start.design, said)


def searched(
    designer: Designer, requirements: Requirements, evaluations: int, watch: Watch, stop: Stop, check: bool
) -> DesignOutcome:
    """Generation after generation, at least one."""
    call = designer.begin(requirements)
    while call.going(evaluations):
        call.generation(evaluations - call.evaluations)
        if call.history:
            watch(call.history[-1])
        if stop():
            call.notes.append(f"interrupted: this is the best of {call.evaluations} designs")
            break
    if check:
        call.check()
    return call.outcome()


def keep(request: DesignOptions, policy: GraphPolicy) -> Path:
    """Write what was learned to its own file; what ships is never written to."""
    path = request.learned
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_policy(policy, path, {"from": str(request.weights)})
    except OSError as error:
        hint = "Learned weights lie beside --memory, or in the folder you are in."
        raise ConfigError(f"{path} cannot be written: {error.strerror}", hint=hint) from error
    return path
