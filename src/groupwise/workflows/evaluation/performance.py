"""How a design performs: what every tier of evaluation returns, and the trace of a simulation."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Literal, TypeAlias

Tier: TypeAlias = Literal["analytic", "simulation", "schedule"]
NOT_SIMULATED = "Not simulated, because the design breaks a rule."


@dataclass(frozen=True, slots=True)
class Performance:
    """Means over all cases, including those that are knocked out or fail. Times are in seconds.

    `cycle_time` is the time from a case's arrival to its end, `interval` its 95% confidence interval (analytic and
    schedule: the value twice), `waiting` the time a case spends in queues, summed over its activities. `cost` is per
    case: wages of all servers for as long as they are staffed, busy or not, plus the cost of every try. `utilisation`
    is the busy share of each pool's staffed time. `cpu` and `memory` are the cores and bytes in use on average, their
    peaks the most in use at once (analytic: unknown, NaN). `completed` is the share of cases neither knocked out nor
    failed. `capacity` is how many cases per second the pools could handle.

    `valid` says whether the numbers can be trusted: for the analytic tier, whether the formulas cover the design; for
    the simulation, whether the pools keep up with arrivals. If not, `reason` says why.
    """

    tier: Tier
    cycle_time: float
    interval: tuple[float, float]
    waiting: float
    throughput: float
    cost: float
    utilisation: Mapping[str, float]
    cpu: float
    memory: float
    completed: float
    capacity: float = math.inf
    cpu_peak: float = math.nan
    memory_peak: float = math.nan
    percentiles: Mapping[int, float] = field(default_factory=dict)
    valid: bool = True
    reason: str = ""

    def __eq__(self, other: object) -> bool:
        """Field by field, with unknown peaks equal to each other: NaN is not, from Python 3.13 on."""
        if not isinstance(other, Performance):
            return NotImplemented
        pairs = [(getattr(self, one.name), getattr(other, one.name)) for one in fields(self)]
        return all(mine == theirs or (mine != mine and theirs != theirs) for mine, theirs in pairs)


def unknown_performance() -> dict[str, object]:
    """What `asdict` would return for a design that breaks a rule, of which nothing is known."""
    known = dict.fromkeys(one.name for one in fields(Performance))
    words = {"tier": "", "reason": NOT_SIMULATED, "valid": False}
    return {**known, **words, "interval": (None, None), "utilisation": {}, "percentiles": {}}


@dataclass(frozen=True, slots=True)
class SimulatedTry:
    """One try of an activity. `server` is −1 if none is needed; `outcome` is "done", "failed" or "cancelled".

    `ready` is when it could have started; the time until `start` is its wait.
    """

    case: int
    activity: str
    ready: float
    start: float
    end: float
    pool: str | None = None
    server: int = -1
    outcome: str = "done"
