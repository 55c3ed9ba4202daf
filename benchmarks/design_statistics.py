"""What the designs of a search are worth: gaps, hypervolumes, and how many evaluations reach a quality.

A *course* is what one arm found for one requirement from one seed, read off after each of `BUDGETS` evaluations. Arms
are compared on tables [seeds, requirements, budgets] of shortfalls, of which less is better and which never rise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from groupwise.reporting.statistics import Interval, Statistic, bootstrap, interquartile_mean, percentile_interval

BUDGETS = (1, 4, 16, 64, 256, 1024)
REPETITIONS = 2_000
Table: TypeAlias = NDArray[np.float64]


def hypervolume(points: Table, ideal: Sequence[float], reference: Sequence[float]) -> float:
    """The share of the box from `ideal` to `reference` that the points [n, 3] dominate, all three to be small.

    Slab by slab along the last objective, which has few values: a slab is the union of rectangles of the points below.
    """
    low, high = np.asarray(ideal, np.float64), np.asarray(reference, np.float64)
    assert points.shape == (len(points), 3)
    assert (low < high).all()
    inside = points[np.isfinite(points).all(1)]
    scaled = (np.maximum(inside, low) - low) / (high - low)
    scaled = np.unique(scaled[(scaled < 1).all(1)], axis=0)
    levels = np.unique(scaled[:, 2])
    heights = np.diff(np.append(levels, 1.0))
    return float(sum(h * _area(scaled[scaled[:, 2] <= at, :2]) for at, h in zip(levels, heights, strict=True)))


def _area(points: Table) -> float:
    """What points [n, 2], sorted by the first coordinate, dominate of the unit square."""
    lowest = np.minimum.accumulate(np.append(1.0, points[:, 1]))
    return float(((1 - points[:, 0]) * (lowest[:-1] - lowest[1:])).sum())


def relative_gap(scores: Table, best: Table) -> Table:
    """How far scores [seeds, requirements, budgets] fall short of the best known [requirements], relative to it."""
    return (best[:, np.newaxis] - scores) / best[:, np.newaxis]


def middle(table: Table) -> Table:
    """The interquartile mean over seeds and requirements: [..., seeds, requirements, budgets] → [..., budgets]."""
    return interquartile_mean(np.moveaxis(table, -1, -3))


def band(table: Table, repetitions: int = REPETITIONS) -> list[Interval]:
    """For every budget the interquartile mean with its 95% stratified bootstrap interval."""
    values = middle(table)
    if len(table) < 2:
        return [Interval(float(value), math.nan, math.nan) for value in values]
    samples = _redrawn(lambda flat: middle(_unfolded(flat)), [table], repetitions)
    return [percentile_interval(float(value), column) for value, column in zip(values, samples.T, strict=True)]


def evaluations_needed(shortfall: Table, target: Table) -> Table:
    """After how many evaluations shortfalls [..., budgets] come down to the target [...]; infinite if they never do.

    Between two budgets the shortfall is taken to fall evenly with the logarithm of the evaluations.
    """
    logs = np.log(np.asarray(BUDGETS, np.float64))
    reached = shortfall <= np.asarray(target)[..., np.newaxis]
    after = reached.argmax(-1)
    before = np.maximum(after - 1, 0)
    upper, lower = (np.take_along_axis(shortfall, place[..., np.newaxis], -1)[..., 0] for place in (before, after))
    fall = upper - lower
    share = np.divide(upper - target, fall, out=np.ones_like(fall), where=fall > 0)
    found = np.exp(logs[before] + share * (logs[after] - logs[before]))
    return np.where(reached.any(-1), found, np.inf)


def fewer_evaluations(ours: Table, rivals: Mapping[str, Table], repetitions: int = REPETITIONS) -> tuple[str, Interval]:
    """The best rival, and how many times fewer evaluations we need for its quality at the last budget.

    0 says that ours never reaches it. The interval chooses the best rival anew in every repetition, so that it covers
    the choice too.
    """
    names = list(rivals)
    finals = [float(middle(rivals[name])[-1]) for name in names]

    def ratio(flat: Table, *others: Table) -> Table:
        target = np.min([middle(_unfolded(other))[..., -1] for other in others], 0)
        return np.asarray(BUDGETS[-1] / evaluations_needed(middle(_unfolded(flat)), target))

    tables = [ours, *rivals.values()]
    value = float(ratio(*map(_folded, tables)))
    best = names[int(np.argmin(finals))]
    if len(ours) < 2:
        return best, Interval(value, math.nan, math.nan)
    return best, percentile_interval(value, _redrawn(ratio, tables, repetitions))


def break_even(training_evaluations: int, fewer: float) -> float:
    """After how many requirements training is paid back, each saving what the best rival needs beyond ours."""
    saved = BUDGETS[-1] - (BUDGETS[-1] / fewer if fewer else math.inf)
    return training_evaluations / saved if saved > 0 else math.inf


def _redrawn(statistic: Statistic, tables: Sequence[Table], repetitions: int) -> Table:
    """The statistic of tables whose seeds were drawn anew within each requirement; a course is drawn whole."""
    strata = np.tile(np.arange(tables[0].shape[1]), len(BUDGETS)).tolist()
    return bootstrap(statistic, *map(_folded, tables), strata=strata, repetitions=repetitions)


def _folded(table: Table) -> Table:
    """[seeds, requirements, budgets] as `bootstrap` draws it: a column for each requirement at each budget."""
    return np.moveaxis(table, -1, -2).reshape(len(table), -1)


def _unfolded(flat: Table) -> Table:
    return np.moveaxis(flat.reshape(*flat.shape[:-1], len(BUDGETS), -1), -2, -1)
