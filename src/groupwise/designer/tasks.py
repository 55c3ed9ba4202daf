"""Requirements as tasks: synthetic or the user's own, each prepared once; plans turned into designs, and scored.

random_requirements(seed, size)      the same seed and size always give the same requirements
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Mapping
from collections.abc import Sequence as Sequence_
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from groupwise.config import TrainingConfig
from groupwise.designer.plans import BESIDE_WAITING, STAGED, WIDEST, Plans
from groupwise.designer.problem import DISCIPLINES, DUES, TIMEOUTS, Bools, DesignProblem
from groupwise.designer.structure.layout import Unit
from groupwise.errors import ConfigError
from groupwise.types import Task
from groupwise.workflows.blocks import (
    Activity,
    Block,
    Choice,
    Design,
    Finish,
    Handling,
    Loop,
    Parallel,
    Retry,
    Sequence,
    Skip,
    always_ends,
    asked_again,
    simplest_order,
    tidied,
)
from groupwise.workflows.evaluation import evaluate
from groupwise.workflows.partial_orders import closure, reduced
from groupwise.workflows.requirements import Requirements, Weights, parse_requirements, read_requirements
from groupwise.workflows.scoring import DesignScore, DesignScorer
from groupwise.workflows.scoring.measures import MEASURES

VERBS = (
    "check", "approve", "collect", "prepare", "verify", "send", "review", "register", "assess", "pack", "plan", "test",
)  # fmt: skip
OBJECTS = (
    "order", "claim", "invoice", "credit", "report", "sample", "contract", "address", "payment", "stock", "file",
    "risk", "offer", "permit", "image", "record",
)  # fmt: skip
# Share of full capacity that the work needs.
LOADS = (0.15, 0.75)
# Activities; drawn uniformly in the logarithm.
SIZES = (5, 40)


def training_requirements(seed: int) -> Requirements:
    """Requirements for training: as `random_requirements`, and a fifth of them with a deadline."""
    found = random_requirements(seed)
    rng = random.Random(f"deadline/{seed}")
    if rng.random() > 0.2:
        return found
    work = sum(activity.duration.mean for activity in found.activities.values())
    rules = found.rules.model_copy(update={"deadline": work * rng.uniform(0.3, 3)})
    return found.model_copy(update={"rules": rules})


def random_requirements(seed: int, size: int | None = None, load: float | None = None) -> Requirements:
    """Requirements with `size` activities (drawn from `SIZES` if not given)."""
    rng = random.Random(f"world/{seed}/{size}")
    count = size if size is not None else round(SIZES[0] * (SIZES[1] / SIZES[0]) ** rng.random())
    names = _random_names(rng, count)
    pools = _random_pools(rng, count)
    activities = {name: _random_activity(rng, list(pools)) for name in names}
    for name, activity in activities.items():
        if "documentation" in activity:
            activity["documentation"] = activity["documentation"].format(repr(name))
    branches = _random_branches(rng, names)
    forked = {name for branch in branches for name in branch["options"]}
    rules = _random_rules(rng, names, forked, activities)
    for name in names:
        constrained = name in forked or any(name in pair for pair in rules["separate"])
        if not constrained and rng.random() < 0.04:
            activities[name]["optional"] = True
    if not any("optional" not in activity for activity in activities.values()):
        del activities[names[0]]["optional"]
    share = load if load is not None else rng.uniform(*LOADS)
    value = {
        "name": f"world {seed}",
        "activities": activities,
        "pools": pools,
        "rules": rules,
        "branches": branches,
        "demand": {"arrivals_per_second": share * _capacity(activities, pools, branches)},
        "objective": _random_objective(rng),
    }
    return parse_requirements(value)


def _random_names(rng: random.Random, count: int) -> list[str]:
    pairs = [f"{verb} {thing}" for verb in VERBS for thing in OBJECTS]
    if count > len(pairs):
        pairs += [f"{pair} {n}" for n in range(2, 3 + count // len(pairs)) for pair in pairs]
    return rng.sample(pairs, count)


def _random_pools(rng: random.Random, count: int) -> dict[str, Any]:
    wanted = rng.randint(1, max(2, min(8, 1 + count // 5)))
    scale = 10 ** rng.uniform(-3, -1)
    return {
        f"pool {number + 1}": {
            "least": rng.choice((1, 1, 1, 2)),
            "most": rng.randint(3, 16),
            "kind": "machine" if rng.random() < 0.35 else "person",
            "wage": scale * rng.uniform(0.3, 3),
            "speed": rng.choice((1.0, 1.0, rng.uniform(0.6, 2.0))),
        }
        for number in range(wanted)
    }


def _random_activity(rng: random.Random, pools: list[str]) -> dict[str, Any]:
    mean = 10 ** rng.uniform(1, 3.5)
    kind = rng.choice(("fixed", "exponential", "exponential", "normal", "lognormal", "gamma", "uniform"))
    spread = {"normal": 0.3, "uniform": 0.4, "lognormal": rng.uniform(0.5, 2.5), "gamma": rng.uniform(0.3, 1.5)}
    duration: dict[str, Any] = {"kind": kind, "mean": mean}
    if kind in spread:
        duration["std"] = mean * spread[kind]
    found: dict[str, Any] = {"duration": duration}
    if rng.random() < 0.92:
        found["pools"] = rng.sample(pools, min(len(pools), rng.choice((1, 1, 2, 2, 3))))
    if rng.random() < 0.4:
        found["cost"] = 10 ** rng.uniform(-1, 1.5)
    if rng.random() < 0.25:
        found["knock_out"] = rng.uniform(0.02, 0.4)
    if rng.random() < 0.3:
        found["failure"] = rng.uniform(0.01, 0.25)
    if rng.random() < 0.3:
        found["cpu"] = float(rng.choice((1, 1, 2, 4)))
        found["memory"] = 10 ** rng.uniform(7, 10)
    if rng.random() < 0.5:
        found["documentation"] = "Somebody looks at {} and writes down what was found."
    return found


def _random_branches(rng: random.Random, names: list[str]) -> list[dict[str, Any]]:
    # Branches: up to a seventh of the activities are needed by only some of the cases.
    rest = rng.sample(names, len(names))
    found: list[dict[str, Any]] = []
    while rest and rng.random() < 0.6 and len(found) < len(names) // 7:
        options = [rest.pop() for _ in range(min(len(rest), rng.choice((1, 1, 2, 2, 3))))]
        weights = [rng.uniform(0.2, 1) for _ in options]
        whole = rng.choice((1.0, rng.uniform(0.3, 0.95))) if len(options) > 1 else rng.uniform(0.1, 0.9)
        total = sum(weights)
        shares = {n: w / total * whole for n, w in zip(options, weights, strict=True)}
        found.append({"name": f"branch {len(found) + 1}", "options": shares})
    return found


def _random_rules(rng: random.Random, names: list[str], forked: set[str], activities: dict[str, Any]) -> dict[str, Any]:
    # Precedence along a hidden order (chains, layers or scattered pairs), and some separation of duties.
    # Every pair points forward along one order, so the rules cannot contradict each other.
    line = rng.sample(names, len(names))
    density = rng.choice((0.0, 0.5, 1.0, 1.0, 1.5, 2.0))
    near = rng.choice((2, 4, len(names)))
    pairs: set[tuple[str, str]] = set()
    for place, name in enumerate(line[1:], 1):
        for _ in range(int(density) + (rng.random() < density % 1)):
            pairs.add((line[rng.randint(max(0, place - near), place - 1)], name))
    separate = []
    shared = [n for n in names if len(activities[n].get("pools", ())) > 1 and n not in forked]
    while len(shared) > 1 and rng.random() < 0.3:
        separate.append((shared.pop(), shared.pop()))
    return {"precedes": sorted(pairs), "separate": separate}


def _capacity(activities: dict[str, Any], pools: dict[str, Any], branches: list[dict[str, Any]]) -> float:
    # Roughly how many cases per second all servers can handle; the busiest pool decides.
    needed = {name: share for branch in branches for name, share in branch["options"].items()}
    able = {name: pool["most"] * pool["speed"] for name, pool in pools.items()}
    work = dict.fromkeys(pools, 0.0)
    for name, activity in activities.items():
        mine = activity.get("pools", ())
        total = sum(able[pool] for pool in mine)
        for pool in mine:
            tries = 1 / (1 - activity.get("failure", 0.0))
            work[pool] += activity["duration"]["mean"] * tries * needed.get(name, 1.0) * able[pool] / total
    busiest = max((work[pool] / able[pool] for pool in pools), default=0.0)
    return 1 / busiest if busiest > 0 else 1e-3


def _random_objective(rng: random.Random) -> dict[str, float]:
    # The default weights in four cases of ten, otherwise random ones around them.
    names, usual = ("performance", "structure", "maintainability", "resources"), (0.4, 0.25, 0.2, 0.15)
    if rng.random() < 0.4:
        return dict(zip(names, usual, strict=True))
    drawn = [rng.gammavariate(4 * weight * 2, 1) + 0.01 for weight in usual]
    return {name: weight / sum(drawn) for name, weight in zip(names, drawn, strict=True)}


# Probabilities that miss 1 by less than this sum to 1.
ROUND = 1e-9


class Drafter:
    """Turns plans into designs. Equal activities are the same object, which makes designs quick to evaluate."""

    def __init__(self, problem: DesignProblem) -> None:
        self.problem = problem
        self.nested = len(problem.regions) > 1
        self.known: dict[tuple[int, ...], Activity] = {}

    def __call__(self, plans: Plans) -> list[Design]:
        return [self._design(plans, row) for row in range(len(plans))]

    def _design(self, plans: Plans, row: int) -> Design:
        problem = self.problem
        tables = (plans.pool, plans.retries, plans.timeout, plans.due, plans.priority)
        details = list(zip(*(table[row].tolist() for table in tables), strict=True))
        discipline = plans.discipline[row].tolist()
        kept = plans.kept[row].tolist()
        tasks = {a: self._task(a, details[a], discipline) for a in range(len(kept)) if kept[a]}
        root = self._tree(plans, row, tasks)
        used = {details[a][0] for a in tasks}
        servers = tuple(
            (name, count)
            for number, (name, count) in enumerate(zip(problem.pool_names, plans.servers[row].tolist(), strict=True))
            if number in used
        )
        return Design(problem.requirements.name, root, servers, problem.requirements.documentation)

    def _tree(self, plans: Plans, row: int, tasks: Mapping[int, Activity]) -> Block:
        # Regions inside a unit have higher numbers than the region of the unit, so they are complete when it is made.
        shares, region_of = self._shares(plans, row), plans.region[row].tolist()
        stage_of, lane_of = plans.stage[row].tolist(), plans.lane[row].tolist()
        regions: list[list[int]] = [[] for _ in self.problem.regions]
        for unit in plans.unit_order[row].tolist():
            if unit >= 0:
                regions[region_of[unit]].append(unit)
        found: dict[int, Block] = {}
        for number in reversed(range(len(regions))):
            parts = {n: self._unit(self.problem.parts[n], shares.get(n), tasks, found) for n in regions[number]}
            if plans.freedom[row] != STAGED:
                found[number] = self._freed(regions[number], parts, plans, row)
            else:
                stages: dict[int, dict[int, list[Block]]] = {}
                for unit in regions[number]:
                    stages.setdefault(stage_of[unit], {}).setdefault(lane_of[unit], []).append(parts[unit])
                lanes = [[_joined(lane, Sequence) for _, lane in sorted(stages[one].items())] for one in sorted(stages)]
                found[number] = _joined([_joined(stage, Parallel) for stage in lanes], Sequence)
            if self.problem.regions[number].over and not always_ends(found[number]):
                found[number] = _joined([found[number], Finish()], Sequence)
        # What comes back from a file is in its simplest form, so a design is, too; without outcomes it is anyway.
        return tidied(asked_again(tidied(found[0]))) if self.nested else found[0]

    def _freed(self, units: list[int], parts: Mapping[int, Block], plans: Plans, row: int) -> Block:
        # Between two barriers, the parts in the order that the rules demand, and what the freedom keeps of the plan.
        before = self._kept_order(plans, row)
        found: list[Block] = []
        between: list[int] = []
        for unit in units:
            if self.problem.barrier[unit]:
                found += [self._ordered(between, parts, before), parts[unit]]
                between = []
            else:
                between.append(unit)
        return _joined([*found, self._ordered(between, parts, before)], Sequence)

    def _kept_order(self, plans: Plans, row: int) -> Bools:
        # [units, units]: which of two units comes first.
        problem, freedom = self.problem, plans.freedom[row]
        if freedom == WIDEST:
            return problem.unit_before
        stage, lane = plans.stage[row], plans.lane[row]
        turn = np.full(len(stage), -1)
        for place, unit in enumerate(plans.unit_order[row].tolist()):
            if unit >= 0:
                turn[unit] = place
        planned: Bools = (stage[:, None] < stage) | (
            (stage[:, None] == stage) & (lane[:, None] == lane) & (turn[:, None] < turn)
        )
        # A case that a check ends is over once everything beside the check is done, so waiting comes after it, too.
        checks, waiting = np.asarray(problem.checks), np.asarray(problem.waiting)
        kept = np.broadcast_to(checks[:, None], planned.shape)
        if freedom == BESIDE_WAITING:
            kept = kept | (~waiting[:, None] & ~waiting)
        return np.asarray(problem.unit_before | (planned & kept))

    def _ordered(self, units: list[int], parts: Mapping[int, Block], before: Bools) -> Block:
        if len(units) < 2:
            return _joined([parts[n] for n in units], Sequence)
        number = len(units)
        later = closure(number, frozenset((int(a), int(b)) for a, b in np.argwhere(before[np.ix_(units, units)])))
        edges = frozenset((a, b) for a in range(number) for b in range(number) if later[a] >> b & 1)
        return simplest_order(tuple(parts[n] for n in units), reduced(number, edges))

    def _unit(
        self, unit: Unit, shares: Sequence_[float] | None, tasks: Mapping[int, Activity], inside: Mapping[int, Block]
    ) -> Block:
        match unit.kind:
            case "choice":
                found = _choice([inside[region] for region in unit.inner], [self._share(one) for one in unit.inner])
                if unit.outcome and isinstance(found, Choice) and len(found.parts) == len(unit.inner):
                    answers = tuple(self.problem.regions[region].answers for region in unit.inner)
                    return Choice(found.parts, found.probabilities, unit.outcome, answers)
                return found
            case "loop":
                body, redo = (inside[region] for region in unit.inner)
                return body if isinstance(body, Skip) else Loop(body, self._share(unit.inner[1]), redo)
            case _:
                parts: list[Block] = [tasks[a] for a in unit.activities if a in tasks]
                return _joined(parts, Sequence) if shares is None else _choice(parts, shares)

    def _share(self, region: int) -> float:
        return self.problem.regions[region].share

    def _shares(self, plans: Plans, row: int) -> dict[int, tuple[float, ...]]:
        # The probabilities of the activities of every unit that is a choice among options, at its place.
        found: dict[int, tuple[float, ...]] = {}
        for number, fork in enumerate(self.problem.forks):
            if plans.together[number][row]:
                found[fork.together] = fork.shares
            else:
                found |= {unit: (share,) for unit, share in zip(fork.apart, fork.shares, strict=True)}
        if len(self.problem.regions) == 1:
            return found
        reach, region = plans.reach[row], plans.region[row]
        if self.problem.barrier.any():
            return self._reached(plans, row, found)
        # Options are needed by a share of all cases, of which only some come to a region.
        return {unit: tuple(min(1.0, s / reach[region[unit]]) for s in shares) for unit, shares in found.items()}

    def _reached(self, plans: Plans, row: int, shares: Mapping[int, tuple[float, ...]]) -> dict[int, tuple[float, ...]]:
        # The same where cases end on the way: fewer come to what is behind a barrier.
        left, problem = dict.fromkeys(range(len(self.problem.regions)), 1.0), self.problem
        reached: dict[int, float] = {}
        region = plans.region[row].tolist()
        # Units are placed region by region, those inside a unit after it.
        for unit in plans.unit_order[row].tolist():
            if unit < 0:
                continue
            here = region[unit]
            owner = problem.regions[here]
            start = owner.share * reached[owner.unit] if owner.unit >= 0 else 1.0
            reached[unit] = start * left[here]
            left[here] *= 1 - float(problem.ended[unit])
        return {u: tuple(min(1.0, s / reached.get(u, 1.0)) for s in some) for u, some in shares.items()}

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
        handling = Handling(
            pool=problem.pool_names[pool] if pool >= 0 else None,
            priority=priority,
            scheduling=DISCIPLINES[discipline],  # type: ignore[arg-type]
            retry=Retry(retries),
            timeout=None if factor is None else factor * float(problem.mean[activity]) / speed,
            due=None if share is None or deadline is None else share * deadline,
        )
        return Activity(problem.names[activity], handling)


def _choice(parts: Sequence_[Block], shares: Sequence_[float]) -> Block:
    rest = 1 - sum(shares)
    if rest > ROUND:
        parts, shares = (*parts, Skip()), (*shares, rest)
    if all(isinstance(part, Skip) for part in parts):
        return Skip()
    if len(parts) == 1:
        return parts[0]
    total = sum(shares)
    return Choice(tuple(parts), tuple(shares) if rest > ROUND else tuple(share / total for share in shares))


def _joined(parts: Sequence_[Block], kind: type[Sequence] | type[Parallel]) -> Block:
    """The parts as one block, without empty ones and without a block of the same kind inside."""
    flat = [one for part in parts for one in (part.parts if isinstance(part, kind) else (part,))]
    flat = [part for part in flat if not isinstance(part, Skip)]
    if kind is Sequence:
        # Where two outcomes end every case, the second is never asked for.
        over = next((n for n, part in enumerate(flat) if always_ends(part)), len(flat))
        flat = flat[: over + 1]
    if not flat:
        return Skip()
    return flat[0] if len(flat) == 1 else kind(tuple(flat))


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


# Simulated cases, where formulas do not apply: enough to tell designs apart that see the same arrivals and durations.
# More designs are worth more than longer simulations: those that are shown are simulated again.
CASES = 500


def score_design(prepared: PreparedRequirements, design: Design, seed: int = 0) -> DesignScore:
    """One evaluation: predict the performance of a design, and score it."""
    requirements = prepared.problem.requirements
    performance = evaluate(design, requirements, seed=seed % 2**31, cases=CASES)
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
