"""Raw measurements → comparable scores → one number for each attempt."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from groupwise.core.shapes import check_positive, check_rank, check_shape


def reference_score(values: Tensor, worst: float, best: float) -> Tensor:
    """Where a measurement stands between two fixed points: 0 at `worst`, 1 at `best`.

    s = clip((x − worst) / (best − worst), 0, 1).

    The score of a design means the same in every batch, today and next year. Smaller may be better:
    `worst` is then the larger number.

    Args:
      values: x, [N].
      worst, best: two different numbers.

    Returns:
      s, [N].
    """
    check_rank("values", values, 1)
    if worst == best:
        raise ValueError(f"worst and best are both {best}; a scale needs two different points")
    return ((values - worst) / (best - worst)).clamp(0, 1)


def zscore(values: Tensor) -> Tensor:
    """Where a measurement stands among the others of this batch: z = (x − mean) / std, population std.

    What it says of a design changes with the company it is in, so it serves to rank one batch and nothing
    else. Values without spread all score 0.

    Args:
      values: x, [N].

    Returns:
      z, [N].
    """
    check_rank("values", values, 1)
    spread = values - values.mean()
    std = spread.square().mean().sqrt()
    negligible = std <= 1e-9 * values.abs().max().clamp(min=1.0)
    return spread * 0.0 if bool(negligible) else spread / std


def mean_square_by_level(squares: Tensor, counts: Tensor, levels: Tensor, *, trust: float = 4.0) -> Tensor:
    """The mean square each row's group is scaled by, groups within groups.

    m = Σ squares / Σ counts over the group at the coarsest level; at each finer one with a attempts
    m ← (a · own + trust · m) / (a + trust).
    A small group borrows from the one around it: with `trust` attempts it is believed half. A group without spread
    of its own, whose mean square is 0, leaves m as it is.

    Args:
      squares: [B], the summed squares of a row.
      counts: [B], how many they are.
      levels: [L, B] integers, each level's groups lying inside those of the level before.
      trust: in attempts, above 0.

    Returns:
      m, [B].
    """
    check_rank("squares", squares, 1)
    check_shape("counts", counts, tuple(squares.shape))
    check_rank("levels", levels, 2)
    check_shape("levels", levels, (levels.shape[0], squares.shape[0]))
    check_positive("trust", trust)
    found = squares.new_zeros(squares.shape)
    for depth, groups in enumerate(levels):
        names, index = torch.unique(groups, return_inverse=True)
        zeros = squares.new_zeros(names.numel())
        total = zeros.index_add(0, index, squares)
        own = (total / zeros.index_add(0, index, counts.to(squares.dtype)).clamp(min=1))[index]
        attempts = zeros.index_add(0, index, torch.ones_like(squares))[index]
        mixed = own if depth == 0 else (attempts * own + trust * found) / (attempts + trust)
        found = mixed if depth == 0 else torch.where(own > 0, mixed, found)
    return found


Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

FLOOR = 0.01
RHO = 0.05
MARGIN = 0.1
MOST_CELLS = 1_000_000
DRAWS = 1 << 14
NEGLIGIBLE = 1e-9


def weighted_sum(scores: ArrayLike, weights: ArrayLike) -> Floats:
    """Σ_k w_k · s_k, [N]."""
    s, w = _checked(scores, weights)
    return np.asarray((s * w).sum(1), np.float64)


def weighted_average(scores: ArrayLike, weights: ArrayLike) -> Floats:
    """Σ_k w_k · s_k / Σ_k w_k, [N]: on the scale of the objectives, whatever the weights add up to."""
    s, w = _checked(scores, weights)
    return np.asarray((s * w).sum(1) / w.sum(), np.float64)


def geometric_mean(scores: ArrayLike, weights: ArrayLike) -> Floats:
    """Π_k max(s_k, 0.01)^(w_k / Σ w), [N].

    An objective near 0 drags the whole down, so none can be bought with the others. Below 0.01 a score counts as 0.01:
    attempts that all lack one thing could not be told apart otherwise, and nothing would be learned. Scores must be at
    least 0.
    """
    s, w = _checked(scores, weights)
    if (s < 0).any():
        raise ValueError(f"a geometric mean needs scores of at least 0, and one is {s.min():g}")
    return np.asarray(np.exp((np.log(np.maximum(s, FLOOR)) * w).sum(1) / w.sum()), np.float64)


def chebyshev(scores: ArrayLike, weights: ArrayLike) -> Floats:
    """1 − [max_k v_k·d_k + ρ · Σ_k v_k·d_k] / (max_k v_k + ρ), [N]; d_k = 1 − s_k, v = w / Σ w, ρ = 0.05.

    The augmented weighted Chebyshev scalarisation (Steuer and Choo 1983) from the ideal point 1: an attempt is judged
    by what it lacks most, and the sum only tells apart attempts that lack the same. It is 1 where every objective is 1
    and 0 where every one is 0, and rises with each of them. Unlike a weighted sum it reaches solutions in the hollows
    of a trade-off.
    """
    s, w = _checked(scores, weights)
    share = w / w.sum()
    lack = share * (1.0 - s)
    worst = share.max() + RHO
    return np.asarray(1.0 - (lack.max(1) + RHO * lack.sum(1)) / worst, np.float64)


def normalize_then_sum(scores: ArrayLike, weights: ArrayLike) -> Floats:
    """Σ_k w_k · z_k / Σ_k w_k, [N]; z_k = (s_k − mean) / std over the rows, population std, 0 where there is no spread.

    An objective counts by its weight and not by how widely it happens to spread (as in GDPO, Liu et al. 2026). Adding a
    constant to an objective, or scaling it, changes nothing.
    """
    s, w = _checked(scores, weights)
    centred = s - s.mean(0)
    std = np.sqrt(np.square(centred).mean(0))
    spread = std > NEGLIGIBLE * np.maximum(np.abs(s).max(0), 1.0)
    z = np.where(spread, centred / np.where(spread, std, 1.0), 0.0)
    return np.asarray((z * w).sum(1) / w.sum(), np.float64)


def pareto(scores: ArrayLike, weights: ArrayLike) -> Floats:
    """(F − 1 − r + h / 2) / F, [N]; r is the row's front of F (0 is the best), h its share of its front's volume.

    Whoever dominates another scores more. Within a front, h is the volume that only this row covers, as a share of the
    sum of those volumes: it is large where an attempt is good in a way the others are not, and 0 for one of two equal
    rows. Weights do not matter here, except that an objective of weight 0 is left out: what is non-dominated and what
    share it covers are the same in any units.
    """
    s, w = _checked(scores, weights)
    s = s[:, w > 0]
    fronts = non_dominated_fronts(s)
    count = int(fronts.max()) + 1
    unit = _unit(s)
    share = np.zeros(len(s))
    for front in range(count):
        rows = fronts == front
        alone = exclusive_volumes(unit[rows] + MARGIN)
        share[rows] = alone / alone.sum() if alone.sum() > 0 else 0.0
    return np.asarray((count - 1 - fronts + share / 2) / count, np.float64)


Combination: TypeAlias = Callable[[ArrayLike, ArrayLike], Floats]
COMBINATIONS: Mapping[str, Combination] = {
    rule.__name__: rule
    for rule in (weighted_sum, weighted_average, geometric_mean, chebyshev, pareto, normalize_then_sum)
}
WITHIN_GROUP = ("pareto", "normalize_then_sum")


def non_dominated_fronts(scores: ArrayLike) -> Ints:
    """The front of each row, [N]: 0 where no row is better, 1 where only rows of front 0 are, and so on.

    A row is better than another (dominates it) where it is at least as good in every column and better in one.
    Non-dominated sorting, Deb et al. 2002 (NSGA-II).
    """
    s = np.asarray(scores, np.float64)
    at_least = (s[:, None, :] >= s[None, :, :]).all(2)
    dominates = at_least & ~at_least.T
    fronts = np.full(len(s), -1, np.int64)
    front = 0
    while (fronts < 0).any():
        left = fronts < 0
        fronts[left & ~(dominates & left[:, None]).any(0)] = front
        front += 1
    return fronts


def exclusive_volumes(points: ArrayLike) -> Floats:
    """What only this point covers, [N]: of the box between 0 and the point, the part in no other point's box.

    Points are [N, K], above 0. Exact while the grid of their coordinates has at most a million cells (16 points in 5
    dimensions); beyond that, counted over 16,384 fixed, evenly spread places, so that it is still the same every time.
    """
    p = np.asarray(points, np.float64)
    axes = [np.unique(column) for column in p.T]
    cells = np.prod([len(axis) for axis in axes], dtype=np.float64)
    return _by_grid(p, axes) if cells <= MOST_CELLS else _by_counting(p)


def _by_grid(points: Floats, axes: list[Floats]) -> Floats:
    """Each cell of the grid belongs to the points that lie above it in every coordinate: a sum from above."""
    shape = tuple(len(axis) for axis in axes)
    place = tuple(np.searchsorted(axis, column) for axis, column in zip(axes, points.T, strict=True))
    count, owner = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    np.add.at(count, place, 1)
    np.add.at(owner, place, np.arange(len(points)))
    for axis in range(len(shape)):
        count = np.flip(np.flip(count, axis).cumsum(axis), axis)
        owner = np.flip(np.flip(owner, axis).cumsum(axis), axis)
    volume = np.ones(())
    for edges in axes:
        volume = volume[..., None] * np.diff(edges, prepend=0.0)
    alone = count == 1
    return np.bincount(owner[alone], volume[alone], len(points)).astype(np.float64)


def _by_counting(points: Floats) -> Floats:
    """The Kronecker sequence of the generalised golden ratio (Roberts 2018) in the box that holds all points."""
    dimensions = points.shape[1]
    golden = 1.0
    for _ in range(64):
        golden = (1.0 + golden) ** (1.0 / (dimensions + 1))
    steps = golden ** -np.arange(1.0, dimensions + 1)
    highest = points.max(0)
    places = ((0.5 + np.arange(1, DRAWS + 1)[:, None] * steps) % 1.0) * highest
    inside = np.ones((DRAWS, len(points)), np.bool_)
    for k in range(dimensions):
        inside &= places[:, k, None] <= points[None, :, k]
    alone = inside & (inside.sum(1, keepdims=True) == 1)
    return np.asarray(alone.mean(0) * highest.prod(), np.float64)


def _unit(scores: Floats) -> Floats:
    """Every column from 0 at its lowest to 1 at its highest; 0 where it has no spread."""
    lowest = scores.min(0)
    spread = scores.max(0) - lowest
    return np.asarray((scores - lowest) / np.where(spread > 0, spread, 1.0), np.float64)


def _checked(scores: ArrayLike, weights: ArrayLike) -> tuple[Floats, Floats]:
    s, w = np.asarray(scores, np.float64), np.asarray(weights, np.float64)
    if s.ndim != 2 or s.size == 0 or w.shape != (s.shape[1],):
        raise ValueError(f"scores have shape {s.shape} and weights {w.shape}; they need (N, K) and (K,)")
    if not np.isfinite(s).all():
        raise ValueError("scores must be finite")
    if not np.isfinite(w).all() or (w < 0).any() or w.sum() <= 0:
        raise ValueError(f"weights are {w.tolist()}; each must be at least 0, and one above 0")
    return s, w
