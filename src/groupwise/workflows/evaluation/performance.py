"""How a design performs: what every tier of evaluation returns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Tier: TypeAlias = Literal["analytic", "simulation", "schedule"]


@dataclass(frozen=True, slots=True)
class Performance:
    """Means over all cases, those that are knocked out or fail among them. Times are in seconds.

    `cycle_time` is from a case's arrival to its end, `interval` its 95% confidence interval (analytic and schedule: the
    value twice), `waiting` what a case spends in queues, added up over everything it does. `cost` is per case: wages of
    all servers for as long as they are staffed, busy or not, and what activities cost each time they are tried.
    `utilisation` is the busy share of each pool's staffed time. `cpu` and `memory` are the cores and bytes in use on
    average, their peaks the most that was ever in use (analytic: not known, NaN). `completed` is the share of cases
    neither knocked out nor failed. `capacity` is how many cases per second the pools could do.

    `valid` says whether the numbers hold: for the analytic tier whether the design is in the class it is made for, for
    simulation whether the pools keep up with what arrives; `reason` says why not.
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
