"""Plans, decision by decision: what a construction asks, what it records, and the order in which units are placed."""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from groupwise.designer.problem import CANDIDATES, FEATURES, LANES, Bools, DesignProblem, Floats, Head, Ints


@dataclass(frozen=True, slots=True)
class DecisionBatch:
    """Decisions of one head that all plans take at the same time.

    `slots` [decisions] numbers them. `subjects` [plans, decisions] is what each is about: an activity, a pool, the unit
    to be placed or, for the next unit, the unit placed last (−1: none yet). `legal` [plans, decisions, candidates]
    masks the candidates and `known` [plans, decisions, candidates, FEATURES] describes them.
    """

    head: int
    slots: Ints
    subjects: Ints
    legal: Bools
    known: Floats


# What waits for what in a design: what stages and lanes say; only what rules and data say; the same, and in the order
# of the plan what a check may make unnecessary; or what stages and lanes say, except that beyond the rules only
# checks come before waiting, and nothing waits for it.
STAGED, WIDEST, AFTER_CHECKS, BESIDE_WAITING = range(4)


class Chooser(Protocol):
    """Takes decisions: returns a legal candidate for each, [plans, decisions]."""

    def __call__(self, question: DecisionBatch) -> Ints: ...


@dataclass(slots=True)
class Plans:
    """What was decided, one row per plan.

    `choices` and `free` are [plans, slots]; `free` marks slots with more than one legal candidate. `kept` to `priority`
    are per activity or pool. `unit_order` lists units in the order they were placed (−1: none left), `region`, `stage`
    and `lane` say where (−1: nowhere). `reach` is the share of cases that come to each region. `seen` [plans, slots,
    candidates, FEATURES] and `legal` are recorded for learning.
    """

    problem: DesignProblem
    choices: Ints
    free: Bools
    kept: Bools
    active: Bools
    pool: Ints
    retries: Ints
    timeout: Ints
    due: Ints
    discipline: Ints
    priority: Ints
    unit_order: Ints
    region: Ints
    stage: Ints
    lane: Ints
    servers: Ints
    reach: Floats
    seen: Floats | None = None
    legal: Bools | None = None
    together: dict[int, Bools] = field(default_factory=dict)
    # By plan, which of the four ways from stages and lanes to what waits for what.
    freedom: Ints = field(default_factory=lambda: np.zeros(0, np.int64))

    def __len__(self) -> int:
        return len(self.choices)


class Made(Protocol):
    """The part of a construction that ordering needs."""

    problem: DesignProblem
    plans: Plans
    rows: Ints
    count: int
    alive: Floats

    def ask(self, head: int, slots: Ints | slice, subjects: Ints, legal: Bools, known: Floats) -> Ints: ...
    def times(self) -> tuple[Floats, Floats]: ...


class Ordering:
    """Takes turns: which unit comes next, then where it is placed in the open stage.

    A stage is a set of parallel lanes and a lane a sequence of units. Waiting for all lanes closes the stage. A barrier
    has a stage of its own. One region is completed before the next, those inside a unit after the region of the unit.
    """

    def __init__(self, made: Made) -> None:
        self.made, self.problem, self.plans, self.rows = made, made.problem, made.plans, made.rows
        count, units = made.count, len(made.problem.units)
        self.time, self.passes = made.times()
        self.scale = np.maximum((self.time * self.plans.active).sum(1) / np.maximum(self.plans.active.sum(1), 1), 1e-12)
        before, turns = self.problem.unit_before, self.problem.turn_before
        # [plans, units]: predecessors of each unit that are not placed yet; a unit is ready at 0.
        self.waits_for = np.zeros((count, units), np.int64)
        for region in range(len(self.problem.regions)):
            here = self.plans.region == region
            self.waits_for += ((here & self.plans.active).astype(np.int64) @ turns.astype(np.int64)) * here
        self.left = self.plans.active.copy()
        self.region = np.zeros(count, np.int64)  # the region of which units are placed
        # Units in closed stages: whatever comes next is after them anyway.
        self.earlier = np.zeros((count, units), np.bool_)
        self.lane_time = np.zeros((count, LANES))
        self.lane_passes = np.ones((count, LANES))
        self.lane_pool = np.full((count, LANES), -1)
        self.lanes = np.zeros(count, np.int64)
        self.stage = np.zeros(count, np.int64)
        # The share of cases that reach the open stage, and each unit: of those that come to the region.
        self.arrives = np.ones(count)
        self.reached = np.ones((count, units))
        self.last = np.full(count, -1)
        # Nothing may be placed beside a barrier, so whatever comes after it waits.
        self.behind = np.zeros(count, np.bool_)
        self.total = np.maximum(self.plans.active.sum(1), 1)
        first = np.array([acts[0] for acts in self.problem.units])
        self.pool = self.plans.pool[:, first]
        # [plans, units]: work that must follow each unit, as a share of the most there is in the plan.
        after = self.time @ before.T.astype(np.float64)
        self.tail = after / np.maximum(after.max(1, keepdims=True), 1e-12)
        self.followers = before.sum(1) / max(units, 1)

    def run(self) -> None:
        for turn in range(self.problem.most_units):
            slot = self.problem.rounds + 2 * turn
            going: Bools = np.asarray(self.left.any(1))
            if len(self.problem.regions) > 1:
                self._enter(going)
            unit = self._next(slot)
            self._place(slot + 1, unit, going)
            self.plans.unit_order[:, turn] = np.where(going, unit, -1)

    def _enter(self, going: Bools) -> None:
        # Start the next region of every plan that has completed one.
        region = np.where(self.left, self.plans.region, len(self.problem.regions)).min(1)
        new = going & (region != self.region)
        self._close(new)
        self.region = np.where(going, region, self.region)
        self.stage[new] = 0
        for plan in np.flatnonzero(new).tolist():
            owner = self.problem.regions[self.region[plan]].unit
            self.arrives[plan] = self.reached[plan, owner]
            self.last[plan], self.behind[plan] = -1, False

    def _next(self, slot: int) -> Ints:
        # Choose the next unit of each plan among those whose predecessors are all placed.
        ready = self.left & (self.waits_for == 0) & (self.plans.region == self.region[:, None])
        ready = self._urgent(ready)
        legal = ready.copy()
        legal[~ready.any(1), 0] = True  # a plan that is complete still needs some legal candidate
        count, units = ready.shape
        known = np.zeros((count, 1, units, FEATURES))
        inside = self._inside()
        # Features: free to go anywhere, time, chance of ending the case, same pool as the last unit, progress, lanes
        # open, work that must follow, must follow the last unit.
        known[:, 0, :, 0] = inside == 0
        known[:, 0, :, 1] = np.minimum(self.time / self.scale[:, None], 4) / 2
        known[:, 0, :, 2] = 1 - self.passes
        last_pool = np.where(self.last >= 0, self.pool[self.rows, self.last], -2)[:, None]
        known[:, 0, :, 3] = (self.pool == last_pool) & (self.pool >= 0)
        known[:, 0, :, 4] = (1 - self.left.sum(1) / self.total)[:, None]
        known[:, 0, :, 5] = (self.lanes / LANES)[:, None]
        known[:, 0, :, 6] = self.tail
        known[:, 0, :, 7] = self.problem.unit_before[self.last] * (self.last >= 0)[:, None]
        choice = self.made.ask(Head.NEXT, np.array([slot]), self.last[:, None], legal[:, None], known)
        return choice[:, 0]

    def _urgent(self, ready: Bools) -> Bools:
        # Once it is decided whether a case ends, it does so at once: only that barrier and what it waits for are next.
        if not self.problem.decides.any():
            return ready
        placed = self.plans.active & ~self.left
        due = self.left & ((placed.astype(np.int64) @ self.problem.decides.astype(np.int64)) > 0)
        due &= self.plans.region == self.region[:, None]
        before = (due.astype(np.int64) @ self.problem.unit_before.T.astype(np.int64)) > 0
        for wanted in (ready & before, ready & due):
            ready = np.where(wanted.any(1, keepdims=True), wanted, ready)
        return ready

    def _inside(self) -> Ints:
        # [plans, units]: how many lanes of the open stage contain a predecessor.
        here = (self.plans.lane >= 0) & ~self.earlier
        before = self.problem.unit_before
        found = np.zeros(here.shape, np.int64)
        for lane in range(int(self.lanes.max()) if len(self.lanes) else 0):
            found += ((here & (self.plans.lane == lane)) @ before) > 0
        return found

    def _place(self, slot: int, unit: Ints, going: Bools) -> None:
        # Place a unit. Candidate 0 waits for all lanes first; 1 to 8 are lanes, of which the first unused one is new.
        # A unit with predecessors in one open lane may only join that lane; with predecessors in several, it must wait.
        count = len(unit)
        lanes = np.arange(LANES)
        here = (self.plans.lane >= 0) & ~self.earlier & self.problem.unit_before[:, unit].T
        holds = np.zeros((count, LANES), np.bool_)
        plan, earlier_unit = np.nonzero(here)
        holds[plan, self.plans.lane[plan, earlier_unit]] = True
        held = holds.sum(1)
        open_lane = lanes < self.lanes[:, None]
        new_lane = (lanes == self.lanes[:, None]) & (held == 0)[:, None]
        fits = (open_lane & ((held == 0)[:, None] | ((held == 1)[:, None] & holds))) | new_lane
        legal = np.zeros((count, 1, CANDIDATES), np.bool_)
        waits = (self.behind | self.problem.barrier[unit]) & (self.lanes > 0)
        legal[:, 0, 1 : LANES + 1] = fits & (going & ~waits)[:, None]
        legal[:, 0, 0] = (self.lanes > 0) | ~going
        choice = self.made.ask(Head.PLACE, np.array([slot]), unit[:, None], legal, self._seen(unit, new_lane))[:, 0]
        joins = (choice == 0) & going
        self._close(joins)
        lane = np.where(choice == 0, 0, choice - 1)
        self._put(unit, lane, going)
        self.behind = np.where(going, self.problem.barrier[unit], self.behind)
        self.last = np.where(going, unit, self.last)

    def _seen(self, unit: Ints, new_lane: Bools) -> Floats:
        known = np.zeros((len(unit), 1, CANDIDATES, FEATURES))
        rows = self.rows
        longest = self.lane_time.max(1)
        time = self.time[rows, unit]
        scale = self.scale
        span = slice(1, LANES + 1)
        # Features: waits for all, new lane, length of the lane relative to the longest, same pool as the lane's last
        # unit, lanes open, length of the stage, chance that the lane ends the case, chance that the unit does.
        known[:, 0, 0, 0] = 1
        known[:, 0, span, 1] = new_lane
        known[:, 0, span, 2] = np.minimum((self.lane_time + time[:, None]) / np.maximum(longest, 1e-12)[:, None], 4) / 2
        known[:, 0, span, 3] = (self.lane_pool == self.pool[rows, unit][:, None]) & (self.lane_pool >= 0)
        known[:, 0, :, 4] = (self.lanes / LANES)[:, None]
        known[:, 0, :, 5] = (np.minimum(longest / scale, 8) / 4)[:, None]
        known[:, 0, span, 6] = 1 - self.lane_passes
        known[:, 0, 0, 6] = 1 - self.lane_passes.prod(1)
        known[:, 0, :, 7] = (1 - self.passes[rows, unit])[:, None]
        return known

    def _close(self, joins: Bools) -> None:
        # Close the stage: cases that pass all of its lanes reach the next one.
        self.arrives = np.where(joins, self.arrives * self.lane_passes.prod(1), self.arrives)
        self.earlier[joins] |= self.plans.lane[joins] >= 0
        self.lane_time[joins] = 0
        self.lane_passes[joins] = 1
        self.lane_pool[joins] = -1
        self.lanes[joins] = 0
        self.stage[joins] += 1

    def _put(self, unit: Ints, lane: Ints, going: Bools) -> None:
        rows, plans, problem = self.rows[going], self.plans, self.problem
        unit, lane = unit[going], lane[going]
        plans.stage[rows, unit] = self.stage[rows]
        plans.lane[rows, unit] = lane
        alive = self.arrives[rows] * self.lane_passes[rows, lane]
        self.reached[rows, unit] = alive
        has = problem.members[unit] > 0
        self.made.alive[rows] = np.where(has, alive[:, None], self.made.alive[rows])
        self.lane_time[rows, lane] += self.time[rows, unit]
        self.lane_passes[rows, lane] *= self.passes[rows, unit]
        self.lane_pool[rows, lane] = self.pool[rows, unit]
        self.lanes[rows] = np.maximum(self.lanes[rows], lane + 1)
        self.left[rows, unit] = False
        together = plans.region[rows] == plans.region[rows, unit][:, None]
        self.waits_for[rows] -= problem.turn_before[unit] & together
