"""Group advantages against numbers worked out by hand."""

from __future__ import annotations

from math import nan, sqrt
from typing import Any

import pytest
import torch
from torch import Tensor

from groupwise.core import group_advantages, group_return_to_go, zero_spread_groups
from groupwise.core.advantages import Baseline, Scale

BASELINES: tuple[Baseline, ...] = ("group_mean", "group_median", "leave_one_out", "global_mean", "none")
GROUP_BASELINES: tuple[Baseline, ...] = ("group_mean", "group_median", "leave_one_out")
SCALES: tuple[Scale, ...] = ("group_std", "batch_std", "none")


def advantages(rewards: list[float], groups: list[int], dtype: torch.dtype = torch.float64, **options: Any) -> Tensor:
    return group_advantages(torch.tensor(rewards, dtype=dtype), torch.tensor(groups), **options)


def test_population_and_sample_deviation() -> None:
    assert advantages([1, 1, 0], [0, 0, 0]).tolist() == pytest.approx([sqrt(0.5), sqrt(0.5), -sqrt(2)])
    assert advantages([1, 0], [0, 0]).tolist() == [1.0, -1.0]
    assert advantages([1, 0], [0, 0], std="sample").tolist() == pytest.approx([sqrt(0.5), -sqrt(0.5)])


def test_groups_are_told_apart_by_any_integers_in_any_order() -> None:
    found = advantages([1, 10, 0, 30, 1], [7, -3, 7, -3, 7], scale="none")
    assert found.tolist() == pytest.approx([1 / 3, -10, -2 / 3, 10, 1 / 3])


@pytest.mark.parametrize(
    ("baseline", "expected"),
    [
        ("group_mean", [-2, -1, 3, -2, 2]),
        ("group_median", [-1, 0, 4, -2, 2]),
        ("leave_one_out", [-3, -1.5, 4.5, -4, 4]),
        ("global_mean", [-2.8, -1.8, 2.2, -0.8, 3.2]),
        ("none", [0, 1, 5, 2, 6]),
    ],
)
def test_baselines(baseline: Baseline, expected: list[float]) -> None:
    rewards = [0.0, 1.0, 5.0, 2.0, 6.0]
    assert advantages(rewards, [0, 0, 0, 1, 1], baseline=baseline, scale="none").tolist() == pytest.approx(expected)


def test_the_median_of_an_even_group_is_between_its_middle_two() -> None:
    found = advantages([8, 1, nan, 2, 4], [3] * 5, baseline="group_median", scale="none")
    assert found.tolist() == pytest.approx([5, -2, 0, -1, 1])


def test_batch_std_is_one_scale_for_all_groups() -> None:
    found = advantages([0, 2, 4, 6], [0, 0, 1, 1], scale="batch_std")
    assert found.tolist() == pytest.approx([-1 / sqrt(5), 1 / sqrt(5)] * 2)
    found = advantages([0, 2, 4, 6], [0, 0, 1, 1], scale="batch_std", std="sample")
    assert found.tolist() == pytest.approx([-1 / sqrt(20 / 3), 1 / sqrt(20 / 3)] * 2)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("baseline", BASELINES)
def test_an_attempt_without_a_score_gets_zero_and_touches_nobody(baseline: Baseline, scale: Scale) -> None:
    groups = [0, 0, 0, 1, 1, 1]
    without = advantages([1, 2, 4, 8, 16, 18], groups, baseline=baseline, scale=scale)
    rewards = [1, nan, 2, 4, 8, 99, 16, 18]
    groups = [0, 0, 0, 0, 1, 1, 1, 1]
    mask = torch.tensor([1, 1, 1, 1, 1, 0, 1, 1], dtype=torch.bool)
    found = advantages(rewards, groups, baseline=baseline, scale=scale, mask=mask)
    assert found[1] == 0.0
    assert found[5] == 0.0
    torch.testing.assert_close(found[[0, 2, 3, 4, 6, 7]], without)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("baseline", BASELINES)
def test_a_group_of_one_gets_zero_whatever_the_baseline(baseline: Baseline, scale: Scale) -> None:
    found = advantages([5, 1, 2, 9, nan], [0, 1, 1, 2, 2], baseline=baseline, scale=scale)
    assert found[0] == 0.0
    assert found[3:].tolist() == [0.0, 0.0]
    assert found[1:3].abs().sum() > 0


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("baseline", GROUP_BASELINES)
def test_equal_rewards_give_exactly_zero(baseline: Baseline, scale: Scale) -> None:
    found = advantages([0.1, 0.1, 0.1, 1, 2], [0, 0, 0, 1, 1], baseline=baseline, scale=scale)
    assert found[:3].tolist() == [0.0, 0.0, 0.0]
    assert found[3:].abs().min() > 0


def test_a_group_of_equal_rewards_still_stands_somewhere_in_the_batch() -> None:
    rewards, groups = [1.0, 1.0, 0.0, 4.0], [0, 0, 1, 1]
    found = advantages(rewards, groups, baseline="global_mean", scale="none")
    assert found.tolist() == pytest.approx([-0.5, -0.5, -1.5, 2.5])
    assert advantages(rewards, groups, baseline="none", scale="none").tolist() == rewards
    assert advantages([3.0, 3.0], [0, 0], baseline="none", scale="none").tolist() == [3.0, 3.0]
    # a batch that differs by a rounding error stands nowhere
    near = [1.0, 1.0 + 1e-9, 1.0]
    assert advantages(near, [0, 0, 0], baseline="global_mean", scale="none").tolist() == [0.0] * 3
    assert advantages(near, [0, 0, 0], baseline="none", scale="none").tolist() == near
    assert advantages(near, [0, 0, 0], baseline="none", scale="batch_std").tolist() == [0.0] * 3
    # the group's own scale does not exist
    assert advantages(rewards, groups, baseline="global_mean", scale="group_std")[:2].tolist() == [0.0, 0.0]


def test_a_batch_of_equal_rewards_gives_zero_with_the_global_mean() -> None:
    for scale in SCALES:
        assert advantages([3, 3, 3, 3], [0, 0, 1, 1], baseline="global_mean", scale=scale).tolist() == [0.0] * 4
    assert advantages([3, 3, 3, 3], [0, 0, 1, 1], baseline="none", scale="batch_std").tolist() == [0.0] * 4


@pytest.mark.parametrize(
    "rewards",
    [
        [0.1 + 0.2, 0.3, 0.3],
        [0.1 + 0.2 - 0.3, 0.0, 0.0],
        [1e9 + 0.001, 1e9, 1e9],
        torch.tensor([0.7, 0.7]).add(torch.tensor([6e-8, 0.0])).double().tolist(),
    ],
)
def test_rewards_equal_up_to_rounding_are_not_blown_up(rewards: list[float]) -> None:
    for baseline in GROUP_BASELINES:
        found = advantages(rewards, [0] * len(rewards), baseline=baseline)
        assert found.tolist() == [0.0] * len(rewards)


def test_small_but_real_differences_count_in_full_and_eps_says_what_is_real() -> None:
    assert advantages([0.001, 0.0], [0, 0]).tolist() == pytest.approx([1.0, -1.0])
    assert advantages([0.001, 0.0], [0, 0], eps=0.01).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("low", "high", "differ"),
    [
        (0.0, 0.125, False),  # equal to eps
        (0.0, 0.1875, True),
        (0.0, 0.0625, False),
        (0.25, 0.5, True),  # magnitudes below 1 count as 1: 0.25 against 0.125
        (0.375, 0.5, False),
        (3.5, 4.0, False),  # equal to eps · 4
        (3.25, 4.0, True),
        (3.5625, 4.0, False),  # below eps · 4, the larger magnitude, but above eps · 3.5625
        (-4.0, -3.5, False),
        (-4.0, -3.25, True),
        (-4.0, -3.5625, False),
        (-0.0625, 0.0625, False),
        (-4.0, 4.0, True),
    ],
)
def test_rewards_differ_if_they_are_further_apart_than_eps_times_their_magnitude(
    low: float, high: float, differ: bool
) -> None:
    """A member without a score changes nothing about it, nor does another group that differs for certain."""
    rewards, groups = torch.tensor([high, nan, low, 0.0, 100.0]).double(), torch.tensor([1, 1, 1, 0, 0])
    for baseline in GROUP_BASELINES:
        found = group_advantages(rewards, groups, baseline=baseline, scale="none", eps=0.125)
        assert found.bool().tolist() == [differ, False, differ, True, True]
    assert zero_spread_groups(rewards, groups, eps=0.125)[1].tolist() == [False, not differ]
    scaled = group_advantages(rewards[:3], groups[:3], baseline="none", scale="batch_std", eps=0.125)
    assert bool(scaled.any()) == differ
    paid, alive = torch.tensor([[high], [low], [0.0]]).double(), torch.tensor([[1], [1], [0]])
    assert bool(group_return_to_go(paid, alive, 1.0, eps=0.125).any()) == differ


@pytest.mark.parametrize(("gap", "differ"), [(0.8e-6, False), (1.5e-6, True)])
def test_a_millionth_is_the_least_difference_unless_told(gap: float, differ: bool) -> None:
    rewards, groups = torch.tensor([0.5, 0.5 + gap], dtype=torch.float64), torch.tensor([0, 0])
    assert bool(group_advantages(rewards, groups).any()) == differ
    assert zero_spread_groups(rewards, groups)[1].tolist() == [not differ]
    assert bool(group_return_to_go(rewards[:, None], torch.ones(2, 1), 1.0).any()) == differ


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("start", [1.0, 2.0])
def test_two_rounding_errors_of_the_rewards_are_no_difference_and_three_are(dtype: torch.dtype, start: float) -> None:
    step = start * torch.finfo(dtype).eps
    for steps, differ in ((1, False), (2, False), (3, True)):
        rewards = torch.tensor([start, start + steps * step], dtype=dtype)
        assert group_advantages(rewards, torch.tensor([0, 0]), eps=0.0).any() == differ


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_any_float_dtype_is_returned_as_it_came(dtype: torch.dtype) -> None:
    found = advantages([1, 1, 0], [0, 0, 0], dtype=dtype)
    assert found.dtype == dtype
    assert found.tolist() == pytest.approx([0.707, 0.707, -1.414], abs=0.01)


def test_integer_rewards_and_no_rewards_at_all() -> None:
    assert group_advantages(torch.tensor([1, 0]), torch.tensor([0, 0])).tolist() == [1.0, -1.0]
    for baseline in BASELINES:
        assert advantages([], [], baseline=baseline).shape == (0,)
    assert advantages([nan, nan], [0, 0]).tolist() == [0.0, 0.0]
    assert advantages([nan, nan], [0, 0], baseline="group_median").tolist() == [0.0, 0.0]


def test_zero_spread_groups_names_the_groups_without_signal() -> None:
    rewards = torch.tensor([1.0, 1.0, 0.0, 1.0, 5.0, nan, 2.0])
    ids, silent = zero_spread_groups(rewards, torch.tensor([9, 9, 4, 4, 7, 7, 8]))
    assert ids.tolist() == [4, 7, 8, 9]
    assert silent.tolist() == [False, True, True, True]
    _, silent = zero_spread_groups(rewards[2:4], torch.tensor([4, 4]), mask=torch.tensor([True, False]))
    assert silent.tolist() == [True]


def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(ValueError, match="one of group_mean, group_median"):
        advantages([1.0], [0], baseline="mean")
    with pytest.raises(ValueError, match="rewards has shape"):
        group_advantages(torch.ones(2, 2), torch.ones(2, 2))
    with pytest.raises(ValueError, match="group_ids has shape"):
        group_advantages(torch.ones(2), torch.ones(3))
    with pytest.raises(ValueError, match="one of group_std, batch_std, none"):
        advantages([1.0], [0], scale="std")
    with pytest.raises(ValueError, match="one of population, sample"):
        advantages([1.0], [0], std="unbiased")


@pytest.mark.parametrize("endless", [float("inf"), -float("inf")])
def test_an_infinite_reward_is_refused_unless_it_is_left_out(endless: float) -> None:
    for function in (group_advantages, zero_spread_groups):
        with pytest.raises(ValueError, match="infinite"):
            function(torch.tensor([1.0, endless]), torch.tensor([0, 0]))
    mask = torch.tensor([True, True, False])
    assert advantages([1.0, 3.0, endless], [0, 0, 0], mask=mask, scale="none").tolist() == [-1.0, 1.0, 0.0]
