"""The twelve actions a designer has, in three families. A construction takes each once; an edit takes some again.

Each is masked to what is legal, and whatever is chosen, the design is sound. The rates are those of the untrained
sampler, which takes an action at random with that probability and otherwise leaves the default.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Family: TypeAlias = Literal["structural", "temporal", "resource"]


@dataclass(frozen=True, slots=True)
class Action:
    """One kind of decision: what it decides, in words, and the untrained sampler's rate."""

    name: str
    family: Family
    words: str
    rate: float


ACTIONS = (
    Action("element", "structural", "which activity is added next, and whether an optional one is left out", 0.3),
    Action("branching", "structural", "whether a choice is one fork, or a fork for each of its options", 0.3),
    Action("synchronisation", "structural", "whether all that runs side by side is waited for first", 0.4),
    Action("allocation", "structural", "which pool of its kind does an activity", 0.1),
    Action("timing", "temporal", "by when an activity should be done", 0.2),
    Action("parallelism", "temporal", "whether an activity is done beside others, or behind one of them", 0.4),
    Action("timeout", "temporal", "after how long a try is given up", 0.2),
    Action("retry", "temporal", "how often a failed try is repeated", 0.2),
    Action("staffing", "resource", "how many servers a pool has", 0.1),
    Action("type", "resource", "whether people or machines do an activity", 0.1),
    Action("constraint", "resource", "whose work has priority at a pool", 0.1),
    Action("scheduling", "resource", "in which order a pool takes those waiting", 0.1),
)

HEADS = (
    "keep",  # element: an optional activity
    "branching",
    "type",
    "allocation",
    "retry",
    "timeout",
    "timing",
    "scheduling",
    "constraint",
    "next",  # element: which comes next
    "place",  # synchronisation (its first candidate) or parallelism (the others)
    "staffing",
)
"""The decisions of a construction, in the order they are taken; the policy has a head for each."""

KEEP, BRANCHING, TYPE, ALLOCATION, RETRY, TIMEOUT, TIMING, SCHEDULING, CONSTRAINT, NEXT, PLACE, STAFFING = range(12)
TIMEOUTS = (None, 2.0, 4.0, 8.0)
"""Times the mean duration at the pool's speed."""
DUES = (None, 0.5, 1.0)
"""Times the deadline."""
DISCIPLINES = ("fifo", "shortest", "priority", "due")
EXTRA_SERVERS = (0, 1, 2, 3, 4, 6, 9, 13, 18, 25)
"""Beyond the fewest that keep up with the work."""
LANES = 8
CANDIDATES = 10
"""The most there are of any decision but the next activity: join, eight lanes, a new one."""
FEATURES = 8


def action_of(head: int, choice: int) -> str:
    """The name of the action that a choice is."""
    if head in (KEEP, NEXT):
        return "element"
    if head == PLACE:
        return "parallelism" if choice else "synchronisation"
    return HEADS[head]
