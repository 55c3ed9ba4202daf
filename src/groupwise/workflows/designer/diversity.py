"""How different the designs of a generation are, by family of action, beside the targets.

Diversity is the share of designs whose decisions of a family no other design of the generation has taken alike;
`distance` is the mean share of decisions in which two differ. Novelty is the share of designs never seen before.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from groupwise.workflows.designer.actions import (
    ALLOCATION,
    BRANCHING,
    CONSTRAINT,
    KEEP,
    NEXT,
    PLACE,
    RETRY,
    SCHEDULING,
    STAFFING,
    TIMEOUT,
    TIMING,
    TYPE,
)
from groupwise.workflows.designer.problem import Ints, Problem

FAMILIES = {
    "structural": (KEEP, BRANCHING, NEXT, ALLOCATION),
    "temporal": (PLACE, RETRY, TIMEOUT, TIMING),
    "resource": (TYPE, SCHEDULING, CONSTRAINT, STAFFING),
}
TARGETS = {"structural": 0.6, "temporal": 0.5, "resource": 0.4}
NOVELTY = 0.3


@dataclass(frozen=True, slots=True)
class Diversity:
    """By family: the share of distinct designs, and the mean distance of two."""

    distinct: dict[str, float]
    distance: dict[str, float]

    def met(self) -> bool:
        return all(self.distinct[family] >= target for family, target in TARGETS.items())


def diversity_of(problem: Problem, choices: Ints) -> Diversity:
    """Of plans, a row of choices for each."""
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
