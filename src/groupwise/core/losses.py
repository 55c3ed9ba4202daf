"""Policy losses as parameters of one clipped surrogate.

    loss = Σ_i Σ_t w_it mask_it (surrogate_it + β KL_it) [/ |y_i|] / denominator

A rule of `rules.LOSSES` chooses the surrogate, the level of the importance ratio, and what the sum is divided
by. The denominator is given and not counted here, so the losses and gradients of micro-batches simply add up.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

import groupwise.core.surrogates as surrogates
from groupwise.core.divergence import KlEstimator, entropy_bonus, kl_estimate
from groupwise.core.rules import Aggregation, LossRule, loss_denominator, loss_rule
from groupwise.core.shapes import as_columns, at_least_float32, check_choice, check_positive, check_rank, check_shape
from groupwise.core.surrogates import ImportanceLevel, importance_ratio
from groupwise.core.tokens import masked_mean, row_lengths, token_entropy, token_logp

CISPO_CAP = 5.0


@dataclass(frozen=True, slots=True)
class PolicyLoss:
    """`loss` carries the gradient; everything else is detached and for the reader.

    per_token: [B, T], surrogate + β KL, before weights, 0 outside the mask.
    ratio: [B, T] or [B, 1], as the level says.
    clip_low_fraction, clip_high_fraction: share of tokens whose gradient the clip removed (for cispo: whose
      weight it capped); 0 for the soft surrogates.
    approx_kl: k3 estimate of KL(π_b ‖ π), how far the policy has moved since sampling.
    reference_kl: mean of the estimate that β multiplies; None without a reference.
    """

    loss: Tensor
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
    clip_low: float = 0.2,
    clip_high: float | None = None,
    dual_clip: float | None = None,
    weights: Tensor | None = None,
    keep: Tensor | None = None,
    reference_logp: Tensor | None = None,
    beta: float = 0.0,
    kl_estimator: KlEstimator = "k3",
    kl_importance_correction: bool = True,
    sapo_temperature_pos: float = 1.0,
    sapo_temperature_neg: float = 1.05,
    vespo_k_pos: float = 2.0,
    vespo_lambda_pos: float = 3.0,
    vespo_k_neg: float = 3.0,
    vespo_lambda_neg: float = 2.0,
) -> PolicyLoss:
    """The loss of one batch or micro-batch, by the formula at the top of this module.

    Args:
      logp: log π(y_t), [B, T], of the sampled tokens under the current policy. The gradient goes here.
      behavior_logp: log π_b(y_t), [B, T], recorded when sampling, by whichever policy sampled.
      advantages: A, [B] or [B, T]. With a sequence ratio, advantages [B, T] act through their mean.
      mask: [B, T], the policy's own tokens. Whatever stands outside it, NaN included, has no effect.
      denominator: see `loss_denominator`. Required: only the caller knows the whole batch.
      loss_type: a name in `LOSSES`.
      importance_level: "token" or "sequence"; None for the rule's own. For vespo it only touches the KL.
      clip_low: ε_low. For gspo the paper's 3e-4, since a geometric mean of ratios stays near 1.
      clip_high: ε_high; None for ε_low. For gspo 4e-4. For cispo the cap on the ratio itself; None for 5.
      dual_clip: δ, a bound on the ratio from above, for negative advantages; clipped surrogates only.
      weights: [B] or [B, T], how much a row or token counts; 2 is as if it were there twice.
      keep: [B, T] or [B, 1] bool, the tokens the surrogate acts on, see `masks`; the KL acts on all.
      reference_logp: log π_ref, [B, T]. Without it there is no KL.
      beta: β, the KL coefficient.
      kl_estimator: "k1", "k2" or "k3", see `divergence.kl_estimate`.
      kl_importance_correction: multiply the KL by the importance ratio.
      sapo_temperature_pos, sapo_temperature_neg: τ of the soft gate.
      vespo_k_pos, vespo_lambda_pos, vespo_k_neg, vespo_lambda_neg: shape of φ.

    Returns:
      `PolicyLoss`.

    Departure: `weights` scale the whole of a token's contribution; TRL's weights, which correct for a sampler
    that differs from the trainer, leave the KL unscaled.
    """
    rule = loss_rule(loss_type)
    level = importance_level or rule.importance
    _check(logp, behavior_logp, advantages, mask, weights, keep, reference_logp, denominator, level)
    if beta != 0.0 and reference_logp is None:
        raise ValueError(f"beta is {beta} but there is no reference_logp to stay near")
    if dual_clip is not None and rule.surrogate != "clipped":
        raise ValueError(f"dual_clip is {dual_clip} but {loss_type} has no clip that it could complete")
    inside = mask.bool()
    logp = torch.where(inside, at_least_float32(logp), 0)
    behavior = torch.where(inside, behavior_logp.detach(), 0).to(logp.dtype)
    log_ratio = logp - behavior
    ratio = importance_ratio(log_ratio, inside, level)
    adv = torch.where(inside, as_columns(advantages.detach()), 0).to(logp.dtype)
    high = clip_high if clip_high is not None else CISPO_CAP if rule.surrogate == "cispo" else clip_low

    match rule.surrogate:
        case "clipped":
            per_token = surrogates.clipped(ratio, adv, clip_low, high, dual_clip)
        case "cispo":
            per_token = surrogates.cispo(ratio, logp, adv, high)
        case "sapo":
            per_token = surrogates.sapo(ratio, adv, sapo_temperature_pos, sapo_temperature_neg)
        case "vespo":
            gamma = surrogates.Gamma(vespo_k_pos, vespo_lambda_pos, vespo_k_neg, vespo_lambda_neg)
            per_token = surrogates.vespo(log_ratio, logp, adv, gamma)
    if keep is not None:
        per_token = torch.where(keep.bool(), per_token, 0)
    kl = None
    if reference_logp is not None:
        reference = torch.where(inside, reference_logp.to(logp.dtype), 0)
        correction = ratio if kl_importance_correction else None
        kl = kl_estimate(logp, reference, estimator=kl_estimator, ratio=correction)
        per_token = per_token + beta * kl if beta != 0.0 else per_token
    per_token = torch.where(inside, per_token, 0)

    low_fraction, high_fraction = _clip_fractions(rule, ratio.detach(), adv, inside, clip_low, high)
    return PolicyLoss(
        loss=_aggregate(per_token, inside, weights, rule.aggregation) / denominator,
        per_token=per_token.detach(),
        ratio=ratio.detach(),
        clip_low_fraction=low_fraction,
        clip_high_fraction=high_fraction,
        approx_kl=masked_mean(kl_estimate(behavior, logp), inside),
        reference_kl=None if kl is None else masked_mean(kl.detach(), inside),
    )


def _check(
    logp: Tensor,
    behavior_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    weights: Tensor | None,
    keep: Tensor | None,
    reference_logp: Tensor | None,
    denominator: float | Tensor,
    level: str,
) -> None:
    check_rank("logp", logp, 2)
    rows, columns = logp.shape
    for name, tensor in (
        ("behavior_logp", behavior_logp),
        ("mask", mask),
        ("reference_logp", reference_logp),
    ):
        check_shape(name, tensor, (rows, columns))
    check_shape("advantages", advantages, (rows,), (rows, columns))
    check_shape("weights", weights, (rows,), (rows, columns))
    check_shape("keep", keep, (rows, columns), (rows, 1))
    check_choice("importance_level", level, ("token", "sequence"))
    check_positive("denominator", denominator)


def _aggregate(per_token: Tensor, inside: Tensor, weights: Tensor | None, aggregation: Aggregation) -> Tensor:
    if weights is not None:
        per_token = per_token * torch.where(inside, as_columns(weights.detach()), 0)
    if aggregation == "mean_of_means":
        per_token = per_token / row_lengths(inside)
    return per_token.sum()


def _clip_fractions(
    rule: LossRule, ratio: Tensor, advantages: Tensor, inside: Tensor, clip_low: float, clip_high: float
) -> tuple[Tensor, Tensor]:
    nothing = torch.zeros_like(inside)
    low, high = nothing, nothing
    if rule.surrogate == "clipped":
        low, high = (ratio < 1 - clip_low) & (advantages < 0), (ratio > 1 + clip_high) & (advantages > 0)
    elif rule.surrogate == "cispo":
        high = (ratio > clip_high) | nothing
    return masked_mean(low.to(ratio.dtype), inside), masked_mean(high.to(ratio.dtype), inside)


def compute_grpo_loss(
    logits: Tensor,
    input_ids: Tensor,
    response_mask: Tensor,
    advantages: Tensor,
    *,
    behavior_logp: Tensor | None = None,
    loss_type: str = "bnpo",
    clip_low: float = 0.2,
    clip_high: float | None = None,
    max_length: int | None = None,
    entropy_coefficient: float = 0.0,
    temperature: float = 1.0,
) -> dict[str, Tensor]:
    """`policy_loss` straight from a causal model's logits, for a batch that is not split.

    loss = pg_loss − c · (entropy of the rows that learn). Everything is given in line with `input_ids`; the
    shift is made here: the advantage of token t meets the logits at t − 1, which predicted it.

    Args:
      logits: [B, T, V], the model's output for `input_ids`.
      input_ids: [B, T].
      response_mask: [B, T], the tokens the policy sampled. Nothing predicts the first token of a row, which
        never counts.
      advantages: [B], or [B, T] as `compute_grpo_advantages` gives them.
      behavior_logp: [B, T], recorded when sampling; None for samples of this very policy (ratio 1).
      loss_type, clip_low, clip_high, max_length: as for `policy_loss` and `loss_denominator`.
      entropy_coefficient: c.
      temperature: that of sampling.

    Returns:
      "loss" and "pg_loss", which carry the gradient; "entropy", the mean over the response tokens, detached.
    """
    check_shape("response_mask", response_mask, tuple(input_ids.shape))
    logp = token_logp(logits, input_ids, temperature=temperature)
    mask = response_mask[:, 1:].bool()
    adv = advantages if advantages.dim() == 1 else advantages[:, 1:]
    pg_loss = policy_loss(
        logp,
        logp.detach() if behavior_logp is None else behavior_logp[:, 1:],
        adv,
        mask,
        denominator=loss_denominator(loss_type, mask, max_length=max_length),
        loss_type=loss_type,
        clip_low=clip_low,
        clip_high=clip_high,
    ).loss
    entropy = token_entropy(logits, temperature=temperature)
    tokens = mask.sum().clamp(min=1)
    bonus = entropy_bonus(entropy, mask, adv, coefficient=entropy_coefficient, denominator=tokens)
    return {"loss": pg_loss - bonus, "pg_loss": pg_loss, "entropy": masked_mean(entropy, mask).detach()}
