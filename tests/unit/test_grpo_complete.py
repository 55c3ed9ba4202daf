"""GRPO from end to end on real, tiny language models: nine areas, from the value head to a whole run.

Value function, GAE, group advantages, policy gradient, clipping, KL penalty, training step, training loop, and
what an engine's update must do to a model.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from groupwise.compat.core import compute_grpo_advantages, compute_grpo_loss
from groupwise.compat.language import ValueFunction, create_value_function
from groupwise.config import TrainingConfig
from groupwise.core import discounted_returns
from groupwise.training.checkpoint import load_checkpoint
from groupwise.training.folder import create_run
from groupwise.training.learner import Learner
from groupwise.training.session import Parts, execute
from groupwise.types import Batch, Event

Configure = Callable[..., TrainingConfig]

STEP = {
    "estimator": "outcome", "advantage_scale": "group_std", "num_generations": 8, "tasks_per_step": 8,
    "lr_scheduler_type": "constant", "warmup_ratio": 0.0, "num_epochs": 1, "learning_rate": 3e-3,
    "max_grad_norm": 1e9,
}  # fmt: skip
# Adam's first step shows only the sign of a gradient, unless its epsilon is large: then it is the gradient.
GRADIENT_STEP = {**STEP, "learning_rate": 1.0, "adam_epsilon": 1.0}


@pytest.fixture(params=["qwen2", "gpt2"])
def model(request: pytest.FixtureRequest, tiny_language: ModuleType) -> nn.Module:
    made: nn.Module = getattr(tiny_language, request.param)()
    return made


@pytest.fixture
def language(small_config: Configure, tiny_language: ModuleType) -> Callable[..., tuple[Parts, Batch, Learner]]:
    """A policy, a batch it has sampled and the learner that will update it."""

    def make(**settings: Any) -> tuple[Parts, Batch, Learner]:
        cfg = small_config(**{**STEP, **settings})
        parts = tiny_language.build(cfg)
        return parts, parts.source.next(), Learner(parts.policy, cfg)

    return make


def tokens(rows: int = 2, width: int = 8, seed: int = 0) -> Tensor:
    return torch.randint(2, 32, (rows, width), generator=torch.Generator().manual_seed(seed))


def gradient(loss: Tensor, model: nn.Module) -> Tensor:
    """The gradient of all weights in one vector."""
    parts = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True, materialize_grads=True)
    return torch.cat([part.flatten() for part in parts])


def weights(policy: Any) -> Tensor:
    return torch.cat([p.detach().flatten().clone() for p in policy.actor_parameters()])


@torch.no_grad()
def log_probability(policy: Any, batch: Batch) -> Tensor:
    """How likely the policy finds each whole answer, [B]."""
    return (policy.evaluate(batch.inputs).logp * batch.mask).sum(1)


# Value function: creation and forward pass


def test_the_documented_call_makes_a_value_function_that_values_every_token(model: nn.Module) -> None:
    value_fn = create_value_function(
        model=model,
        gamma=0.99,
        gae_lambda=0.95,
    )
    ids = tokens()
    values = value_fn.compute_values(ids, torch.ones_like(ids))
    assert isinstance(value_fn, ValueFunction)
    assert (value_fn.gamma, value_fn.gae_lambda, values.shape) == (0.99, 0.95, ids.shape)

    hidden = model(input_ids=ids, output_hidden_states=True).hidden_states[-1]
    head = value_fn.head
    inner = (hidden @ head.hidden.weight.T + head.hidden.bias).clamp(min=0)
    by_hand = (inner @ head.out.weight.T + head.out.bias).squeeze(-1)
    torch.testing.assert_close(values, by_hand)
    assert values.std() > 0


def test_the_value_head_learns_returns_that_hold_for_sequences_it_has_not_seen(model: nn.Module) -> None:
    torch.manual_seed(0)
    value_fn = ValueFunction(model, learning_rate=1e-2)
    before = copy.deepcopy(model.state_dict())
    ids, unseen = tokens(64, seed=1), tokens(64, seed=2)
    value_fn.update_value_function(ids, torch.ones_like(ids), (ids % 2).float(), steps=100)
    with torch.no_grad():
        error = (value_fn.compute_values(unseen) - (unseen % 2)).square().mean()
    assert error < 0.05, "a constant guess has an error of 0.25"
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


# GAE


def gae_by_hand(rewards: list[float], values: list[float], gamma: float, lam: float) -> list[float]:
    """δ_t = r_t + γ V(s_{t+1}) − V(s_t) and A_t = δ_t + γλ A_{t+1}, one step at a time."""
    advantages, following, ahead = [], 0.0, 0.0
    for reward, value in zip(reversed(rewards), reversed(values), strict=True):
        following = reward + gamma * ahead - value + gamma * lam * following
        ahead = value
        advantages.append(following)
    return advantages[::-1]


def test_gae_of_a_models_values_is_the_recursion_over_its_answer(model: nn.Module) -> None:
    torch.manual_seed(0)
    value_fn = create_value_function(model=model, gamma=0.99, gae_lambda=0.95)
    ids = tokens(3)
    values = value_fn.compute_values(ids).detach()
    rewards = torch.zeros(ids.shape)
    rewards[:, -1] = torch.tensor([1.0, 0.0, -1.0])
    answer = torch.arange(8).expand(3, 8) >= 3
    found = value_fn.compute_gae(rewards, values, answer)
    for row in range(3):
        expected = gae_by_hand(rewards[row, 3:].tolist(), values[row, 3:].tolist(), 0.99, 0.95)
        assert found.advantages[row].tolist() == pytest.approx([0.0] * 3 + expected, abs=1e-5)
    torch.testing.assert_close(found.returns[:, 3:], (found.advantages + values)[:, 3:])


def test_gae_trusts_only_the_critic_at_lambda_0_and_only_the_rewards_at_lambda_1(model: nn.Module) -> None:
    ids, rewards = tokens(4), torch.randn(4, 8, generator=torch.Generator().manual_seed(3))
    everywhere = torch.ones(4, 8, dtype=torch.bool)
    trusting = create_value_function(model=model, gamma=0.9, gae_lambda=0.0)
    values = trusting.compute_values(ids).detach()
    one_step = rewards - values
    one_step[:, :-1] += 0.9 * values[:, 1:]
    torch.testing.assert_close(trusting.compute_gae(rewards, values).advantages, one_step)
    doubting = create_value_function(model=model, gamma=0.9, gae_lambda=1.0)
    returns = doubting.compute_gae(rewards, values).returns
    torch.testing.assert_close(returns, discounted_returns(rewards, everywhere, 0.9))


# GRPO advantages


def test_the_documented_call_gives_group_relative_advantages(model: nn.Module) -> None:
    value_fn = create_value_function(model=model, gamma=0.99, gae_lambda=0.95)
    # Compute GRPO advantages
    advantages = value_fn.compute_grpo_advantages(
        group_rewards=[0.8, 0.5, 0.9, 0.6],
        baseline_type="group_mean"
    )  # fmt: skip
    # mean 0.7, population standard deviation √0.025
    assert advantages.tolist() == pytest.approx([0.632456, -1.264911, 1.264911, -0.632456], abs=1e-5)


@pytest.mark.parametrize(("baseline", "rewards", "expected"), [
    ("group_mean", [1, 1, 0], [0.707107, 0.707107, -1.414214]),
    ("group_median", [1, 1, 0], [0.0, 0.0, -2.121320]),
    ("global_mean", [1, 1, 0], [0.707107, 0.707107, -1.414214]),
    ("group_mean", [7], [0.0]),
    ("group_mean", [3, 3, 3], [0.0, 0.0, 0.0]),
])  # fmt: skip
def test_every_baseline_by_hand(
    tiny_language: ModuleType, baseline: Any, rewards: list[float], expected: list[float]
) -> None:
    value_fn = create_value_function(tiny_language.qwen2())
    advantages = value_fn.compute_grpo_advantages(group_rewards=rewards, baseline_type=baseline)
    assert advantages.tolist() == pytest.approx(expected, abs=1e-5)


def test_a_batch_gets_its_groups_advantages_at_answer_tokens_only() -> None:
    response_mask = torch.tensor([[0, 1, 1], [0, 1, 0], [0, 0, 1], [0, 1, 1], [0, 1, 1]])
    rewards = torch.tensor([1.0, 5.0, 1.0, 0.0, 7.0])
    advantages = compute_grpo_advantages(rewards, response_mask, torch.tensor([4, 9, 4, 4, 9]))
    good, bad = 0.707107, -1.414214
    expected = [[0, good, good], [0, -1, 0], [0, 0, good], [0, bad, bad], [0, 1, 1]]
    assert advantages.tolist() == [pytest.approx(row, abs=1e-5) for row in expected]


# Policy gradient


@pytest.mark.parametrize("advantage", [2.0, -0.5])
def test_the_policy_gradient_is_the_advantage_times_that_of_the_models_own_likelihood(
    model: nn.Module, advantage: float
) -> None:
    """Transformers' loss is the oracle: its labels are shifted there, and not by us."""
    ids = tokens(1)
    answer = torch.arange(8)[None] >= 3
    likelihood = model(input_ids=ids, labels=ids.masked_fill(~answer, -100)).loss
    logits = model(input_ids=ids).logits
    ours = compute_grpo_loss(logits, ids, answer, torch.tensor([advantage]))
    torch.testing.assert_close(
        gradient(ours["pg_loss"], model), gradient(advantage * likelihood, model), atol=1e-6, rtol=1e-4
    )


def test_what_stands_in_the_padding_moves_no_weight(language: Callable[..., Any]) -> None:
    results = []
    for filler in (0, 17):
        parts, batch, learner = language(**GRADIENT_STEP)
        attention = batch.inputs["attention_mask"]
        assert not attention.all()
        ids = batch.inputs["input_ids"].masked_fill(~attention, filler)
        start = weights(parts.policy)
        learner.update(replace(batch, inputs={"input_ids": ids, "attention_mask": attention}))
        results.append(weights(parts.policy) - start)
    torch.testing.assert_close(results[0], results[1], atol=1e-7, rtol=1e-4)
    assert results[0].norm() > 1e-3


# PPO clipping


@pytest.mark.parametrize(("ratio", "advantage", "learns"), [
    (1.5, 1.0, False), (1.5, -1.0, True), (0.5, -1.0, False), (0.5, 1.0, True), (1.0, 1.0, True), (1.1, 1.0, True),
])  # fmt: skip
def test_a_ratio_beyond_the_clip_stops_the_models_gradient(
    model: nn.Module, ratio: float, advantage: float, learns: bool
) -> None:
    ids = tokens()
    answer = torch.arange(8).expand(2, 8) >= 3
    logits = model(input_ids=ids).logits
    now = torch.zeros(2, 8)
    now[:, 1:] = logits.log_softmax(-1)[:, :-1].gather(-1, ids[:, 1:, None])[..., 0].detach()
    loss = compute_grpo_loss(
        logits, ids, answer, torch.full((2,), advantage), behavior_logp=now - torch.tensor(ratio).log()
    )["loss"]
    assert bool(gradient(loss, model).norm() > 0) == learns


def test_clipping_holds_the_policy_near_the_one_that_sampled(language: Callable[..., Any]) -> None:
    moved = {}
    for high in (0.05, 1e6):
        _, batch, learner = language(num_epochs=10, clip_ratio=min(high, 1.0), clip_ratio_high=high)
        moved[high] = learner.update(batch)
    assert moved[0.05]["policy/clip_high"] > 0
    assert moved[1e6]["policy/clip_high"] == 0
    assert moved[0.05]["policy/kl"] < 0.5 * moved[1e6]["policy/kl"]


# KL penalty


def exact_kl(policy: Any, reference: Any, batch: Batch) -> float:
    """KL(policy ‖ reference) over the whole vocabulary, averaged over the answers' tokens."""
    ids, attention = batch.inputs["input_ids"], batch.inputs["attention_mask"]
    with torch.no_grad():
        p, q = (who(ids, attention)[0][:, :-1].log_softmax(-1) for who in (policy, reference))
    return float((p.exp() * (p - q)).sum(-1)[batch.mask].mean())


def test_the_kl_penalty_keeps_the_policy_near_its_reference(language: Callable[..., Any]) -> None:
    distances = []
    for beta in (0.0, 2.0):
        parts, batch, learner = language(beta=beta, use_reference_model=True, num_epochs=40, clip_ratio=1.0)
        reference = copy.deepcopy(parts.policy)
        metrics = learner.update(batch)
        distances.append(exact_kl(parts.policy, reference, batch))
        assert metrics["policy/reference_kl"] > 0
    assert 0 < distances[1] < 0.3 * distances[0], distances


def test_at_the_reference_itself_the_kl_penalty_pulls_nowhere(language: Callable[..., Any]) -> None:
    moves = []
    for beta in (0.0, 5.0):
        parts, batch, learner = language(**GRADIENT_STEP, beta=beta, use_reference_model=True)
        start = weights(parts.policy)
        metrics = learner.update(batch)
        assert metrics["policy/reference_kl"] == pytest.approx(0.0, abs=1e-6)
        moves.append(weights(parts.policy) - start)
    assert moves[0].norm() > 1e-3
    torch.testing.assert_close(moves[0], moves[1], atol=1e-6, rtol=1e-3)


# Training step


@pytest.mark.parametrize("precision", [{}, {"bf16": True}, {"fp16": True}], ids=["fp32", "bf16", "fp16"])
def test_a_training_step_in_every_precision_favours_what_was_good(
    language: Callable[..., Any], precision: dict[str, bool]
) -> None:
    parts, batch, learner = language(**precision)
    before = log_probability(parts.policy, batch)
    metrics = learner.update(batch)
    change = log_probability(parts.policy, batch) - before
    good = batch.advantages.amax(1) > 0
    assert change[good].mean() > 0 > change[~good].mean()
    assert learner.scaler.is_enabled() == ("fp16" in precision)
    assert {p.dtype for p in parts.policy.parameters()} == {torch.float32}
    assert (metrics["optim/steps"], metrics["optim/skipped"]) == (1, 0)


def test_the_half_precisions_really_compute_in_half_precision(language: Callable[..., Any]) -> None:
    for precision, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16)):
        parts, batch, learner = language(**{precision: True})
        seen: list[torch.dtype] = []
        parts.policy.model.lm_head.register_forward_hook(lambda module, given, made, seen=seen: seen.append(made.dtype))
        learner.update(batch)
        assert set(seen) == {dtype}


@pytest.mark.parametrize("size", [1, 3, 16])
def test_gradient_accumulation_takes_the_same_step_as_the_whole_batch(language: Callable[..., Any], size: int) -> None:
    moves = []
    for rows in (64, size):
        parts, batch, learner = language(
            **GRADIENT_STEP, per_device_train_batch_size=rows, gradient_accumulation_steps=-(-64 // rows)
        )
        assert batch.rows > size
        start = weights(parts.policy)
        assert learner.update(batch)["optim/steps"] == 1
        moves.append(weights(parts.policy) - start)
    assert moves[0].norm() > 1e-3
    torch.testing.assert_close(moves[0], moves[1], atol=1e-6, rtol=1e-3)


def test_a_long_gradient_is_shortened_to_the_limit(language: Callable[..., Any]) -> None:
    settings = {**GRADIENT_STEP, "max_grad_norm": 1e-3}
    parts, batch, learner = language(**settings)
    start = weights(parts.policy)
    metrics = learner.update(batch)
    assert metrics["optim/grad_norm"] > 0.1
    assert float((weights(parts.policy) - start).norm()) == pytest.approx(1e-3, rel=0.01)


def test_the_critics_loss_trains_the_value_head_and_leaves_the_model_alone(language: Callable[..., Any]) -> None:
    parts, batch, learner = language(estimator="gae", num_epochs=30, learning_rate=1e-2, value_clip=None)
    lengths = batch.mask.sum(1, keepdim=True).float().expand(batch.mask.shape)
    batch = replace(batch, returns=lengths, advantages=torch.zeros(batch.mask.shape))
    start, head = weights(parts.policy), copy.deepcopy(parts.policy.value_head.state_dict())

    def error() -> float:
        with torch.no_grad():
            return float((parts.policy.evaluate(batch.inputs).value - lengths)[batch.mask].square().mean())

    before = error()
    learner.update(batch)
    assert error() < 0.2 * before
    assert torch.equal(weights(parts.policy), start)
    assert not torch.equal(head["out.weight"], parts.policy.value_head.out.weight)


def test_answers_cut_at_the_limit_stay_out_of_the_loss_where_that_is_wanted(language: Callable[..., Any]) -> None:
    parts, batch, learner = language(**GRADIENT_STEP, mask_truncated=True)
    ended = (batch.inputs["input_ids"] == 1).any(1)
    assert torch.equal(batch.keep.any(1), ended)
    start = weights(parts.policy)
    learner.update(replace(batch.select(~ended), denominator=1.0))
    assert torch.equal(weights(parts.policy), start)


# Training loop


def trained(path: Path, tiny_language: ModuleType) -> list[Event]:
    return list(execute(path, tiny_language.build))


def test_a_run_with_every_documented_setting_learns_the_task(
    small_config: Configure, tiny_language: ModuleType
) -> None:
    """The documented settings, but for the sizes: fewer steps, a model that needs larger ones."""
    sizes = {"num_episodes": 30, "learning_rate": 1e-2, "per_device_train_batch_size": 16, "num_generations": 8}
    documented = {
        "gradient_accumulation_steps": 4, "beta": 0.1, "use_reference_model": True, "clip_ratio": 0.2,
        "advantage_normalization": True, "baseline_type": "group_mean", "bf16": True, "max_grad_norm": 1.0,
        "warmup_ratio": 0.1, "lr_scheduler_type": "cosine", "reward_clip": 10.0, "value_clip": 0.2,
        "entropy_coef": 0.01,
    }  # fmt: skip
    cfg = small_config(**{**STEP, **sizes, **documented, "eval_steps": 30, "save_steps": 30, "num_epochs": 2})
    path = create_run(cfg)
    events = trained(path, tiny_language)
    rewards = [e.data["metrics"]["eval/reward_mean"] for e in events if e.type == "eval"]
    steps = [e.data["metrics"] for e in events if e.type == "step"]
    assert rewards[-1] > rewards[0] + 0.4, rewards
    assert len(steps) == 30
    assert steps[-1]["reward/mean"] > steps[0]["reward/mean"] + 0.3
    assert steps[-1]["policy/reference_kl"] > steps[0]["policy/reference_kl"]
    assert steps[-1]["policy/entropy"] < steps[0]["policy/entropy"]
    assert steps[0]["optim/learning_rate"] < max(s["optim/learning_rate"] for s in steps) <= 1e-2
    assert events[-1].data["reason"] == "finished"

    fresh = tiny_language.build(cfg).policy
    assert tiny_language.held_out_reward(fresh, cfg.run.eval_seed) == rewards[0]
    fresh.load_state_dict(load_checkpoint(path / "checkpoints" / "000030").model)
    assert tiny_language.held_out_reward(fresh, cfg.run.eval_seed) == rewards[-1]


def test_a_run_with_gae_and_a_value_head_learns_the_task(small_config: Configure, tiny_language: ModuleType) -> None:
    critic = {"estimator": "gae", "gamma": 1.0, "advantage_scale": "batch_std", "critic_learning_rate": 1e-2}
    sizes = {"num_episodes": 25, "eval_steps": 25, "save_steps": 25, "num_epochs": 2, "learning_rate": 5e-3}
    events = trained(create_run(small_config(**{**STEP, **critic, **sizes})), tiny_language)
    rewards = [e.data["metrics"]["eval/reward_mean"] for e in events if e.type == "eval"]
    steps = [e.data["metrics"] for e in events if e.type == "step"]
    assert rewards[-1] > rewards[0] + 0.4, rewards
    assert all(s["loss/value"] > 0 for s in steps)


def test_early_stopping_ends_a_run_that_no_longer_improves(small_config: Configure, tiny_language: ModuleType) -> None:
    stopping = {"num_episodes": 50, "eval_steps": 1, "early_stopping": True, "early_stopping_patience": 3}
    events = trained(create_run(small_config(**{**STEP, **stopping, "learning_rate": 1e-9})), tiny_language)
    assert (events[-1].step, events[-1].data["reason"]) == (3, "early_stopping")


def test_a_run_stops_when_it_reaches_its_target(small_config: Configure, tiny_language: ModuleType) -> None:
    target = {"num_episodes": 60, "eval_steps": 5, "target_reward": 0.3, "num_epochs": 2, "learning_rate": 5e-3}
    events = trained(create_run(small_config(**{**STEP, **target})), tiny_language)
    rewards = [e.data["metrics"]["eval/reward_mean"] for e in events if e.type == "eval"]
    assert events[-1].data["reason"] == "target_reached"
    assert rewards[-1] >= 0.3 > max(rewards[:-1])


# Engine updates


def test_an_update_changes_the_weights_and_tells_good_answers_from_bad_ones(language: Callable[..., Any]) -> None:
    parts, batch, learner = language()
    start, before = weights(parts.policy), log_probability(parts.policy, batch)
    version = parts.policy.version
    learner.update(batch)
    change = log_probability(parts.policy, batch) - before
    advantages = batch.advantages.sum(1) / batch.mask.sum(1)
    assert not torch.equal(weights(parts.policy), start)
    assert parts.policy.version == version + 1
    assert (change[advantages > 0] > 0).float().mean() > 0.9
    assert change[advantages < 0].mean() < 0
    assert torch.corrcoef(torch.stack([change, advantages]))[0, 1] > 0.5


def test_an_update_is_a_gradient_and_not_the_mean_of_the_advantages(language: Callable[..., Any]) -> None:
    """−mean(advantages) is 0 for every group and knows no weights; the update goes where the advantages say."""
    moves = []
    for sign in (1.0, -1.0):
        parts, batch, learner = language(**GRADIENT_STEP)
        per_answer = batch.advantages.sum(1) / batch.mask.sum(1)
        assert float(per_answer.mean()) == pytest.approx(0.0, abs=1e-5)
        start = weights(parts.policy)
        metrics = learner.update(replace(batch, advantages=sign * batch.advantages))
        assert metrics["optim/grad_norm"] > 0.1
        moves.append(weights(parts.policy) - start)
    assert torch.cosine_similarity(moves[0], moves[1], dim=0) < -0.9


def test_an_update_on_groups_without_spread_changes_nothing_and_says_so(
    small_config: Configure, tiny_language: ModuleType
) -> None:
    cfg = small_config(**STEP, entropy_coef=0.5)
    parts = tiny_language.build(cfg, tiny_language.per_attempt(lambda task, attempt: 1.0))
    learner, start = Learner(parts.policy, cfg), weights(parts.policy)
    batch = parts.source.next()
    assert batch.metrics["groups/zero_spread_share"] == 1.0
    assert batch.rows == 0, "no term of the loss would act on these answers"
    idle = tiny_language.build(cfg).source.next()
    for given in (batch, replace(idle, advantages=torch.zeros(idle.mask.shape))):
        assert learner.update(given)["optim/steps"] == 0
    assert torch.equal(weights(parts.policy), start)
