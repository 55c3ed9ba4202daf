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
from groupwise.workflows.requirements import Demand, Hours, Requirements
from groupwise.workflows.rules import needs


def best_cycle_time(requirements: Requirements) -> tuple[float, list[str]]:
    """A lower bound on the mean cycle time of any design, and the chain of activities behind it.

    The longest chain that rules, data and outcomes demand, with each activity as often as it is needed, done by its
    fastest pool, without queues. Where pools have working hours, a case also waits until the first of them opens. If
    activities may end a case early, by a knock-out or a failure, each counts only for the cases that all others let
    pass. Only timeouts, which give up on work, can make a case shorter.
    """
    rounds = CaseFlow(requirements).rounds
    often = {name: share * rounds[name] for name, share in needs(requirements).items()}
    return longest_chain(requirements, list(order_of(requirements)), often)


def longest_chain(
    requirements: Requirements, order: Sequence[tuple[str, ...]], needed: Mapping[str, float]
) -> tuple[float, list[str]]:
    """The longest chain of an order, given how often each activity is done in a case."""
    names = list(needed)
    number = {name: place for place, name in enumerate(names)}
    edges = frozenset((number[a], number[b]) for a, b in order if a in number and b in number)
    before: dict[int, list[int]] = {}
    for a, b in edges:
        before.setdefault(b, []).append(a)
    times, risky = shortest_times(requirements, needed), _risky(requirements, needed)
    # Per activity, the longest chain up to it that has not waited for an opening yet, and the longest that has.
    quick: dict[int, _Chain] = {}
    waited: dict[int, _Chain] = {}
    for here in in_order(len(names), edges):
        name, earlier = names[here], [a for a in before.get(here, ()) if a in quick]
        first = _longest([quick[a] for a in earlier])
        quick[here] = _Chain(first.seconds + times[name], name, first)
        opens = min(needed[name], 1.0) * _let_pass(name, risky) * opening_wait(requirements, name)
        opened = _Chain(first.seconds + opens, first.name, first.before)
        first = _longest([opened, *(waited[a] for a in earlier)])
        waited[here] = _Chain(first.seconds + times[name], name, first)
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
    """The least time that each activity adds to a case on average."""
    risky, found = _risky(requirements, needed), dict[str, float]()
    for name, often in needed.items():
        activity = requirements.activities[name]
        fastest = max((requirements.pools[pool].speed for pool in activity.pools), default=1.0)
        found[name] = often * _let_pass(name, risky) * activity.duration.mean / fastest
    return found


def _risky(requirements: Requirements, needed: Mapping[str, float]) -> dict[str, float]:
    """The activities that can end a case early, with the share of cases that each lets pass."""
    known = requirements.activities
    shares = {name: (1 - known[name].knock_out) * (1 - known[name].failure) for name in needed}
    return {name: share for name, share in shares.items() if share != 1}


def _let_pass(name: str, risky: Mapping[str, float]) -> float:
    # The share of cases that no other activity has ended before this one, at best.
    return math.prod(share for other, share in risky.items() if other != name)


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
    rate, needed, rounds = requirements.demand.arrivals_per_second, needs(requirements), CaseFlow(requirements).rounds
    pools, work, times = requirements.pools, dict[str, float](), shortest_times(requirements, needed)
    for name in needed:
        if len(only := requirements.activities[name].pools) == 1:
            work[only[0]] = work.get(only[0], 0.0) + (rate or 0.0) * (times[name] * rounds[name])
    servers = {name: pool.least for name, pool in pools.items()}
    for name, busy in work.items():
        # Strictly more servers than are busy: at a load of 1 a queue grows without bound.
        servers[name] = max(servers[name], min(math.floor(busy / pools[name].open_share) + 1, pools[name].most))
    roster = Roster(requirements)
    if roster.by_name:
        return sum(one.wage * one.hours for one in roster.workers(np.array(list(servers.values()), np.int64)))
    return sum(servers[name] * pool.wage * pool.open_share for name, pool in pools.items())
