"""The value head on real, tiny, randomly initialised language models."""

from __future__ import annotations

from math import sqrt

import pytest
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, Qwen2Config, Qwen2ForCausalLM

from groupwise.compat.language import ValueFunction, create_value_function
from groupwise.language.loading import load_model
from groupwise.language.policy import ValueHead


def qwen2() -> nn.Module:
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=31,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
    )
    return Qwen2ForCausalLM(config).eval()


def gpt2() -> nn.Module:
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(vocab_size=31, n_positions=32, n_embd=16, n_layer=2, n_head=2)).eval()


MODELS = {"qwen2": qwen2, "gpt2": gpt2}
IDS = torch.tensor([[3, 1, 4, 1, 5, 9], [2, 6, 5, 3, 5, 8]])


def test_the_head_gives_one_value_per_token_and_starts_small() -> None:
    head = ValueHead(16, dropout=0.0)
    values = head(torch.randn(2, 5, 16))
    assert values.shape == (2, 5)
    assert values.abs().max() < 1.0
    assert [type(m).__name__ for m in head.children()] == ["Linear", "Dropout", "Linear"]


def test_half_precision_hidden_states_are_accepted() -> None:
    assert ValueHead(16)(torch.randn(1, 2, 16).bfloat16()).dtype == torch.float32


@pytest.mark.parametrize("name", MODELS)
def test_values_look_back_and_never_ahead(name: str) -> None:
    value_fn = create_value_function(MODELS[name]())
    values = value_fn.compute_values(IDS, torch.ones_like(IDS))
    assert values.shape == IDS.shape
    changed = IDS.clone()
    changed[:, 4] = 0
    again = value_fn.compute_values(changed, torch.ones_like(IDS))
    torch.testing.assert_close(again[:, :4], values[:, :4])
    assert (again[:, 4:] - values[:, 4:]).abs().min() > 0


@pytest.mark.parametrize("name", MODELS)
def test_values_do_not_depend_on_the_side_of_the_padding(name: str) -> None:
    value_fn = create_value_function(MODELS[name]())
    zeros, ones = torch.zeros(2, 3, dtype=torch.long), torch.ones_like(IDS)
    plain = value_fn.compute_values(IDS)
    left = value_fn.compute_values(torch.cat([zeros, IDS], 1), torch.cat([zeros, ones], 1))[:, 3:]
    right = value_fn.compute_values(torch.cat([IDS, zeros], 1), torch.cat([ones, zeros], 1))[:, :6]
    torch.testing.assert_close(left, plain, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(right, plain, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_training_lowers_the_error_and_leaves_the_model_alone(name: str) -> None:
    model = MODELS[name]()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    torch.manual_seed(1)
    value_fn = ValueFunction(model, dropout=0.0, learning_rate=1e-2)
    ids = torch.randint(0, 31, (16, 8))
    returns = (ids % 5).float()  # what the current token says: learnable from the hidden state
    first = value_fn.update_value_function(ids, torch.ones_like(ids), returns)
    last = value_fn.update_value_function(ids, torch.ones_like(ids), returns, steps=150)
    assert last["value_loss"] < 0.1 * first["value_loss_before"]
    assert last["explained_variance"] > 0.8
    for key, value in model.state_dict().items():
        assert torch.equal(value, before[key])
    assert all(parameter.grad is None for parameter in model.parameters())


def test_only_the_masked_positions_are_learned() -> None:
    torch.manual_seed(1)
    value_fn = ValueFunction(qwen2(), dropout=0.0, learning_rate=1e-2)
    mask = torch.zeros_like(IDS)
    mask[:, 2:4] = 1
    returns = torch.full(IDS.shape, torch.nan)
    returns[:, 2:4] = 3.0
    report = value_fn.update_value_function(IDS, None, returns, mask, steps=100)
    assert report["value_loss"] < 0.05
    assert value_fn.compute_values(IDS)[:, 2:4].mean().item() == pytest.approx(3.0, abs=0.3)


def test_a_value_clip_keeps_values_near_where_they_were() -> None:
    torch.manual_seed(1)
    value_fn = ValueFunction(qwen2(), dropout=0.0, learning_rate=1e-2, value_clip=0.1)
    before = value_fn.compute_values(IDS).detach()
    value_fn.update_value_function(IDS, None, torch.full(IDS.shape, 50.0), steps=100)
    assert (value_fn.compute_values(IDS) - before).abs().max() < 1.0


def test_gae_of_a_finished_and_of_a_cut_answer() -> None:
    value_fn = create_value_function(qwen2(), gamma=0.5, gae_lambda=0.5)
    rewards = torch.tensor([[0.0, 0.0, 1.0], [0.0, 1.0, 9.0]])
    values = torch.tensor([[1.0, 1.0, 1.0], [1.0, 1.0, 9.0]])
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]])
    ended = value_fn.compute_gae(rewards, values, mask)
    # δ = [−½, −½, 0] and [−½, 0]
    assert ended.advantages.tolist() == [[-0.625, -0.5, 0.0], [-0.5, 0.0, 0.0]]
    assert ended.returns.tolist() == [[0.375, 0.5, 1.0], [0.5, 1.0, 0.0]]
    cut = value_fn.compute_gae(
        rewards, values, mask, terminated=torch.tensor([True, False]), bootstrap=torch.tensor([99.0, 4.0])
    )
    assert cut.advantages.tolist() == [[-0.625, -0.5, 0.0], [0.0, 2.0, 0.0]]
    with pytest.raises(ValueError, match="bootstrap"):
        value_fn.compute_gae(rewards, values, mask, terminated=torch.tensor([True, False]))


def test_group_advantages_by_the_seeds_call() -> None:
    value_fn = create_value_function(model=qwen2(), gamma=0.99, gae_lambda=0.95)
    found = value_fn.compute_grpo_advantages(group_rewards=[1.0, 1.0, 0.0], baseline_type="group_mean")
    assert found.tolist() == pytest.approx([sqrt(0.5), sqrt(0.5), -sqrt(2.0)])


def test_the_guides_value_function_from_end_to_end() -> None:
    """The usage of the guide with a real model: advantages of a group, then values, GAE and an update of the head."""
    model = load_model("tiny").model
    value_fn = create_value_function(
        model=model,
        gamma=0.99,
        gae_lambda=0.95,
    )
    advantages = value_fn.compute_grpo_advantages(group_rewards=[0.8, 0.5, 0.9, 0.6], baseline_type="group_mean")
    assert advantages.tolist() == pytest.approx([0.6325, -1.2649, 1.2649, -0.6325], abs=1e-4)
    ids = torch.randint(5, 101, (4, 7), generator=torch.Generator().manual_seed(0))
    values = value_fn.compute_values(ids, torch.ones_like(ids))
    rewards = torch.zeros(4, 7)
    rewards[:, -1] = torch.tensor([0.8, 0.5, 0.9, 0.6])
    estimate = value_fn.compute_gae(rewards, values.detach())
    assert estimate.advantages.shape == (4, 7)
    report = value_fn.update_value_function(ids, torch.ones_like(ids), estimate.returns, steps=20)
    assert report["value_loss"] < 0.5 * report["value_loss_before"]


def test_a_model_without_a_hidden_size_is_named() -> None:
    with pytest.raises(ValueError, match="Linear has no config"):
        create_value_function(nn.Linear(2, 2))
