"""Requirements as tasks: each prepared once, its plans turned into designs, and designs scored."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from groupwise.config import TrainingConfig
from groupwise.designer.plans import Plans
from groupwise.designer.problem import DISCIPLINES, DUES, TIMEOUTS, DesignProblem
from groupwise.designer.synthetic_requirements import training_requirements
from groupwise.errors import ConfigError
from groupwise.types import Task
from groupwise.workflows.blocks import (
    Activity,
    Block,
    Choice,
    Design,
    Handling,
    Parallel,
    Retry,
    Scheduling,
    Sequence,
    Skip,
)
from groupwise.workflows.evaluation import TierChoice, evaluate
from groupwise.workflows.requirements import Requirements, Weights, read_requirements
from groupwise.workflows.scoring import DesignScore, DesignScorer
from groupwise.workflows.scoring.measures import MEASURES

# Probabilities that miss 1 by less than this sum to 1.
ROUND = 1e-9


class Drafter:
    """Turns plans into designs. Equal activities are the same object, which makes designs quick to evaluate."""

    def __init__(self, problem: DesignProblem) -> None:
        self.problem = problem
        self.known: dict[tuple[int, ...], Activity] = {}

    def __call__(self, plans: Plans) -> list[Design]:
        return [self._design(plans, row) for row in range(len(plans))]

    def _design(self, plans: Plans, row: int) -> Design:
        problem = self.problem
        details = list(
            zip(
                plans.pool[row].tolist(),
                plans.retries[row].tolist(),
                plans.timeout[row].tolist(),
                plans.due[row].tolist(),
                plans.priority[row].tolist(),
                strict=True,
            )
        )
        discipline = plans.discipline[row].tolist()
        stages: list[list[list[Block]]] = []
        stage_of, lane_of = plans.stage[row].tolist(), plans.lane[row].tolist()
        shares = self._shares(plans, row)
        for unit in plans.unit_order[row].tolist():
            if unit < 0:
                continue
            stage, lane = stage_of[unit], lane_of[unit]
            while len(stages) <= stage:
                stages.append([])
            while len(stages[stage]) <= lane:
                stages[stage].append([])
            tasks = [self._task(a, details[a], discipline) for a in problem.units[unit]]
            stages[stage][lane].append(_choice(tasks, shares.get(unit)))
        parts = [_joined([_joined(lane, Sequence) for lane in lanes if lane], Parallel) for lanes in stages if lanes]
        used = {pool for pool, *_ in details if pool >= 0}
        servers = tuple(
            (name, count)
            for number, (name, count) in enumerate(zip(problem.pool_names, plans.servers[row].tolist(), strict=True))
            if number in used
        )
        return Design(problem.requirements.name, _flat(parts), servers, problem.requirements.documentation or WORDS)

    def _shares(self, plans: Plans, row: int) -> dict[int, tuple[float, ...]]:
        """The probabilities of the activities of every unit that is a choice."""
        found: dict[int, tuple[float, ...]] = {}
        for number, fork in enumerate(self.problem.forks):
            if plans.together[number][row]:
                found[fork.together] = fork.shares
            else:
                found |= {unit: (share,) for unit, share in zip(fork.apart, fork.shares, strict=True)}
        return found

    def _task(self, activity: int, details: tuple[int, ...], discipline: list[int]) -> Activity:
        pool = details[0]
        key = (activity, *details, discipline[pool] if pool >= 0 else 0)
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = self._new_task(*key)
        return found

    def _new_task(
        self, activity: int, pool: int, retries: int, timeout: int, due: int, priority: int, discipline: int
    ) -> Activity:
        problem = self.problem
        speed = float(problem.speed[pool]) if pool >= 0 else 1.0
        factor, share, deadline = TIMEOUTS[timeout], DUES[due], problem.requirements.rules.deadline
        scheduling: Scheduling = DISCIPLINES[discipline]  # type: ignore[assignment]
        handling = Handling(
            pool=problem.pool_names[pool] if pool >= 0 else None,
            priority=priority,
            scheduling=scheduling,
            retry=Retry(retries),
            timeout=None if factor is None else factor * float(problem.mean[activity]) / speed,
            due=None if share is None or deadline is None else share * deadline,
        )
        return Activity(problem.names[activity], handling)


WORDS = "Designed by Groupwise from its requirements."


def _choice(tasks: list[Activity], shares: tuple[float, ...] | None) -> Block:
    if shares is None:
        return tasks[0]
    rest = 1 - sum(shares)
    if rest > ROUND:
        return Choice((*tasks, Skip()), (*shares, rest))
    if len(tasks) == 1:
        return tasks[0]
    total = sum(shares)
    return Choice(tuple(tasks), tuple(share / total for share in shares))


def _joined(parts: list[Block], kind: type[Sequence] | type[Parallel]) -> Block:
    return parts[0] if len(parts) == 1 else kind(tuple(parts))


def _flat(stages: list[Block]) -> Block:
    """The stages as one sequence; a stage with a single lane is merged into it."""
    parts = [part for stage in stages for part in (stage.parts if isinstance(stage, Sequence) else (stage,))]
    return _joined(parts, Sequence)


# Prepared requirements in memory at once.
KEPT = 512
WORLD = "world"
# Synthetic requirements from this number on are never trained on.
HELD_OUT = 1_000_000_000
CONTROL_FLOW = next(n for n, measure in enumerate(MEASURES) if measure.name == "control-flow complexity")


@dataclass(frozen=True, slots=True)
class PreparedRequirements:
    """Requirements with everything that designing for them needs."""

    problem: DesignProblem
    drafter: Drafter
    scorer: DesignScorer

    @classmethod
    def of(cls, requirements: Requirements, weights: Weights | None = None) -> PreparedRequirements:
        problem = DesignProblem(requirements)
        return cls(problem, Drafter(problem), DesignScorer(requirements, weights))


class RequirementsLibrary:
    """Prepared requirements by task id; the least recently used are dropped and prepared again when needed."""

    def __init__(self, own: Mapping[str, Requirements] | None = None) -> None:
        self.own = dict(own or {})
        self.known: OrderedDict[str, PreparedRequirements] = OrderedDict()

    def task(self, number: int) -> Task:
        """The task with a number: the user's own requirements in turn, or the synthetic ones of that number."""
        if self.own:
            names = list(self.own)
            return Task(f"{names[number % len(names)]}/{number}", seed=number)
        return Task(f"{WORLD}/{number}", seed=number)

    def __call__(self, task_id: str) -> PreparedRequirements:
        kind, _, number = task_id.rpartition("/")
        key = kind if kind in self.own else task_id
        found = self.known.get(key)
        if found is None:
            found = PreparedRequirements.of(self._requirements(kind, number))
            if len(self.known) >= KEPT:
                self.known.popitem(last=False)
            self.known[key] = found
        self.known.move_to_end(key)
        return found

    def _requirements(self, kind: str, number: str) -> Requirements:
        if kind in self.own:
            return self.own[kind]
        if kind != WORLD:
            raise ConfigError(f"no requirements named {kind!r}")
        return training_requirements(int(number))


# Simulated cases, where formulas do not apply.
CASES = 400


def tier_of(requirements: Requirements) -> TierChoice:
    """Formulas if cases keep arriving; a schedule for one run without randomness; otherwise whatever applies."""
    if requirements.demand.arrivals_per_second is not None:
        return "analytic"
    chance = any(one.failure or one.knock_out for one in requirements.activities.values()) or requirements.branches
    closed = any(pool.calendar for pool in requirements.pools.values())
    return "auto" if chance or closed or requirements.demand.runs > 1 else "schedule"


def score_design(prepared: PreparedRequirements, design: Design, seed: int = 0) -> DesignScore:
    """One evaluation: predict the performance of a design, and score it."""
    requirements = prepared.problem.requirements
    performance = evaluate(design, requirements, tier_of(requirements), seed=seed % 2**31, cases=CASES)
    return prepared.scorer(design, performance)


def own_requirements(cfg: TrainingConfig) -> dict[str, Requirements]:
    """The requirements that `task.options.requirements` names, by file name."""
    paths = [part for part in str(cfg.task.options.get("requirements", "")).split(",") if part]
    return {Path(path).stem: read_requirements(path) for path in paths}


def held_out(cfg: TrainingConfig, library: RequirementsLibrary) -> list[Task]:
    """The tasks of every evaluation: the user's own requirements, or synthetic ones that are never trained on."""
    first = 0 if library.own else HELD_OUT + cfg.run.eval_seed
    count = min(cfg.run.eval_episodes, len(library.own)) if library.own else cfg.run.eval_episodes
    return [library.task(first + n) for n in range(count)]


def control_flow_of(score: DesignScore) -> float:
    """The control-flow complexity that a score was computed from; 0 where it was not measured."""
    return score.measured[CONTROL_FLOW][0] or 0.0
