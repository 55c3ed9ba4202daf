"""The design problem as arrays: the twelve kinds of decision, which of them the requirements ask for, what is legal.

A *unit* is what gets placed as one piece: an activity, or all options of a branch as a single choice. A branch whose
options do not exclude each other can also be split, so its options are units too; a plan uses either the choice or the
separate options.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from groupwise.workflows.feasibility import best_cycle_time
from groupwise.workflows.partial_orders import closure, find_ring
from groupwise.workflows.requirements import Requirements
from groupwise.workflows.rules import needs
from groupwise.workflows.scoring.measures import is_described, verb_and_object

Family: TypeAlias = Literal["structural", "temporal", "resource"]


@dataclass(frozen=True, slots=True)
class Action:
    """One kind of decision: what it decides, and how often an untrained sampler departs from the default."""

    name: str
    family: Family
    words: str
    rate: float


ACTIONS = (
    Action("element", "structural", "which activity is added next, and whether an optional one is left out", 0.3),
    Action("branching", "structural", "whether a choice is one fork, or a fork for each of its options", 0.3),
    Action(
        "synchronisation", "structural", "whether the workflow first waits for everything that runs in parallel", 0.4
    ),
    Action("allocation", "structural", "which pool of the chosen kind performs an activity", 0.1),
    Action("timing", "temporal", "when an activity is due", 0.2),
    Action("parallelism", "temporal", "whether an activity runs in parallel with others or after one of them", 0.4),
    Action("timeout", "temporal", "after how long an attempt is abandoned", 0.2),
    Action("retry", "temporal", "how often a failed attempt is repeated", 0.2),
    Action("staffing", "resource", "how many servers a pool has", 0.1),
    Action("type", "resource", "whether people or machines perform an activity", 0.1),
    Action("constraint", "resource", "whose work has priority at a pool", 0.1),
    Action("scheduling", "resource", "in which order a pool serves its queue", 0.1),
)


class Head(IntEnum):
    """The decisions of a construction, in the order they are taken; the policy has one head for each."""

    KEEP = 0  # element: whether an optional activity is in the design
    BRANCHING = 1
    TYPE = 2
    ALLOCATION = 3
    RETRY = 4
    TIMEOUT = 5
    TIMING = 6
    SCHEDULING = 7
    CONSTRAINT = 8
    NEXT = 9  # element: which unit comes next
    PLACE = 10  # synchronisation (its first candidate) or parallelism (the others)
    STAFFING = 11


HEADS = tuple(head.name.lower() for head in Head)
# Multiples of the mean duration at the pool's speed; None is no timeout.
TIMEOUTS = (None, 2.0, 4.0, 8.0)
# Multiples of the deadline; None is no due time.
DUES = (None, 0.5, 1.0)
DISCIPLINES = ("fifo", "shortest", "priority", "due")
# Servers beyond the fewest that keep up with the work.
EXTRA_SERVERS = (0, 1, 2, 3, 4, 6, 9, 13, 18, 25)
# The most parallel lanes of a stage.
LANES = 8
# The most candidates of any decision but the next unit: wait for all lanes, eight lanes, a new lane.
CANDIDATES = 10
# Numbers that describe one candidate; their meaning depends on the head (see `construction`).
FEATURES = 8


Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Fork:
    """A branch: its options (activities) with their probabilities, and the units it can become.

    `together` is the unit of the single choice (−1 if that is illegal), `apart` the units of one choice per option.
    """

    options: tuple[int, ...]
    shares: tuple[float, ...]
    together: int
    apart: tuple[int, ...]


class DesignProblem:
    """Requirements as arrays; everything here is known before the first decision."""

    def __init__(self, requirements: Requirements) -> None:
        self.requirements = requirements
        self._read_activities()
        self._read_pools()
        self._read_order()
        self._make_units()
        self._make_slots()

    def _read_activities(self) -> None:
        asked = list(self.requirements.activities.values())
        needed = needs(self.requirements)
        self.names = tuple(self.requirements.activities)
        self.number = {name: n for n, name in enumerate(self.names)}
        self.mean = np.array([one.duration.mean for one in asked])
        self.scv = np.array([one.duration.scv for one in asked])
        self.failure = np.array([one.failure for one in asked])
        self.knock_out = np.array([one.knock_out for one in asked])
        self.cost = np.array([one.cost for one in asked])
        self.cpu = np.array([one.cpu for one in asked])
        self.memory = np.array([one.memory for one in asked])
        self.share = np.array([needed.get(name, 1.0) for name in self.names])
        # Whether an activity is optional.
        self.free = np.array([name not in needed for name in self.names])
        self.described = np.array([is_described(one) for one in asked])
        self.well_named = np.array([verb_and_object(name) for name in self.names])

    def _read_pools(self) -> None:
        pools = self.requirements.pools
        self.pool_names = tuple(pools)
        number = {name: n for n, name in enumerate(pools)}
        each = list(pools.values())
        self.least = np.array([max(1, pool.least) for pool in each], np.int64)
        self.most = np.array([pool.most for pool in each], np.int64)
        self.speed = np.array([pool.speed for pool in each])
        self.wage = np.array([pool.wage for pool in each])
        self.machine = np.array([pool.kind == "machine" for pool in each], np.bool_)
        self.open = np.array([pool.open_share for pool in each])
        self.may = np.zeros((len(self.names), len(each)), np.bool_)
        # The pools of each activity in the order of the requirements; a pool's position is its candidate number.
        asked = self.requirements.activities.values()
        self.eligible: tuple[tuple[int, ...], ...] = tuple(tuple(number[pool] for pool in one.pools) for one in asked)
        for activity, able in enumerate(self.eligible):
            self.may[activity, list(able)] = True
        # Without arrivals the work of all runs is spread over the shortest possible cycle time.
        self.best_time, _ = best_cycle_time(self.requirements)
        demand = self.requirements.demand
        self.rate = demand.arrivals_per_second or demand.runs / max(self.best_time, 1e-9)
        pairs = self.requirements.rules.separate
        self.apart_from: list[list[int]] = [[] for _ in self.names]
        for one, other in pairs:
            self.apart_from[self.number[one]].append(self.number[other])
            self.apart_from[self.number[other]].append(self.number[one])

    def _read_order(self) -> None:
        count = len(self.names)
        edges = frozenset((self.number[a], self.number[b]) for a, b in self.requirements.rules.precedes)
        later = closure(count, edges)  # bit b of later[a]: a comes before b, directly or through others
        self.before = np.array([[later[a] >> b & 1 for b in range(count)] for a in range(count)], np.bool_)
        self.before = self.before.reshape(count, count)
        self.excludes = np.zeros((count, count), np.bool_)
        for one, other in self.requirements.rules.excludes:
            a, b = self.number[one], self.number[other]
            self.excludes[a, b] = self.excludes[b, a] = True

    def _make_units(self) -> None:
        # Number the units: single activities first, then those that branches can become.
        self.forks: list[Fork] = []
        groups = self._branches()
        in_fork = {option for options in groups for option in options}
        units: list[tuple[int, ...]] = [(a,) for a in range(len(self.names)) if a not in in_fork]
        broken = self._rings(groups)
        for number, options in enumerate(groups):
            acts = tuple(options)
            inside = self.excludes[np.ix_(acts, acts)].any()
            together = -1
            apart: tuple[int, ...] = ()
            if number not in broken or inside:
                together = len(units)
                units.append(acts)
            if len(acts) > 1 and not inside:
                apart = tuple(range(len(units), len(units) + len(acts)))
                units += [(a,) for a in acts]
            self.forks.append(Fork(acts, tuple(options.values()), together, apart))
        self.units = units
        self.most_units = len(self.names) - len(in_fork) + sum(max(1, len(fork.apart)) for fork in self.forks)
        self.members = np.zeros((len(units), len(self.names)))
        for unit, acts in enumerate(units):
            # Rows of weights that sum to 1, so that members @ nodes is the mean over a unit's activities.
            self.members[unit, list(acts)] = 1 / len(acts)
        has = self.members > 0
        self.unit_before = (has.astype(np.int64) @ self.before.astype(np.int64) @ has.T.astype(np.int64)) > 0
        np.fill_diagonal(self.unit_before, False)

    def _branches(self) -> list[dict[int, float]]:
        # The branches as {option: probability}; branches whose options exclude each other are merged into one.
        found: list[dict[int, float]] = []
        taken: set[int] = set()
        for branch in self.requirements.branches:
            options = {self.number[n]: p for n, p in branch.options.items() if self.number[n] not in taken}
            taken |= set(options)
            if options:
                found.append(options)
        merged = True
        while merged:
            merged = False
            for i in range(len(found)):
                for j in range(i):
                    crossed = self.excludes[np.ix_(list(found[i]), list(found[j]))].any()
                    if crossed and sum(found[i].values()) + sum(found[j].values()) <= 1 + 1e-9:
                        found[j] |= found.pop(i)
                        merged = True
                        break
                if merged:
                    break
        return found

    def _rings(self, groups: list[dict[int, float]]) -> set[int]:
        # The branches that cannot be a single choice, because something must come between two of their options.
        # Contract every branch to one node. As long as the precedence graph has a cycle, split the first branch on it.
        apart: set[int] = set()
        while True:
            place = list(range(len(self.names)))
            for number, options in enumerate(groups):
                if number not in apart:
                    for option in options:
                        place[option] = len(self.names) + number
            pairs = np.argwhere(self.before).tolist()
            edges = frozenset((place[a], place[b]) for a, b in pairs if place[a] != place[b])
            ring = find_ring(len(self.names) + len(groups), edges)
            forks = [node - len(self.names) for node in ring if node >= len(self.names)]
            joined = [fork for fork in forks if len(groups[fork]) > 1]
            if not joined:
                return apart
            apart.add(joined[0])

    def _make_slots(self) -> None:
        # Every possible decision as (head, subject): an activity, a fork or a pool; −1 if a turn decides it.
        acts, rules = range(len(self.names)), self.requirements.rules
        kinds = [{bool(self.machine[p]) for p in able} for able in self.eligible]
        slots: list[tuple[int, int]] = [(Head.KEEP, a) for a in acts if self.free[a]]
        slots += [(Head.BRANCHING, f) for f, fork in enumerate(self.forks) if fork.together >= 0 and fork.apart]
        slots += [(Head.TYPE, a) for a in acts if len(kinds[a]) > 1]
        work = self.mean * self.share
        # The most work first: who gets it matters most to everything that follows.
        crowded = [a for a in acts if len(self.eligible[a]) > 1]
        slots += [(Head.ALLOCATION, a) for a in sorted(crowded, key=lambda a: (-work[a], a))]
        slots += [(Head.RETRY, a) for a in acts if self.failure[a] > 0]
        slots += [(Head.TIMEOUT, a) for a in acts if self.scv[a] > 1 and self.mean[a] > 0]
        dated = rules.deadline is not None
        slots += [(Head.TIMING, a) for a in acts if dated and self.eligible[a]]
        shared = self.may.sum(0) > 1
        slots += [(Head.SCHEDULING, p) for p in range(len(self.pool_names)) if shared[p]]
        slots += [(Head.CONSTRAINT, a) for a in acts if any(shared[p] for p in self.eligible[a])]
        self.rounds = len(slots)  # slots before the turns of next and place
        for _ in range(self.most_units):
            slots += [(Head.NEXT, -1), (Head.PLACE, -1)]
        self.staffing = len(slots)  # the first slot of staffing
        slots += [(Head.STAFFING, p) for p in range(len(self.pool_names)) if self.most[p] > self.least[p]]
        # Plain integers: the keys under which memory stores plans are hashes of their repr.
        self.slots = [(int(head), subject) for head, subject in slots]
        self.heads = np.array([head for head, _ in slots], np.int64)
        self.subjects = np.array([subject for _, subject in slots], np.int64)

    def of(self, head: int) -> tuple[slice, Ints]:
        """The slots of a head and their subjects; not for next and place, whose slots alternate."""
        found = np.flatnonzero(self.heads == head)
        first = int(found[0]) if len(found) else 0
        return slice(first, first + len(found)), self.subjects[found]

    def pool_candidates(self, activity: int) -> tuple[int, ...]:
        return self.eligible[activity][:CANDIDATES]

    def padded_members(self) -> Floats:
        """[units, nodes]: weights that take the mean over the activities of a unit."""
        return np.pad(self.members, ((0, 0), (0, len(self.pool_names) + 1)))

    def table_rows(self, head: int, subjects: Ints) -> Ints:
        """The row of each subject in the table of nothing, nodes and units."""
        if head in (Head.NEXT, Head.PLACE):
            first = 1 + len(self.names) + len(self.pool_names) + 1
            return np.where(subjects >= 0, subjects + first, 0)
        return subjects + 1

    def pool_rows(self, activity: int) -> Ints:
        """The table rows of the pools that an activity may use, padded with 0."""
        able = self.pool_candidates(activity)
        rows = np.zeros(CANDIDATES, np.int64)
        rows[: len(able)] = np.array(able) + 1 + len(self.names)
        return rows


def table_order(problem: DesignProblem) -> tuple[Ints, Ints]:
    """The slots with at most CANDIDATES candidates, and those that choose the next unit among all."""
    turns = problem.heads == Head.NEXT
    return np.flatnonzero(~turns), np.flatnonzero(turns)
