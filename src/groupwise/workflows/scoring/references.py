"""The reference points of the score's scales, from the requirements alone: a score means the same everywhere."""

from dataclasses import dataclass

from groupwise.workflows.lower_bounds import best_cycle_time, least_wages, least_work, shortest_times
from groupwise.workflows.requirements import Requirements
from groupwise.workflows.rules import needs


@dataclass(frozen=True, slots=True)
class References:
    """Bounds that no design can beat, per case: seconds, cost, byte-seconds, cases per second, seconds.

    `cost` is what the work itself costs, by the cheapest pools; `staffed` also pays the fewest servers that could keep
    up. `cyclomatic` and `control_flow` are the complexity of the choices and loops that the requirements demand.
    """

    cycle_time: float
    cost: float
    staffed: float
    memory: float
    throughput: float
    work: float
    cyclomatic: int
    control_flow: int


def references_of(requirements: Requirements) -> References:
    needed, activities = needs(requirements), requirements.activities
    wages = spent = memory = 0.0
    for name, seconds in shortest_times(requirements, needed).items():
        activity = activities[name]
        pools = [requirements.pools[pool] for pool in activity.pools]
        fastest = max((pool.speed for pool in pools), default=1.0)
        # `seconds` are at the fastest pool's speed; the cheapest pool per unit of work sets the wage.
        wages += seconds * min((pool.wage / pool.speed for pool in pools), default=0.0) * fastest
        # How many times it is done per case at least, which its cost is paid for.
        let_pass = seconds / activity.duration.mean * fastest if activity.duration.mean else needed[name]
        spent += let_pass * activity.cost
        memory += seconds * activity.memory
    best, _ = best_cycle_time(requirements)
    rate = requirements.demand.arrivals_per_second
    # Without arrivals nobody is paid for longer than the runs take at best.
    staffed = least_wages(requirements) * (1 / rate if rate is not None else best / requirements.demand.runs)
    # Every way of an outcome or branch beyond the first is a path of its own; the rest of a branch is one more way.
    ways = [len(outcome.branches) for outcome in requirements.outcomes]
    ways += [len(one.options) + (sum(one.options.values()) < 1 - 1e-9) for one in requirements.branches]
    loops = len(requirements.loops)
    return References(
        best,
        wages + spent,
        max(wages, staffed) + spent,
        memory,
        throughput=rate if rate is not None else (requirements.demand.runs / best if best else 0.0),
        work=least_work(requirements),
        cyclomatic=1 + sum(count - 1 for count in ways) + loops,
        control_flow=sum(ways) + 2 * loops,
    )
