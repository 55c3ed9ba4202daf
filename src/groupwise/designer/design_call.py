"""One design call from a requirements file: the options, the call itself, and a report of what it found."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from groupwise.designer.familiarity import details, notes
from groupwise.designer.generations import Candidate
from groupwise.designer.memory import MEMORY_FILE, open_memory
from groupwise.designer.pipeline import Designer, DesignSession
from groupwise.designer.policy import PRETRAINED, GraphPolicy, load_policy, save_policy
from groupwise.designer.results.explanation import Explanation, ParetoRow, explain, lost_words, one_line, pareto_rows
from groupwise.designer.results.outcome import ConvergenceReading, DesignOutcome, Generation, convergence_table
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
    """The options of a design call; `memory` and `policy` are files."""

    requirements: Path
    evaluations: int | None = None
    learn: bool = False
    memory: Path | None = None
    policy: Path | None = None
    seed: int = 0
    check: bool = False

    @property
    def kept(self) -> Path | None:
        """The memory: the file given, or the one that `groupwise feedback` writes to, if it is here."""
        here = Path(MEMORY_FILE)
        return self.memory or (here if here.is_file() else None)

    @property
    def learned(self) -> Path:
        """Where learned weights are stored: beside the memory, or in the current folder."""
        return self.memory.with_suffix(".safetensors") if self.memory is not None else LEARNED

    @property
    def weights(self) -> str | Path:
        """The weights to start from: those given, those learned earlier, or those that ship."""
        if self.policy is not None:
            return self.policy
        return self.learned if self.learn and self.learned.exists() else PRETRAINED


@dataclass(frozen=True, slots=True)
class DesignReport:
    """What a call found: the outcome, its explanation, notes for the user, and the file of learned weights.

    `details` explain the notes further, for `--debug`; `choice` is the row of the Pareto table that it is about.
    """

    requirements: Requirements
    outcome: DesignOutcome
    explanation: Explanation
    notes: tuple[str, ...]
    details: tuple[str, ...] = ()
    learned: Path | None = None
    choice: int = 1

    @property
    def chosen(self) -> Candidate:
        return self.outcome.pareto[self.choice - 1] if self.outcome.pareto else self.outcome.best

    @property
    def design(self) -> Design:
        return self.chosen.design

    @property
    def score(self) -> DesignScore:
        assert self.chosen.score is not None
        return self.chosen.score

    def choosing(self, number: int) -> DesignReport:
        """The same report about another row of the Pareto table."""
        rows = len(self.outcome.pareto)
        if not 1 <= number <= max(rows, 1):
            hint = f"Choose a number from 1 to {rows}." if rows > 1 else "There is only one."
            raise ConfigError(f"--choose {number}: the table has {rows} designs", hint=hint, field="choose")
        report = replace(self, choice=number)
        return replace(report, explanation=explain(self.outcome, report.chosen))

    def rows(self) -> list[ParetoRow]:
        return pareto_rows(self.outcome)

    def convergence(self) -> tuple[ConvergenceReading, ...]:
        return convergence_table(self.outcome.generations, self.outcome.hit_rate)

    def as_dict(self) -> dict[str, Any]:
        outcome = self.outcome
        return {
            "requirements": self.requirements.name,
            "headline": self.explanation.headline(),
            **self.score.as_dict(),
            "performance": asdict(self.score.performance) if self.score.performance else None,
            "design": one_line(self.design.root),
            "servers": dict(self.design.servers),
            "evaluations": outcome.evaluations,
            "stages": dict(outcome.stages),
            "simulation": outcome.simulation,
            "pareto": [asdict(row) for row in self.rows()],
            "generations": [asdict(generation) for generation in outcome.generations],
            "convergence": {one.target.name: one.value for one in self.convergence()},
            "checked": outcome.analysis.lines() if outcome.analysis else None,
            **self.explanation.as_dict(),
            "learned": str(self.learned) if self.learned else None,
        }


def design_for(options: DesignOptions, watch: Watch, stop: Stop) -> DesignReport:
    """Design for the requirements in a file. `watch` receives every generation; `stop` ends the search early."""
    requirements = read_requirements(options.requirements)
    insist_feasible(requirements)
    policy = load_policy(options.weights)
    memory = open_memory(options.kept) if options.kept is not None else None
    with (
        memory or nullcontext(),
        Designer(policy, memory, learn=options.learn, seed=options.seed) as designer,
    ):
        session = designer.begin(requirements, options.requirements.parent)
        report = search(session, options.evaluations, watch, stop, check=options.check)
        notices = memory.notices if memory is not None else ()
    problem = session.prepared.problem
    return replace(
        report,
        notes=(*report.notes, *notices, *notes(problem)),
        details=details(problem),
        learned=_save_learned(options, policy) if options.learn else None,
    )


def search(
    session: DesignSession,
    evaluations: int | None = None,
    watch: Watch = lambda generation: None,
    stop: Stop = lambda: False,
    *,
    check: bool = False,
) -> DesignReport:
    """Run a session and compare its best design with the baseline; `check` compares its prediction as well."""
    for _ in session.search(evaluations):
        watch(session.history[-1])
        if stop():
            session.notes.append(f"Interrupted: this is the best of {session.evaluations} designs.")
            break
    if check:
        session.check()
    outcome = session.outcome()
    lost = lost_words(session.prepared.scorer.cases, outcome.best.design)
    return DesignReport(session.requirements, outcome, explain(outcome), (*outcome.notes, *lost))


def _save_learned(options: DesignOptions, policy: GraphPolicy) -> Path:
    # Write the learned weights to their own file; the weights that ship are never overwritten.
    path = options.learned
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_policy(policy, path, {"from": str(options.weights)})
    except OSError as error:
        hint = "Learned weights are stored beside --memory, or in the current folder."
        raise ConfigError(f"{path} cannot be written: {error.strerror}", hint=hint) from error
    return path
