"""Credit by turns: what each of the policy's turns contributed to how an attempt stands in its group."""

from __future__ import annotations

import torch
from torch import Tensor

from groupwise.core.advantages import Baseline, group_advantages
from groupwise.core.returns import discounted_returns
from groupwise.core.shapes import check_rank, check_shape


def turn_numbers(mask: Tensor) -> Tensor:
    """Which of the policy's turns a token belongs to, [B, T] from 0; what lies between turns belongs to the one before.

    A turn is a stretch of the mask: what others say always separates two of them.
    """
    inside = mask.bool()
    begins = inside.clone()
    begins[:, 1:] &= ~inside[:, :-1]
    return (begins.cumsum(1) - 1).clamp(min=0)


def turn_advantages(
    rewards: Tensor, mask: Tensor, group_ids: Tensor, gamma: float, *, baseline: Baseline = "group_mean"
) -> Tensor:
    """A_ik = Σ_{j≥k} γ^{j−k} d_ij, where the d of an attempt add up to how it stands in its group, R_i − b_i.

    R_i is the reward of the whole attempt and b_i its group's baseline over whole attempts, as in `group_advantages`.
    d_ij = r_ij − m_j is what turn j earned beyond the mean m_j of the members that had a turn j; the rest of
    R_i − b_i, which no turn in particular earned, is credited to the last turn. So
      * with rewards at the end only, A_ik = γ^(turns left after k) (R_i − b_i): credit fades towards the first turn;
      * with γ = 1 the first turn has the advantage of the whole attempt;
      * a turn is not credited with what was earned before it;
      * attempts that earn the same learn nothing, whatever they earned and when.
    Subtracting b_i from the return of every turn instead would punish all later turns of a group that was paid early.

    Args:
      rewards: r, [B, T], at any of the policy's tokens.
      mask: [B, T], the policy's tokens.
      group_ids: [B].
      gamma: γ per turn.
      baseline: b.

    Returns:
      A, [B, T] in float64, equal at all tokens of a turn, 0 outside the mask.
    """
    check_rank("rewards", rewards, 2)
    check_shape("mask", mask, tuple(rewards.shape))
    check_shape("group_ids", group_ids, tuple(rewards.shape[:1]))
    inside, numbers = mask.bool(), turn_numbers(mask)
    paid = rewards.double().where(inside, 0)
    last = numbers.max(1).values if rewards.shape[1] else numbers.new_zeros(len(rewards))
    width = int(last.max()) + 1 if len(rewards) else 0
    earned = paid.new_zeros(len(rewards), width).scatter_add(1, numbers, paid)
    took_place = torch.arange(width, device=rewards.device) <= last[:, None]
    beyond = torch.where(took_place, earned - _mean_of_present(earned, took_place, group_ids), 0.0)
    standing = group_advantages(paid.sum(1), group_ids, baseline=baseline, scale="none")
    beyond[torch.arange(len(rewards)), last] += standing - beyond.sum(1)
    advantages = discounted_returns(beyond, took_place, gamma).gather(1, numbers)
    return advantages.where(inside & _differs(standing, group_ids)[:, None], 0)


def _mean_of_present(earned: Tensor, present: Tensor, group_ids: Tensor) -> Tensor:
    """Each group's mean of every turn over the members that had one, [B, K]."""
    _, index = torch.unique(group_ids, return_inverse=True)
    size = int(index.max()) + 1
    zeros = earned.new_zeros(size, earned.shape[1])
    total = zeros.index_add(0, index, earned.where(present, 0))
    count = zeros.index_add(0, index, present.to(earned.dtype))
    return (total / count.clamp(min=1))[index]


def _differs(standing: Tensor, group_ids: Tensor) -> Tensor:
    """Whether anyone in the attempt's group stands above or below it, [B]."""
    _, index = torch.unique(group_ids, return_inverse=True)
    moved = standing.new_zeros(int(index.max()) + 1).index_add(0, index, standing.abs())
    return (moved > 0)[index]
