"""One design call from a requirements file: the options, the call itself, and a report of what it found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from groupwise.config.fields import Section, Setting, settings_of
from groupwise.config.files import load_given
from groupwise.config.sections import ScoringSettings, TrainingSettings
from groupwise.config.training_config import TrainingConfig
from groupwise.designer import MEMORY_FILE
from groupwise.designer.declaration import DESIGNER, GenerationSettings
from groupwise.designer.familiarity import details, notes, search_settings
from groupwise.designer.generations import Candidate
from groupwise.designer.memory import open_memory
from groupwise.designer.pipeline import STOPPING, Designer, DesignSession
from groupwise.designer.policy import PRETRAINED, GraphPolicy, load_policy, save_policy
from groupwise.designer.problem import DesignProblem
from groupwise.designer.results.explanation import (
    Explanation,
    ParetoRow,
    explain,
    lost_words,
    one_line,
    pareto_rows,
    uncertain_words,
)
from groupwise.designer.results.outcome import ConvergenceReading, DesignOutcome, Generation, convergence_table
from groupwise.errors import ConfigError
from groupwise.workflows.blocks import Design
from groupwise.workflows.duties import shift_notes
from groupwise.workflows.feasibility import insist_feasible
from groupwise.workflows.requirements import Requirements, Weights, read_requirements
from groupwise.workflows.scoring import DesignScore

LEARNED = Path("designer.safetensors")
Watch: TypeAlias = Callable[[Generation], None]
Stop: TypeAlias = Callable[[], bool]


# The sections that act on every design call, and those that act on what it learns.
SEARCH, LEARNING = ("generation", "scoring"), ("advantage", "loss", "optim", "correction")
STOPPING_NAMES = ("early_stopping", "early_stopping_patience", "early_stopping_threshold")
WEIGHT_NAMES = ("performance_weight", "structural_weight", "maintainability_weight", "resource_weight")


@dataclass(frozen=True, slots=True)
class DesignSettings:
    """A settings file as a design call uses it: every setting, and which of them were given.

    What was not given is as in a call without settings, which is not always the default of a training run.
    """

    cfg: TrainingConfig
    given: frozenset[str]

    @classmethod
    def read(cls, path: Path | None, overrides: Sequence[str] = ()) -> DesignSettings:
        """The settings in a file (TOML, YAML, JSON or XML), with `name=value` overrides put in."""
        return cls(*load_given(path, overrides, DESIGNER.name))

    def generation(self, problem: DesignProblem) -> GenerationSettings:
        return search_settings(problem).model_copy(update=self._given(self.cfg.generation))

    @property
    def stopping(self) -> TrainingSettings:
        return STOPPING.model_copy(update=self._given(self.cfg.training, STOPPING_NAMES))

    @property
    def generations(self) -> int | None:
        """`num_episodes` (`<epochs>` in XML): the most generations of the call."""
        return self.cfg.training.num_episodes if "num_episodes" in self.given else None

    @property
    def seed(self) -> int:
        return self.cfg.run.seed

    @property
    def learning(self) -> dict[str, Any]:
        """What the learner is given, by flat names."""
        sections = [self.cfg.sections[name] for name in LEARNING]
        return {name: value for section in sections for name, value in self._given(section).items()}

    def scoring(self, requirements: Requirements) -> ScoringSettings | None:
        """The weights that were given, or else those of the requirements; None if nothing was given."""
        if not self.given & {*settings_of(ScoringSettings)}:
            return None
        weights = requirements.objective
        if self.given & {*WEIGHT_NAMES} or not isinstance(weights, Weights):
            return self.cfg.scoring
        own = (weights.performance, weights.structure, weights.maintainability, weights.resources)
        return self.cfg.scoring.model_copy(update=dict(zip(WEIGHT_NAMES, own, strict=True)))

    def notes(self, requirements: Requirements, *, learn: bool, memory: bool) -> tuple[str, ...]:
        """Which of the given settings have no effect on the call, and why; and where they replace something else."""
        paths = {declared.flat: declared.path for one in self.cfg.sections.values() for declared in _declared(one)}
        mine = {name: paths[name] for name in paths if name in self.given}
        taken = {"seed", "product", "environment", "num_episodes", *STOPPING_NAMES}
        idle = [path for name, path in mine.items() if name not in taken and not path.startswith(ACTING)]
        idle += [f"task.options.{name}" for name in self.cfg.task.options if name not in ("memory", "start")]
        found = [f"These settings have no effect on a design call: {', '.join(idle)}."] if idle else []
        learner = [path for path in mine.values() if path.partition(".")[0] in LEARNING]
        if learner and not learn:
            found.append(f"These settings act only with --learn: {', '.join(learner)}.")
        if not memory and (kept := [path for path in mine.values() if path.startswith("memory.")]):
            found.append(f"These settings act only with --memory: {', '.join(kept)}.")
        if self.given & {*WEIGHT_NAMES} and requirements.objective != Weights():
            found.append("The weights of the settings replace the objective of the requirements.")
        return tuple(found)

    def _given(self, section: Section, names: Iterable[str] | None = None) -> dict[str, Any]:
        own = {one.flat: getattr(section, one.name) for one in _declared(section)}
        return {name: own[name] for name in own if name in self.given and (names is None or name in names)}


WORKERS = ("backend", "num_workers", "when_worker_lost", "worker_timeout", "ray_address", "ray_cpus")
ACTING = (
    *(f"{name}." for name in (*SEARCH, *LEARNING, "memory")), *(f"rollout.{name}" for name in WORKERS), "task.options",
)  # fmt: skip


def _declared(section: Section) -> Iterable[Setting]:
    return settings_of(type(section)).values()


@dataclass(frozen=True, slots=True)
class DesignOptions:
    """The options of a design call; `memory` and `policy` are files, and come before those that settings name."""

    requirements: Path
    evaluations: int | None = None
    learn: bool = False
    memory: Path | None = None
    policy: Path | None = None
    seed: int | None = None
    check: bool = False
    settings: DesignSettings | None = None

    @property
    def kept(self) -> Path | None:
        """The memory: the file given, or the one that `groupwise feedback` writes to, if it is here."""
        here = Path(MEMORY_FILE)
        return self.memory or self._named("memory") or (here if here.is_file() else None)

    def _named(self, name: str) -> Path | None:
        named = self.settings.cfg.task.options.get(name) if self.settings is not None else None
        return Path(str(named)) if named else None

    @property
    def learned(self) -> Path:
        """Where learned weights are stored: beside the memory, or in the current folder."""
        memory = self.memory or self._named("memory")
        return memory.with_suffix(".safetensors") if memory is not None else LEARNED

    @property
    def weights(self) -> str | Path:
        """The weights to start from: those given, those learned earlier, or those that ship."""
        if self.policy is not None:
            return self.policy
        return self.learned if self.learn and self.learned.exists() else self._named("start") or PRETRAINED


@dataclass(frozen=True, slots=True)
class DesignReport:
    """What a call found: the outcome, its explanation, notes for the user, and the file of learned weights.

    `details` explain the notes further, for `--debug`, if there is something to explain; `choice` is the row of the
    Pareto table that it is about.
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
    given = options.settings or DesignSettings.read(None)
    memory = open_memory(options.kept, given.cfg.memory) if options.kept is not None else None
    with (
        memory or nullcontext(),
        Designer(
            policy, memory, given.generation, scoring=given.scoring(requirements), stopping=given.stopping,
            learn=options.learn, rollout=given.cfg.rollout,
            seed=given.seed if options.seed is None else options.seed, **given.learning,
        ) as designer,
    ):  # fmt: skip
        session = designer.begin(requirements, options.requirements.parent)
        report = search(session, options.evaluations, watch, stop, check=options.check, generations=given.generations)
        notices = memory.notices if memory is not None else ()
        notices = (*given.notes(requirements, learn=options.learn, memory=memory is not None), *notices)
    problem = session.prepared.problem
    return replace(
        report,
        notes=(*report.notes, *notices, *shift_notes(requirements), *notes(problem)),
        details=details(problem) if notes(problem) else (),
        learned=_save_learned(options, policy) if options.learn else None,
    )


def search(
    session: DesignSession,
    evaluations: int | None = None,
    watch: Watch = lambda generation: None,
    stop: Stop = lambda: False,
    *,
    check: bool = False,
    generations: int | None = None,
) -> DesignReport:
    """Run a session and compare its best design with the baseline; `check` compares its prediction as well."""
    for _ in session.search(evaluations, generations):
        watch(session.history[-1])
        if stop():
            session.notes.append(f"Interrupted: this is the best of {session.evaluations} designs.")
            break
    if check:
        session.check()
    outcome = session.outcome()
    assert outcome.best.score is not None
    words = [
        *lost_words(session.prepared.scorer.cases, outcome.best.design),
        *uncertain_words(outcome.best.score),
    ]
    return DesignReport(session.requirements, outcome, explain(outcome), (*outcome.notes, *words))


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
