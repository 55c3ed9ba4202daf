"""The seed documents' names for functions of `groupwise.core`, and one more in JAX, imported when it is called."""

from collections.abc import Sequence
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor

from groupwise.core.advantages import Baseline, Scale, Std, group_advantages
from groupwise.core.divergence import entropy_bonus
from groupwise.core.jax_gae import compiled_scan, import_jax
from groupwise.core.losses import loss_denominator, policy_loss
from groupwise.core.shapes import check_rank, check_shape
from groupwise.core.tokens import masked_mean, row_lengths, token_entropy, token_logp


@overload
def compute_grpo_advantages(
    rewards: Tensor,
    response_mask: Tensor,
    group_ids: Tensor,
    norm_by_std: bool = True,
    *,
    std_type: Std = "population",
) -> Tensor: ...


@overload
def compute_grpo_advantages(
    *,
    group_rewards: Sequence[float],
    baseline_type: Baseline = "group_mean",
    norm_by_std: bool = True,
    std_type: Std = "population",
) -> Tensor: ...


def compute_grpo_advantages(
    rewards: Tensor | None = None,
    response_mask: Tensor | None = None,
    group_ids: Tensor | None = None,
    norm_by_std: bool = True,
    *,
    group_rewards: Sequence[float] | None = None,
    baseline_type: Baseline = "group_mean",
    std_type: Std = "population",
) -> Tensor:
    """`group_advantages` in the two forms people usually call it: for a batch of tokens, and for one group.

    Batch form, `(rewards, response_mask, group_ids, norm_by_std)`:
      rewards: [B], or [B, T] with the row's reward repeated at each of its response tokens.
      response_mask: [B, T], the response tokens.
      group_ids: [B].
      Returns [B, T]: the row's advantage at its response tokens, 0 elsewhere.

    Group form, `(group_rewards=[…], baseline_type=…)`:
      group_rewards: the rewards of one group, n numbers.
      baseline_type: the `baseline` of `group_advantages`.
      Returns [n].

    Both divide by the standard deviation of the group, of the `std_type` "population" or "sample", unless `norm_by_std`
    is false.
    """
    scale: Scale = "group_std" if norm_by_std else "none"
    if group_rewards is not None:
        values = torch.as_tensor(group_rewards, dtype=torch.float32)
        one_group = torch.zeros(values.shape, dtype=torch.long)
        return group_advantages(values, one_group, baseline=baseline_type, scale=scale, std=std_type)
    if rewards is None or response_mask is None or group_ids is None:
        raise ValueError("pass either rewards, response_mask and group_ids, or group_rewards")
    check_rank("response_mask", response_mask, 2)
    row_rewards = rewards if rewards.dim() == 1 else _row_rewards(rewards, response_mask)
    advantages = group_advantages(row_rewards, group_ids, baseline=baseline_type, scale=scale, std=std_type)
    return advantages.unsqueeze(1).where(response_mask.bool(), 0)


def _row_rewards(rewards: Tensor, mask: Tensor) -> Tensor:
    check_shape("rewards", rewards, tuple(mask.shape), tuple(mask.shape[:1]))
    inside = mask.bool()
    lengths = row_lengths(mask).squeeze(1)
    mean = rewards.where(inside, 0).sum(1) / lengths
    if not torch.allclose(rewards.where(inside, 0), mean.unsqueeze(1).where(inside, 0), equal_nan=True):
        raise ValueError("a row has different rewards at its tokens; pass one reward per row, their sum")
    return mean.where(inside.any(1), torch.nan)


def compute_grpo_loss(
    logits: Tensor,
    input_ids: Tensor,
    response_mask: Tensor,
    advantages: Tensor,
    *,
    behavior_logp: Tensor | None = None,
    loss_type: str = "bnpo",
    max_length: int | None = None,
    entropy_coefficient: float = 0.0,
    temperature: float = 1.0,
    **parameters: Any,
) -> dict[str, Tensor]:
    """`policy_loss` straight from a causal model's logits, for a batch that is not split.

    loss = pg_loss − c · (entropy of the rows that learn). All arguments are aligned with `input_ids`; this
    function shifts them: the advantage of token t meets the logits at t − 1, which predicted it.

    Args:
      logits: [B, T, V], the model's output for `input_ids`.
      input_ids: [B, T].
      response_mask: [B, T], the tokens the policy sampled. The first token of a row never counts, since nothing
        predicts it.
      advantages: [B], or [B, T] as `compute_grpo_advantages` gives them.
      behavior_logp: [B, T], recorded when sampling; None for samples of this very policy (ratio 1).
      loss_type, max_length: as for `policy_loss` and `loss_denominator`.
      entropy_coefficient: c.
      temperature: that of sampling.
      parameters: the loss's own, as for `policy_loss`.

    Returns:
      "loss" and "pg_loss", which carry the gradient; "entropy", the mean over the response tokens, detached.
    """
    check_shape("response_mask", response_mask, tuple(input_ids.shape))
    logp = token_logp(logits, input_ids, temperature=temperature)
    mask = response_mask[:, 1:].bool()
    adv = advantages if advantages.dim() == 1 else advantages[:, 1:]
    old = logp.detach() if behavior_logp is None else behavior_logp[:, 1:]
    denominator = loss_denominator(loss_type, mask, max_length=max_length)
    pg_loss = policy_loss(logp, old, adv, mask, denominator=denominator, loss_type=loss_type, **parameters).loss
    entropy = token_entropy(logits, temperature=temperature)
    tokens = mask.sum().clamp(min=1)
    bonus = entropy_bonus(entropy, mask, adv, coefficient=entropy_coefficient, denominator=tokens)
    return {"loss": pg_loss - bonus, "pg_loss": pg_loss, "entropy": masked_mean(entropy, mask).detach()}


def compute_group_advantages_vectorized(
    values: Any,
    rewards: Any,
    dones: Any,
    groups: Any,
    *,
    gamma: float = 0.99,
    gae_lambda: float = 0.95,
    next_values: Any = None,
    scale: bool = False,
) -> Any:
    """Generalised advantage estimation of every group by itself, however their steps are mixed up in the arrays.

    Steps of one group stand in the order of time; between them may stand any steps of other groups. They are sorted
    by group, and one associative scan, whose link is cut at every end of a group, runs over all: nothing leaks from
    one group into another, as it would by masking. It can be called inside `jax.jit` and `jax.vmap`.

    Args:
      values: V(s_t), [N].
      rewards: r, [N].
      dones: [N], true after the last step of an episode: no value follows, and no advantage of a later one.
      groups: [N] integers, one group per stream of steps.
      gamma: γ, the discount.
      gae_lambda: λ.
      next_values: V(s_{t+1}), [N], of the state each step led to. None takes the group's next step, and 0 after its
        last one.
      scale: divide by the group's root mean square (a segment sum); a group without any stays 0. No mean is
        subtracted.

    Returns:
      A, [N], a JAX array in the dtype JAX computes in (float32 unless it was told otherwise).
    """
    jax = import_jax("compute_group_advantages_vectorized")
    given = {"values": values, "rewards": rewards, "dones": dones, "groups": groups}
    if next_values is not None:
        given["next_values"] = next_values
    _check(given, jax.core.Tracer)
    found = compiled_scan()(values, rewards, dones, groups, next_values, gamma, gae_lambda)
    return found[1] if scale else found[0]


def _check(given: dict[str, Any], tracer: type) -> None:
    """One shape [N], and no number that is none; while JAX traces there are shapes only."""
    shape = np.shape(given["values"])
    if len(shape) != 1:
        message = f"values has shape {shape}, but must have 1 dimension: flatten the steps and number their groups"
        raise ValueError(message)
    for name, array in given.items():
        if np.shape(array) != shape:
            raise ValueError(f"{name} has shape {np.shape(array)}, but must have {shape}")
        if not isinstance(array, tracer) and not np.isfinite(np.asarray(array)).all():
            raise ValueError(f"{name} contains a number that is not finite")
