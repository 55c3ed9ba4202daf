"""Times as people say them: 117 min, 2.3 d."""

import math


def time_unit(seconds: float) -> tuple[str, float]:
    """The unit people would use for a time, and its length in seconds."""
    units = (("d", 86400.0), ("h", 3600.0), ("min", 60.0))
    return next(((unit, size) for unit, size in units if 2 * size <= seconds < math.inf), ("s", 1.0))


def in_time(seconds: float, digits: int = 3) -> str:
    unit, size = time_unit(seconds)
    return f"{seconds / size:.{digits}g} {unit}"
