"""What must hold for every input."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from groupwise.core import LOSSES, ReferenceKl, group_advantages, loss_denominator, policy_loss
from groupwise.core.advantages import Baseline, Scale, Std

few = settings(max_examples=100, deadline=None)
numbers = st.integers(-10_000, 10_000).map(lambda n: n / 1000)
group_lists = st.lists(st.lists(numbers, min_size=1, max_size=6), min_size=1, max_size=5)
group_baselines = st.sampled_from(["group_mean", "group_median", "leave_one_out"])
baselines = st.sampled_from(["group_mean", "group_median", "leave_one_out", "global_mean", "none"])
scales = st.sampled_from(["group_std", "batch_std", "none"])
stds = st.sampled_from(["population", "sample"])


def flat(groups: list[list[float]]) -> tuple[Tensor, Tensor]:
    ids = [i for i, group in enumerate(groups) for _ in group]
    return torch.tensor([r for group in groups for r in group], dtype=torch.float64), torch.tensor(ids)


@given(group_lists, scales, stds)
@few
def test_advantages_sum_to_zero_in_every_group(groups: list[list[float]], scale: Scale, std: Std) -> None:
    rewards, ids = flat(groups)
    for baseline in ("group_mean", "leave_one_out"):
        found = group_advantages(rewards, ids, baseline=baseline, scale=scale, std=std)
        sums = torch.zeros(len(groups), dtype=torch.float64).index_add(0, ids, found)
        assert sums.abs().max() < 1e-9


@given(group_lists, group_baselines, st.lists(numbers, min_size=5, max_size=5))
@few
def test_a_shift_of_a_whole_group_changes_nothing(
    groups: list[list[float]], baseline: Baseline, shifts: list[float]
) -> None:
    rewards, ids = flat(groups)
    shifted = rewards + torch.tensor(shifts, dtype=torch.float64)[ids]
    for scale in ("group_std", "none"):
        before = group_advantages(rewards, ids, baseline=baseline, scale=scale)
        after = group_advantages(shifted, ids, baseline=baseline, scale=scale)
        torch.testing.assert_close(after, before, rtol=1e-7, atol=1e-9)


@given(group_lists, group_baselines, st.floats(0.05, 50), stds)
@few
def test_a_positive_factor_changes_nothing_when_scaled(
    groups: list[list[float]], baseline: Baseline, factor: float, std: Std
) -> None:
    rewards, ids = flat(groups)
    for scale in ("group_std", "batch_std"):
        before = group_advantages(rewards, ids, baseline=baseline, scale=scale, std=std)
        after = group_advantages(rewards * factor, ids, baseline=baseline, scale=scale, std=std)
        torch.testing.assert_close(after, before, rtol=1e-9, atol=1e-9)


@given(group_lists, baselines, scales, stds, st.randoms(use_true_random=False))
@few
def test_order_and_names_of_groups_do_not_matter(
    groups: list[list[float]], baseline: Baseline, scale: Scale, std: Std, random: Any
) -> None:
    rewards, ids = flat(groups)
    order = list(range(len(rewards)))
    random.shuffle(order)
    before = group_advantages(rewards, ids, baseline=baseline, scale=scale, std=std)
    renamed = (ids * 7919 - 13) % 101
    after = group_advantages(rewards[order], renamed[order], baseline=baseline, scale=scale, std=std)
    torch.testing.assert_close(after, before[order], rtol=1e-9, atol=1e-9)


def plainly(groups: list[list[float]], baseline: str, scale: str, std: str) -> list[float]:
    """The definition, one group at a time in NumPy."""
    ddof = 1 if std == "sample" else 0
    everything = np.concatenate([np.array(g) for g in groups])
    found: list[float] = []
    for group in groups:
        r = np.array(group)
        own, whole = bool(np.ptp(r) > 0), bool(np.ptp(everything) > 0)
        grouped = baseline in ("group_mean", "group_median", "leave_one_out")
        silent = (grouped or scale == "group_std") and not own
        silent = silent or ((baseline == "global_mean" or scale == "batch_std") and not whole)
        if len(r) == 1 or silent:
            found += [0.0] * len(r)
            continue
        b = {
            "group_mean": r.mean(),
            "group_median": np.median(r),
            "leave_one_out": (r.sum() - r) / (len(r) - 1),
            "global_mean": everything.mean(),
            "none": 0.0,
        }[baseline]
        s = 1.0 if scale == "none" else (r if scale == "group_std" else everything).std(ddof=ddof)
        found += list((r - b) / s)
    return found


@given(group_lists, baselines, scales, stds)
@settings(max_examples=300, deadline=None)
def test_all_groups_at_once_are_the_definition_group_by_group(
    groups: list[list[float]], baseline: Baseline, scale: Scale, std: Std
) -> None:
    rewards, ids = flat(groups)
    found = group_advantages(rewards, ids, baseline=baseline, scale=scale, std=std)
    assert found.tolist() == pytest.approx(plainly(groups, baseline, scale, std), rel=1e-9, abs=1e-9)


@dataclass(frozen=True)
class Sample:
    logp: Tensor
    behavior: Tensor
    reference: Tensor
    advantages: Tensor
    weights: Tensor
    keep: Tensor
    mask: Tensor

    def map(self, function: Any) -> Sample:
        return Sample(**{name: function(value) for name, value in vars(self).items()})


@st.composite
def samples(draw: st.DrawFn) -> Sample:
    g = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    lengths = torch.tensor(draw(st.lists(st.integers(0, 6), min_size=1, max_size=5)))
    shape = (len(lengths), 6)
    logp = -torch.rand(shape, generator=g, dtype=torch.float64) * 3
    noise = draw(st.sampled_from([0.0, 0.1, 0.6]))
    tools = torch.rand(shape, generator=g) < draw(st.sampled_from([0.6, 1.1]))
    return Sample(
        logp=logp,
        behavior=logp + noise * torch.randn(shape, generator=g, dtype=torch.float64),
        reference=logp + 0.3 * torch.randn(shape, generator=g, dtype=torch.float64),
        advantages=torch.randn(shape, generator=g, dtype=torch.float64),
        weights=torch.rand(shape, generator=g, dtype=torch.float64),
        keep=torch.rand(shape, generator=g) < 0.8,
        mask=(torch.arange(6) < lengths.unsqueeze(1)) & tools,
    )


loss_types = st.sampled_from(sorted(LOSSES))
DENOMINATOR = 8.0


def loss_and_gradient(sample: Sample, loss_type: str, **options: Any) -> tuple[Tensor, Tensor]:
    logp = sample.logp.clone().requires_grad_()
    result = policy_loss(
        logp,
        sample.behavior,
        sample.advantages,
        sample.mask,
        denominator=DENOMINATOR,
        loss_type=loss_type,
        weights=sample.weights,
        keep=sample.keep,
        reference=ReferenceKl(sample.reference, 0.1),
        **options,
    )
    (found,) = torch.autograd.grad(result.loss, logp)
    return result.loss.detach(), found


@given(samples(), loss_types, st.integers(0, 5))
@few
def test_micro_batches_add_up(sample: Sample, loss_type: str, cut: int) -> None:
    whole, gradient = loss_and_gradient(sample, loss_type)
    parts = [sample.map(lambda x: x[:cut]), sample.map(lambda x: x[cut:])]
    found = [loss_and_gradient(part, loss_type) for part in parts if len(part.mask)]
    torch.testing.assert_close(sum(loss for loss, _ in found), whole)
    torch.testing.assert_close(torch.cat([grad for _, grad in found]), gradient)


@given(samples(), loss_types, st.integers(0, 4), st.integers(0, 4))
@few
def test_padding_on_either_side_changes_nothing(sample: Sample, loss_type: str, left: int, right: int) -> None:
    def pad(values: Tensor) -> Tensor:
        filler = False if values.dtype == torch.bool else torch.nan
        return torch.nn.functional.pad(values, (left, right), value=filler)

    whole, gradient = loss_and_gradient(sample, loss_type)
    loss, padded = loss_and_gradient(sample.map(pad), loss_type)
    torch.testing.assert_close(loss, whole)
    torch.testing.assert_close(padded[:, left : left + 6], gradient)
    assert padded[:, :left].abs().sum() == padded[:, left + 6 :].abs().sum() == 0.0


@given(samples(), loss_types)
@few
def test_nothing_outside_the_mask_has_an_effect(sample: Sample, loss_type: str) -> None:
    def spoil(values: Tensor) -> Tensor:
        return values if values.dtype == torch.bool else values.where(sample.mask, torch.nan)

    whole, gradient = loss_and_gradient(sample, loss_type)
    loss, spoiled = loss_and_gradient(sample.map(spoil), loss_type)
    torch.testing.assert_close(loss, whole)
    torch.testing.assert_close(spoiled, gradient)
    assert gradient.where(~sample.mask, 0).abs().sum() == 0.0


@given(samples(), st.sampled_from(["bnpo", "dapo", "dr_grpo", "cispo"]))
@few
def test_packing_changes_nothing_where_tokens_stand_alone(sample: Sample, loss_type: str) -> None:
    whole, gradient = loss_and_gradient(sample, loss_type)
    loss, packed = loss_and_gradient(sample.map(lambda x: x[sample.mask].unsqueeze(0)), loss_type)
    torch.testing.assert_close(loss, whole)
    torch.testing.assert_close(packed.squeeze(0), gradient[sample.mask])


@given(samples(), loss_types, st.integers(1, 3))
@few
def test_a_weight_of_n_is_the_row_n_times(sample: Sample, loss_type: str, n: int) -> None:
    once = replace(sample, weights=torch.ones_like(sample.weights))
    heavy = replace(once, weights=once.weights * n)
    repeated = once.map(lambda x: x.repeat(n, 1))
    loss, gradient = loss_and_gradient(heavy, loss_type)
    again, gradients = loss_and_gradient(repeated, loss_type)
    torch.testing.assert_close(again, loss)
    torch.testing.assert_close(gradients.view(n, *gradient.shape).sum(0), gradient)


@given(samples(), st.integers(0, 10_000))
@few
def test_ratio_one_is_the_plain_policy_gradient(sample: Sample, seed: int) -> None:
    rows = len(sample.mask)
    advantages = torch.randn(rows, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    lengths = sample.mask.sum(1, keepdim=True).clamp(min=1)
    for loss_type, rule in LOSSES.items():
        denominator = loss_denominator(loss_type, sample.mask, max_length=6)
        logp = sample.logp.clone().requires_grad_()
        policy_loss(
            logp, sample.logp, advantages, sample.mask, denominator=denominator, loss_type=loss_type
        ).loss.backward()
        per_row = lengths if rule.aggregation == "mean_of_means" else 1
        expected = (-advantages.unsqueeze(1) / per_row / denominator).where(sample.mask, 0)
        torch.testing.assert_close(logp.grad, expected, rtol=1e-13, atol=1e-15)
