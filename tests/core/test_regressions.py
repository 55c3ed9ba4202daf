"""Faults of earlier systems, each beside the formula that had it.

Every test writes the wrong formula down and shows that it answers differently where ours is right, so that
the test would fail if the formula came back.
"""

from __future__ import annotations

from math import sqrt

import pytest
import torch
from torch import Tensor

from groupwise.compat.core import compute_grpo_advantages, compute_grpo_loss
from groupwise.core import (
    entropy_bonus,
    group_advantages,
    loss_denominator,
    policy_loss,
    token_entropy,
    token_logp,
    zero_spread_groups,
)


def gradient(loss: Tensor, leaf: Tensor) -> Tensor:
    (found,) = torch.autograd.grad(loss, leaf, allow_unused=True)
    return torch.zeros_like(leaf) if found is None else found


def one_token(ratio: float, advantage: float, **options: float) -> tuple[Tensor, Tensor]:
    """Our loss of a single token of a given ratio, and its gradient."""
    logp = torch.tensor([[-1.0]], dtype=torch.float64, requires_grad=True)
    behavior = logp.detach() - torch.tensor(ratio, dtype=torch.float64).log()
    loss = policy_loss(
        logp, behavior, torch.tensor([advantage]).double(), torch.ones(1, 1), denominator=1, **options
    ).loss
    return loss.detach(), gradient(loss, logp)


@pytest.mark.parametrize(("ratio", "advantage", "right"), [(1.5, 1.0, -1.2), (0.5, -1.0, 0.8)])
def test_fault_1_the_surrogate_clips(ratio: float, advantage: float, right: float) -> None:
    def wrong(r: Tensor) -> Tensor:
        plain = r * advantage
        return -torch.minimum(plain, torch.maximum(plain, r.clamp(0.8, 1.2) * advantage))

    r = torch.tensor(ratio, dtype=torch.float64, requires_grad=True)
    assert wrong(r).item() == -ratio * advantage  # min(s, max(s, x)) is s, whatever x
    assert gradient(wrong(r), r).item() != 0.0

    loss, slope = one_token(ratio, advantage)
    assert loss.item() == pytest.approx(right)
    assert slope.item() == 0.0


def test_fault_2_the_ratio_is_clipped_and_not_the_advantage() -> None:
    def wrong(ratio: Tensor, advantage: float) -> Tensor:
        return -ratio * torch.tensor(advantage).clamp(-0.2, 0.2)

    unmoved = torch.tensor(1.0, requires_grad=True)
    assert gradient(wrong(unmoved, 1.0), unmoved).item() == pytest.approx(-0.2)
    assert one_token(1.0, 1.0)[1].item() == -1.0

    moved = torch.tensor(3.0, requires_grad=True)
    assert gradient(wrong(moved, 1.0), moved).item() != 0.0  # goes on pushing, however far it has gone
    assert one_token(3.0, 1.0)[1].item() == 0.0

    # advantages of 1 and 3 are not the same to us
    assert one_token(1.0, 3.0)[1].item() == 3 * one_token(1.0, 1.0)[1].item()
    assert wrong(unmoved, 3.0).item() == wrong(unmoved, 1.0).item()


def test_fault_3_entropy_is_a_bonus() -> None:
    ids, response = torch.tensor([[0, 1]]), torch.tensor([[0, 1]])
    logits = torch.tensor([[[0.0, 1.0, 2.0], [0.0, 0.0, 0.0]]], dtype=torch.float64, requires_grad=True)

    def entropy_after_a_step(loss: Tensor) -> float:
        return float(token_entropy(logits.detach() - 0.1 * gradient(loss, logits)))

    def ours(coefficient: float) -> dict[str, Tensor]:
        return compute_grpo_loss(logits, ids, response, torch.ones(1), entropy_coefficient=coefficient)

    without = entropy_after_a_step(ours(0.0)["loss"])
    assert entropy_after_a_step(ours(0.5)["loss"]) > without
    wrong = ours(0.0)["pg_loss"] + 0.5 * token_entropy(logits).mean()
    assert entropy_after_a_step(wrong) < without
    assert ours(0.5)["loss"] < ours(0.0)["loss"]


def test_fault_3_equal_rewards_make_no_update_even_with_an_entropy_bonus() -> None:
    rewards = torch.tensor([0.7, 0.7, 0.7, 0.1 + 0.2, 0.3], dtype=torch.float64)  # the last two differ by 6e-17
    groups = torch.tensor([0, 0, 0, 1, 1])
    ids, silent = zero_spread_groups(rewards, groups)
    assert ids[silent].tolist() == [0, 1]  # and the metrics say so

    logits = torch.randn(5, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    tokens, mask = torch.ones(5, 3, dtype=torch.long), torch.tensor([[0, 1, 1]]).expand(5, 3)
    advantages = compute_grpo_advantages(rewards, mask, groups)
    loss = compute_grpo_loss(logits, tokens, mask, advantages, entropy_coefficient=0.1)["loss"]
    assert gradient(loss, logits).abs().max() == 0.0

    wrong = -0.1 * token_entropy(logits).mean()
    assert gradient(wrong, logits).abs().max() > 0.0

    # one group with spread brings the bonus back, for its own rows only
    mixed = compute_grpo_advantages(torch.tensor([0.7, 0.7, 0.7, 0.0, 1.0]), mask, groups)
    loss = entropy_bonus(token_entropy(logits), mask[:, 1:], mixed[:, 1:], coefficient=0.1, denominator=10)
    moved = gradient(loss, logits).abs().amax(dim=(1, 2)) > 0
    assert moved.tolist() == [False, False, False, True, True]


def test_fault_4_the_advantage_meets_the_logits_that_predicted_the_token() -> None:
    g = torch.Generator().manual_seed(1)
    logits = torch.randn(1, 4, 6, generator=g, dtype=torch.float64, requires_grad=True)
    ids = torch.tensor([[3, 1, 4, 2]])
    response = torch.tensor([[0, 0, 1, 0]])  # only token 2, which the logits at 1 predicted
    advantages = torch.tensor([[9.0, 9.0, 2.0, 9.0]], dtype=torch.float64)

    loss = compute_grpo_loss(logits, ids, response, advantages)["loss"]
    chosen = torch.nn.functional.one_hot(torch.tensor(4), 6)
    expected = torch.zeros_like(logits)
    expected[0, 1] = -2.0 * (chosen - logits[0, 1].detach().softmax(-1))
    torch.testing.assert_close(gradient(loss, logits), expected)
    torch.testing.assert_close(token_logp(logits, ids)[0, 1], logits[0, 1].log_softmax(-1)[4])

    unshifted = logits.log_softmax(-1).gather(-1, ids.unsqueeze(-1)).squeeze(-1)
    wrong = -(advantages * unshifted * response).sum() / response.sum()
    moved = gradient(wrong, logits).abs().amax(dim=-1) > 0
    assert moved.tolist() == [[False, False, True, False]]  # leaves alone the logits that made the choice


def test_fault_5_a_group_of_one_has_advantage_zero() -> None:
    def wrong(rewards: Tensor, groups: Tensor) -> Tensor:
        means = torch.stack([rewards[groups == g].mean() if (groups == g).sum() > 1 else rewards.new_zeros(())
                             for g in groups])  # fmt: skip
        return rewards - means

    rewards, groups = torch.tensor([5.0, 1.0, 3.0]), torch.tensor([0, 1, 1])
    assert wrong(rewards, groups).tolist() == [5.0, -1.0, 1.0]
    assert group_advantages(rewards, groups, scale="none").tolist() == [0.0, -1.0, 1.0]
    assert compute_grpo_advantages(group_rewards=[5.0]).tolist() == [0.0]


def batch_of_two_groups() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(2)
    mask = torch.arange(5) < torch.tensor([5, 2, 1, 4, 3, 5]).unsqueeze(1)
    logp = -torch.rand(6, 5, generator=g, dtype=torch.float64)
    behavior = logp + 0.3 * torch.randn(6, 5, generator=g, dtype=torch.float64)
    return logp, behavior, torch.tensor([1.0, 0.0, 5.0, 2.0, 2.0, 8.0]).double(), mask


def test_fault_6_advantages_come_before_micro_batches() -> None:
    _, _, rewards, _ = batch_of_two_groups()
    groups = torch.tensor([0, 1, 0, 1, 0, 1])
    whole = group_advantages(rewards, groups)
    wrong = torch.cat([group_advantages(rewards[i : i + 2], groups[i : i + 2]) for i in (0, 2, 4)])
    assert wrong.tolist() == [0.0] * 6  # each micro-batch sees groups of one
    assert whole.abs().min() > 0
    order = torch.tensor([5, 0, 3, 2, 4, 1])
    torch.testing.assert_close(group_advantages(rewards[order], groups[order]), whole[order])


@pytest.mark.parametrize("loss_type", ["grpo", "dapo", "dr_grpo", "gspo"])
def test_fault_6_splitting_and_padding_do_not_change_the_gradient(loss_type: str) -> None:
    logp, behavior, rewards, mask = batch_of_two_groups()
    advantages = group_advantages(rewards, torch.tensor([0, 1, 0, 1, 0, 1]))
    leaf = logp.clone().requires_grad_()
    denominator = loss_denominator(loss_type, mask, max_length=5)

    def ours(rows: slice, divide_by: float) -> Tensor:
        return policy_loss(
            leaf[rows],
            behavior[rows],
            advantages[rows],
            mask[rows],
            denominator=divide_by,
            loss_type=loss_type,
        ).loss

    whole = gradient(ours(slice(0, 6), denominator), leaf)
    parts = [slice(0, 1), slice(1, 4), slice(4, 6)]
    torch.testing.assert_close(sum(gradient(ours(rows, denominator), leaf) for rows in parts), whole)

    # the mean of means over micro-batches, each with its own count, is another step
    counted = [gradient(ours(rows, loss_denominator(loss_type, mask[rows], max_length=5)), leaf) for rows in parts]
    wrong = torch.stack(counted).mean(0)
    assert (wrong - whole).abs().max() > 1e-3

    padded = torch.full((6, 9), -7.0, dtype=torch.float64)
    padded[:, 4:] = logp
    padded.requires_grad_()
    left_mask = torch.nn.functional.pad(mask, (4, 0))
    left = policy_loss(
        padded, torch.nn.functional.pad(behavior, (4, 0), value=-3.0), advantages, left_mask,
        denominator=denominator, loss_type=loss_type,
    ).loss  # fmt: skip
    torch.testing.assert_close(gradient(left, padded)[:, 4:], whole)
    # a mean over all positions, padding included, shrinks with every column of padding
    assert gradient(leaf.where(mask, 0).mean(), leaf).max() > gradient(padded.where(left_mask, 0).mean(), padded).max()


def test_fault_7_samples_of_another_policy_are_weighed_by_what_it_recorded() -> None:
    """Over all actions of a small space, so that the expectation is exact and not sampled."""
    g = torch.Generator().manual_seed(3)
    logits = torch.randn(5, generator=g, dtype=torch.float64, requires_grad=True)
    sampler = torch.randn(5, generator=g, dtype=torch.float64).log_softmax(-1)
    advantages = torch.randn(5, generator=g, dtype=torch.float64)

    def expected_gradient(recorded: Tensor) -> Tensor:
        logp = logits.log_softmax(-1).unsqueeze(1)
        loss = policy_loss(
            logp, recorded.unsqueeze(1), advantages, torch.ones(5, 1), denominator=1,
            clip_low=1.0, clip_high=1e6, weights=sampler.exp(),
        ).loss  # fmt: skip
        return gradient(loss, logits)

    objective = -(logits.softmax(-1) * advantages).sum()
    true = gradient(objective, logits)
    torch.testing.assert_close(expected_gradient(sampler), true)
    wrong = expected_gradient(
        logits.detach().log_softmax(-1)
    )  # "old" log-probabilities made up from the current policy
    assert (wrong - true).abs().max() > 0.01


def test_fault_8_the_standard_deviation_is_a_named_choice() -> None:
    three, two = torch.tensor([1.0, 1.0, 0.0]), torch.tensor([1.0, 0.0])
    one_group = torch.zeros(3, dtype=torch.long)
    up, down = sqrt(0.5), -sqrt(2.0)
    assert group_advantages(three, one_group).tolist() == pytest.approx([up, up, down])
    assert group_advantages(three, one_group, std="population").tolist() == pytest.approx([up, up, down])
    assert group_advantages(two, one_group[:2]).tolist() == [1.0, -1.0]
    assert group_advantages(two, one_group[:2], std="sample").tolist() == pytest.approx([up, -up])
    # torch.std is the sample one unless told otherwise
    wrong = (three - three.mean()) / three.std()
    assert wrong.tolist() != pytest.approx([up, up, down], abs=0.1)
