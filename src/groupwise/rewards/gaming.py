"""The alarm: one part of a reward is being gamed at another's cost.

Over the last W = 40 steps, y_x is the mean of part x at each step, b_x its least-squares slope, t_x = b_x / se(b_x),
and s_x the mean standard deviation of x among a step's attempts. r_xy is the correlation of x and y within groups, over
all groups of the window. Part x is being gamed at the cost of part y where

    t_x ≥ 5,  t_y ≤ −5,  t_total ≥ 2,  b_x·(W − 1) ≥ s_x / 2,  −b_y·(W − 1) ≥ s_y / 2,  r_xy ≤ −0.1:

x rises, y falls and the total still rises, beyond chance and by an amount that matters, and the very attempts that
have more of x have less of y. Whether that is a fair price is for a person to say, who is therefore told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from groupwise.types import Hint

WINDOW = 40
SURE, LIKELY = 5.0, 2.0
MATTERS = 0.5
OPPOSED = -0.1

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Gamed:
    """One part that rises at another's cost, with the evidence."""

    rising: str
    falling: str
    rise: float
    fall: float
    gain: float
    correlation: float

    def hint(self) -> Hint:
        up, down = self.rising, self.falling
        return Hint(
            "part_gamed",
            f"{up} rose by {self.rise:.2g} in {WINDOW} steps while {down} fell by {self.fall:.2g}, and the reward rose "
            f"by {self.gain:.2g}; in a group, attempts with more {up} have less {down} (r = {self.correlation:.2f}).",
            f"Read a few attempts of groups/<step>.parquet. If {up} is only pretended, mend its component, give {down} "
            "more weight, or combine by geometric_mean or chebyshev, where one part cannot pay for another.",
        )


def find_gamed(
    names: Sequence[str], means: Floats, stds: Floats, correlations: Mapping[tuple[str, str], float]
) -> list[Gamed]:
    """Every pair the formula holds for.

    Args:
      names: of the P columns; the first is the total.
      means: y, [W, P], NaN where a step has no such part.
      stds: s, [P].
      correlations: r, by pair of names in either order.
    """
    change, t = trends(means)
    enough = np.abs(change) >= MATTERS * stds
    if not t[0] >= LIKELY:
        return []
    rising = [n for n in range(1, len(t)) if t[n] >= SURE and enough[n]]
    falling = [n for n in range(1, len(t)) if t[n] <= -SURE and enough[n]]
    found = []
    for n, m in product(rising, falling):
        up, down = names[n], names[m]
        r = correlations.get((up, down), correlations.get((down, up), 0.0))
        if r <= OPPOSED and not _nested(up, down):
            found.append(Gamed(up, down, float(change[n]), float(-change[m]), float(change[0]), r))
    return found


def trends(series: Floats) -> tuple[Floats, Floats]:
    """Of every column [T, P]: what its line rises by from the first step to the last, and its slope's t value.

    A column with a NaN has no trend, and one that does not change has t = 0.
    """
    steps = len(series)
    time = np.arange(steps) - (steps - 1) / 2
    width = np.square(time).sum()
    slope = time @ (series - series[:1]) / width
    left = series - series.mean(0) - np.outer(time, slope)
    error = np.sqrt(np.square(left).sum(0) / (steps - 2) / width)
    scale = np.maximum(np.abs(series).max(0), 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(np.abs(slope) * steps <= 1e-9 * scale, 0.0, slope / error)
    return slope * (steps - 1), np.where(np.isfinite(slope), t, 0.0)


def _nested(first: str, second: str) -> bool:
    """Whether one is a part of the other."""
    return first.startswith(f"{second}.") or second.startswith(f"{first}.")
