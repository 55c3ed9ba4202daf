"""What one token contributes to the policy loss, for each family of objective. Smaller is better.

All take the importance ratio r = π/π_b ([B, T] per token or [B, 1] per sequence) and advantages A that
broadcast against it, and return the negated objective.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from groupwise.core.divergence import MAX_LOG_RATIO
from groupwise.core.tokens import row_lengths

ImportanceLevel: TypeAlias = Literal["token", "sequence"]


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
    ratio: Tensor, advantages: Tensor, clip_low: float, clip_high: float, dual_clip: float | None = None
) -> Tensor:
    """−min(min(r, δ) A, clip(r, 1 − ε_low, 1 + ε_high) A).

    "Proximal Policy Optimization" (arXiv 1707.06347), equation 7; ε_high > ε_low is clip-higher, "DAPO"
    (arXiv 2503.14476); δ bounds the loss of a negative advantage, whose ratio nothing else bounds from
    above: "INTELLECT-2" (arXiv 2505.07291), and in another notation dual-clip PPO (arXiv 1912.09729).
    """
    if dual_clip is not None and dual_clip <= 1 + clip_high:
        raise ValueError(f"dual_clip is {dual_clip}; it must be above 1 + clip_high = {1 + clip_high}")
    near = ratio.clamp(1 - clip_low, 1 + clip_high)
    bounded = ratio if dual_clip is None else ratio.clamp(max=dual_clip)
    return -torch.min(bounded * advantages, near * advantages)


def cispo(ratio: Tensor, logp: Tensor, advantages: Tensor, cap: float) -> Tensor:
    """−sg[min(r, cap)] A log π: the weight is clipped, and no token loses its gradient.

    "MiniMax-M1" (arXiv 2506.13585), equation 4, which clips at 1 + ε_high and leaves the lower side open;
    "ScaleRL" (arXiv 2510.13786) and TRL name the cap itself, as is done here, and use 5.
    """
    if cap < 1:
        raise ValueError(f"clip_high is {cap}; for cispo it caps the ratio itself and must be at least 1, as 5.0")
    return -ratio.detach().clamp(max=cap) * advantages * logp


def sapo(ratio: Tensor, advantages: Tensor, temperature_pos: float, temperature_neg: float) -> Tensor:
    """−(4/τ) σ(τ (r − 1)) A: a gate that closes smoothly, with slope 1 at r = 1.

    "Soft Adaptive Policy Optimization" (arXiv 2511.20347); τ = τ_pos where A > 0 and τ_neg elsewhere.
    """
    tau = _by_sign(advantages > 0, temperature_pos, temperature_neg, ratio.dtype)
    return -torch.sigmoid(tau * (ratio - 1)) * (4 / tau) * advantages


def _by_sign(condition: Tensor, yes: float, no: float, dtype: torch.dtype) -> Tensor:
    # torch.where on two numbers would round them to float32 first.
    return torch.full(condition.shape, no, dtype=dtype, device=condition.device).masked_fill_(condition, yes)


class Gamma(NamedTuple):
    """The shape of VESPO's φ for advantages >= 0 and < 0."""

    k_pos: float
    lambda_pos: float
    k_neg: float
    lambda_neg: float


def vespo(log_ratio: Tensor, logp: Tensor, advantages: Tensor, gamma: Gamma) -> Tensor:
    """−sg[φ(w)] A log π, with φ(w) = w^k e^{λ(1 − w)} and w = Π_t π/π_b of the whole sequence.

    "VESPO: Variational Sequence-Level Soft Policy Optimization" (arXiv 2602.10693); φ(1) = 1, and k, λ depend
    on the sign of A. `log_ratio` [B, T] is 0 outside the mask. Its sum is not divided by the length, and w is
    clamped to [1e-8, e^20], as in TRL after the authors' code.
    """
    log_ratio = log_ratio.detach().clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    log_w = log_ratio.sum(dim=1, keepdim=True).clamp(math.log(1e-8), MAX_LOG_RATIO)
    rises = advantages >= 0
    k = _by_sign(rises, gamma.k_pos, gamma.k_neg, logp.dtype)
    lam = _by_sign(rises, gamma.lambda_pos, gamma.lambda_neg, logp.dtype).clamp(min=1e-4)
    phi = (lam + k * log_w - lam * log_w.exp()).exp()
    return -phi * advantages * logp
