"""What one token contributes to the policy loss, one function per family of objectives. Smaller is better.

A surrogate takes the sampled tokens and its own parameters, and returns the negated objective of every token. Which
losses use which surrogate is the table `losses.LOSSES`.
"""

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from groupwise.core.divergence import MAX_LOG_RATIO
from groupwise.core.tokens import row_lengths

ImportanceLevel: TypeAlias = Literal["token", "sequence"]

# The cap that "ScaleRL" (arXiv 2510.13786) and TRL use.
CISPO_CAP = 5.0


@dataclass(frozen=True, slots=True)
class SampledTokens:
    """The tokens of a batch as every surrogate sees them. Outside the mask the ratio is 1 and all else 0.

    logp: log π, [B, T]. It carries the gradient.
    log_ratio: log π − log π_b, [B, T].
    ratio: r = π/π_b, [B, T] per token or [B, 1] per sequence, see `importance_ratio`.
    advantages: A, [B, T] (equal along a row where the caller gave one per row). No gradient.
    """

    logp: Tensor
    log_ratio: Tensor
    ratio: Tensor
    advantages: Tensor


@dataclass(frozen=True, slots=True)
class Surrogate:
    """The negated objective of every token [B, T], and where a clip acted: bool tensors that broadcast to [B, T].

    A surrogate without a clip leaves both as None.
    """

    per_token: Tensor
    clipped_low: Tensor | None = None
    clipped_high: Tensor | None = None


def importance_ratio(log_ratio: Tensor, mask: Tensor, level: ImportanceLevel) -> Tensor:
    """r from log π − log π_b [B, T] (0 outside the mask): per token [B, T], or per sequence [B, 1].

    token: r_it = exp(l_it).  sequence: r_i = exp(Σ_t mask_it l_it / |y_i|), the geometric mean of the token
    ratios, "Group Sequence Policy Optimization" (arXiv 2507.18071), equation 7.

    Departure: the exponent is clamped to ±20, so that one stray token cannot make the loss infinite.
    """
    if level == "sequence":
        log_ratio = log_ratio.sum(dim=1, keepdim=True) / row_lengths(mask)
    return log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


def clipped(
    tokens: SampledTokens, *, clip_low: float = 0.2, clip_high: float | None = None, dual_clip: float | None = None
) -> Surrogate:
    """−min(min(r, δ) A, clip(r, 1 − ε_low, 1 + ε_high) A).

    "Proximal Policy Optimization" (arXiv 1707.06347), equation 7; ε_high > ε_low is clip-higher, "DAPO"
    (arXiv 2503.14476); δ bounds the loss of a negative advantage, whose ratio nothing else bounds from
    above: "INTELLECT-2" (arXiv 2505.07291), and in another notation dual-clip PPO (arXiv 1912.09729).

    Args:
      clip_low: ε_low.
      clip_high: ε_high; None for ε_low.
      dual_clip: δ; None for no bound.
    """
    ratio, adv = tokens.ratio, tokens.advantages
    high = clip_low if clip_high is None else clip_high
    if dual_clip is not None and dual_clip <= 1 + high:
        raise ValueError(f"dual_clip is {dual_clip}; it must be above 1 + clip_high = {1 + high}")
    near = ratio.clamp(1 - clip_low, 1 + high)
    bounded = ratio if dual_clip is None else ratio.clamp(max=dual_clip)
    # The minimum is pessimistic: a clip only removes a gradient that would move the ratio further from 1.
    return Surrogate(
        -torch.min(bounded * adv, near * adv),
        clipped_low=(ratio.detach() < 1 - clip_low) & (adv < 0),
        clipped_high=(ratio.detach() > 1 + high) & (adv > 0),
    )


def cispo(tokens: SampledTokens, *, cap: float = CISPO_CAP) -> Surrogate:
    """−sg[min(r, cap)] A log π: the weight is clipped, and no token loses its gradient.

    "MiniMax-M1" (arXiv 2506.13585), equation 4, which clips at 1 + ε_high and leaves the lower side open;
    "ScaleRL" (arXiv 2510.13786) and TRL name the cap itself, as is done here, and use 5.
    """
    if cap < 1:
        raise ValueError(f"cap is {cap}; for cispo it caps the ratio itself and must be at least 1, for example 5.0")
    ratio = tokens.ratio.detach()
    return Surrogate(-ratio.clamp(max=cap) * tokens.advantages * tokens.logp, clipped_high=ratio > cap)


def sapo(tokens: SampledTokens, *, temperature_pos: float = 1.0, temperature_neg: float = 1.05) -> Surrogate:
    """−(4/τ) σ(τ (r − 1)) A: a gate that closes smoothly, with slope 1 at r = 1.

    "Soft Adaptive Policy Optimization" (arXiv 2511.20347); τ = τ_pos where A > 0 and τ_neg elsewhere.
    """
    ratio, adv = tokens.ratio, tokens.advantages
    tau = _by_sign(adv > 0, temperature_pos, temperature_neg, ratio.dtype)
    return Surrogate(-torch.sigmoid(tau * (ratio - 1)) * (4 / tau) * adv)


def vespo(
    tokens: SampledTokens, *, k_pos: float = 2.0, lambda_pos: float = 3.0, k_neg: float = 3.0, lambda_neg: float = 2.0
) -> Surrogate:
    """−sg[φ(w)] A log π, with φ(w) = w^k e^{λ(1 − w)} and w = Π_t π/π_b of the whole sequence.

    "VESPO: Variational Sequence-Level Soft Policy Optimization" (arXiv 2602.10693); φ(1) = 1, and k, λ depend
    on the sign of A. The sum of log ratios is not divided by the length, and w is clamped to [1e-8, e^20], as in
    TRL after the authors' code. The level of the importance ratio plays no part.
    """
    log_ratio = tokens.log_ratio.detach().clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    log_w = log_ratio.sum(dim=1, keepdim=True).clamp(math.log(1e-8), MAX_LOG_RATIO)
    rises = tokens.advantages >= 0
    k = _by_sign(rises, k_pos, k_neg, tokens.logp.dtype)
    lam = _by_sign(rises, lambda_pos, lambda_neg, tokens.logp.dtype).clamp(min=1e-4)
    # log φ(w) = λ + k log w − λ w, summed in logarithms so that w^k cannot overflow.
    phi = (lam + k * log_w - lam * log_w.exp()).exp()
    return Surrogate(-phi * tokens.advantages * tokens.logp)


def _by_sign(condition: Tensor, yes: float, no: float, dtype: torch.dtype) -> Tensor:
    # torch.where on two numbers would round them to float32 first.
    return torch.full(condition.shape, no, dtype=dtype, device=condition.device).masked_fill_(condition, yes)
