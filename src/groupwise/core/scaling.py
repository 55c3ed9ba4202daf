"""Raw measurements → comparable scores."""

from __future__ import annotations

from torch import Tensor

from groupwise.core.shapes import check_rank


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
