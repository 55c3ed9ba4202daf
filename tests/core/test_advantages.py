"""Group advantages against numbers worked out by hand."""

from __future__ import annotations

from math import nan, sqrt
from typing import Any

import pytest
import torch
from torch import Tensor

from groupwise.core import group_advantages, zero_spread_groups
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
    with pytest.raises(ValueError, match="infinite"):
        advantages([1.0, float("inf")], [0, 0])
