"""Numbers of a run's log: read safely, and formatted for people."""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any


def finite(value: Any) -> float | None:
    """`value` as a float, or None if it is not a finite number."""
    if isinstance(value, bool | str) or value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def number(value: float) -> str:
    """A number for people: two or three digits, or no decimals from a thousand on."""
    if abs(value) >= 999.5:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) >= 0.1 else f"{value:.2g}"


def percent(share: float) -> str:
    return f"{100 * share:.0f}%"


def trend(values: Sequence[float]) -> tuple[float, float]:
    """The least-squares slope per step, and its standard error if the values were independent."""
    n = len(values)
    if n < 3:
        return 0.0, math.inf
    middle, mean = (n - 1) / 2, fmean(values)
    width = sum((i - middle) ** 2 for i in range(n))
    slope = sum((i - middle) * (v - mean) for i, v in enumerate(values)) / width
    left = sum((v - mean - slope * (i - middle)) ** 2 for i, v in enumerate(values))
    return slope, math.sqrt(left / (n - 2) / width)
