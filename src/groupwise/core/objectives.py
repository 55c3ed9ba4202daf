"""Several objectives of an attempt → one number, and the scale of nested groups.

    zscore                     a value relative to its batch
    mean_square_by_level       the scale of nested groups

    weighted_sum               Σ w·s
    weighted_average           Σ w·s / Σ w
    geometric_mean             exp(Σ w·log s / Σ w), s at least 0.01
    chebyshev                  1 − the worst weighted shortfall from 1, as a share of the worst possible
    pareto                     the attempt's front in its group, and within the front its weighted average
    normalize_then_sum         Σ w·z / Σ w, z being each objective's z-score within the group

In the rules that combine objectives, s is [N, K], a row for each of N attempts and a column for each of K objectives,
larger being better; w is [K], at least 0 and not all 0. The first four look at one row at a time; the last two compare
the rows of a group, so their mean over a group says nothing about how good the group is.

    rule                s may be                  the total is
    weighted_sum        any number, one unit      in that unit, times Σ w
    weighted_average    any number, one unit      in that unit
    geometric_mean      0 or more, any units      in the product of the units to the power of their shares
    chebyshev           0 to 1                    0 to 1: a share of the way from the worst to the best
    pareto              any number, any units     0 to 1: a standing in the group
    normalize_then_sum  any number, any units     in standard deviations of the group
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from groupwise.core.shapes import check_positive, check_rank, check_shape


def zscore(values: Tensor) -> Tensor:
    """A value relative to the others of its batch, [N]: z = (x − mean) / std, population std.

    It depends on the rest of the batch, so use it to rank one batch and for nothing else. Values without spread all
    score 0.
    """
    check_rank("values", values, 1)
    spread = values - values.mean()
    std = spread.square().mean().sqrt()
    negligible = std <= 1e-9 * values.abs().max().clamp(min=1.0)
    return spread * 0.0 if bool(negligible) else spread / std


def mean_square_by_level(squares: Tensor, counts: Tensor, levels: Tensor, *, trust: float = 4.0) -> Tensor:
    """The mean square by which each row's group is scaled, for nested groups.

    m = Σ squares / Σ counts over the group at the coarsest level; at each finer level, for a group of a attempts,
    m ← (a · own + trust · m) / (a + trust).
    A small group borrows from the one around it: with `trust` attempts, its own mean square counts half. A group
    without any spread of its own, whose mean square is 0, leaves m unchanged.

    Args:
      squares: [B], the sum of squares of a row.
      counts: [B], how many squares were summed.
      levels: [L, B] integers, each level's groups nested in those of the level before.
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

# The lowest score that counts in a geometric mean.
FLOOR = 0.01
# Steuer and Choo's ρ: the weight of the sum beside the maximum.
RHO = 0.05
# A spread below this share of the largest score is rounding.
NEGLIGIBLE = 1e-9


def weighted_sum(scores: ArrayLike, weights: ArrayLike) -> Floats:
    """Σ_k w_k · s_k, [N]."""
    s, w = _checked(scores, weights)
    return np.asarray((s * w).sum(1), np.float64)


def weighted_average(scores: ArrayLike, weights: ArrayLike) -> Floats:
    """Σ_k w_k · s_k / Σ_k w_k, [N]: on the objectives' scale, whatever the weights add up to."""
    s, w = _checked(scores, weights)
    return np.asarray((s * w).sum(1) / w.sum(), np.float64)


def geometric_mean(scores: ArrayLike, weights: ArrayLike) -> Floats:
    """Π_k max(s_k, 0.01)^(w_k / Σ w), [N].

    An objective near 0 drags down the result, so the others cannot make up for it. A score below 0.01 counts as 0.01:
    otherwise all attempts that fail in one objective would score 0 and nothing could be learned from them. Scores must
    be at least 0.
    """
    s, w = _checked(scores, weights)
    lowest = s[:, w > 0].min()
    if lowest < -NEGLIGIBLE:
        raise ValueError(f"a geometric mean needs scores of at least 0; the lowest is {lowest:g}")
    return np.asarray(np.exp((np.log(np.maximum(s, FLOOR)) * w).sum(1) / w.sum()), np.float64)


def chebyshev(scores: ArrayLike, weights: ArrayLike) -> Floats:
    """1 − [max_k v_k·d_k + ρ · Σ_k v_k·d_k] / (max_k v_k + ρ), [N]; d_k = 1 − s_k, v = w / Σ w, ρ = 0.05.

    The augmented weighted Chebyshev scalarisation (Steuer and Choo 1983) from the ideal point 1: an attempt is judged
    by its worst objective, and the sum only breaks ties. It is 1 if every objective is 1, 0 if every one is 0, and
    increases with each of them. Unlike a weighted sum it also reaches the concave parts of a Pareto front. Scores of
    weight above 0 must be in [0, 1]: the ideal point of another scale is not 1.
    """
    s, w = _checked(scores, weights)
    low, high = s[:, w > 0].min(), s[:, w > 0].max()
    if low < -NEGLIGIBLE or high > 1 + NEGLIGIBLE:
        raise ValueError(f"chebyshev needs scores from 0 to 1; these range from {low:g} to {high:g}")
    share = w / w.sum()
    lack = share * (1.0 - s)
    worst = share.max() + RHO
    return np.asarray(1.0 - (lack.max(1) + RHO * lack.sum(1)) / worst, np.float64)


def normalize_then_sum(scores: ArrayLike, weights: ArrayLike) -> Floats:
    """Σ_k w_k · z_k / Σ_k w_k, [N]; z_k = (s_k − mean) / std over the rows, population std, 0 if there is no spread.

    An objective counts according to its weight, not its spread (as in GDPO, Liu et al. 2026). Adding a constant to an
    objective, or scaling it, changes nothing.
    """
    s, w = _checked(scores, weights)
    centred = s - s.mean(0)
    std = np.sqrt(np.square(centred).mean(0))
    spread = std > NEGLIGIBLE * np.maximum(np.abs(s).max(0), 1.0)
    z = np.where(spread, centred / np.where(spread, std, 1.0), 0.0)
    return np.asarray((z * w).sum(1) / w.sum(), np.float64)


def pareto(scores: ArrayLike, weights: ArrayLike) -> Floats:
    """(F − 1 − r + a) / F, [N]; r is the row's front of F (0 is the best), a = Σ_k w_k · u_k / Σ w, in [0, 1].

    u_k is s_k as a share of the way from the lowest to the highest value of its column, 0 being one of them: a unit
    does not matter, but whether two attempts differ by a hundredth or by half does. A row that dominates another scores
    higher, whatever the weights; rows of one front, none of which dominates another, are ranked by the weights. Equal
    rows score the same however many there are, so a group that agrees is not punished for it. An objective of weight 0
    is left out.
    """
    s, w = _checked(scores, weights)
    s, w = s[:, w > 0], w[w > 0]
    fronts = non_dominated_fronts(s)
    count = int(fronts.max()) + 1
    low, high = np.minimum(s.min(0), 0.0), np.maximum(s.max(0), 0.0)
    unit = (s - low) / np.where(high > low, high - low, 1.0)
    return np.asarray((count - 1 - fronts + unit @ (w / w.sum())) / count, np.float64)


Combination: TypeAlias = Callable[[ArrayLike, ArrayLike], Floats]
COMBINATIONS: Mapping[str, Combination] = {
    rule.__name__: rule
    for rule in (weighted_sum, weighted_average, geometric_mean, chebyshev, pareto, normalize_then_sum)
}
WITHIN_GROUP = ("pareto", "normalize_then_sum")
# What the scores of a rule must lie between; the others take any number.
SCALES: Mapping[str, tuple[float, float]] = {"geometric_mean": (0.0, np.inf), "chebyshev": (0.0, 1.0)}


def non_dominated_fronts(scores: ArrayLike) -> Ints:
    """The front of each row, [N]: 0 if no row dominates it, 1 if only rows of front 0 do, and so on.

    A row dominates another if it is at least as good in every column and better in one.
    Non-dominated sorting, Deb et al. 2002 (NSGA-II).
    """
    s = np.asarray(scores, np.float64)
    # [N, N]: row i is at least as good as row j everywhere.
    at_least = (s[:, None, :] >= s[None, :, :]).all(2)
    dominates = at_least & ~at_least.T
    fronts = np.full(len(s), -1, np.int64)
    front = 0
    while (fronts < 0).any():
        left = fronts < 0
        fronts[left & ~(dominates & left[:, None]).any(0)] = front
        front += 1
    return fronts


def _checked(scores: ArrayLike, weights: ArrayLike) -> tuple[Floats, Floats]:
    s, w = np.asarray(scores, np.float64), np.asarray(weights, np.float64)
    if s.ndim != 2 or s.size == 0 or w.shape != (s.shape[1],):
        raise ValueError(f"scores have shape {s.shape} and weights {w.shape}, but must have (N, K) and (K,)")
    if not np.isfinite(s).all():
        raise ValueError("scores must be finite")
    if not np.isfinite(w).all() or (w < 0).any() or w.sum() <= 0:
        raise ValueError(f"weights are {w.tolist()}; each must be at least 0, and one above 0")
    return s, w
