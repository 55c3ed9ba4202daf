"""Staying near a reference (KL estimators and their coefficient) and keeping exploring (the entropy bonus)."""

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor

from groupwise.core.shapes import as_columns, check_choice, check_positive, check_rank, check_shape

KlEstimator: TypeAlias = Literal["k1", "k2", "k3"]
KL_ESTIMATORS: tuple[KlEstimator, ...] = get_args(KlEstimator)

# exp(20) is 5e8: far outside any trust region, and still finite in float32.
MAX_LOG_RATIO = 20.0


def kl_estimate(
    logp: Tensor, reference_logp: Tensor, *, estimator: KlEstimator = "k3", ratio: Tensor | None = None
) -> Tensor:
    """Estimates KL(π ‖ π_ref) at every sampled token, differentiable in `logp`.

    With d = log π − log π_ref:  k1 = d,  k2 = d²/2,  k3 = e^(−d) + d − 1.
    "Approximating KL Divergence" (J. Schulman, 2020); k3 is the term of "DeepSeekMath" (arXiv 2402.03300),
    equation 4. For samples of π itself k1 is unbiased and may be negative, k2 is biased and low in variance,
    k3 is unbiased and never negative. This holds for their values. As losses, k1 has a gradient of mean 0,
    k2 that of the reverse KL, k3 that of the forward KL. `ratio` = π/π_b corrects the value for samples of π_b and
    makes the gradient of all three that of the reverse KL: r d ∇log π, plus a term of mean 0 for k1. For k1 and k3 it
    carries a gradient of its own, as in "DeepSeek-V3.2" (arXiv 2512.02556); for k2, which has the gradient d ∇log π
    already, it is a weight without one.

    Args:
      logp: log π, any shape.
      reference_logp: log π_ref of the same shape; frozen, no gradient passes.
      estimator: "k1", "k2" or "k3".
      ratio: π/π_b, of a shape that broadcasts to `logp`; None for no correction. The above holds for ratios per token.

    Returns:
      The estimate per token, in the shape of `logp`.

    Departure: d is clamped to ±20, beyond which the penalty no longer pulls.
    """
    check_choice("estimator", estimator, KL_ESTIMATORS)
    check_shape("reference_logp", reference_logp, tuple(logp.shape))
    d = (logp - reference_logp.detach()).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    if estimator == "k1":
        kl = d
    elif estimator == "k2":
        kl = d.square() / 2
    else:
        kl = torch.exp(-d) + d - 1
    if ratio is None:
        return kl
    return kl * (ratio.detach() if estimator == "k2" else ratio)


@dataclass(frozen=True, slots=True)
class ReferenceKl:
    """The KL term of a policy loss: β · KL(π ‖ π_ref).

    logp: log π_ref, [B, T].
    beta: β; 0 only measures the KL.
    estimator: "k1", "k2" or "k3", see `kl_estimate`.
    importance_correction: multiply the estimate by the importance ratio.
    """

    logp: Tensor
    beta: float = 0.0
    estimator: KlEstimator = "k3"
    importance_correction: bool = True

    def per_token(self, logp: Tensor, mask: Tensor, ratio: Tensor) -> Tensor:
        """The estimate at every token [B, T] of `mask`, without β; `logp` is log π and `ratio` π/π_b."""
        reference = torch.where(mask, self.logp.to(logp.dtype), 0)
        correction = ratio if self.importance_correction else None
        return kl_estimate(logp, reference, estimator=self.estimator, ratio=correction)


def adapt_kl_coefficient(coefficient: float, observed: float, target: float, horizon: float, samples: int) -> float:
    """The next KL coefficient: larger if the observed KL is above the target, smaller if it is below.

    e = clip(KL / KL_target − 1, −0.2, 0.2),  β' = β (1 + e · n / h).
    "Fine-Tuning Language Models from Human Preferences" (arXiv 1909.08593), where K_β = n / h.

    Args:
      coefficient: β now.
      observed: KL measured over the last `samples` samples.
      target: KL_target > 0.
      horizon: h > 0, in samples: how many it takes to change β by a factor of about e^±0.2.
      samples: n, how many samples `observed` was measured on.

    Returns:
      β'. To keep a coefficient fixed, never call this.

    Departure: n / h counts as 1 at most, so that one large batch cannot turn β negative.
    """
    check_positive("target", target)
    check_positive("horizon", horizon)
    # A proportional controller: the error is clipped, so that β changes slowly however far off the KL is.
    error = min(max(observed / target - 1.0, -0.2), 0.2)
    return coefficient * (1.0 + error * min(samples / horizon, 1.0))


def entropy_bonus(
    entropy: Tensor,
    mask: Tensor,
    advantages: Tensor,
    *,
    coefficient: float,
    denominator: float | Tensor,
    keep: Tensor | None = None,
) -> Tensor:
    """The reward for exploring. It is SUBTRACTED from the loss: loss = policy loss − bonus.

    bonus = c · Σ_{i,t} 1[A_i ≠ 0] mask_it keep_it H_it / denominator.
    "Asynchronous Methods for Deep Reinforcement Learning" (arXiv 1602.01783), section 4.

    Args:
      entropy: H, [B, T].
      mask: [B, T], the policy's own tokens.
      advantages: A, [B] or [B, T]. A row whose advantages are all 0 learns nothing and gets no bonus.
      coefficient: c >= 0.
      denominator: as for the loss; the number of tokens in the whole batch makes the bonus a mean.
      keep: [B, T] or [B, 1] bool, the tokens the surrogate acts on; None for all.

    Returns:
      A scalar.

    Departure: the factor 1[A_i ≠ 0]. Without it a batch in which every group has equal rewards is updated by
    the bonus alone, which drives the policy towards the uniform one for as long as the rewards stay equal.
    """
    check_rank("entropy", entropy, 2)
    shape = tuple(entropy.shape)
    check_shape("mask", mask, shape)
    check_shape("advantages", advantages, shape, shape[:1])
    check_shape("keep", keep, shape, (shape[0], 1))
    check_positive("denominator", denominator)
    inside = mask.bool()
    # [B, 1]: whether any token of the row has an advantage.
    learns = (torch.where(inside, as_columns(advantages), 0) != 0).any(dim=1, keepdim=True)
    acts = inside & learns if keep is None else inside & learns & keep.bool()
    return coefficient * torch.where(acts, entropy, 0).sum() / denominator
