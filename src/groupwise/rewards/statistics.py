"""What the parts of a reward do over time: how large they are, how they vary, and how they go together."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from groupwise.rewards.gaming import WINDOW, Gamed, find_gamed
from groupwise.types import Hint, Score, ScoredGroup

MOST_PARTS, MOST_REPORTED = 16, 6
AVERAGE = "average"
TOTAL = "total"

Floats = NDArray[np.float64]


@dataclass
class Running:
    """Count, mean, deviation and limits of all values seen, none of which is kept (Welford's method)."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    lowest: float = math.inf
    highest: float = -math.inf

    def see(self, values: Floats) -> None:
        seen, count = len(values), self.count + len(values)
        if not seen:
            return
        gap = float(values.mean()) - self.mean
        self.squares += float(np.square(values - values.mean()).sum()) + gap**2 * self.count * seen / count
        self.mean += gap * seen / count
        self.count = count
        self.lowest, self.highest = min(self.lowest, float(values.min())), max(self.highest, float(values.max()))

    @property
    def std(self) -> float:
        return math.sqrt(self.squares / self.count) if self.count else 0.0


@dataclass(frozen=True)
class Step:
    """One step by part: means and deviations [P], NaN where there are none; sums of products within groups [P, P]."""

    means: Floats
    stds: Floats
    products: Floats


class PartStatistics:
    """Sees the scores of every step, in order.

    `table()` tells each part's course so far, `correlations()` how parts go together, `gamed()` what the alarm finds
    now; `metrics()` and `hints()` are what a run reports. The first 16 parts by name are followed. Rewards with fewer
    than two parts have nothing to compare.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.running: dict[str, Running] = {}
        self.steps: deque[Step] = deque(maxlen=WINDOW)
        self._told: dict[tuple[str, str], int] = {}

    def see(self, groups: Sequence[ScoredGroup]) -> None:
        """One step: all groups that were scored in it."""
        self._admit(groups)
        tables = [self._table(group) for group in groups]
        whole = np.concatenate([np.zeros((0, len(self.names))), *tables])
        with np.errstate(over="ignore", invalid="ignore"):
            for column, name in enumerate(self.names):
                values = whole[:, column]
                self.running[name].see(values[np.isfinite(values)])
            self.steps.append(_step(whole, tables))

    def _admit(self, groups: Sequence[ScoredGroup]) -> None:
        """Follow parts that are new, behind the known ones: what was seen before has none of them."""
        found = {name for group in groups for score in group.scores if isinstance(score, Score) for name in score.parts}
        self.names = self.names or [TOTAL]
        self.names += sorted(found - {*self.names, AVERAGE})[: max(0, MOST_PARTS + 1 - len(self.names))]
        self.running |= {name: Running() for name in self.names if name not in self.running}
        self.steps = deque((_widened(step, len(self.names)) for step in self.steps), WINDOW)

    def _table(self, group: ScoredGroup) -> Floats:
        """The group's attempts by part, the total first; NaN where an attempt has no such part."""
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
        """Of the total and of each part: count, mean, std, min and max of all attempts, and the mean of the window."""
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
        """Between parts, within groups, over the window; pairs that no group has, or without spread, are left out."""
        if not self.steps:
            return {}
        matrix = _correlation(np.nansum([step.products for step in self.steps], 0))
        return {
            (first, second): float(matrix[n, m])
            for n, first in enumerate(self.names)
            for m, second in enumerate(self.names)
            if 0 < n < m and np.isfinite(matrix[n, m]) and matrix[n, m] != 0
        }

    def gamed(self) -> list[Gamed]:
        """Every pair the alarm's formula holds for now."""
        if len(self.steps) < WINDOW or len(self.names) < 3:
            return []
        means, stds = (np.array([getattr(step, name) for step in self.steps]) for name in ("means", "stds"))
        return find_gamed(self.names, means, _mean_of_known(stds), self.correlations())

    def metrics(self) -> dict[str, float]:
        """Of the last step and window, for a run's log: deviations of parts, and correlations of the main ones."""
        if len(self.names) < 3 or not self.steps:
            return {}
        last = self.steps[-1]
        found = {
            f"reward/part_std/{name}": float(last.stds[n])
            for n, name in enumerate(self.names)
            if n and np.isfinite(last.stds[n])
        }
        main = [name for name in self.parts if "." not in name][:MOST_REPORTED]
        pairs = {pair: r for pair, r in self.correlations().items() if set(pair) <= set(main)}
        return found | {f"reward/correlation/{first}~{second}": r for (first, second), r in pairs.items()}

    def hints(self) -> tuple[Hint, ...]:
        """Alarms that are new; a pair may alarm again after it has been quiet for a whole window."""
        found = self.gamed()
        new = [alarm for alarm in found if (alarm.rising, alarm.falling) not in self._told]
        self._told = {pair: quiet + 1 for pair, quiet in self._told.items() if quiet < WINDOW}
        self._told |= {(alarm.rising, alarm.falling): 0 for alarm in found}
        return tuple(alarm.hint() for alarm in new)

    def state_dict(self) -> dict[str, Any]:
        return {
            "names": list(self.names),
            "running": {name: vars(seen).copy() for name, seen in self.running.items()},
            "steps": [[step.means.tolist(), step.stds.tolist(), step.products.tolist()] for step in self.steps],
            "told": [[*pair, quiet] for pair, quiet in self._told.items()],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.names = list(state["names"])
        self.running = {name: Running(**seen) for name, seen in state["running"].items()}
        self.steps = deque((Step(*map(np.array, step)) for step in state["steps"]), WINDOW)
        self._told = {(rising, falling): quiet for rising, falling, quiet in state["told"]}


def _step(whole: Floats, tables: Sequence[Floats]) -> Step:
    known = np.isfinite(whole)
    count = known.sum(0)
    means = _divided(np.where(known, whole, 0.0).sum(0), count)
    stds = np.sqrt(_divided(np.where(known, np.square(whole - means), 0.0).sum(0), count))
    products = np.zeros((whole.shape[1], whole.shape[1]))
    for table in tables:
        if len(table) > 1:
            whole_columns = np.isfinite(table).all(0)
            centred = np.where(whole_columns, table - table.mean(0), 0.0)
            products += centred.T @ centred
    return Step(means, stds, products)


def _widened(step: Step, size: int) -> Step:
    more = size - len(step.means)
    unknown = np.full(more, math.nan)
    products = np.pad(step.products, ((0, more), (0, more)))
    return Step(np.concatenate([step.means, unknown]), np.concatenate([step.stds, unknown]), products)


def _correlation(products: Floats) -> Floats:
    with np.errstate(over="ignore", invalid="ignore"):
        scale = np.sqrt(np.outer(np.diag(products), np.diag(products)))
    scale = np.where(np.isfinite(scale), scale, 0.0)
    return np.where(scale > 1e-18, products / np.where(scale > 1e-18, scale, 1.0), math.nan)


def _mean_of_known(table: Floats) -> Floats:
    known = np.isfinite(table)
    return _divided(np.where(known, table, 0.0).sum(0), known.sum(0))


def _divided(totals: Floats, counts: Any) -> Floats:
    return np.where(counts > 0, totals / np.maximum(counts, 1), math.nan)
