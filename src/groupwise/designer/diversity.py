"""How diverse a generation is, what it does about it, and which decisions edits take again.

The twelve actions belong to three families. The diversity of a family is the share of a generation's designs that are
the first to have their structure, timing or resources, read off the designs and not off the decisions behind them:

    structural   which activities, in which order, in which forks, waiting for what, each performed by which pool
    temporal     what runs in parallel, and every activity's retries, timeout and due time
    resource     servers of every pool, order of its queue, priorities, people or machines

The fourth measure, novelty, is the share of the designs made that were never made before in the call. `distance` is
shown beside them: the share of a family's decisions in which two designs of the generation differ, on average.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from groupwise.designer.declaration import GenerationSettings
from groupwise.designer.problem import HEADS, Bools, DesignProblem, Floats, Head, Ints
from groupwise.workflows.blocks import Activity, Block, Choice, Design, Parallel, PartialOrder, activities, children

FAMILIES: Mapping[str, tuple[Head, ...]] = {
    "structural": (Head.KEEP, Head.BRANCHING, Head.NEXT, Head.ALLOCATION),
    "temporal": (Head.PLACE, Head.RETRY, Head.TIMEOUT, Head.TIMING),
    "resource": (Head.TYPE, Head.SCHEDULING, Head.CONSTRAINT, Head.STAFFING),
}
# The groups of actions that have a rate of their own in `[generation]`.
RATED: Mapping[str, tuple[Head, ...]] = {
    "branch": (Head.KEEP, Head.BRANCHING, Head.NEXT),
    "synchronization": (Head.PLACE,),
    "timing": (Head.RETRY, Head.TIMEOUT, Head.TIMING),
    "resource": (Head.TYPE, Head.ALLOCATION, Head.SCHEDULING, Head.CONSTRAINT, Head.STAFFING),
}


@dataclass(frozen=True, slots=True)
class Diversity:
    """By family: the share of distinct designs (None: the requirements leave nothing to decide), and their distance."""

    distinct: Mapping[str, float | None]
    distance: Mapping[str, float]

    def met(self, targets: Mapping[str, float]) -> dict[str, bool]:
        """By family: whether the target is reached; families without a decision are left out."""
        return {family: value >= targets[family] for family, value in self.distinct.items() if value is not None}


Signature: TypeAlias = Mapping[str, Hashable]
"""By family: a value that is the same for two designs if they do not differ in it."""


def diversity_of(problem: DesignProblem, signs: Sequence[Signature], choices: Ints, free: Bools) -> Diversity:
    """The diversity of designs with these signatures, and of the plans [plans, slots] behind them."""
    distinct: dict[str, float | None] = {}
    distance = {}
    for family, heads in FAMILIES.items():
        mine = np.isin(problem.heads, heads)
        decided = bool(free[:, mine].any())
        distinct[family] = len({sign[family] for sign in signs}) / len(signs) if decided else None
        distance[family] = _mean_distance(choices[:, mine])
    return Diversity(distinct, distance)


def most_distinct(
    fixed: Sequence[Signature], pool: Sequence[Signature], count: int, wanted: Mapping[str, int]
) -> list[int]:
    """The numbers of `count` designs of the pool, chosen one by one for what they add to families that lack diversity.

    `wanted` is, by family, how many of all should be distinct, the fixed ones included. Of equals the first is chosen.
    """
    seen = {family: {sign[family] for sign in fixed} for family in wanted}
    left, chosen = list(range(len(pool))), list[int]()
    while left and len(chosen) < count:
        short = [family for family, number in wanted.items() if len(seen[family]) < number]
        best = max(left, key=lambda number: sum(pool[number][family] not in seen[family] for family in short))
        left.remove(best)
        chosen.append(best)
        for family in wanted:
            seen[family].add(pool[best][family])
    return chosen


def signature(design: Design, problem: DesignProblem) -> Signature:
    machines = dict(zip(problem.pool_names, problem.machine.tolist(), strict=True))
    tasks = sorted(activities(design.root), key=lambda task: task.name)
    handled = [task.handling for task in tasks]
    return {
        "structural": _shape(design.root),
        "temporal": (
            frozenset(_side_by_side(design.root)),
            tuple((one.retry.most, one.timeout, one.due) for one in handled),
        ),
        "resource": (
            design.servers,
            tuple((one.scheduling, one.priority, machines.get(one.pool or "")) for one in handled),
        ),
    }


def _shape(block: Block) -> Hashable:
    # The tree with the names and pools of activities; the order in which parallel parts are listed does not matter.
    if isinstance(block, Activity):
        return block.name, block.handling.pool
    parts = tuple(map(_shape, children(block)))
    if isinstance(block, Parallel | Choice):
        return type(block).__name__, frozenset(parts)
    return type(block).__name__, parts, block.edges if isinstance(block, PartialOrder) else None


def _side_by_side(block: Block) -> list[Hashable]:
    found = [one for part in children(block) for one in _side_by_side(part)]
    if isinstance(block, Parallel | PartialOrder):
        lanes = frozenset(frozenset(task.name for task in activities(part)) for part in block.parts)
        found.append((lanes, block.edges if isinstance(block, PartialOrder) else None))
    return found


def _mean_distance(rows: Ints) -> float:
    count, slots = rows.shape
    if count < 2 or not slots:
        return 0.0
    same = np.zeros((count, count))
    for column in rows.T:
        same += column[:, None] == column
    return float(1 - (same.sum() - count * slots) / (count * (count - 1) * slots))


def targets_of(settings: GenerationSettings) -> dict[str, float]:
    return {
        "structural": settings.structural_diversity,
        "temporal": settings.temporal_diversity,
        "resource": settings.resource_diversity,
    }


# How strongly edits react to a family that lacks diversity, how far above its target they aim, and the most decisions
# of one family that an edit is made to take again.
GAIN, MARGIN, MOST = 2.0, 0.1, 3.0
# By how much the share of exploring candidates changes per generation, and by how much it may rise in all.
STEP, RISE = 0.1, 0.3


class DiversityControl:
    """Reacts to each generation: where a target is missed, the next one explores more.

    `pressure` is, by family, how many of its decisions an edit takes again on average, whatever else it changes. It
    follows the shortfall (an integral controller), so it settles where the target is just met. `exploration` is added
    to the share of exploring candidates while any target is missed. A target of 0 switches the reaction off.
    """

    def __init__(self, settings: GenerationSettings) -> None:
        self.targets, self.novelty = targets_of(settings), settings.novelty
        # Edits by rates begin with the rates alone.
        learned = settings.action_sampler == "learned"
        self.pressure = {family: target if learned else 0.0 for family, target in self.targets.items()}
        self.exploration = 0.0

    def react(self, found: Diversity, novelty: float) -> None:
        for family, value in found.distinct.items():
            target = self.targets[family]
            if value is not None and target > 0:
                change = GAIN * (min(target + MARGIN, 1.0) - value)
                self.pressure[family] = min(max(self.pressure[family] + change, 0.0), MOST)
        missed = not all(found.met(self.targets).values()) or novelty < self.novelty
        self.exploration = min(max(self.exploration + (STEP if missed else -STEP), 0.0), RISE)


# The probability that an edit ends after each decision: most edits take one or two decisions again.
PATIENCE = 0.5


class EditStatistics:
    """Which decisions edits take again, and how often edits of each kind of decision led to a better design."""

    def __init__(self, problem: DesignProblem, settings: GenerationSettings) -> None:
        self.heads, self.settings = problem.heads, settings
        # A prior of one success in two, so that kinds never tried are tried too.
        self.tried = np.ones(len(HEADS)) * 2
        self.better = np.ones(len(HEADS))
        self.waiting: dict[int, tuple[float, Bools]] = {}

    def decisions(self, free: Bools, pressure: Mapping[str, float], rng: np.random.Generator, more: int = 0) -> Bools:
        """Which decisions of each parent [parents, slots] to take again, of those that are `free`.

        As many of each family as `pressure` says; then, up to the size of the edit, kinds in proportion to their
        success, or each group of actions with its rate.
        """
        again = np.zeros(free.shape, np.bool_)
        for row, mine in enumerate(free):
            open_slots = np.flatnonzero(mine)
            if not len(open_slots):
                continue
            for family, heads in FAMILIES.items():
                wanted = int(pressure[family] + rng.random())
                self._take(again[row], open_slots, heads, wanted, rng)
            if self.settings.action_sampler == "rates":
                self._take_by_rates(again[row], open_slots, rng, more)
            else:
                size = int(rng.geometric(PATIENCE)) + more
                self._take_by_success(again[row], open_slots, size - int(again[row].sum()), rng)
        return again

    def _take(
        self, again: Bools, open_slots: Ints, heads: Sequence[Head], count: int, rng: np.random.Generator
    ) -> None:
        # Kinds first, so that those with many decisions do not crowd out the others.
        mine = open_slots[np.isin(self.heads[open_slots], heads)]
        if count <= 0 or not len(mine):
            return
        kinds, weights = self._weighted_kinds(mine)
        for kind in rng.choice(kinds, count, p=weights):
            again[rng.choice(mine[self.heads[mine] == kind])] = True

    def _take_by_success(self, again: Bools, open_slots: Ints, count: int, rng: np.random.Generator) -> None:
        if again.any() and count <= 0:
            return
        kinds, weights = self._weighted_kinds(open_slots)
        for kind in rng.choice(kinds, max(count, 1), p=weights):
            again[rng.choice(open_slots[self.heads[open_slots] == kind])] = True

    def _weighted_kinds(self, slots: Ints) -> tuple[Ints, Floats]:
        kinds, counts = np.unique(self.heads[slots], return_counts=True)
        # The square root favours kinds with many decisions, without letting them crowd out the others.
        weights = (self.better / self.tried)[kinds] * np.sqrt(counts)
        return kinds, weights / weights.sum()

    def _take_by_rates(self, again: Bools, open_slots: Ints, rng: np.random.Generator, more: int) -> None:
        # Further attempts replace designs that were proposed before: they take more decisions, at least one.
        for _ in range(1 + more):
            for group, heads in RATED.items():
                mine = open_slots[np.isin(self.heads[open_slots], heads)]
                if rng.random() < getattr(self.settings, f"{group}_rate") and len(mine):
                    again[rng.choice(mine)] = True

    def actions(self, again: Bools) -> tuple[str, ...]:
        """The groups of actions that an edit contains."""
        heads = self.heads[again]
        return tuple(group for group, mine in RATED.items() if np.isin(heads, mine).any())

    def remember(self, keys: Sequence[int], standings: Sequence[float], again: Bools) -> None:
        """Note what was edited and how good the parents are, until the children are evaluated."""
        for key, standing, decisions in zip(keys, standings, again, strict=True):
            # Nothing can be said about edits of designs that have not been evaluated themselves.
            if math.isfinite(standing):
                self.waiting.setdefault(key, (standing, decisions))

    def learn(self, key: int, standing: float) -> None:
        """Take note of an evaluated child."""
        known = self.waiting.pop(key, None)
        if known is not None:
            before, decisions = known
            kinds = np.unique(self.heads[decisions])
            self.tried[kinds] += 1
            self.better[kinds] += standing > before
