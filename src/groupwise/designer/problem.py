"""The design problem as arrays: the twelve kinds of decision, which of them the requirements ask for, what is legal.

A *unit* is what gets placed as one piece (see `structure`). A branch whose options do not exclude each other can also
be split, so its options are units too; a plan uses either the choice or the separate options.
"""

from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import pairwise
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from groupwise.designer.structure.duties import DutyRoster
from groupwise.designer.structure.items import without_rings
from groupwise.designer.structure.layout import LayoutBuilder, RegionLayout, Unit
from groupwise.errors import ConfigError
from groupwise.workflows.case_flow import CaseFlow, order_of
from groupwise.workflows.duties import hours, is_human, members
from groupwise.workflows.lower_bounds import best_cycle_time
from groupwise.workflows.partial_orders import closure, find_ring
from groupwise.workflows.requirements import Requirements
from groupwise.workflows.rules import needs
from groupwise.workflows.scoring.measures import described, verb_and_object

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
        self._read_duties()
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
        documented = described(self.requirements.activities)
        self.described = np.array([name in documented for name in self.names])
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

        # [activities, pools and a last column for no pool]: whether people would do the activity there.
        self.human = np.ones((len(self.names), len(each) + 1), np.bool_)
        for activity, name in enumerate(self.names):
            for pool in self.eligible[activity] or (-1,):
                named = self.pool_names[pool] if pool >= 0 else None
                self.human[activity, pool] = is_human(self.requirements, name, named)

    def _read_order(self) -> None:
        count = len(self.names)
        edges = frozenset((self.number[a], self.number[b]) for a, b in order_of(self.requirements))
        later = closure(
            count, without_rings(count, edges)
        )  # bit b of later[a]: a comes before b, directly or through others
        self.before = np.array([[later[a] >> b & 1 for b in range(count)] for a in range(count)], np.bool_)
        self.before = self.before.reshape(count, count)
        self.excludes = np.zeros((count, count), np.bool_)
        rules = self.requirements.rules
        for one, other in (*rules.excludes, *rules.not_coexist):
            a, b = self.number[one], self.number[other]
            self.excludes[a, b] = self.excludes[b, a] = True
        asked = [(self.number[a], self.number[b]) for a, b in (*rules.coexist, *rules.response, *rules.chain)]
        asked += [(self.number[b], self.number[a]) for a, b in rules.coexist]
        # [activities, activities]: what has to be in a design that has an activity, itself included.
        self.asks = np.eye(count, dtype=np.bool_)
        for a, b in asked * len(asked):
            self.asks[:, b] |= self.asks[:, a]

    def _read_duties(self) -> None:
        required = self.requirements
        self.duties = DutyRoster(required)
        watched = {a for a in self.duties.watched if len(self.eligible[a]) > 0}
        # By activity: its pools in which nobody has the skills.
        self.unable = {a: [p for p in self.eligible[a] if not self.duties.able(a, p)] for a in watched}
        # [pools, pools] for two activities with a duty between them: which pools may do them.
        self.fits: dict[int, dict[int, Bools]] = {a: {} for a in watched}
        for a in watched:
            for b in {*self.duties.apart.get(a, ()), *self.duties.bound.get(a, ())} & watched:
                table = np.zeros((len(self.pool_names), len(self.pool_names)), np.bool_)
                for p in self.eligible[a]:
                    table[p, list(self.eligible[b])] = [self.duties.fits(a, p, b, q) for q in self.eligible[b]]
                self.fits[a][b] = table
        # By pool with named people: the hours of the first 0, 1, 2 … of them, as a share of the pool's own hours.
        self.present: dict[int, Floats] = {}
        for pool, (name, share) in enumerate(zip(required.pools, self.open, strict=True)):
            if named := members(required, name):
                own = [hours(required, name, person) / 168 / share for person in named.values()]
                self.present[pool] = np.cumsum([0.0, *own])

    def _make_units(self) -> None:
        groups = self._branches()
        whole = {n for n, options in enumerate(groups) if self.excludes[np.ix_(list(options), list(options))].any()}
        work = (self.mean * self.share).tolist()
        layout = LayoutBuilder(self.requirements, [list(options) for options in groups], whole, work).build()
        self.limits = tuple(dict.fromkeys(layout.limits))
        self._number_units(layout, groups, whole)
        self.units = [unit.activities for unit in self.parts]
        forked = {option for options in groups for option in options}
        whole_units = sum(unit.fork < 0 for unit in self.parts)
        self.most_units = whole_units + sum(max(1, len(fork.apart)) for fork in self.forks)
        self.members = np.zeros((len(self.units), len(self.names)))
        for unit, acts in enumerate(self.units):
            # Rows of weights that sum to 1, so that members @ nodes is the mean over a unit's activities.
            self.members[unit, list(acts)] = 1 / max(len(acts), 1)
        self.home = np.array([unit.region for unit in self.parts], np.int64)
        self.barrier = np.array([unit.barrier for unit in self.parts], np.bool_)
        self.ended = np.array([unit.ended for unit in self.parts])
        # [units, units]: who decides whether an urgent barrier ends the case.
        self.decides = np.zeros((len(self.parts), len(self.parts)), np.bool_)
        for number, one in enumerate(self.parts):
            if one.urgent:
                near = [a is not one and a.region == one.region and one.after in a.activities for a in self.parts]
                self.decides[:, number] = near
        has = self.members > 0
        # [units]: what may end a case as a check, and what only waits, for nothing that anybody pays for.
        self.checks = (has & (self.knock_out > 0)).any(1)
        free = np.array([not able for able in self.eligible]) & (
            self.cost + self.cpu + self.memory + self.knock_out == 0
        )
        self.waiting = has.any(1) & (~has | free).all(1)
        self._read_shares(forked)
        self.unit_before = self._order_units()
        self.turn_before = self.unit_before | self._early_turns()

    def _number_units(self, layout: RegionLayout, groups: list[dict[int, float]], whole: set[int]) -> None:
        # Number the units: single activities first, then those that branches can become, then composed ones.
        found = layout.units
        order = sorted((n for n, unit in enumerate(found) if unit.kind == "task"), key=lambda n: found[n].activities)
        self.parts: list[Unit] = [found[n] for n in order]
        self.forks: list[Fork] = []
        for number, options in enumerate(groups):
            acts, together, apart = tuple(options), -1, tuple[int, ...]()
            mine = {unit.activities: unit for unit in found if unit.fork == number}
            if acts in mine and mine[acts].kind == "fork":
                together = len(self.parts)
                self.parts.append(mine[acts])
            if len(acts) > 1 and number not in whole:
                apart = tuple(range(len(self.parts), len(self.parts) + len(acts)))
                model = next(iter(mine.values()))
                self.parts += [replace(mine.get((a,), model), kind="option", activities=(a,)) for a in acts]
            self.forks.append(Fork(acts, tuple(options.values()), together, apart))
        composed = [n for n, unit in enumerate(found) if unit.kind in ("chain", "choice", "loop")]
        new = {n: len(self.parts) + place for place, n in enumerate(composed)}
        self.parts += [found[n] for n in composed]
        self.regions = [replace(region, unit=new.get(region.unit, -1)) for region in layout.regions]

    def _read_shares(self, forked: set[int]) -> None:
        # Which share of the cases comes to each region if nothing is moved up, and to each activity, rounds included.
        self.above: list[set[int]] = []  # the regions around each region, and itself
        reach = np.ones(len(self.regions))
        for number, region in enumerate(self.regions):
            outer = int(self.home[region.unit]) if region.unit >= 0 else -1
            self.above.append({number} | (self.above[outer] if outer >= 0 else set()))
            reach[number] = region.share * (reach[outer] if outer >= 0 else 1.0)
        self.reach = reach
        for number, unit in enumerate(self.parts):
            if unit.kind in ("task", "chain") and len(self.regions) > 1:
                self.share[list(unit.activities)] = reach[self.home[number]]
        rounds = CaseFlow(self.requirements).rounds
        self.share = self.share * np.array([rounds[name] for name in self.names])

    def _order_units(self) -> Bools:
        """[units, units]: what comes before what, for units that can be in one region."""
        has = self.members > 0
        found: Bools = (has.astype(np.int64) @ self.before.astype(np.int64) @ has.T.astype(np.int64)) > 0
        np.fill_diagonal(found, False)
        early = np.array([unit.early for unit in self.parts])
        home = self.home
        beside = (home[:, None] == home) | (early[:, None] == home) | (home[:, None] == early)
        beside |= (early[:, None] == early) & (early >= 0)
        moved = sorted({a for unit in self.parts if unit.early >= 0 for a in unit.activities})
        for number, unit in enumerate(self.parts):
            others = beside[number] & (np.arange(len(self.parts)) != number)
            if unit.after >= 0:
                found[:, number] |= has[:, unit.after]
            if unit.gate:
                # What cases that go on do is no reason for anything to wait.
                own = has[number].copy()
                own[moved] = False
                found[number] = (own @ self.before @ has.T) & others
            if unit.gate or unit.last:
                found[:, number] |= others & ~found[number]
            if unit.last:
                found[number] = False
        # Whatever an outcome right after a round decides is decided last of all.
        for number, unit in enumerate(self.parts):
            late = np.array([one.last and unit.after in one.activities for one in self.parts])
            if unit.after >= 0 and late.any() and not unit.last:
                found[late, number], found[number, late] = True, False
        found &= beside
        np.fill_diagonal(found, False)
        edges = without_rings(len(found), frozenset((int(a), int(b)) for a, b in np.argwhere(found)))
        found[:] = False
        found[tuple(np.array(sorted(edges), np.int64).reshape(-1, 2).T)] = True
        return found

    def _early_turns(self) -> Bools:
        """[units, units]: what is placed before what, without coming before it: decisions come last, nothing after."""
        found = np.zeros_like(self.unit_before)
        gates = {(unit.region, unit.after) for unit in self.parts if unit.gate}
        for number, unit in enumerate(self.parts):
            if any(unit.region == region and after in unit.activities for region, after in gates) and not unit.gate:
                here = np.array([unit.region in (one.region, one.early) and not one.gate for one in self.parts])
                found[:, number] = here & ~self.unit_before[number]
        # What an urgent barrier waits for, apart from what must follow its decision, comes before the decision.
        for decider, number in np.argwhere(self.decides).tolist():
            found[:, decider] |= self.unit_before[:, number] & ~self.unit_before[decider]
        np.fill_diagonal(found, False)
        # Turns that would wait for each other are given up: what comes before what counts more.
        while found.any():
            edges = np.argwhere(found | self.unit_before).tolist()
            ring = find_ring(len(found), frozenset((a, b) for a, b in edges))
            given = [(a, b) for a, b in pairwise(ring) if not self.unit_before[a, b]]
            if not given:
                break
            found[given[0]] = False
        return found

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

    def _make_slots(self) -> None:
        # Every possible decision as (head, subject): an activity, a fork or a pool; −1 if a turn decides it.
        acts, rules = range(len(self.names)), self.requirements.rules
        self.movable = self._movable()
        kinds = [{bool(self.machine[p]) for p in able} for able in self.eligible]
        slots: list[tuple[int, int]] = [(Head.KEEP, a) for a in acts if self.free[a]]
        slots += [(Head.KEEP, a) for a in self.movable]
        slots += [(Head.BRANCHING, f) for f, fork in enumerate(self.forks) if fork.together >= 0 and fork.apart]
        slots += [(Head.TYPE, a) for a in acts if len(kinds[a]) > 1]
        work = self.mean * self.share
        # The most work first: who gets it matters most to everything that follows.
        crowded = [a for a in acts if len(self.eligible[a]) > 1]
        slots += [(Head.ALLOCATION, a) for a in sorted(crowded, key=lambda a: (-work[a], a))]
        slots += [(Head.RETRY, a) for a in acts if self.failure[a] > 0]
        # People are never cut off in their work.
        slots += [(Head.TIMEOUT, a) for a in acts if self.scv[a] > 1 and self.mean[a] > 0 and not self.human[a].all()]
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

    def _movable(self) -> dict[int, tuple[int, ...]]:
        """The units that may be moved up together, by the activity that the decision is about; predecessors first."""
        found: dict[int, tuple[int, ...]] = {}
        for number, unit in enumerate(self.parts):
            if unit.early >= 0:
                fork = self.forks[unit.fork] if unit.fork >= 0 and self.forks[unit.fork].together >= 0 else None
                about = fork.options[0] if fork else next((a for a in unit.activities if not self.free[a]), -1)
                if about >= 0:
                    found[about] = (*found.get(about, ()), number)
        return dict(sorted(found.items(), key=lambda one: (int(self.unit_before[:, one[1][0]].sum()), one)))

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


def insist_designable(problem: DesignProblem) -> None:
    """Refuse requirements that no tree of blocks can meet."""
    if problem.limits:
        hint = "State the requirements differently, or draw the process in another tool and use `groupwise check`."
        raise ConfigError(f"{problem.requirements.name} cannot be designed: {problem.limits[0]}", hint=hint)
