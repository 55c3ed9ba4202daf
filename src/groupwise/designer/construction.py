"""Construct many plans for one set of requirements in lockstep, decision by decision, masked to what is legal.

    plans = construct(problem, chooser, count=32)

For every decision the chooser sees the legal candidates and a few numbers that describe each. It can be the policy,
random keys of a search, or the choices of an earlier plan. Whatever it chooses, the design is sound and keeps the rules
on precedence, exclusion and staffing: units stand in lanes, lanes are parallel within a stage, stages are in sequence.
"""

import numpy as np

from groupwise.designer.plans import STAGED, Chooser, DecisionBatch, Ordering, Plans
from groupwise.designer.problem import (
    CANDIDATES,
    DISCIPLINES,
    DUES,
    EXTRA_SERVERS,
    FEATURES,
    TIMEOUTS,
    Bools,
    DesignProblem,
    Floats,
    Head,
    Ints,
)

# The share of an activity's cases that may be lost although more retries are possible.
MOST_LOST = 0.02
# Candidates for the number of retries: 0 to 3.
RETRIES = 4


def construct(
    problem: DesignProblem, chooser: Chooser, count: int, record: bool = False, freedom: Ints | None = None
) -> Plans:
    """`count` plans; with `record` they include what the chooser saw at each decision, for learning.

    `freedom` says how their stages and lanes become designs (`plans.STAGED` …); by default as they are.
    """
    plans = _Construction(problem, chooser, count, record).run()
    plans.freedom = np.full(count, STAGED) if freedom is None else freedom
    return plans


class _Construction:
    def __init__(self, problem: DesignProblem, chooser: Chooser, count: int, record: bool) -> None:
        self.problem, self.chooser, self.count = problem, chooser, count
        acts, units, pools, slots = len(problem.names), len(problem.units), len(problem.pool_names), len(problem.slots)
        width = max(CANDIDATES, units)
        self.plans = Plans(
            problem,
            choices=np.zeros((count, slots), np.int64),
            free=np.zeros((count, slots), np.bool_),
            kept=np.tile(~problem.free, (count, 1)),
            active=np.zeros((count, units), np.bool_),
            pool=np.full((count, acts), -1),
            retries=np.zeros((count, acts), np.int64),
            timeout=np.zeros((count, acts), np.int64),
            due=np.zeros((count, acts), np.int64),
            discipline=np.zeros((count, pools), np.int64),
            priority=np.zeros((count, acts), np.int64),
            unit_order=np.full((count, problem.most_units), -1),
            region=np.tile(problem.home, (count, 1)),
            stage=np.full((count, units), -1),
            lane=np.full((count, units), -1),
            servers=np.tile(problem.least, (count, 1)),
            reach=np.tile(problem.reach, (count, 1)),
            seen=np.zeros((count, slots, width, FEATURES), np.float32) if record else None,
            legal=np.zeros((count, slots, width), np.bool_) if record else None,
        )
        self.rows = np.arange(count)
        # [plans, activities]: the probability that a case has not been knocked out before it reaches an activity.
        self.alive = np.ones((count, acts))

    def run(self) -> Plans:
        self._keep()
        self._branch()
        self._allocate()
        self._handle()
        # Order the units: which comes next, and whether it waits for all lanes, joins one or opens one.
        Ordering(self).run()
        self._staff()
        return self.plans

    def ask(self, head: int, slots: Ints | slice, subjects: Ints, legal: Bools, known: Floats) -> Ints:
        """Let the chooser decide, and record it; where only one candidate is legal, that one is taken."""
        where = np.arange(slots.start, slots.stop) if isinstance(slots, slice) else slots
        choice = self.chooser(DecisionBatch(head, where, subjects, legal, known))
        free = legal.sum(-1) > 1
        choice = np.where(free, choice, legal.argmax(-1))
        self.plans.choices[:, where] = choice
        self.plans.free[:, where] = free
        if self.plans.seen is not None and self.plans.legal is not None:
            width = legal.shape[-1]
            self.plans.seen[:, where, :width] = known
            self.plans.legal[:, where, :width] = legal & free[..., None]
        return choice

    def _blank(self, decisions: int, candidates: int) -> tuple[Bools, Floats]:
        legal = np.zeros((self.count, decisions, CANDIDATES), np.bool_)
        legal[..., :candidates] = True
        return legal, np.zeros((self.count, decisions, CANDIDATES, FEATURES))

    def _about(self, subjects: Ints) -> Ints:
        return np.broadcast_to(subjects, (self.count, len(subjects)))

    def _keep(self) -> None:
        # Decide on optional activities one by one: whatever excludes or lacks a kept activity is illegal.
        problem, kept = self.problem, self.plans.kept
        slots, subjects = problem.of(Head.KEEP)
        dropped = np.zeros_like(kept)
        for offset, activity in enumerate(subjects.tolist()):
            legal, known = self._blank(1, 2)
            if problem.free[activity]:
                asks = problem.asks[activity]
                legal[:, 0, 0] = ~(kept & problem.asks[:, activity]).any(1)
                legal[:, 0, 1] = ~((kept @ problem.excludes & asks).any(1) | (dropped & asks).any(1)) | ~legal[:, 0, 0]
            else:
                legal[:, 0, 1] = self._may_move(activity)
            where, about = np.array([slots.start + offset]), self._about(subjects[offset : offset + 1])
            chosen = self.ask(Head.KEEP, where, about, legal, known)[:, 0] == 1
            if problem.free[activity]:
                kept[:, activity], dropped[:, activity] = chosen, ~chosen
            else:
                for unit in problem.movable[activity]:
                    self.plans.region[chosen, unit] = problem.parts[unit].early
        nothing = ~kept.any(1)  # a design needs at least one activity
        kept[nothing, 0] = True
        self._reach()

    def _may_move(self, activity: int) -> Bools:
        # Whether everything that a unit waits for is done by the decision before which it would be done.
        problem = self.problem
        unit = problem.movable[activity][0]
        done = np.isin(self.plans.region, sorted(problem.above[problem.parts[unit].early]))
        return np.asarray(done[:, problem.unit_before[:, unit]].all(1))

    def _reach(self) -> None:
        # The share of cases that come to each region and activity, given what is done before which decision.
        problem, plans, reach = self.problem, self.plans, self.plans.reach
        self.share = np.tile(problem.share, (self.count, 1))
        if not problem.movable:
            return
        for number, region in enumerate(problem.regions):
            if region.unit >= 0:
                reach[:, number] = region.share * reach[self.rows, plans.region[:, region.unit]]
        more = reach / problem.reach
        for number, unit in enumerate(problem.parts):
            if unit.kind in ("task", "chain"):
                self.share[:, list(unit.activities)] *= more[self.rows, plans.region[:, number], None]

    def _branch(self) -> None:
        problem, plans = self.problem, self.plans
        slots, subjects = problem.of(Head.BRANCHING)
        together = {n: np.full(self.count, fork.together >= 0) for n, fork in enumerate(problem.forks)}
        if len(subjects):
            legal, known = self._blank(len(subjects), 2)
            for place, fork in enumerate(subjects.tolist()):
                known[:, place, :, 0] = len(problem.forks[fork].options) / 4
                known[:, place, :, 1] = sum(problem.forks[fork].shares)
            # A fork has no node of its own, so the decision is about its first option.
            first = np.array([problem.forks[fork].options[0] for fork in subjects.tolist()])
            choice = self.ask(Head.BRANCHING, slots, self._about(first), legal, known)
            for place, fork in enumerate(subjects.tolist()):
                together[fork] = choice[:, place] == 0
        plans.together = together
        for number, unit in enumerate(problem.parts):
            if unit.fork < 0:
                plans.active[:, number] = plans.kept[:, list(unit.activities)].any(1)
        for number, fork in enumerate(problem.forks):
            if fork.together >= 0:
                plans.active[:, fork.together] = together[number]
            plans.active[:, list(fork.apart)] = ~together[number][:, None]

    def _allocate(self) -> None:
        # Decide between people and machines, then assign pools activity by activity, the most work first.
        # Each assignment sees the load that earlier ones have put on the pools, as a share of their full capacity.
        problem, plans = self.problem, self.plans
        machines = self._types()
        work = problem.rate * problem.mean * problem.share
        load = np.zeros((self.count, len(problem.pool_names)))
        capacity = problem.most * problem.open * problem.speed
        for activity, able in enumerate(problem.eligible):
            if len(able) == 1:
                plans.pool[:, activity] = able[0]
                load[:, able[0]] += work[activity] / capacity[able[0]] * plans.kept[:, activity]
        price = problem.wage / problem.speed
        slots, subjects = problem.of(Head.ALLOCATION)
        for offset, activity in enumerate(subjects.tolist()):
            pools = np.array(problem.pool_candidates(activity))
            size = len(pools)
            legal, known = self._blank(1, size)
            legal[:, 0, :size] = self._pools_left(activity, pools, machines[:, activity])
            own = work[activity] / capacity[pools]
            # Features: load so far, load added, price and speed relative to the other pools, overload, in use.
            known[:, 0, :size, 0] = np.minimum(load[:, pools], 3)
            known[:, 0, :size, 1] = np.minimum(own, 3)
            known[:, 0, :size, 2] = price[pools] / max(float(price[pools].mean()), 1e-12) - 1
            known[:, 0, :size, 3] = problem.speed[pools] / float(problem.speed[pools].mean()) - 1
            known[:, 0, :size, 4] = np.minimum(load[:, pools] + own, 3) > 0.9
            known[:, 0, :size, 5] = load[:, pools] > 0
            where, about = np.array([slots.start + offset]), self._about(subjects[offset : offset + 1])
            chosen = pools[self.ask(Head.ALLOCATION, where, about, legal, known)[:, 0]]
            plans.pool[:, activity] = chosen
            load[self.rows, chosen] += work[activity] / capacity[chosen] * plans.kept[:, activity]
        self.load = load

    def _types(self) -> Ints:
        # [plans, activities]: 1 for machines, 0 for people, −1 where there is nothing to decide.
        problem = self.problem
        found = np.full((self.count, len(problem.names)), -1)
        slots, subjects = problem.of(Head.TYPE)
        if not len(subjects):
            return found
        legal, known = self._blank(len(subjects), 2)
        price = problem.wage / problem.speed
        for place, activity in enumerate(subjects.tolist()):
            able = np.array(problem.eligible[activity])
            for kind in (0, 1):
                mine = able[problem.machine[able] == bool(kind)]
                known[:, place, kind, 0] = len(mine) / len(able)
                known[:, place, kind, 1] = price[mine].min() / max(float(price[able].mean()), 1e-12) - 1
                known[:, place, kind, 2] = problem.speed[mine].max() / float(problem.speed[able].mean()) - 1
        found[:, subjects] = self.ask(Head.TYPE, slots, self._about(subjects), legal, known)
        return found

    def _pools_left(self, activity: int, able: Ints, machines: Ints) -> Bools:
        # The legal pools: of the kind decided on, not those of activities that must be kept separate, and with people
        # for all duties. If that leaves none, the kind is given up first, then the rules (the score reports the broken
        # one).
        problem, pool = self.problem, self.plans.pool
        free = np.ones((self.count, len(able)), np.bool_)
        for other in problem.apart_from[activity]:
            free &= pool[:, other, None] != able
        for other in problem.apart_from[activity]:
            if len(problem.eligible[other]) == 2 and (pool[:, other] < 0).any():
                free &= ~self._last_way_out(other, able)
        free &= self._duties_kept(activity, able)
        kind = (machines[:, None] < 0) | (problem.machine[able] == (machines[:, None] == 1))
        both = free & kind
        free = np.where(both.any(1, keepdims=True), both, free)
        return np.where(free.any(1, keepdims=True), free, True)

    def _duties_kept(self, activity: int, able: Ints) -> Bools:
        # Whether pools have people with the skills, who can keep duties apart or together with those of other pools.
        problem, pool = self.problem, self.plans.pool
        free = np.tile(~np.isin(able, problem.unable.get(activity, ())), (self.count, 1))
        for other, fits in problem.fits.get(activity, {}).items():
            given = pool[:, other, None]
            later = fits[able][:, list(problem.eligible[other])].any(1)  # the other has no pool yet
            free &= np.where(given >= 0, fits[able, np.maximum(given, 0)], later)
        return free

    def _last_way_out(self, other: int, able: Ints) -> Bools:
        # Whether taking a pool would leave none for an activity that has two and still needs one.
        problem, pool = self.problem, self.plans.pool
        taken = np.zeros((self.count, len(problem.pool_names)), np.bool_)
        for third in problem.apart_from[other]:
            known = pool[:, third] >= 0
            taken[self.rows[known], pool[known, third]] = True
        options = np.array(problem.eligible[other])
        only = (~taken[:, options]).sum(1, keepdims=True) == 1
        found: Bools = only & np.isin(able, options) & ~taken[:, able] & (pool[:, other, None] < 0)
        return found

    def _handle(self) -> None:
        # Decide on retries and timeouts, the order of queues, then priorities and due times where queues use them.
        problem, plans = self.problem, self.plans
        slots, subjects = problem.of(Head.RETRY)
        if len(subjects):
            legal, known = self._blank(len(subjects), RETRIES)
            fails = problem.failure[subjects][:, None]
            tries = np.arange(1, RETRIES + 1)
            # So few retries that cases are lost are not offered, as long as more would help.
            legal[..., :RETRIES] &= (fails**tries <= MOST_LOST) | (tries == RETRIES)
            # Features: probability of success within so many tries, expected repetitions, failure rate.
            known[:, :, :RETRIES, 0] = 1 - fails**tries
            known[:, :, :RETRIES, 1] = (1 - fails**tries) / (1 - fails) - 1
            known[:, :, :RETRIES, 2] = fails
            plans.retries[:, subjects] = self.ask(Head.RETRY, slots, self._about(subjects), legal, known)
        slots, subjects = problem.of(Head.TIMEOUT)
        if len(subjects):
            legal, known = self._blank(len(subjects), len(TIMEOUTS))
            legal[..., 1 : len(TIMEOUTS)] &= ~problem.human[subjects, plans.pool[:, subjects]][..., None]
            known[:, :, : len(TIMEOUTS), 0] = problem.scv[subjects][:, None] / 4
            known[:, :, : len(TIMEOUTS), 1] = plans.retries[:, subjects, None] / RETRIES
            plans.timeout[:, subjects] = self.ask(Head.TIMEOUT, slots, self._about(subjects), legal, known)
        self._queues()
        self._dues()

    def _queues(self) -> None:
        problem, plans = self.problem, self.plans
        slots, subjects = problem.of(Head.SCHEDULING)
        if not len(subjects):
            return
        dated = problem.requirements.rules.deadline is not None
        legal, known = self._blank(len(subjects), len(DISCIPLINES) if dated else len(DISCIPLINES) - 1)
        known[..., 0] = np.minimum(self.load[:, subjects], 3)[..., None]
        users = np.stack([(plans.pool == pool).sum(1) for pool in subjects], 1)
        known[..., 1] = np.minimum(users / 10, 3)[..., None]
        nodes = subjects + len(problem.names)
        plans.discipline[:, subjects] = self.ask(Head.SCHEDULING, slots, self._about(nodes), legal, known)
        slots, subjects = problem.of(Head.CONSTRAINT)
        legal, known = self._blank(len(subjects), 2)
        pool = plans.pool[:, subjects]
        by_priority = np.take_along_axis(plans.discipline, np.maximum(pool, 0), 1) == DISCIPLINES.index("priority")
        legal[..., 1] = by_priority & (pool >= 0)
        plans.priority[:, subjects] = self.ask(Head.CONSTRAINT, slots, self._about(subjects), legal, known)

    def _dues(self) -> None:
        # Decide on due times, where a pool serves by them.
        problem, plans = self.problem, self.plans
        slots, subjects = problem.of(Head.TIMING)
        if not len(subjects):
            return
        legal, known = self._blank(len(subjects), len(DUES))
        pool = plans.pool[:, subjects]
        by_due = np.take_along_axis(plans.discipline, np.maximum(pool, 0), 1) == DISCIPLINES.index("due")
        legal[..., 1 : len(DUES)] = (by_due & (pool >= 0))[..., None]
        plans.due[:, subjects] = self.ask(Head.TIMING, slots, self._about(subjects), legal, known)

    def times(self) -> tuple[Floats, Floats]:
        """[plans, units]: mean time per case including retries, and the share of cases that go on afterwards."""
        problem, plans = self.problem, self.plans
        speed = np.where(plans.pool >= 0, np.append(problem.speed, 1.0)[plans.pool], 1.0)
        # Expected number of tries when each fails with probability f and r may be repeated: (1 − f^(r+1)) / (1 − f).
        tries = (1 - problem.failure ** (plans.retries + 1)) / (1 - problem.failure)
        self.tries = tries
        time = problem.mean / speed * tries * self.share
        lost = self.share * (1 - (1 - problem.knock_out) * (1 - problem.failure ** (plans.retries + 1)))
        has = problem.members > 0
        return time @ has.T, (1 - np.minimum(lost @ has.T, 0.999)) * np.maximum(1 - problem.ended, 0.001)

    def _needed(self) -> Ints:
        # [plans, pools]: the fewest servers with whom all duties can be kept.
        problem = self.problem
        if not problem.fits:
            return np.tile(problem.least, (self.count, 1))
        pools = [tuple(row) for row in np.where(self.plans.kept, self.plans.pool, -1).tolist()]
        known = {row: problem.duties.fewest(row) for row in dict.fromkeys(pools)}
        return np.array([known[row] for row in pools])

    def _staff(self) -> None:
        # Decide on servers: the fewest that keep up with the work that remains after knock-outs, or more.
        problem, plans = self.problem, self.plans
        plans.servers[:] = self._needed()
        slots, subjects = problem.of(Head.STAFFING)
        if not len(subjects):
            return
        visits = problem.rate * self.share * self.alive * self.tries * plans.kept
        work = visits * problem.mean
        load = np.zeros((self.count, len(problem.pool_names)))
        spread, cores = np.zeros_like(load), np.zeros_like(load)
        for pool in range(len(problem.pool_names)):
            mine = work * (plans.pool == pool)
            load[:, pool] = mine.sum(1) / problem.speed[pool] / problem.open[pool]
            spread[:, pool] = (mine * problem.scv).sum(1) / np.maximum(mine.sum(1), 1e-300)
            cores[:, pool] = problem.machine[pool] * (mine * problem.cpu).sum(1) / np.maximum(mine.sum(1), 1e-300) / 4
        load, spread = load[:, subjects], spread[:, subjects]
        least, most = plans.servers[:, subjects], problem.most[subjects]
        # Strictly more servers than the offered load (in Erlang): at utilisation 1 a queue grows without bound.
        enough = np.floor(load * 1.0000001).astype(np.int64) + 1
        for place, pool in enumerate(subjects.tolist()):
            if pool in problem.present:
                enough[:, place] = (load[:, place, None] * 1.0000001 >= problem.present[pool]).sum(1)
        fewest = np.clip(enough, least, most)
        extra = np.array(EXTRA_SERVERS)
        servers = fewest[..., None] + extra
        legal = servers <= most[:, None]
        servers = np.minimum(servers, most[:, None])
        busy = np.minimum(load[..., None] / servers, 1.0)
        # Sakasegawa's approximation of the G/G/c queue, in units of the mean service time:
        # ρ^(√(2(c+1)) − 1) / (c(1 − ρ)) · (1 + scv) / 2 with Poisson arrivals.
        idle = servers * np.maximum(1 - busy, 0.01)
        wait = busy ** (np.sqrt(2 * (servers + 1)) - 1) / idle * (1 + spread[..., None]) / 2
        # Features: utilisation, waiting time, servers as a share of the most allowed, extra wages, unused pool,
        # utilisation above 80%, offered load, CPU load.
        known = np.zeros((self.count, len(subjects), CANDIDATES, FEATURES))
        known[..., 0] = busy
        known[..., 1] = np.log1p(wait)
        known[..., 2] = servers / most[:, None]
        wages = (problem.wage * problem.open)[subjects]
        least_paid = np.maximum((plans.servers * problem.wage * problem.open).sum(1), 1e-12)
        known[..., 3] = np.minimum(wages[:, None] * (servers - fewest[..., None]) / least_paid[:, None, None], 3)
        known[..., 4] = load[..., None] == 0
        known[..., 5] = np.maximum(busy - 0.8, 0) * 5
        known[..., 6] = np.log1p(load)[..., None]
        known[..., 7] = cores[:, subjects][..., None] * busy
        choice = self.ask(Head.STAFFING, slots, self._about(subjects + len(problem.names)), legal, known)
        plans.servers[:, subjects] = np.take_along_axis(servers, choice[..., None], 2)[..., 0]
