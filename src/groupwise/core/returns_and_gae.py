"""Rewards over time: discounted returns, GAE, and return-to-go within a group.

Every function ignores a step outside the mask: its reward does not count and no time passes there.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from groupwise.core.shapes import check_rank, check_shape

# Below this power of gamma, scaled rewards come near the smallest float64 (2e-308) and lose digits.
_SMALLEST_POWER = 1e-200


class Gae(NamedTuple):
    """`advantages` [B, T] and `returns` = advantages + values [B, T], the critic's target; 0 off the mask."""

    advantages: Tensor
    returns: Tensor


def discounted_returns(rewards: Tensor, mask: Tensor, gamma: float) -> Tensor:
    """Return-to-go: R_t = r_t + γ R_{t+1}.

    Args:
      rewards: r, [B, T].
      mask: [B, T], the steps that took place.
      gamma: γ in [0, 1].

    Returns:
      R, [B, T], 0 outside the mask, in the dtype of `rewards`. Arithmetic is in float64.

    R_t = γ^−k(t) Σ_{u>=t} γ^k(u) r_u, where k counts the steps of the mask, is one cumulative sum from the
    end. It is as exact as the recursion, whose terms it adds in the same order, as long as γ^T does not
    underflow; where it would, the recursion itself is run over T.
    """
    check_rank("rewards", rewards, 2)
    check_shape("mask", mask, tuple(rewards.shape))
    if not 0.0 <= gamma <= 1.0:
        raise ValueError(f"gamma is {gamma}; it must lie in [0, 1]")
    inside = mask.bool()
    r = rewards.double().where(inside, 0)
    if gamma == 1.0:
        returns = _sum_from_end(r)
    elif gamma ** rewards.shape[1] >= _SMALLEST_POWER:
        steps = torch.arange(rewards.shape[1], dtype=torch.float64, device=rewards.device)
        # γ^k(t), [B, T]; a step outside the mask repeats the power of the step before it.
        power = (gamma**steps)[(inside.cumsum(1) - 1).clamp(min=0)]
        returns = _sum_from_end(r * power) / power
    else:
        returns = _recursion(r, inside, gamma)
    return returns.where(inside, 0).to(rewards.dtype)


def _sum_from_end(values: Tensor) -> Tensor:
    return values.flip(1).cumsum(1).flip(1)


def _recursion(rewards: Tensor, inside: Tensor, gamma: float) -> Tensor:
    returns = torch.zeros_like(rewards)
    following = rewards.new_zeros(rewards.shape[0])
    for t in reversed(range(rewards.shape[1])):
        following = torch.where(inside[:, t], rewards[:, t] + gamma * following, following)
        returns[:, t] = following
    return returns


def gae(
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    mask: Tensor,
    *,
    gamma: float,
    lam: float,
) -> Gae:
    """Generalised advantage estimation that distinguishes an episode's end from a cut.

    δ_t = r_t + γ (1 − term_t) V(s_{t+1}) − V(s_t),
    A_t = δ_t + γλ (1 − term_t)(1 − trunc_t) A_{t+1}.
    "High-Dimensional Continuous Control Using Generalized Advantage Estimation" (arXiv 1506.02438).
    A terminated episode has no future rewards; a truncated one has, and V(s_{t+1}) stands for them.

    Args:
      rewards: r, [B, T].
      values: V(s_t), [B, T].
      next_values: V(s_{t+1}), [B, T], of the state a step led to (before any reset); or [B], the value after
        the row's last step alone, where the state a step led to is the one the next step starts from.
      terminated: [B, T] bool, the steps after which the environment ended.
      truncated: [B, T] bool, the steps after which a limit cut the episode. The end of a row counts as a cut
        too if neither is true there.
      mask: [B, T], the steps that took place.
      gamma: γ, the discount.
      lam: λ: 0 is the one-step error δ, 1 the return minus the value.

    Returns:
      `Gae(advantages, returns)`, both [B, T], without gradient.
    """
    check_rank("rewards", rewards, 2)
    shape = tuple(rewards.shape)
    given = (("values", values), ("terminated", terminated), ("truncated", truncated), ("mask", mask))
    for name, tensor in given:
        check_shape(name, tensor, shape)
    check_shape("next_values", next_values, shape, shape[:1])
    inside = mask.bool()
    rewards, values, next_values = rewards.detach(), values.detach(), next_values.detach()
    # goes_on carries the value over a cut but not over an end; linked carries the advantage over neither.
    goes_on = (~terminated.bool()).to(values.dtype) * gamma
    linked = goes_on * (~truncated.bool()).to(values.dtype) * lam
    advantages = torch.zeros_like(values)
    advantage = values.new_zeros(shape[0])
    following = next_values if next_values.dim() == 1 else values.new_zeros(shape[0])
    for t in reversed(range(shape[1])):
        ahead = following if next_values.dim() == 1 else next_values[:, t]
        # Outside the mask, the carried values pass through unchanged.
        delta = rewards[:, t] + goes_on[:, t] * ahead - values[:, t]
        advantage = torch.where(inside[:, t], delta + linked[:, t] * advantage, advantage)
        following = torch.where(inside[:, t], values[:, t], following)
        advantages[:, t] = advantage
    advantages = advantages.where(inside, 0)
    return Gae(advantages, (advantages + values).where(inside, 0))


def group_return_to_go(
    rewards: Tensor, alive: Tensor, gamma: float, *, group_ids: Tensor | None = None, eps: float = 1e-6
) -> Tensor:
    """Return-to-go minus the mean return-to-go of the other members of the group still alive at that step.

    A_it = R_it − mean_{j≠i, alive at t} R_jt,  and 0 if no other member is alive.
    The step-wise form of RLOO's baseline, "Back to Basics" (arXiv 2402.14740): what others earn does not
    depend on what i does, so while others are alive, subtracting their mean leaves the policy gradient
    unbiased, without a critic. When i is the last one alive, nothing is learned from its steps: that costs a
    bias, which shrinks as groups grow, and saves the variance of a return without a baseline.

    Args:
      rewards: r, [B, T], B attempts of one or several groups.
      alive: [B, T] bool, the steps an attempt took. A member that has ended is left out, not counted as 0.
      gamma: γ, the discount.
      group_ids: [B] integers, equal for members of a group; None for a single group.
      eps: if the returns of those alive at t differ by no more than eps · max(1, max |R|), A is exactly 0.

    Returns:
      A, [B, T], 0 where not alive, in the dtype of `rewards`. Not divided by a standard deviation.
    """
    inside = alive.bool()
    returns = discounted_returns(rewards, alive, gamma).double()
    if group_ids is None:
        index, size = torch.zeros(rewards.shape[0], dtype=torch.long, device=rewards.device), 1
    else:
        check_shape("group_ids", group_ids, (rewards.shape[0],))
        ids, index = torch.unique(group_ids, return_inverse=True)
        size = ids.numel()
    # All statistics below are [groups, T]: a group's at each step.
    zeros = returns.new_zeros(size, rewards.shape[1])
    count = zeros.index_add(0, index, inside.double())
    total = zeros.index_add(0, index, returns)
    rows = index.unsqueeze(1).expand_as(returns)
    high = zeros.scatter_reduce(0, rows, returns.where(inside, -torch.inf), "amax", include_self=False)
    low = zeros.scatter_reduce(0, rows, returns.where(inside, torch.inf), "amin", include_self=False)
    varies = (count > 1) & (high - low > eps * torch.maximum(high.abs(), low.abs()).clamp(min=1))
    others = (total[index] - returns) / (count[index] - 1).clamp(min=1)
    return (returns - others).where(inside & varies[index], 0).to(rewards.dtype)


def explained_variance(values: Tensor, returns: Tensor, mask: Tensor) -> Tensor:
    """1 − Var(R − V) / Var(R): 1 for a perfect critic, 0 for a constant one, below 0 for a harmful one.

    Args:
      values: V, [B, T].
      returns: R, [B, T].
      mask: [B, T], the steps that count.

    Returns:
      A scalar without gradient; NaN if the returns do not vary, since there is nothing to explain.
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
