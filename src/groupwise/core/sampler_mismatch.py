"""How far the log-probabilities of a sampler are from those of the policy it samples for, and weights that correct it.

An engine computes the same network in another order, or in another precision. In float32 the difference is rounding
(1e-6); in bfloat16 it is a few percent of a token's probability, more than the clip of some losses.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from groupwise.core.divergence import MAX_LOG_RATIO, kl_estimate
from groupwise.core.shapes import at_least_float32, check_rank, check_shape


@dataclass(frozen=True, slots=True)
class SamplerMismatch:
    """Weights [B, T], 1 outside the mask, and sums over the tokens of the mask, all detached.

    With ρ = π/π_s and the weight w:
    gap: Σ |ρ − 1|.   corrected_gap: Σ |ρ/w − 1|, what the weights leave.   kl: Σ of k3, KL(π_s ‖ π).
    truncated: tokens whose weight was capped.   tokens: their number.
    """

    weights: Tensor
    gap: Tensor
    corrected_gap: Tensor
    kl: Tensor
    truncated: Tensor
    tokens: Tensor


def sampler_mismatch(logp: Tensor, sampler_logp: Tensor, mask: Tensor, *, cap: float | None = 2.0) -> SamplerMismatch:
    """Truncated importance weights w = min(ρ, C) of every token, with ρ = π/π_s.

    "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training" (F. Yao et al., 2025), token level;
    C = 2 is theirs, and verl's default.

    Args:
      logp: log π, [B, T], as the learner computes it, before it learns from these tokens. No gradient passes.
      sampler_logp: log π_s, [B, T], recorded when sampling, with the same weights.
      mask: [B, T], the tokens that π_s sampled.
      cap: C, at least 1; None for no correction: every weight is 1.
    """
    check_rank("logp", logp, 2)
    check_shape("sampler_logp", sampler_logp, tuple(logp.shape))
    check_shape("mask", mask, tuple(logp.shape))
    if cap is not None and cap < 1:
        raise ValueError(f"cap is {cap}; it must be at least 1, or None for no correction")
    inside = mask.bool()
    ours, theirs = (torch.where(inside, at_least_float32(values.detach()), 0) for values in (logp, sampler_logp))
    ratio = (ours - theirs).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    weights = torch.ones_like(ratio) if cap is None else ratio.clamp(max=cap)
    return SamplerMismatch(
        weights=weights,
        gap=(ratio - 1).abs().sum(),
        corrected_gap=(ratio / weights - 1).abs().sum(),
        # From the samples' side: they come from π_s.
        kl=kl_estimate(theirs, ours).sum(),
        truncated=(ratio > weights).sum() if cap is not None else inside.new_zeros((), dtype=torch.long),
        tokens=inside.sum(),
    )
