"""The seed documents' names for core functions; GAE of interleaved groups in JAX against the torch one."""

from __future__ import annotations

import sys
from math import sqrt
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.compat.core import compute_group_advantages_vectorized, compute_grpo_advantages, compute_grpo_loss
from groupwise.core import gae
from groupwise.errors import MissingExtra

COUNT = 40  # one shape for all: JAX compiles for each


def steps(seed: int, groups: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "values": rng.normal(size=COUNT).astype(np.float32),
        "rewards": rng.normal(size=COUNT).astype(np.float32),
        "dones": rng.random(COUNT) < 0.2,
        "groups": rng.integers(groups, size=COUNT),
    }


def one_by_one(data: dict[str, Any], next_values: Any = None) -> Any:
    """The torch GAE of each group alone, put back where its steps stood."""
    found = np.zeros(len(data["values"]))
    for name in np.unique(data["groups"]):
        rows = np.flatnonzero(data["groups"] == name)
        values, rewards, dones = (torch.tensor(data[key][rows])[None] for key in ("values", "rewards", "dones"))
        ahead = torch.zeros(1) if next_values is None else torch.tensor(next_values[rows])[None]
        nothing = torch.zeros_like(dones)
        alone = gae(rewards, values, ahead, dones, nothing, torch.ones_like(dones), gamma=0.99, lam=0.95)
        found[rows] = alone.advantages[0].numpy()
    return found


@given(st.integers(0, 10_000), st.integers(1, COUNT))
@settings(max_examples=20, deadline=None)
def test_interleaved_groups_are_each_groups_own_gae(seed: int, groups: int) -> None:
    pytest.importorskip("jax")
    data = steps(seed, groups)
    found = np.asarray(compute_group_advantages_vectorized(**data))
    np.testing.assert_allclose(found, one_by_one(data), atol=1e-5)


def test_states_that_steps_led_to_stand_for_what_follows_a_cut() -> None:
    pytest.importorskip("jax")
    data = steps(1, 3)
    ahead = np.random.default_rng(2).normal(size=COUNT).astype(np.float32)
    found = np.asarray(compute_group_advantages_vectorized(**data, next_values=ahead))
    np.testing.assert_allclose(found, one_by_one(data, ahead), atol=1e-5)


def test_what_one_group_earns_does_not_leak_into_another() -> None:
    """Masking another group's steps to 0 keeps them in time, and lets γλ decay over them; sorting does not."""
    pytest.importorskip("jax")
    data = steps(3, 2)
    before = np.asarray(compute_group_advantages_vectorized(**data))
    data["rewards"] = np.where(data["groups"] == 1, 1e3, data["rewards"]).astype(np.float32)
    after = np.asarray(compute_group_advantages_vectorized(**data))
    assert (before == after)[data["groups"] == 0].all()
    assert (before != after)[data["groups"] == 1].all()


def test_by_hand() -> None:
    """γ = λ = ½. Group 7: 1 + ¼·2 = 1.5, 2; group 3: 4. The steps of the two alternate."""
    pytest.importorskip("jax")
    found = compute_group_advantages_vectorized(
        np.zeros(3), np.array([1.0, 4.0, 2.0]), np.zeros(3), np.array([7, 3, 7]), gamma=0.5, gae_lambda=0.5
    )
    assert found.tolist() == [1.5, 4.0, 2.0]


def test_names_of_groups_do_not_matter_and_scaling_divides_by_each_groups_own() -> None:
    pytest.importorskip("jax")
    data = steps(4, 4)
    plain = np.asarray(compute_group_advantages_vectorized(**data))
    found = np.asarray(compute_group_advantages_vectorized(**{**data, "groups": data["groups"] * -7 + 100}, scale=True))
    for name in range(4):
        rows = data["groups"] == name
        np.testing.assert_allclose(found[rows], plain[rows] / np.sqrt((plain[rows] ** 2).mean()), atol=1e-5)


def test_a_group_without_any_advantage_stays_zero() -> None:
    pytest.importorskip("jax")
    zeros = np.zeros(COUNT, np.float32)
    found = compute_group_advantages_vectorized(zeros, zeros, zeros > 0, np.arange(COUNT) % 3, scale=True)
    assert found.tolist() == [0.0] * COUNT


def test_it_runs_inside_jit() -> None:
    jax = pytest.importorskip("jax")
    data = steps(5, 3)
    inside = jax.jit(compute_group_advantages_vectorized)(**data)
    np.testing.assert_allclose(np.asarray(inside), one_by_one(data), atol=1e-5)


def test_what_does_not_fit_is_refused() -> None:
    pytest.importorskip("jax")
    with pytest.raises(ValueError, match=r"rewards has shape \(3,\), but must have \(2,\)"):
        compute_group_advantages_vectorized(np.zeros(2), np.zeros(3), np.zeros(2), np.zeros(2))
    with pytest.raises(ValueError, match="flatten the steps"):
        compute_group_advantages_vectorized(*[np.zeros((2, 2))] * 4)
    with pytest.raises(ValueError, match="values contains a number that is not finite"):
        compute_group_advantages_vectorized(np.array([np.nan]), np.zeros(1), np.zeros(1), np.zeros(1))


def test_without_jax_the_message_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(MissingExtra, match="needs jax") as error:
        compute_group_advantages_vectorized(np.zeros(1), np.zeros(1), np.zeros(1), np.zeros(1))
    assert "groupwise[jax]" in error.value.hint


def test_batch_form_puts_the_advantage_on_the_response_tokens_only() -> None:
    mask = torch.tensor([[0, 1, 1], [0, 1, 0], [1, 1, 1]])
    groups = torch.tensor([5, 5, 5])
    rewards = torch.tensor([1.0, 1.0, 0.0])
    expected = torch.tensor([[0, 1, 1], [0, 1, 0], [-2, -2, -2]]) * sqrt(0.5)
    torch.testing.assert_close(compute_grpo_advantages(rewards, mask, groups), expected)
    expanded = rewards.unsqueeze(1) * mask
    torch.testing.assert_close(compute_grpo_advantages(expanded, mask, groups), expected)
    plain = compute_grpo_advantages(rewards, mask, groups, norm_by_std=False)
    torch.testing.assert_close(plain[:, 1], torch.tensor([1 / 3, 1 / 3, -2 / 3]))


def test_group_form_takes_a_list() -> None:
    found = compute_grpo_advantages(group_rewards=[0.8, 0.5, 0.9, 0.6], baseline_type="group_mean")
    assert found.tolist() == pytest.approx([v / sqrt(0.025) for v in (0.1, -0.2, 0.2, -0.1)], abs=1e-5)
    median = compute_grpo_advantages(group_rewards=[0, 1, 5], baseline_type="group_median", norm_by_std=False)
    assert median.tolist() == [-1.0, 0.0, 4.0]


def test_the_two_forms_refuse_what_is_neither() -> None:
    with pytest.raises(ValueError, match="group_rewards"):
        compute_grpo_advantages(torch.ones(2))
    with pytest.raises(ValueError, match="different rewards at its tokens"):
        compute_grpo_advantages(torch.tensor([[0.0, 1.0]]), torch.ones(1, 2), torch.tensor([0]))


def test_a_row_without_response_tokens_has_no_token_rewards_to_read() -> None:
    mask = torch.tensor([[1, 1], [1, 0], [0, 0]])
    rewards = torch.tensor([[1.0, 1.0], [0.0, 0.0], [7.0, 7.0]])
    found = compute_grpo_advantages(rewards, mask, torch.zeros(3, dtype=torch.long))
    assert found.tolist() == [[1.0, 1.0], [-1.0, 0.0], [0.0, 0.0]]


def test_rewards_1_and_0_are_worth_a_half_root_of_2_with_the_sample_deviation() -> None:
    found = compute_grpo_advantages(group_rewards=[1, 0], std_type="sample")
    assert found.tolist() == pytest.approx([0.7071, -0.7071], abs=1e-4)
    rewards, mask, one = torch.tensor([1.0, 0.0]), torch.tensor([[0, 1], [1, 1]]), torch.tensor([5, 5])
    batch = compute_grpo_advantages(rewards, mask, one, std_type="sample")
    assert batch.flatten().tolist() == pytest.approx([0.0, 0.7071, -0.7071, -0.7071], abs=1e-4)


def test_compute_grpo_loss_is_the_policy_gradient_of_the_response_tokens() -> None:
    torch.manual_seed(0)
    logits = torch.randn(2, 4, 5, dtype=torch.float64, requires_grad=True)
    ids = torch.tensor([[0, 1, 2, 3], [4, 3, 2, 1]])
    response = torch.tensor([[0, 0, 1, 1], [0, 1, 0, 0]])
    out = compute_grpo_loss(logits, ids, response, torch.tensor([1.0, -2.0]), entropy_coefficient=0.1)
    out["loss"].backward()
    logp = logits.detach().log_softmax(-1)
    entropy = -(logp.exp() * logp).sum(-1)
    mean_entropy = (entropy[0, 1] + entropy[0, 2] + entropy[1, 0]) / 3
    # on policy the ratio is 1, so the three surrogates are −1, −1 and 2
    assert out["pg_loss"].item() == pytest.approx(0.0)
    assert out["entropy"].item() == pytest.approx(mean_entropy.item())
    assert out["loss"].item() == pytest.approx(-0.1 * mean_entropy.item())
    assert not out["entropy"].requires_grad
    plain = logits.detach().clone().requires_grad_()
    lp = plain.log_softmax(-1)
    own = -(lp[0, 1, 2] + lp[0, 2, 3] - 2 * lp[1, 0, 3]) / 3
    h = -(lp.exp() * lp).sum(-1)
    (own - 0.1 * (h[0, 1] + h[0, 2] + h[1, 0]) / 3).backward()
    torch.testing.assert_close(logits.grad, plain.grad)


def test_compute_grpo_loss_takes_the_ratio_against_what_was_recorded() -> None:
    logits = torch.zeros(1, 3, 4)
    ids = torch.tensor([[0, 1, 2]])
    recorded = torch.log(torch.tensor([[1.0, 0.25 / 1.5, 0.25 / 0.5]]))
    out = compute_grpo_loss(logits, ids, torch.tensor([[0, 1, 1]]), torch.ones(1), behavior_logp=recorded)
    assert out["loss"].item() == pytest.approx(-(1.2 + 0.5) / 2)
