"""How an attempt's reward, or a turn's, compares with the rest of its group.

Advantages are computed once over whole groups, before anything is shuffled, split or sharded.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor

from groupwise.core.returns_and_gae import discounted_returns
from groupwise.core.shapes import check_choice, check_rank, check_shape

Baseline: TypeAlias = Literal["group_mean", "group_median", "leave_one_out", "global_mean", "none"]
Scale: TypeAlias = Literal["group_std", "batch_std", "none"]
Std: TypeAlias = Literal["population", "sample"]

_GROUP_BASELINES = ("group_mean", "group_median", "leave_one_out")


@dataclass(frozen=True, slots=True)
class _Segments:
    """Statistics, each [S], of the scored values in S segments; `index` [N] says which segment a row is in."""

    index: Tensor
    count: Tensor
    mean: Tensor
    varies: Tensor


def _segments(values: Tensor, scored: Tensor, index: Tensor, size: int, resolution: float) -> _Segments:
    # Unscored values are 0 here, so they add nothing to a sum; only extremes need them out of the way.
    zeros = values.new_zeros(size)
    count = zeros.index_add(0, index, scored.to(values.dtype))
    mean = zeros.index_add(0, index, values) / count.clamp(min=1)
    high = zeros.scatter_reduce(0, index, values.where(scored, -torch.inf), "amax", include_self=False)
    low = zeros.scatter_reduce(0, index, values.where(scored, torch.inf), "amin", include_self=False)
    magnitude = torch.maximum(high.abs(), low.abs()).clamp(min=1)
    varies = (count > 1) & (high - low > resolution * magnitude)
    return _Segments(index, count, mean, varies)


def _std(values: Tensor, scored: Tensor, segments: _Segments, std: Std) -> Tensor:
    deviation = (values - segments.mean[segments.index]).where(scored, 0).square()
    total = torch.zeros_like(segments.mean).index_add(0, segments.index, deviation)
    degrees = segments.count - 1 if std == "sample" else segments.count
    return (total / degrees.clamp(min=1)).sqrt()


def _median(values: Tensor, scored: Tensor, segments: _Segments) -> Tensor:
    """The middle of each segment [S]: the mean of the two middle values if their number is even."""
    # Sorted by value, then stably by segment: each segment is one run, its scored values in front, unscored behind.
    ascending = values.where(scored, torch.inf).argsort(stable=True)
    order = ascending[segments.index[ascending].argsort(stable=True)]
    sizes = torch.bincount(segments.index, minlength=segments.count.numel())
    first = sizes.cumsum(0) - sizes
    count = segments.count.long()
    ordered = values[order]
    # A segment without a score has count 0 and could point behind the end; nobody uses its median.
    last = ordered.numel() - 1
    lower = ordered[(first + (count - 1).clamp(min=0) // 2).clamp(max=last)]
    upper = ordered[(first + count // 2).clamp(max=last)]
    return (lower + upper) / 2


def _resolution(dtype: torch.dtype, eps: float) -> float:
    # Two rounding errors of the rewards' own dtype, before they were widened to float64.
    return max(eps, 2 * torch.finfo(dtype).eps) if dtype.is_floating_point else eps


def _scored(rewards: Tensor, group_ids: Tensor, mask: Tensor | None) -> Tensor:
    check_rank("rewards", rewards, 1)
    check_shape("group_ids", group_ids, tuple(rewards.shape))
    check_shape("mask", mask, tuple(rewards.shape))
    scored = ~rewards.isnan() if mask is None else mask.bool() & ~rewards.isnan()
    if (rewards.isinf() & scored).any():
        raise ValueError("a reward is infinite; rewards must be finite, or NaN for an attempt that has no score")
    return scored


def group_advantages(
    rewards: Tensor,
    group_ids: Tensor,
    *,
    baseline: Baseline = "group_mean",
    scale: Scale = "group_std",
    std: Std = "population",
    mask: Tensor | None = None,
    eps: float = 1e-6,
) -> Tensor:
    """The advantage of every attempt: A_i = (r_i − b_i) / s_i.

    "DeepSeekMath" (arXiv 2402.03300), section 4.1.2: b = mean of the group, s = its standard deviation.
    "leave_one_out" is RLOO's b_i = mean_{j≠i} r_j, "Back to Basics" (arXiv 2402.14740). Scale "none" is Dr.
    GRPO's, "Understanding R1-Zero-Like Training" (arXiv 2503.20783); "batch_std" is that of "Tricks or
    Traps?" (arXiv 2508.08221).

    An attempt without a score (NaN, or `mask` false) is left out of every statistic and has advantage 0.
    The advantage is also exactly 0 for
      * the only scored member of a group, whatever the baseline: there is nothing to compare it with;
      * every member of a group whose rewards do not vary, if the baseline is the group's mean, median or
        leave-one-out mean, or the scale is the group's;
      * every attempt, if the baseline is "global_mean" or the scale "batch_std", and the rewards of the
        whole batch do not vary.
    So with baseline "global_mean" or "none" and a scale that is not the group's, a group whose rewards are
    all equal does learn: from where it stands in the batch, or from its raw reward.

    Args:
      rewards: r, [N], of any floating dtype. Arithmetic is in float64.
      group_ids: [N], integers, equal for members of a group. Any values in any order.
      baseline: b: "group_mean", "group_median" (mean of the middle two for an even number), "leave_one_out",
        "global_mean" (over the batch) or "none".
      scale: s: "group_std", "batch_std" (of all rewards) or "none". A standard deviation is always taken
        about the mean, also beside a median.
      std: "population" divides by n, "sample" by n − 1. [1, 1, 0] gives +0.707, +0.707, −1.414 with
        population; [1, 0] gives ±1 with population and ±0.707 with sample.
      mask: [N] bool, false for an attempt to leave out.
      eps: rewards vary if max − min > eps · max(1, max |r|). Smaller differences are rounding errors, which a
        division would blow up to ±1. Never finer than the dtype of `rewards`.

    Returns:
      A, [N], in the dtype of `rewards` (float32 for integers).

    Departure: nothing is added to s in the division. The usual s + 1e-4 (TRL) or s + 1e-6 (verl) shrinks the
    advantages of groups with small but real differences; here `eps` decides what is real. TRL's std is the
    sample one.
    """
    check_choice("baseline", baseline, get_args(Baseline))
    check_choice("scale", scale, get_args(Scale))
    check_choice("std", std, get_args(Std))
    scored = _scored(rewards, group_ids, mask)
    resolution = _resolution(rewards.dtype, eps)
    values = rewards.double().where(scored, 0)
    ids, index = torch.unique(group_ids, return_inverse=True)
    group = _segments(values, scored, index, ids.numel(), resolution)
    batch = _segments(values, scored, torch.zeros_like(index), 1, resolution)
    centred = values - _baseline(values, scored, group, batch, baseline)
    # What cannot be compared gets exactly 0, not a small rounding error.
    live = scored & (group.count > 1)[index]
    if baseline in _GROUP_BASELINES or scale == "group_std":
        live = live & group.varies[index]
    if baseline == "global_mean" or scale == "batch_std":
        live = live & batch.varies
    if scale != "none":
        segments = group if scale == "group_std" else batch
        spread = _std(values, scored, segments, std).where(segments.varies, 1)
        centred = centred / spread[segments.index]
    dtype = rewards.dtype if rewards.dtype.is_floating_point else torch.float32
    return centred.where(live, 0).to(dtype)


def _baseline(values: Tensor, scored: Tensor, group: _Segments, batch: _Segments, baseline: Baseline) -> Tensor | float:
    match baseline:
        case "group_mean":
            return group.mean[group.index]
        case "group_median":
            return _median(values, scored, group)[group.index]
        case "leave_one_out":
            # mean_{j≠i} r_j = (Σ r − r_i) / (n − 1)
            others = (group.count - 1).clamp(min=1)
            return ((group.mean * group.count)[group.index] - values) / others[group.index]
        case "global_mean":
            return batch.mean
        case _:
            return 0.0


def zero_spread_groups(
    rewards: Tensor, group_ids: Tensor, *, mask: Tensor | None = None, eps: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """Which groups carry no signal: fewer than two scored members, or rewards that do not vary.

    Args:
      rewards, group_ids, mask, eps: as for `group_advantages`.

    Returns:
      The distinct group ids in ascending order, [G], and a bool for each, [G], true if it has no spread.
    """
    scored = _scored(rewards, group_ids, mask)
    ids, index = torch.unique(group_ids, return_inverse=True)
    values = rewards.double().where(scored, 0)
    group = _segments(values, scored, index, ids.numel(), _resolution(rewards.dtype, eps))
    return ids, ~group.varies


def turn_numbers(mask: Tensor) -> Tensor:
    """The number of the policy's turn at each token, [B, T] from 0; tokens between turns belong to the turn before.

    A turn is a run of true values in the mask: what others say always separates two turns.
    """
    inside = mask.bool()
    begins = inside.clone()
    begins[:, 1:] &= ~inside[:, :-1]
    return (begins.cumsum(1) - 1).clamp(min=0)


def turn_advantages(
    rewards: Tensor, mask: Tensor, group_ids: Tensor, gamma: float, *, baseline: Baseline = "group_mean"
) -> Tensor:
    """A_ik = Σ_{j≥k} γ^{j−k} d_ij, where the d_ij of an attempt add up to its standing in the group, R_i − b_i.

    R_i is the total reward of the attempt and b_i its group's baseline over total rewards, as in `group_advantages`.
    d_ij = r_ij − m_j is what turn j earned beyond the mean m_j of the members that had a turn j; the rest of
    R_i − b_i, which no single turn earned, is credited to the last turn. So
      * if only the end is rewarded, A_ik = γ^(turns left after k) (R_i − b_i): credit fades towards the first turn;
      * with γ = 1 the first turn has the advantage of the complete attempt;
      * a turn gets no credit for what was earned before it;
      * attempts with equal totals learn nothing, however the rewards are spread over their turns.
    Subtracting b_i from the return of every turn instead would punish all later turns of a group rewarded early.

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
    # earned [B, K]: the reward of each turn; took_place [B, K]: whether the attempt had that many turns.
    took_place = torch.arange(width, device=rewards.device) <= last[:, None]
    ids, index = torch.unique(group_ids, return_inverse=True)
    beyond = torch.where(took_place, earned - _mean_of_present(earned, took_place, index, ids.numel()), 0.0)
    standing = group_advantages(paid.sum(1), group_ids, baseline=baseline, scale="none")
    # Now the row sums of `beyond` are the standing R_i − b_i.
    beyond[torch.arange(len(rewards)), last] += standing - beyond.sum(1)
    advantages = discounted_returns(beyond, took_place, gamma).gather(1, numbers)
    # Whether any attempt of the same group has a different standing, [B].
    differs = (standing.new_zeros(ids.numel()).index_add(0, index, standing.abs()) > 0)[index]
    return advantages.where(inside & differs[:, None], 0)


def _mean_of_present(earned: Tensor, present: Tensor, index: Tensor, size: int) -> Tensor:
    """Each group's mean of every turn over the members that had one, [B, K]; `index` [B] numbers the `size` groups."""
    zeros = earned.new_zeros(size, earned.shape[1])
    total = zeros.index_add(0, index, earned.where(present, 0))
    count = zeros.index_add(0, index, present.to(earned.dtype))
    return (total / count.clamp(min=1))[index]
