"""What no design can beat, from the requirements alone: bounds on cycle time, work, and the cost of staff.

best_cycle_time(requirements)    the longest chain of activities that wait for each other, by the fastest pools
least_work(requirements)         seconds of server time per case
least_wages(requirements)        money per second for the fewest servers that could keep up
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from groupwise.workflows.case_flow import CaseFlow, order_of
from groupwise.workflows.evaluation.array_format import WEEK
from groupwise.workflows.evaluation.staffing import Roster, shifts_of
from groupwise.workflows.partial_orders import in_order
from groupwise.workflows.requirements import Demand, Hours, RequiredLoop, Requirements
from groupwise.workflows.rules import needs


def best_cycle_time(requirements: Requirements) -> tuple[float, list[str]]:
    """A lower bound on the mean cycle time of any design, and the chain of activities behind it.

    The longest chain that rules, data and outcomes demand, with each activity as often as it is needed, done by its
    fastest pool, without queues. Where pools have working hours, a case also waits until the first of them opens.
    Cases that may be over early count as `CaseReach` says. Only timeouts, which give up on work, make a case shorter.
    """
    return longest_chain(requirements, list(order_of(requirements)), needs(requirements))


def longest_chain(
    requirements: Requirements, order: Sequence[tuple[str, ...]], needed: Mapping[str, float]
) -> tuple[float, list[str]]:
    """The longest chain of an order, given the share of cases that need each activity."""
    names, reach = list(needed), CaseReach(requirements, needed, order)
    number = {name: place for place, name in enumerate(names)}
    edges = frozenset((number[a], number[b]) for a, b in order if a in number and b in number)
    before: dict[int, list[int]] = {}
    for a, b in edges:
        before.setdefault(b, []).append(a)
    # Per activity, the longest chain up to it that has not waited for an opening yet, and the longest that has.
    quick: dict[int, _Chain] = {}
    waited: dict[int, _Chain] = {}
    for here in in_order(len(names), edges):
        name, earlier = names[here], [a for a in before.get(here, ()) if a in quick]
        first, share = _longest([quick[a] for a in earlier]), reach.share(name)
        seconds = share * reach.rounds(name) * _attempt(requirements, name)
        quick[here] = _Chain(first.seconds + seconds, name, first)
        opened = _Chain(first.seconds + share * opening_wait(requirements, name), first.name, first.before)
        first = _longest([opened, *(waited[a] for a in earlier)])
        waited[here] = _Chain(first.seconds + seconds, name, first)
    found = _longest(list(waited.values()))
    return found.seconds, found.names()


@dataclass(frozen=True, slots=True, eq=False)
class _Chain:
    """A chain of activities, as its last one and the chain before it; the empty chain has no name."""

    seconds: float = 0.0
    name: str = ""
    before: _Chain | None = None

    def names(self) -> list[str]:
        found, here = list[str](), self
        while here.before is not None:
            found.append(here.name)
            here = here.before
        return found[::-1]


def _longest(chains: list[_Chain]) -> _Chain:
    """The longest chain; of several, the one whose names come last in the alphabet."""
    most = max((chain.seconds for chain in chains), default=0.0)
    best = [chain for chain in chains if chain.seconds == most]
    return max(best, key=_Chain.names) if len(best) > 1 else best[0] if best else _Chain()


def shortest_times(requirements: Requirements, needed: Mapping[str, float]) -> dict[str, float]:
    """The least time that the first round of each activity adds to a case on average."""
    reach = CaseReach(requirements, needed, list(order_of(requirements)))
    return {name: reach.share(name) * _attempt(requirements, name) for name in needed}


def busy_times(requirements: Requirements, needed: Mapping[str, float]) -> dict[str, float]:
    """The least time that each activity adds to a case on average, with all of its rounds."""
    reach = CaseReach(requirements, needed, list(order_of(requirements)))
    return {name: reach.share(name) * reach.rounds(name) * _attempt(requirements, name) for name in needed}


def _attempt(requirements: Requirements, name: str) -> float:
    activity = requirements.activities[name]
    fastest = max((requirements.pools[pool].speed for pool in activity.pools), default=1.0)
    return activity.duration.mean / fastest


class CaseReach:
    """How often cases come to an activity in any design, although others may end them first.

    A knock-out ends a case, and so does a failure in a design without retries. Any activity may be placed before
    another one, unless it must come later, or is in another branch of the same outcome. In a loop, whatever is in it
    comes before the next round.

    The chance to pass an activity that is done N times is E[pᴺ], which is at least p^E[N] (Jensen's inequality).
    """

    def __init__(
        self, requirements: Requirements, needed: Mapping[str, float], order: Sequence[tuple[str, ...]]
    ) -> None:
        self.flow, self.needed, self.loops = CaseFlow(requirements), needed, requirements.loops
        chances = {name: (1 - one.knock_out) * (1 - one.failure) for name, one in requirements.activities.items()}
        self.passes = {name: chance for name, chance in chances.items() if chance < 1}
        self.after: dict[str, list[str]] = {}
        for first, second in order if self.passes else ():
            self.after.setdefault(first, []).append(second)

    def share(self, name: str) -> float:
        """The share of cases that come to an activity at least once, at least."""
        if not self.passes:
            return self.needed[name]
        later, around = self._later(name), self._around(name)
        passed: float = math.prod(
            chance ** self._repeated(other, around)
            for other, chance in self.passes.items()
            if other not in later and not self.flow.never_both(name, other)
        )
        return self.needed[name] * passed

    def rounds(self, name: str) -> float:
        """How often a case that comes to an activity does it, at least."""
        return math.prod(self._repetitions(loop, name) for loop in self._around(name))

    def _repetitions(self, loop: RequiredLoop, name: str) -> float:
        inside = {*loop.activities, *loop.redo}
        around = [other for other in self.loops if inside <= {*other.activities, *other.redo}]
        again: float = loop.again * math.prod(
            chance ** self._repeated(other, around) for other, chance in self.passes.items() if other in inside
        )
        for outcome in self.flow.requirements.outcomes:
            if outcome.after in inside:
                ends = sum(branch.probability for branch in outcome.branches.values() if branch.ends)
                again *= max(0.0, 1 - ends) ** self._repeated(outcome.after, around)
        # 1 + again + again² + … up to `most` repetitions; what is between two rounds is there once less.
        rest = 0.0 if loop.most is None else again ** (loop.most + (name in loop.activities))
        return (1 - rest) / (1 - again)

    def _repeated(self, name: str, around: Sequence[RequiredLoop]) -> float:
        # How often an activity is done on average in one round of the loops around.
        return math.prod(_mean_rounds(loop, name) for loop in self._around(name) if loop not in around)

    def _around(self, name: str) -> list[RequiredLoop]:
        return [loop for loop in self.loops if name in loop.activities or name in loop.redo]

    def _later(self, name: str) -> set[str]:
        # What must come after an activity, directly or through others that every design has.
        seen, stack = {name}, [name]
        while stack:
            here = stack.pop()
            for other in self.after.get(here, ()) if here in self.needed else ():
                if other not in seen:
                    seen.add(other)
                    stack.append(other)
        return seen


def _mean_rounds(loop: RequiredLoop, name: str) -> float:
    return 1 + loop.repetitions if name in loop.activities else loop.repetitions / loop.again


def opening_wait(requirements: Requirements, name: str) -> float:
    """Seconds until one of its pools opens, on average over the time at which a case comes to an activity."""
    pools = requirements.activities[name].pools
    return min((_closed(requirements.pools[pool].calendar, requirements.demand) for pool in pools), default=0.0)


def _closed(calendar: Hours, demand: Demand) -> float:
    if not calendar:
        return 0.0
    shifts = shifts_of(calendar)
    if demand.arrivals_per_second is None:
        return float(shifts[0, 0])  # all runs start on Monday at 0:00
    gaps = np.append(shifts[1:, 0], shifts[0, 0] + WEEK) - shifts[:, 1]
    # Cases come at any time of the week: with probability gap / week in a gap, half of which is still ahead.
    return float((gaps**2).sum() / 2 / WEEK)


def least_work(requirements: Requirements) -> float:
    """A lower bound on the mean seconds of server time per case: fastest pools, one attempt, best order."""
    needed, found, left = needs(requirements), 0.0, 1.0
    tests = []
    for name, share in needed.items():
        activity = requirements.activities[name]
        fastest = max((requirements.pools[pool].speed for pool in activity.pools), default=math.inf)
        tests.append((share * activity.duration.mean / fastest, share * activity.knock_out))
    # Tests that end the most cases per second come first: that order minimises the expected work.
    for seconds, ends in sorted(tests, key=lambda test: -test[1] / test[0] if test[0] else -math.inf):
        found += left * seconds
        left *= 1 - ends
    return found


def least_wages(requirements: Requirements) -> float:
    """Money per second for the fewest servers of every pool that could keep up with the work only they may do."""
    rate = requirements.demand.arrivals_per_second
    pools, work = requirements.pools, dict[str, float]()
    for name, seconds in busy_times(requirements, needs(requirements)).items():
        if len(only := requirements.activities[name].pools) == 1:
            work[only[0]] = work.get(only[0], 0.0) + (rate or 0.0) * seconds
    servers = {name: pool.least for name, pool in pools.items()}
    for name, busy in work.items():
        # Strictly more servers than are busy: at a load of 1 a queue grows without bound.
        servers[name] = max(servers[name], min(math.floor(busy / pools[name].open_share) + 1, pools[name].most))
    roster = Roster(requirements)
    if roster.by_name:
        return sum(one.wage * one.hours for one in roster.workers(np.array(list(servers.values()), np.int64)))
    return sum(servers[name] * pool.wage * pool.open_share for name, pool in pools.items())
