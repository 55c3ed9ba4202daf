"""How findings are worded: a broken rule as it is reported, and times as people say them (117 min, 2.3 d)."""

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal[
    "unknown activity", "must include", "every case", "precedes", "excludes", "pool", "staffing", "separate",
    "deadline", "overload", "data", "outcome", "loop", "coexist", "response", "chain", "skills", "people",
]  # fmt: skip
ROUNDING = 1e-6  # by which the share of cases may fall short


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken rule: its kind, an explanation, and the activities or pools it concerns."""

    rule: Kind
    words: str
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.rule}: {self.words}"


def time_unit(seconds: float) -> tuple[str, float]:
    """The unit people would use for a time, and its length in seconds."""
    units = (("d", 86400.0), ("h", 3600.0), ("min", 60.0))
    return next(((unit, size) for unit, size in units if 2 * size <= seconds < math.inf), ("s", 1.0))


def in_time(seconds: float, digits: int = 3) -> str:
    unit, size = time_unit(seconds)
    return f"{seconds / size:.{digits}g} {unit}"
