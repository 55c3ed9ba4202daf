"""Statistics of a reward's parts over a run, and an alarm when one part is gamed at another's expense.

The alarm: over the last W = 40 steps, y_x is the mean of part x at each step, b_x its least-squares slope, t_x =
b_x / se(b_x), and s_x the mean standard deviation of x among a step's attempts. r_xy is the correlation of x and y
within groups, over all groups of the window. Part x is gamed at the expense of part y if

    t_x ≥ 5,  t_y ≤ −5,  t_total ≥ 2,  b_x·(W − 1) ≥ s_x / 2,  −b_y·(W − 1) ≥ s_y / 2,  r_xy ≤ −0.1:

x rises, y falls and the total still rises, beyond chance and by an amount that matters, and the same attempts that have
more of x have less of y. Whether the price is fair is for a person to decide, so the run prints a hint.
"""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from groupwise.types import Hint, Score, ScoredGroup

ALARM_WINDOW = 40  # W, in steps
SURE, LIKELY = 5.0, 2.0  # t values: for parts, where many pairs are tried, and for the total
MATTERS = 0.5  # the least change, in standard deviations within a step
OPPOSED = -0.1  # the weakest correlation that counts as a trade-off
MOST_PARTS, MOST_REPORTED = 16, 6
AVERAGE = "average"
TOTAL = "total"

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Gamed:
    """A part that rises at another's expense, with the evidence."""

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
            f"{up} rose by {self.rise:.2g} in {ALARM_WINDOW} steps, {down} fell by {self.fall:.2g}, and the reward "
            f"rose by {self.gain:.2g}; in a group, attempts with more {up} have less {down} "
            f"(r = {self.correlation:.2f}).",
            f"Read a few attempts in groups/<step>.parquet. If {up} is only faked, fix its component, give {down} more "
            "weight, or combine with geometric_mean or chebyshev, which do not let one part make up for another.",
        )


def find_gamed(
    names: Sequence[str], means: Floats, stds: Floats, correlations: Mapping[tuple[str, str], float]
) -> list[Gamed]:
    """Every pair that satisfies the formula.

    Args:
      names: of the P columns; the first is the total.
      means: y, [W, P], NaN if a step has no such part.
      stds: s, [P].
      correlations: r by pair of names, in either order.
    """
    change, t = trends(means)
    enough = np.abs(change) >= MATTERS * stds
    # `not ≥` and not `<`: NaN is no trend.
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
    """For every column of [T, P]: how much its line rises from the first step to the last, and its slope's t value.

    A column with a NaN has no trend, and one that does not change has t = 0.
    """
    steps = len(series)
    time = np.arange(steps) - (steps - 1) / 2  # centred, so that slope and mean can be fitted separately
    width = np.square(time).sum()
    slope = time @ (series - series[:1]) / width
    residuals = series - series.mean(0) - np.outer(time, slope)
    error = np.sqrt(np.square(residuals).sum(0) / (steps - 2) / width)
    # A constant column has residuals of rounding errors only: its slope must not look significant.
    scale = np.maximum(np.abs(series).max(0), 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(np.abs(slope) * steps <= 1e-9 * scale, 0.0, slope / error)
    return slope * (steps - 1), np.where(np.isfinite(slope), t, 0.0)


def _nested(first: str, second: str) -> bool:
    """Whether one is a part of the other: then a trade-off is arithmetic, not gaming."""
    return first.startswith(f"{second}.") or second.startswith(f"{first}.")


@dataclass
class RunningMoments:
    """Count, mean, standard deviation and range of all values seen, without keeping them (Welford's method)."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    lowest: float = math.inf
    highest: float = -math.inf

    def see(self, values: Floats) -> None:
        seen, count = len(values), self.count + len(values)
        if not seen:
            return
        # Chan et al. 1979: the squares of both sets, and what the gap between their means adds.
        gap = float(values.mean()) - self.mean
        self.squares += float(np.square(values - values.mean()).sum()) + gap * gap * self.count * seen / count
        self.mean += gap * seen / count
        self.count = count
        self.lowest, self.highest = min(self.lowest, float(values.min())), max(self.highest, float(values.max()))

    @property
    def std(self) -> float:
        return math.sqrt(self.squares / self.count) if self.count else 0.0


@dataclass(frozen=True)
class StepMoments:
    """One step: means and standard deviations of parts [P], NaN if unknown; sums of products within groups [P, P]."""

    means: Floats
    stds: Floats
    products: Floats


class PartStatistics:
    """Sees the scores of every step, in order.

    `table()` summarises each part so far, `correlations()` shows how parts go together, `gamed()` what the alarm finds
    now; a run reports `metrics()` and `hints()`. The first 16 parts by name are followed. A reward with fewer than two
    parts has nothing to compare.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.running: dict[str, RunningMoments] = {}
        self.steps: deque[StepMoments] = deque(maxlen=ALARM_WINDOW)
        self.spread: dict[str, float] = {}  # of the last step
        self._quiet: dict[tuple[str, str], int] = {}  # steps since a pair last alarmed

    def see(self, groups: Sequence[ScoredGroup]) -> None:
        """Take in one step: all groups that were scored in it."""
        self._admit(groups)
        tables = [self._table(group) for group in groups]
        # [attempts, P] of all groups; the empty table gives the shape if there are no attempts.
        whole = np.concatenate([np.zeros((0, len(self.names))), *tables])
        with np.errstate(over="ignore", invalid="ignore"):
            for column, name in enumerate(self.names):
                values = whole[:, column]
                self.running[name].see(values[np.isfinite(values)])
            self.steps.append(_step_moments(whole, tables))
            self.spread = self._spread(whole)

    def _spread(self, whole: Floats) -> dict[str, float]:
        """The deviation of each part of the step over all its attempts, 0 where an attempt lacks it, as in its mean."""
        known = np.isfinite(whole)
        if not len(whole):
            return {}
        stds = np.where(known, whole, 0.0).std(0)
        return {name: float(stds[n]) for n, name in enumerate(self.names) if n and known[:, n].any()}

    def _admit(self, groups: Sequence[ScoredGroup]) -> None:
        """Follow parts that are new. They come after the known ones, so that earlier steps only need to be widened."""
        found = {name for group in groups for score in group.scores if isinstance(score, Score) for name in score.parts}
        # The total is always column 0.
        self.names = self.names or [TOTAL]
        self.names += sorted(found - {*self.names, AVERAGE})[: max(0, MOST_PARTS + 1 - len(self.names))]
        self.running |= {name: RunningMoments() for name in self.names if name not in self.running}
        self.steps = deque((_widened(step, len(self.names)) for step in self.steps), ALARM_WINDOW)

    def _table(self, group: ScoredGroup) -> Floats:
        """The group's scores [attempts, P], the total first; NaN if an attempt has no such part."""
        rows = [
            [score.parts.get(AVERAGE, score.total), *(score.parts.get(name, math.nan) for name in self.names[1:])]
            for score in group.scores
            if isinstance(score, Score)
        ]
        return np.array(rows, np.float64).reshape(len(rows), len(self.names))

    @property
    def parts(self) -> list[str]:
        return self.names[1:]

    def table(self) -> dict[str, dict[str, float]]:
        """For the total and each part: count, mean, std, min and max of all attempts, and the mean over the window."""
        recent = _mean_of_known(np.array([step.means for step in self.steps]).reshape(-1, len(self.names)))
        return {
            name: {
                "count": float(seen.count), "mean": seen.mean, "std": seen.std, "min": seen.lowest, "max": seen.highest,
                "recent": float(recent[n]),
            }
            for n, (name, seen) in enumerate((name, self.running[name]) for name in self.names)
            if seen.count
        }  # fmt: skip

    def correlations(self) -> dict[tuple[str, str], float]:
        """Between parts, within groups, over the window; without pairs that no group has or that do not vary."""
        if not self.steps:
            return {}
        matrix = _correlation(np.nansum([step.products for step in self.steps], 0))
        return {
            (first, second): float(matrix[n, m])
            for n, first in enumerate(self.names)
            for m, second in enumerate(self.names)
            # Column 0 is the total, which is made of the parts.
            if 0 < n < m and np.isfinite(matrix[n, m]) and matrix[n, m] != 0
        }

    def gamed(self) -> list[Gamed]:
        """Every pair that satisfies the alarm's formula now."""
        if len(self.steps) < ALARM_WINDOW or len(self.names) < 3:
            return []
        means, stds = (np.array([getattr(step, name) for step in self.steps]) for name in ("means", "stds"))
        return find_gamed(self.names, means, _mean_of_known(stds), self.correlations())

    def metrics(self) -> dict[str, float]:
        """For the run's log: the standard deviations of the last step, and the correlations of the main parts."""
        if len(self.names) < 3 or not self.steps:
            return {}
        found = {f"reward/part_std/{name}": std for name, std in self.spread.items() if math.isfinite(std)}
        main = [name for name in self.parts if "." not in name][:MOST_REPORTED]
        pairs = {pair: r for pair, r in self.correlations().items() if set(pair) <= set(main)}
        return found | {f"reward/correlation/{first}~{second}": r for (first, second), r in pairs.items()}

    def hints(self) -> tuple[Hint, ...]:
        """New alarms; a pair can alarm again after it was quiet for a whole window."""
        found = self.gamed()
        new = [alarm for alarm in found if (alarm.rising, alarm.falling) not in self._quiet]
        self._quiet = {pair: quiet + 1 for pair, quiet in self._quiet.items() if quiet < ALARM_WINDOW}
        self._quiet |= {(alarm.rising, alarm.falling): 0 for alarm in found}
        return tuple(alarm.hint() for alarm in new)

    def state_dict(self) -> dict[str, Any]:
        return {
            "names": list(self.names),
            "running": {name: vars(seen).copy() for name, seen in self.running.items()},
            "steps": [[step.means.tolist(), step.stds.tolist(), step.products.tolist()] for step in self.steps],
            "told": [[*pair, quiet] for pair, quiet in self._quiet.items()],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.names = list(state["names"])
        self.running = {name: RunningMoments(**seen) for name, seen in state["running"].items()}
        self.steps = deque((StepMoments(*map(np.array, step)) for step in state["steps"]), ALARM_WINDOW)
        self._quiet = {(rising, falling): quiet for rising, falling, quiet in state["told"]}


def _step_moments(whole: Floats, tables: Sequence[Floats]) -> StepMoments:
    known = np.isfinite(whole)
    count = known.sum(0)
    means = _divided(np.where(known, whole, 0.0).sum(0), count)
    stds = np.sqrt(_divided(np.where(known, np.square(whole - means), 0.0).sum(0), count))
    # Centred per group: what differs between tasks must not look like a correlation of parts.
    products = np.zeros((whole.shape[1], whole.shape[1]))
    for table in tables:
        if len(table) > 1:
            complete = np.isfinite(table).all(0)
            centred = np.where(complete, table - table.mean(0), 0.0)
            products += centred.T @ centred
    return StepMoments(means, stds, products)


def _widened(step: StepMoments, size: int) -> StepMoments:
    more = size - len(step.means)
    unknown = np.full(more, math.nan)
    products = np.pad(step.products, ((0, more), (0, more)))
    return StepMoments(np.concatenate([step.means, unknown]), np.concatenate([step.stds, unknown]), products)


def _correlation(products: Floats) -> Floats:
    with np.errstate(over="ignore", invalid="ignore"):
        scale = np.sqrt(np.outer(np.diag(products), np.diag(products)))
    # Products of huge scores overflow: such a pair has no correlation, rather than a wrong one.
    scale = np.where(np.isfinite(scale), scale, 0.0)
    return np.where(scale > 1e-18, products / np.where(scale > 1e-18, scale, 1.0), math.nan)


def _mean_of_known(table: Floats) -> Floats:
    known = np.isfinite(table)
    return _divided(np.where(known, table, 0.0).sum(0), known.sum(0))


def _divided(totals: Floats, counts: Any) -> Floats:
    return np.where(counts > 0, totals / np.maximum(counts, 1), math.nan)
