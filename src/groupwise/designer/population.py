"""A population of designs: which are kept, which breed, which kinds of edit pay off, and how diverse it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from groupwise.designer.problem import HEADS, Bools, DesignProblem, Head, Ints


def elites(totals: npt.NDArray[np.float64], count: int) -> list[int]:
    """The best, in order; of equals the earlier one first."""
    return [int(number) for number in np.argsort(-totals, kind="stable")[:count]]


def tournament(totals: npt.NDArray[np.float64], count: int, size: int, rng: np.random.Generator) -> list[int]:
    """`count` winners of random knockout tournaments with `size` players."""
    return [
        _bracket(totals, rng.choice(len(totals), min(size, len(totals)), replace=False).tolist()) for _ in range(count)
    ]


def _bracket(totals: npt.NDArray[np.float64], players: list[int]) -> int:
    while len(players) > 1:
        pairs = [players[n : n + 2] for n in range(0, len(players), 2)]
        players = [max(pair, key=lambda player: totals[player]) for pair in pairs]
    return players[0]


def pareto_front(values: npt.NDArray[np.float64]) -> list[int]:
    """The Pareto-optimal rows of [candidates, objectives], all of them minimised; of equal rows the first."""
    _, first = np.unique(values, axis=0, return_index=True)
    distinct = values[np.sort(first)]
    as_good = (distinct[:, None] <= distinct).all(-1)
    beaten = (as_good & (distinct[:, None] < distinct).any(-1)).any(0)
    found: list[int] = np.sort(first)[~beaten].tolist()
    return found


PATIENCE = 0.5
"""The probability that an edit ends after each decision: most edits take one or two decisions again."""


class EditResult(Protocol):
    """What the statistics need to know of a candidate."""

    @property
    def key(self) -> int: ...
    @property
    def free(self) -> Bools: ...
    @property
    def total(self) -> float: ...


class EditStatistics:
    """How often edits of each kind of decision led to a better design."""

    def __init__(self, problem: DesignProblem) -> None:
        self.heads = problem.heads
        # A prior of one success in two, so that kinds never tried are tried too.
        self.tried = np.ones(len(HEADS)) * 2
        self.better = np.ones(len(HEADS))
        self.waiting: dict[int, tuple[float, Bools]] = {}

    def decisions(self, parents: Sequence[EditResult], rng: np.random.Generator, more: int = 0) -> Bools:
        """Which decisions of each parent to take again: kinds in proportion to their success, then any of a kind."""
        again = np.zeros((len(parents), len(self.heads)), np.bool_)
        rates = self.better / self.tried
        for row, parent in enumerate(parents):
            free = np.flatnonzero(parent.free)
            if not len(free):
                continue
            kinds, counts = np.unique(self.heads[free], return_counts=True)
            # The square root favours kinds with many decisions, without letting them crowd out the others.
            weights = rates[kinds] * np.sqrt(counts)
            for kind in rng.choice(kinds, int(rng.geometric(PATIENCE)) + more, p=weights / weights.sum()):
                again[row, rng.choice(free[self.heads[free] == kind])] = True
        return again

    def remember(self, children: Sequence[EditResult], parents: Sequence[EditResult], again: Bools) -> None:
        """Note what was edited, until the children are evaluated."""
        for child, parent, decisions in zip(children, parents, again, strict=True):
            self.waiting.setdefault(child.key, (parent.total, decisions))

    def learn(self, judged: Sequence[EditResult]) -> None:
        """Count the edits among evaluated candidates."""
        for candidate in judged:
            known = self.waiting.pop(candidate.key, None)
            if known is not None:
                before, decisions = known
                kinds = np.unique(self.heads[decisions])
                self.tried[kinds] += 1
                self.better[kinds] += candidate.total > before


FAMILIES = {
    "structural": (Head.KEEP, Head.BRANCHING, Head.NEXT, Head.ALLOCATION),
    "temporal": (Head.PLACE, Head.RETRY, Head.TIMEOUT, Head.TIMING),
    "resource": (Head.TYPE, Head.SCHEDULING, Head.CONSTRAINT, Head.STAFFING),
}
TARGETS = {"structural": 0.6, "temporal": 0.5, "resource": 0.4}
NOVELTY = 0.3
"""Targets: share of distinct designs by family, and of designs that were not proposed before."""


@dataclass(frozen=True, slots=True)
class Diversity:
    """By family of decisions: the share of distinct designs, and the mean distance between two of them."""

    distinct: dict[str, float]
    distance: dict[str, float]

    def met(self) -> bool:
        return all(self.distinct[family] >= target for family, target in TARGETS.items())


def diversity_of(problem: DesignProblem, choices: Ints) -> Diversity:
    """The diversity of plans [plans, slots]."""
    distinct, distance = {}, {}
    for family, heads in FAMILIES.items():
        mine = choices[:, np.isin(problem.heads, heads)]
        distinct[family] = len({row.tobytes() for row in np.ascontiguousarray(mine)}) / len(mine)
        distance[family] = _mean_distance(mine)
    return Diversity(distinct, distance)


def _mean_distance(rows: Ints) -> float:
    count, slots = rows.shape
    if count < 2 or not slots:
        return 0.0
    same = np.zeros((count, count))
    for column in rows.T:
        same += column[:, None] == column
    return float(1 - (same.sum() - count * slots) / (count * (count - 1) * slots))
