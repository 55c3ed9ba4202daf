"""Policy losses: the table of what makes one differ from another, and the one function that computes them all.

    loss = Σ_i Σ_t w_it mask_it (surrogate_it + β KL_it) [/ |y_i|] / denominator

A row of `LOSSES` chooses the surrogate, the level of the importance ratio, and what the sum is divided by. The
denominator is given and not counted here, so the losses and gradients of micro-batches simply add up.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from groupwise.core.divergence import ReferenceKl, kl_estimate
from groupwise.core.shapes import as_columns, at_least_float32, check_choice, check_positive, check_rank, check_shape
from groupwise.core.surrogates import (
    ImportanceLevel,
    SampledTokens,
    Surrogate,
    cispo,
    clipped,
    importance_ratio,
    sapo,
    vespo,
)
from groupwise.core.tokens import masked_mean, row_lengths

Aggregation: TypeAlias = Literal["mean_of_means", "tokens", "sequences", "fixed_length"]


@dataclass(frozen=True, slots=True)
class LossRule:
    """What makes one loss differ from another.

    surrogate: the function of the sampled tokens; its keyword arguments are the loss's own parameters.
    aggregation: "mean_of_means" averages the tokens of a sequence, then the sequences; "tokens" averages all
    tokens; "sequences" sums the tokens of a sequence and averages the sequences; "fixed_length" divides the
    sum of all tokens by sequences × the longest length allowed.
    clip: ε_low and ε_high where the caller gives neither, for surrogates that clip.
    """

    surrogate: Callable[..., Surrogate]
    importance: ImportanceLevel
    aggregation: Aggregation
    paper: str
    clip: tuple[float, float] = (0.2, 0.2)

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the loss's own parameters."""
        return tuple(inspect.signature(self.surrogate).parameters)[1:]


# DAPO's paper raises ε_high to 0.28. As in TRL that is the caller's choice: 0.2 is what every other token ratio has.
# TRL calls the clipped surrogate averaged over all tokens of a batch BNPO (arXiv 2506.02864): it is DAPO's loss.
_DAPO = LossRule(clipped, "token", "tokens", "DAPO, arXiv 2503.14476")

LOSSES: Mapping[str, LossRule] = MappingProxyType(
    {
        "grpo": LossRule(clipped, "token", "mean_of_means", "DeepSeekMath, arXiv 2402.03300"),
        "bnpo": _DAPO,
        "dapo": _DAPO,
        "dr_grpo": LossRule(clipped, "token", "fixed_length", "Dr. GRPO, arXiv 2503.20783"),
        "gspo": LossRule(clipped, "sequence", "mean_of_means", "GSPO, arXiv 2507.18071", (3e-4, 4e-4)),
        "luspo": LossRule(clipped, "sequence", "sequences", "LUSPO, arXiv 2602.05261", (2e-3, 2.5e-3)),
        "cispo": LossRule(cispo, "token", "tokens", "MiniMax-M1, arXiv 2506.13585"),
        "sapo": LossRule(sapo, "token", "mean_of_means", "SAPO, arXiv 2511.20347"),
        "vespo": LossRule(vespo, "token", "tokens", "VESPO, arXiv 2602.10693"),
    }
)


def loss_rule(loss_type: str) -> LossRule:
    """The rule of that name; a `ValueError` that lists all names if there is none."""
    check_choice("loss_type", loss_type, LOSSES)
    return LOSSES[loss_type]


def clip_range(loss_type: str, low: float | None = None, high: float | None = None) -> tuple[float, float]:
    """ε_low and ε_high of a loss: those given; `low` for both if only that is; else the rule's own.

    Ratios of sequences are geometric means over hundreds of tokens and stay near 1: gspo and luspo have the clips of
    their papers (section 5.1 of each), 3e-4 and 4e-4, and 2e-3 and 2.5e-3.
    """
    own = loss_rule(loss_type).clip
    return own[0] if low is None else low, high if high is not None else own[1] if low is None else low


def loss_denominator(loss_type: str, mask: Tensor, *, max_length: int | None = None) -> float:
    """What `policy_loss` divides by, counted on the mask of the WHOLE batch, before it is split.

    grpo, gspo, sapo, luspo: sequences.  bnpo, dapo, cispo, vespo: tokens.  dr_grpo: sequences × max_length.

    Args:
      mask: [B, T]. Rows without a token count as sequences, so that leaving out an attempt does not
        make the step of the others larger.
      max_length: the longest sequence allowed, for dr_grpo.

    Returns:
      At least 1.
    """
    check_rank("mask", mask, 2)
    aggregation = loss_rule(loss_type).aggregation
    if aggregation == "tokens":
        return float(max(int(mask.bool().sum()), 1))
    if aggregation != "fixed_length":
        return float(max(mask.shape[0], 1))
    if max_length is None:
        raise ValueError(f"{loss_type} divides by the maximum length; pass max_length")
    check_positive("max_length", max_length)
    return float(max(mask.shape[0], 1) * max_length)


@dataclass(frozen=True, slots=True)
class PolicyLoss:
    """`loss` and the two terms it is the sum of carry the gradient; everything else is detached, for metrics.

    policy: the surrogate's term.   kl: that of the KL, β included; None without one.
    per_token: [B, T], surrogate + β KL, before `weights`, 0 outside the mask.
    ratio: [B, T] or [B, 1], as the level says.
    clip_low_fraction, clip_high_fraction: share of tokens whose gradient the clip removed (for cispo: whose
      weight it capped); 0 for the soft surrogates.
    approx_kl: k3 estimate of KL(π_b ‖ π), how far the policy has moved since `behavior_logp`.
    reference_kl: mean of the estimate that β multiplies; None without a reference.
    """

    loss: Tensor
    policy: Tensor
    kl: Tensor | None
    per_token: Tensor
    ratio: Tensor
    clip_low_fraction: Tensor
    clip_high_fraction: Tensor
    approx_kl: Tensor
    reference_kl: Tensor | None


def policy_loss(
    logp: Tensor,
    behavior_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    denominator: float | Tensor,
    loss_type: str = "dapo",
    importance_level: ImportanceLevel | None = None,
    weights: Tensor | None = None,
    sampler_weights: Tensor | None = None,
    keep: Tensor | None = None,
    reference: ReferenceKl | None = None,
    **parameters: float | None,
) -> PolicyLoss:
    """The loss of one batch or micro-batch, by the formula at the top of this module.

    Args:
      logp: log π(y_t), [B, T], of the sampled tokens under the current policy. The gradient goes here.
      behavior_logp: log π_b(y_t), [B, T], which the ratio is taken against: recorded when sampling, by whichever
        policy sampled; on policy, the policy's own before its first change.
      advantages: A, [B] or [B, T]. With a sequence ratio, advantages [B, T] act through their mean.
      mask: [B, T], the policy's own tokens. Whatever stands outside it, NaN included, has no effect.
      denominator: see `loss_denominator`. Required: only the caller knows the whole batch.
      loss_type: a name in `LOSSES`.
      importance_level: "token" or "sequence"; None for the rule's own. For vespo it only touches the KL.
      weights: [B] or [B, T], how much a row or token counts; 2 is as if it were there twice.
      sampler_weights: [B, T], π_b / π_s where another sampler π_s drew the tokens, see `sampler_mismatch`. They
        multiply the surrogate, outside its clip, and the ratio that corrects the KL. No gradient passes.
      keep: [B, T] or [B, 1] bool, the tokens the surrogate acts on, see `tokens`; the KL acts on all.
      reference: the policy to stay near; None for no KL term.
      parameters: the loss's own, by name: those of its function in `surrogates`, for example `clip_low`; for clips
        not given, see `clip_range`.

    Returns:
      `PolicyLoss`.

    Departure: TRL's counterpart of `sampler_weights` never scales the KL; here it does with `importance_correction`,
    whose purpose is a KL of samples that are not the policy's own. TRL also folds it into the weight of vespo.
    """
    rule = loss_rule(loss_type)
    level = importance_level or rule.importance
    if unknown := [name for name in parameters if name not in rule.parameters]:
        raise ValueError(f"{loss_type} has no parameter {unknown[0]!r}; it has {', '.join(rule.parameters)}")
    if "clip_low" in rule.parameters:
        low, high = clip_range(loss_type, parameters.get("clip_low"), parameters.get("clip_high"))
        parameters |= {"clip_low": low, "clip_high": high}
    check_rank("logp", logp, 2)
    row, table = tuple(logp.shape[:1]), tuple(logp.shape)
    check_shape("behavior_logp", behavior_logp, table)
    check_shape("mask", mask, table)
    check_shape("reference.logp", None if reference is None else reference.logp, table)
    check_shape("advantages", advantages, row, table)
    check_shape("weights", weights, row, table)
    check_shape("sampler_weights", sampler_weights, table)
    check_shape("keep", keep, table, (*row, 1))
    check_choice("importance_level", level, ("token", "sequence"))
    check_positive("denominator", denominator)
    inside = mask.bool()
    # Padding may be anything, NaN included: it becomes 0 before the arithmetic, so that no gradient is NaN either.
    logp = torch.where(inside, at_least_float32(logp), 0)
    behavior = torch.where(inside, behavior_logp.detach(), 0).to(logp.dtype)
    # Exactly 0 on the first pass over on-policy samples, whose ratio is then exactly 1.
    log_ratio = logp - behavior
    ratio = importance_ratio(log_ratio, inside, level)
    adv = torch.where(inside, as_columns(advantages.detach()), 0).to(logp.dtype)

    surrogate = rule.surrogate(SampledTokens(logp, log_ratio, ratio, adv), **parameters)
    drawn = 1.0 if sampler_weights is None else torch.where(inside, sampler_weights.detach(), 1).to(logp.dtype)
    per_token = surrogate.per_token * drawn
    if keep is not None:
        per_token = torch.where(keep.bool(), per_token, 0)
    per_token = torch.where(inside, per_token, 0)
    loss = policy = _aggregate(per_token, inside, weights, rule.aggregation) / denominator
    kl = penalty = None
    if reference is not None:
        kl = reference.per_token(logp, inside, ratio * drawn)
        if reference.beta != 0.0:
            penalties = torch.where(inside, reference.beta * kl, 0)
            penalty = _aggregate(penalties, inside, weights, rule.aggregation) / denominator
            loss, per_token = policy + penalty, per_token + penalties

    return PolicyLoss(
        loss=loss,
        policy=policy,
        kl=penalty,
        per_token=per_token.detach(),
        ratio=ratio.detach(),
        clip_low_fraction=_share(surrogate.clipped_low, inside, logp.dtype),
        clip_high_fraction=_share(surrogate.clipped_high, inside, logp.dtype),
        # From the samples' side: they come from π_b, so k3 with the roles exchanged is unbiased.
        approx_kl=masked_mean(kl_estimate(behavior, logp), inside),
        reference_kl=None if kl is None else masked_mean(kl.detach(), inside),
    )


def _share(acted: Tensor | None, inside: Tensor, dtype: torch.dtype) -> Tensor:
    """The share of the tokens of the mask at which a clip acted; 0 for a surrogate without one."""
    return torch.zeros((), dtype=dtype, device=inside.device) if acted is None else masked_mean(acted.to(dtype), inside)


def _aggregate(per_token: Tensor, inside: Tensor, weights: Tensor | None, aggregation: Aggregation) -> Tensor:
    if weights is not None:
        per_token = per_token * torch.where(inside, as_columns(weights.detach()), 0)
    # The division by |y_i| comes first; the denominator of the caller then counts sequences.
    if aggregation == "mean_of_means":
        per_token = per_token / row_lengths(inside)
    return per_token.sum()


def value_loss(
    values: Tensor,
    returns: Tensor,
    mask: Tensor,
    *,
    denominator: float | Tensor,
    old_values: Tensor | None = None,
    value_clip: float | None = None,
) -> Tensor:
    """Half the squared error of the critic, optionally clipped around its values when sampling, as in PPO.

    L = ½ Σ mask · max((V − R)², (V_old + clip(V − V_old, −ε, ε) − R)²) / denominator.
    The squared error is that of "Proximal Policy Optimization" (arXiv 1707.06347), equation 9; the clip is
    not in the paper but in its authors' code.

    Args:
      values: V, [B, T], differentiable.
      returns: R, [B, T]. No gradient passes.
      mask: [B, T], the steps that count.
      denominator: what the sum is divided by, the same for all micro-batches of a batch.
      old_values: V_old, [B, T], from when the steps were sampled; required if `value_clip` is given.
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
