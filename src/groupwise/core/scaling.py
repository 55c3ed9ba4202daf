"""Raw measurements → comparable scores; the scale of what groups earn."""

from __future__ import annotations

import torch
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
