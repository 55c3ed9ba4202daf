"""How much each setting matters: functional analysis of variance on a random forest.

A forest predicts the score of a setting from its values. It is a function on the box of all swept values, and splits
into parts that depend on one setting, on two together, and so on (Hutter, Hoos and Leyton-Brown, ICML 2014):

    m_d(x) = E[f | x_d = x]                  V_d  = Var m_d                     one setting alone
    m_de(x, y) = E[f | x_d = x, x_e = y]     V_de = Var m_de − V_d − V_e        two settings together

Every value of a list weighs the same, and every part of a range on its scale. A share is V over the variance of f.
Departures from the paper: f is the mean of all trees and not one tree at a time, so noise that the trees do not agree
on does not count as importance; the interval is a bootstrap over settings and, within each, over its seeds.
"""

import itertools
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from groupwise.control.sweep.axes import Axis
from groupwise.errors import MissingExtra

Vector = NDArray[np.float64]
TREES = 64
REPETITIONS = 100
# With fewer settings a forest says more about itself than about them.
LEAST = 8
# Combinations of levels at which the variance of the whole forest is measured.
POINTS = 4096


@dataclass(frozen=True)
class ForestAnatomy:
    """A forest taken apart: means over all other settings, and shares of its variance.

    `alone[d]` are the predicted scores at the levels of axis d, `pairs[d, e]` those at the levels of two axes, `share`
    and `together` the shares of variance by axis and by pair. `fit` is how much of the variance of the mean score of
    a setting the trees that have not seen it predict (R²; below 0 is worse than their mean).
    """

    alone: tuple[Vector, ...]
    pairs: dict[tuple[int, int], Vector]
    share: Vector
    together: dict[tuple[int, int], float]
    fit: float

    def total(self, axis: int) -> float:
        """The share of an axis alone and in all its pairs."""
        return float(self.share[axis]) + sum(value for pair, value in self.together.items() if axis in pair)


def places(axes: Sequence[Axis], settings: Sequence[Sequence[Any]]) -> Vector:
    """Where settings lie on their axes: [settings, axes]."""
    return np.array([[axis.place(v) for axis, v in zip(axes, values, strict=True)] for values in settings])


def dissect(axes: Sequence[Axis], x: Vector, y: Vector, seed: int = 0) -> ForestAnatomy:
    """Fit a forest to scores y [N] of settings x [N, axes] and take it apart."""
    forest = _forest(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a setting that every tree has seen is left out of the fit
        forest.fit(x, y)
    levels = [axis.levels() for axis in axes]
    inside, values = _boxes(forest, levels)
    widths = np.stack([member.mean(1) for member in inside])  # [axes, leaves]: the share of an axis that a leaf covers
    numbers = range(len(axes))

    def rest(*fixed: int) -> Vector:
        """A leaf's value times the share of the other axes that it covers."""
        return np.asarray(values * np.prod([widths[d] for d in numbers if d not in fixed] or [1.0], axis=0))

    alone = tuple(np.asarray(rest(d) @ inside[d]) for d in numbers)
    pairs = {
        (d, e): (inside[d] * rest(d, e)[:, np.newaxis]).T @ inside[e] for d, e in itertools.combinations(numbers, 2)
    }
    whole = _variance(forest, levels) or 1.0
    share = np.minimum([means.var() / whole for means in alone], 1.0)
    together = {
        (d, e): float(np.clip((table.var() - alone[d].var() - alone[e].var()) / whole, 0.0, 1.0))
        for (d, e), table in pairs.items()
    }
    return ForestAnatomy(alone, pairs, share, together, _fit(forest, y))


def _forest(seed: int) -> Any:
    try:
        from sklearn.ensemble import RandomForestRegressor
    except ImportError:
        message = "the importance of settings needs the package scikit-learn, which is not installed"
        raise MissingExtra(message, hint="pip install 'groupwise[control]'") from None
    return RandomForestRegressor(TREES, min_samples_leaf=2, oob_score=True, random_state=seed, n_jobs=1)


def _boxes(forest: Any, levels: Sequence[Vector]) -> tuple[list[Vector], Vector]:
    """Which levels of each axis lie in each leaf, as 0 and 1 [leaves, levels], and each leaf's part in the forest."""
    lows, highs, values = [], [], []
    for tree in (estimator.tree_ for estimator in forest.estimators_):
        stack = [(0, np.full(len(levels), -math.inf), np.full(len(levels), math.inf))]
        while stack:
            node, low, high = stack.pop()
            if tree.children_left[node] < 0:
                lows.append(low)
                highs.append(high)
                values.append(tree.value[node, 0, 0] / len(forest.estimators_))
                continue
            axis, threshold = tree.feature[node], tree.threshold[node]
            left, right = high.copy(), low.copy()
            left[axis] = right[axis] = threshold
            stack += [(tree.children_left[node], low, left), (tree.children_right[node], right, high)]
    low, high = np.array(lows).T[:, :, np.newaxis], np.array(highs).T[:, :, np.newaxis]
    # A tree sends what equals its threshold to the left.
    inside = [((level > low[d]) & (level <= high[d])).astype(np.float64) for d, level in enumerate(levels)]
    return inside, np.array(values)


def _variance(forest: Any, levels: Sequence[Vector]) -> float:
    """The variance of the forest over all combinations of levels, or over a random part of them if there are many."""
    if math.prod(map(len, levels)) <= POINTS:
        points = np.stack([side.ravel() for side in np.meshgrid(*levels, indexing="ij")], 1)
    else:
        rng = np.random.default_rng(0)
        points = np.stack([rng.choice(level, POINTS) for level in levels], 1)
    return float(np.var(forest.predict(points)))


def _fit(forest: Any, y: Vector) -> float:
    predicted = forest.oob_prediction_
    known = np.isfinite(predicted) & (predicted != 0)  # 0 where every tree has seen the setting
    spread = float(np.square(y[known] - y[known].mean()).sum()) if known.any() else 0.0
    return 1 - float(np.square(y[known] - predicted[known]).sum()) / spread if spread else math.nan


def resampled(
    axes: Sequence[Axis], x: Vector, scores: Sequence[Sequence[float]], repetitions: int, seed: int = 0
) -> list[ForestAnatomy]:
    """The anatomies of bootstrap samples: settings are drawn with replacement, and within each its seeds."""
    found = []
    for number in range(repetitions):
        rng = np.random.default_rng([seed, number])
        rows = rng.integers(0, len(scores), len(scores))
        y = np.array([rng.choice(scores[row], len(scores[row])).mean() for row in rows])
        if y.max() > y.min():
            found.append(dissect(axes, x[rows], y, number))
    return found
