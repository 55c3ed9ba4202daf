"""The critic's side: its loss, and how much of the returns it explains."""

from __future__ import annotations

import torch
from torch import Tensor

from groupwise.core.shapes import check_positive, check_rank, check_shape


def value_loss(
    values: Tensor,
    returns: Tensor,
    mask: Tensor,
    *,
    denominator: float | Tensor,
    old_values: Tensor | None = None,
    value_clip: float | None = None,
) -> Tensor:
    """Half the squared error of the critic, in the manner of PPO clipped around its values when sampling.

    L = ½ Σ mask · max((V − R)², (V_old + clip(V − V_old, −ε, ε) − R)²) / denominator.
    The squared error is that of "Proximal Policy Optimization" (arXiv 1707.06347), equation 9; the clip is
    not in the paper but in its authors' code.

    Args:
      values: V, [B, T], differentiable.
      returns: R, [B, T]. No gradient passes.
      mask: [B, T], the steps that count.
      denominator: what the sum is divided by, the same for all micro-batches of a batch.
      old_values: V_old, [B, T], from when the steps were sampled; needed where `value_clip` is given.
      value_clip: ε, or None for the plain squared error.

    Returns:
      A scalar.
    """
    check_rank("values", values, 2)
    for name, tensor in (("returns", returns), ("mask", mask), ("old_values", old_values)):
        check_shape(name, tensor, tuple(values.shape))
    check_positive("denominator", denominator)
    inside = mask.bool()
    error = torch.where(inside, values - returns.detach(), 0).square()
    if value_clip is not None:
        if old_values is None:
            raise ValueError(f"value_clip is {value_clip} but there are no old_values to clip around")
        old = old_values.detach()
        near = old + (values - old).clamp(-value_clip, value_clip)
        error = torch.maximum(error, torch.where(inside, near - returns.detach(), 0).square())
    return 0.5 * error.sum() / denominator


def explained_variance(values: Tensor, returns: Tensor, mask: Tensor) -> Tensor:
    """1 − Var(R − V) / Var(R): 1 for a perfect critic, 0 for a constant one, below 0 for a harmful one.

    Args:
      values: V, [B, T].
      returns: R, [B, T].
      mask: [B, T], the steps that count.

    Returns:
      A scalar without gradient; NaN where the returns do not vary, since there is nothing to explain.
    """
    check_rank("values", values, 2)
    check_shape("returns", returns, tuple(values.shape))
    check_shape("mask", mask, tuple(values.shape))
    inside = mask.bool()
    v, r = values.detach()[inside].double(), returns.detach()[inside].double()
    if r.numel() == 0:
        return torch.tensor(torch.nan, device=values.device)
    total, left = r.var(correction=0), (r - v).var(correction=0)
    return torch.where(total > 0, 1 - left / total, torch.nan)
