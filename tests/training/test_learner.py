"""The learner: what a batch does to a policy, and what must not matter."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from groupwise.config import TrainingConfig
from groupwise.core import loss_denominator
from groupwise.errors import ContractError
from groupwise.training.learner import Learner, schedule_factor
from groupwise.types import SEARCHED, SHOWN, Batch, Evaluation, Tensors

STATES, ACTIONS = 5, 4


class TablePolicy(nn.Module):
    """Logits by state, values by state: the smallest policy with an actor and a critic."""

    def __init__(self, critic: bool = False, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        self.version = 0
        generator = torch.Generator().manual_seed(0)
        self.logits = nn.Linear(STATES, ACTIONS, bias=False, dtype=dtype)
        self.values = nn.Linear(STATES, 1, bias=False, dtype=dtype) if critic else None
        with torch.no_grad():
            self.logits.weight.normal_(generator=generator)
            if self.values:
                self.values.weight.normal_(generator=generator)

    def evaluate(self, inputs: Tensors) -> Evaluation:
        states = nn.functional.one_hot(inputs["states"], STATES).to(self.logits.weight.dtype)
        logp = self.logits(states).log_softmax(-1)
        chosen = logp.gather(-1, inputs["actions"][..., None])[..., 0]
        entropy = -(logp.exp() * logp).sum(-1)
        return Evaluation(chosen, entropy, self.values(states)[..., 0] if self.values else None)

    def actor_parameters(self) -> list[nn.Parameter]:
        return list(self.logits.parameters())

    def critic_parameters(self) -> list[nn.Parameter]:
        return list(self.values.parameters()) if self.values else []


def make_batch(policy: TablePolicy, rows: int = 12, width: int = 6, **changes: Any) -> Batch:
    """Ragged rows of random actions, sampled a little off the present policy."""
    generator = torch.Generator().manual_seed(1)
    inputs = {
        "states": torch.randint(STATES, (rows, width), generator=generator),
        "actions": torch.randint(ACTIONS, (rows, width), generator=generator),
    }
    lengths = torch.randint(1, width + 1, (rows, 1), generator=generator)
    mask = torch.arange(width) < lengths
    with torch.no_grad():
        logp = policy.evaluate(inputs).logp
    noise = 0.3 * torch.randn(rows, width, generator=generator, dtype=logp.dtype)
    advantages = torch.randn(rows, 1, generator=generator, dtype=logp.dtype).expand(rows, width) * mask
    batch = Batch(inputs, mask, logp + noise, advantages, denominator=1.0)
    return replace(batch, **changes)


def settings(**changes: Any) -> TrainingConfig:
    base = {
        "learning_rate": 0.05, "lr_scheduler_type": "constant", "warmup_ratio": 0.0,
        "per_device_train_batch_size": 1000, "gradient_accumulation_steps": 1, "max_grad_norm": 1e9,
    }  # fmt: skip
    return TrainingConfig.from_dict({**base, **changes})


def updated(batch: Batch, cfg: TrainingConfig, critic: bool = False) -> tuple[dict[str, Tensor], dict[str, float]]:
    """The weights and the metrics after one update.

    Adam's first step shows only the sign of the gradient, unless its epsilon is large.
    """
    cfg = cfg.replace(adam_epsilon=1.0)
    policy = TablePolicy(critic)
    loss = cfg.loss
    denominator = float(loss_denominator(loss.loss_type, batch.mask, max_length=loss.max_completion_length))
    metrics = Learner(policy, cfg).update(replace(batch, denominator=denominator))
    return {name: value.clone() for name, value in policy.state_dict().items()}, metrics


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return all(torch.allclose(first[name], second[name], rtol=0, atol=1e-10) for name in first)


@pytest.mark.parametrize("loss_type", ["grpo", "bnpo", "dr_grpo", "dapo", "gspo", "cispo", "sapo", "luspo", "vespo"])
@pytest.mark.parametrize("size", [1, 2, 5, 7])
def test_micro_batches_leave_the_update_unchanged(loss_type: str, size: int) -> None:
    batch = make_batch(TablePolicy())
    extra = {"max_completion_length": 6} if loss_type == "dr_grpo" else {}
    common = dict(loss_type=loss_type, entropy_coef=0.01, **extra)
    whole, _ = updated(batch, settings(**common))
    split, _ = updated(
        batch,
        settings(**common, per_device_train_batch_size=size, gradient_accumulation_steps=-(-12 // size)),
    )
    assert same(whole, split)


@pytest.mark.parametrize("changes", [
    {"top_entropy_quantile": 0.4}, {"off_policy_threshold": 0.01}, {"dual_clip": 1.25}, {"clip_ratio_high": 0.28},
])  # fmt: skip
def test_micro_batches_leave_narrowed_updates_unchanged(changes: dict[str, float]) -> None:
    batch = make_batch(TablePolicy())
    whole, _ = updated(batch, settings(**changes))
    split, _ = updated(batch, settings(**changes, per_device_train_batch_size=3, gradient_accumulation_steps=4))
    plain, _ = updated(batch, settings())
    assert same(whole, split)
    assert not same(whole, plain)


def test_the_critic_and_the_kl_term_survive_micro_batches_too() -> None:
    policy = TablePolicy(critic=True)
    batch = make_batch(policy)
    with torch.no_grad():
        seen = policy.evaluate(batch.inputs)
    generator = torch.Generator().manual_seed(2)
    returns = torch.randn(batch.mask.shape, generator=generator, dtype=torch.float64)
    batch = replace(
        batch, values=seen.value, returns=returns, reference_logp=seen.logp - 0.1, advantages=batch.advantages
    )
    cfg = dict(beta=0.1, use_reference_model=True)
    whole, metrics = updated(batch, settings(**cfg), critic=True)
    split, _ = updated(
        batch, settings(**cfg, per_device_train_batch_size=5, gradient_accumulation_steps=3), critic=True
    )
    assert same(whole, split)
    assert metrics["policy/reference_kl"] > 0
    assert metrics["loss/value"] > 0


def test_one_optimiser_step_does_not_depend_on_skipped_rows() -> None:
    """Rows whose group had no spread may be left out: the batch's denominator was fixed before."""
    batch = make_batch(TablePolicy())
    idle = torch.arange(12) % 3 == 0
    batch = replace(batch, advantages=torch.where(idle[:, None], 0.0, batch.advantages), denominator=40.0)
    results = []
    for candidate in (batch, batch.select(~idle)):
        policy = TablePolicy()
        Learner(policy, settings()).update(candidate)
        results.append({k: v.clone() for k, v in policy.state_dict().items()})
    assert same(*results)


@pytest.mark.parametrize("idle_share", [0.5, 0.9])
def test_leaving_idle_rows_out_changes_neither_the_number_nor_the_size_of_optimiser_steps(idle_share: float) -> None:
    """Several optimiser steps a batch: the total movement must stay what it was with the idle rows in."""
    batch = make_batch(TablePolicy(), rows=400)
    idle = torch.rand(400, generator=torch.Generator().manual_seed(3)) < idle_share
    batch = replace(batch, advantages=torch.where(idle[:, None], 0.0, batch.advantages), denominator=1000.0)
    whole = replace(batch, total_rows=400, total_tokens=int(batch.mask.sum()))
    movement, steps = [], []
    for candidate in (whole, whole.select(~idle)):
        policy = TablePolicy()
        before = policy.logits.weight.detach().clone()
        cfg = settings(per_device_train_batch_size=20, adam_epsilon=1e3, adam_beta1=0.0)
        steps.append(Learner(policy, cfg).update(candidate)["optim/steps"])
        movement.append(float((policy.logits.weight.detach() - before).norm()))
    assert steps == [20, 20]
    assert movement[1] == pytest.approx(movement[0], rel=0.1)


def test_the_entropy_bonus_does_not_grow_when_idle_rows_are_left_out() -> None:
    batch = make_batch(TablePolicy())
    idle = torch.arange(12) % 4 != 0
    batch = replace(batch, advantages=torch.where(idle[:, None], 0.0, batch.advantages), denominator=40.0)
    whole = replace(batch, total_rows=12, total_tokens=int(batch.mask.sum()))
    weights = []
    for candidate in (whole, whole.select(~idle)):
        policy = TablePolicy()
        Learner(policy, settings(entropy_coef=0.5, adam_epsilon=1.0)).update(candidate)
        weights.append({"logits": policy.logits.weight.detach().clone()})
    assert same(*weights)


def test_a_batch_kept_out_altogether_moves_nothing() -> None:
    policy = TablePolicy()
    batch = replace(make_batch(policy), denominator=30.0)
    learner = Learner(policy, settings(weight_decay=0.1))
    learner.update(batch)
    before = policy.logits.weight.detach().clone()
    learner.update(replace(batch, keep=torch.zeros_like(batch.mask)))
    assert torch.equal(before, policy.logits.weight)


def test_stale_samples_do_not_end_the_update_before_it_starts() -> None:
    policy = TablePolicy()
    batch = replace(make_batch(policy), denominator=30.0)
    stale = replace(batch, behavior_logp=batch.behavior_logp - 1.0)
    metrics = Learner(policy, settings(num_epochs=3, kl_stop=0.05, learning_rate=1e-4)).update(stale)
    assert metrics["optim/steps"] == 3
    assert policy.version == 1


def test_a_version_counts_changes_and_not_attempts_at_them() -> None:
    policy = TablePolicy()
    batch = make_batch(policy)
    batch.advantages[0, 0] = float("nan")
    Learner(policy, settings()).update(replace(batch, denominator=30.0))
    assert policy.version == 0


@pytest.mark.parametrize("broken", [
    {"mask": torch.ones(12, 6)}, {"advantages": torch.ones(12)}, {"keep": torch.ones(12, 6)}, {"denominator": 0.0},
])  # fmt: skip
def test_a_batch_that_breaks_its_contract_is_named(broken: dict[str, Any]) -> None:
    policy = TablePolicy()
    with pytest.raises(ContractError, match=next(iter(broken))):
        Learner(policy, settings()).update(replace(make_batch(policy), **{"denominator": 1.0, **broken}))


def test_an_actor_and_a_critic_may_share_a_trunk() -> None:
    policy = TablePolicy(critic=True)
    shared = [*policy.logits.parameters(), *policy.values.parameters()]
    policy.critic_parameters = lambda: shared  # type: ignore[method-assign]
    assert [len(group["params"]) for group in Learner(policy, settings()).optimizer.param_groups] == [1, 1]


def test_fault_3_a_batch_without_spread_changes_nothing_even_with_an_entropy_bonus() -> None:
    policy = TablePolicy()
    batch = make_batch(policy)
    learner = Learner(policy, settings(entropy_coef=0.5))
    learner.update(replace(batch, denominator=30.0))
    before, moments = copy.deepcopy(policy.state_dict()), copy.deepcopy(learner.optimizer.state_dict())
    version = policy.version
    metrics = learner.update(replace(batch, denominator=30.0, advantages=torch.zeros_like(batch.advantages)))
    assert all(torch.equal(before[name], value) for name, value in policy.state_dict().items())
    assert moments["state"][0]["step"] == learner.optimizer.state_dict()["state"][0]["step"]
    assert (metrics["optim/steps"], policy.version) == (0.0, version)


def test_an_entropy_bonus_raises_entropy() -> None:
    batch = make_batch(TablePolicy())
    entropies = {}
    for coefficient in (0.0, 1.0):
        policy = TablePolicy()
        learner = Learner(policy, settings(entropy_coef=coefficient))
        for _ in range(5):
            learner.update(replace(batch, denominator=30.0))
        with torch.no_grad():
            entropies[coefficient] = float(policy.evaluate(batch.inputs).entropy.mean())
    assert entropies[1.0] > entropies[0.0] + 0.05


def test_later_epochs_use_true_ratios_and_clip() -> None:
    policy = TablePolicy()
    batch = make_batch(policy)
    with torch.no_grad():
        batch = replace(batch, behavior_logp=policy.evaluate(batch.inputs).logp, denominator=30.0)
    metrics = Learner(policy, settings(num_epochs=1)).update(batch)
    assert metrics["policy/ratio_max"] == pytest.approx(1.0)
    policy = TablePolicy()
    metrics = Learner(policy, settings(num_epochs=20)).update(batch)
    assert metrics["policy/ratio_max"] > 1.2
    assert metrics["policy/clip_high"] > 0
    assert metrics["policy/clip_low"] > 0
    assert metrics["optim/steps"] == 20


def test_the_kl_stop_ends_the_epochs_before_the_policy_runs_away() -> None:
    def run(stop: float | None) -> dict[str, float]:
        policy = TablePolicy()
        batch = make_batch(policy)
        with torch.no_grad():
            batch = replace(batch, behavior_logp=policy.evaluate(batch.inputs).logp, denominator=30.0)
        return Learner(policy, settings(num_epochs=50, kl_stop=stop)).update(batch)

    free, bounded = run(None), run(0.01)
    assert free["optim/epochs"] == 50
    assert 1 <= bounded["optim/epochs"] < 50
    assert bounded["policy/kl"] < 0.01 < free["policy/kl"]


def test_actor_and_critic_are_clipped_apart() -> None:
    """A huge value error must not shrink the policy's step."""
    policy = TablePolicy(critic=True)
    batch = make_batch(policy)
    with torch.no_grad():
        values = policy.evaluate(batch.inputs).value
    assert values is not None
    metrics = {}
    weights = {}
    for size in (1.0, 1e6):
        part = replace(batch, values=values, returns=values + size)
        cfg = settings(max_grad_norm=0.01, value_clip=None)
        weights[size], metrics[size] = updated(part, cfg, critic=True)
    assert metrics[1e6]["optim/critic_grad_norm"] > 1e4 * metrics[1.0]["optim/critic_grad_norm"]
    assert torch.equal(weights[1.0]["logits.weight"], weights[1e6]["logits.weight"])


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_paths_train(precision: str) -> None:
    policy = TablePolicy(dtype=torch.float32)
    batch = make_batch(policy)
    with torch.no_grad():
        batch = replace(batch, behavior_logp=policy.evaluate(batch.inputs).logp, denominator=30.0)
    before = policy.logits.weight.detach().clone()
    learner = Learner(policy, settings(**{precision: True}))
    metrics = learner.update(batch)
    assert learner.scaler.is_enabled() == (precision == "fp16")
    assert policy.logits.weight.dtype == torch.float32
    assert not torch.equal(before, policy.logits.weight)
    assert metrics["optim/skipped"] == 0
    with torch.no_grad():
        gain = (policy.evaluate(batch.inputs).logp - batch.behavior_logp) * batch.advantages * batch.mask
    assert float(gain.sum()) > 0


def test_a_gradient_that_is_not_finite_is_skipped_and_counted() -> None:
    policy = TablePolicy()
    batch = make_batch(policy)
    batch.advantages[0, 0] = float("nan")
    before = policy.logits.weight.detach().clone()
    metrics = Learner(policy, settings()).update(replace(batch, denominator=30.0))
    assert metrics["optim/skipped"] == 1
    assert torch.equal(before, policy.logits.weight)


def test_fp16_overflow_halves_the_loss_scale_and_skips_the_step() -> None:
    policy = TablePolicy(dtype=torch.float32)
    batch = make_batch(policy)
    batch.advantages[0, 0] = float("inf")
    learner = Learner(policy, settings(fp16=True))
    scale = learner.scaler.get_scale()
    before = policy.logits.weight.detach().clone()
    learner.update(replace(batch, denominator=30.0))
    assert learner.scaler.get_scale() == scale / 2
    assert torch.equal(before, policy.logits.weight)


def test_the_adaptive_kl_coefficient_follows_its_target() -> None:
    policy = TablePolicy()
    batch = make_batch(policy)
    with torch.no_grad():
        far = replace(batch, reference_logp=policy.evaluate(batch.inputs).logp - 2.0, denominator=30.0)
    cfg = settings(beta=0.1, use_reference_model=True, kl_target=0.01, kl_horizon=100, learning_rate=1e-6)
    learner = Learner(policy, cfg)
    learner.update(far)
    assert learner.kl_coef > 0.1
    with torch.no_grad():
        near = replace(batch, reference_logp=policy.evaluate(batch.inputs).logp, denominator=30.0)
    risen = learner.kl_coef
    learner.update(near)
    assert learner.kl_coef < risen


def test_a_learner_restored_from_its_state_goes_on_exactly() -> None:
    batch = replace(make_batch(TablePolicy()), denominator=30.0)
    cfg = settings(num_epochs=3, per_device_train_batch_size=4, warmup_ratio=0.5, num_episodes=6)
    policy = TablePolicy()
    learner = Learner(policy, cfg)
    learner.update(batch)
    weights, state = copy.deepcopy(policy.state_dict()), copy.deepcopy(learner.state_dict())
    learner.update(batch)
    twin = TablePolicy()
    twin.load_state_dict(weights)
    second = Learner(twin, cfg)
    second.load_state_dict(state)
    second.update(batch)
    assert all(torch.equal(v, twin.state_dict()[k]) for k, v in policy.state_dict().items())
    assert twin.version == policy.version == 2


def test_whatever_a_learner_saves_it_loads_again() -> None:
    cfg = settings(kl_target=0.1, beta=0.2, use_reference_model=True, total_samples=1000, per_device_train_batch_size=4)
    first, fresh = (Learner(TablePolicy(), cfg) for _ in range(2))
    batch = make_batch(first.policy, samples=50, attempts=12)  # type: ignore[arg-type]
    first.update(replace(batch, reference_logp=batch.behavior_logp - 0.5))
    first.micro_batches.size = 2
    fresh.load_state_dict(first.state_dict())
    before, after = first.state_dict(), fresh.state_dict()
    assert torch.equal(before.pop("generator"), after.pop("generator"))
    moments = [state.pop("optimizer")["state"] for state in (before, after)]
    assert all(torch.equal(moments[0][n][name], moments[1][n][name]) for n in moments[0] for name in moments[0][n])
    assert before == after
    assert (before["samples"], before["updates"], before["version"]) == (50, 1, 1)
    assert before["kl_coef"] != cfg.loss.beta


@pytest.mark.parametrize(("kind", "expected"), [
    ("constant", [1 / 3, 2 / 3, 1, 1, 1, 1]), ("linear", [1 / 3, 2 / 3, 1, 0.75, 0.5, 0.25]),
])  # fmt: skip
def test_schedules_by_hand(kind: str, expected: list[float]) -> None:
    rates = [schedule_factor(step, 6, kind=kind, warmup_ratio=0.3) for step in range(6)]
    assert rates == pytest.approx(expected)


def test_the_cosine_falls_from_one_towards_zero() -> None:
    rates = [schedule_factor(step, 100, kind="cosine", warmup_ratio=0.1) for step in range(100)]
    assert rates[:10] == sorted(rates[:10])
    assert rates[10] == 1.0
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[55] == pytest.approx(0.5)
    assert 0 < rates[99] < 0.01


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("precision", [{}, {"bf16": True}, {"fp16": True}])
def test_a_gpu_gives_the_same_update(precision: dict[str, bool]) -> None:
    batch = replace(make_batch(TablePolicy()), denominator=30.0)
    weights = {}
    for device in ("cpu", "cuda"):
        policy = TablePolicy().to(device)
        cfg = settings(device=device, num_epochs=3, per_device_train_batch_size=4, **precision)
        metrics = Learner(policy, cfg).update(batch)
        weights[device] = policy.logits.weight.detach().cpu()
        assert metrics["optim/steps"] == 9
    tolerance = 1e-2 if precision else 1e-9
    assert torch.allclose(weights["cpu"], weights["cuda"], atol=tolerance)


def sampled_by(batch: Batch, version: int) -> Batch:
    return replace(batch, versions=torch.full(batch.mask.shape, version), denominator=30.0)


def against_itself(batch: Batch, cap: float | None = 2.0) -> Batch:
    """The batch as it was before versions: recorded with the policy's own numbers, the correction as plain weights."""
    with torch.no_grad():
        own = TablePolicy().evaluate(batch.inputs).logp
    weights = None if cap is None else (own - batch.behavior_logp).exp().clamp(max=cap)
    return replace(batch, behavior_logp=own, weights=weights, versions=None)


@pytest.mark.parametrize("loss_type", ["dapo", "gspo"])
def test_on_policy_the_first_ratio_is_exactly_one_however_the_sampler_rounds(loss_type: str) -> None:
    """The clip of gspo's paper would drop most of the rows of a sampler that is off by a third."""
    batch = make_batch(TablePolicy())
    cfg = settings(loss_type=loss_type, clip_ratio=3e-4, clip_ratio_high=4e-4)
    if loss_type == "gspo":
        unset = settings(product="language", loss_type="gspo")
        assert updated(batch, unset)[1] == updated(batch, cfg)[1], "the paper's is the default"
    _, recorded = updated(batch, cfg)
    _, own = updated(sampled_by(batch, 0), cfg)
    assert recorded["policy/ratio_max"] > 1.01
    assert recorded["policy/clip_low"] + recorded["policy/clip_high"] > 0.3
    assert (own["policy/ratio_max"], own["policy/kl"]) == (1.0, 0.0)
    assert (own["policy/clip_low"], own["policy/clip_high"]) == (0.0, 0.0)


@pytest.mark.parametrize("size", [12, 5])
def test_the_samplers_mismatch_is_measured_over_the_tokens_it_drew(size: int) -> None:
    batch = make_batch(TablePolicy())
    drawn = batch.mask & (torch.arange(12)[:, None] < 7)
    versions = torch.where(drawn, 0, -5)
    steps = dict(per_device_train_batch_size=size, gradient_accumulation_steps=-(-12 // size), sampler_weight_cap=1.3)
    _, metrics = updated(replace(batch, versions=versions), settings(**steps))
    with torch.no_grad():
        ratio = (TablePolicy().evaluate(batch.inputs).logp - batch.behavior_logp).exp()[drawn]
    assert (ratio > 1.3).any()
    assert metrics["sampler/ratio_gap"] == pytest.approx(float((ratio - 1).abs().mean()))
    assert metrics["sampler/ratio_gap_max"] == pytest.approx(float((ratio - 1).abs().max()))
    assert metrics["sampler/corrected_gap"] == pytest.approx(float((ratio / 1.3 - 1).clamp(min=0).mean()))
    assert metrics["sampler/kl"] == pytest.approx(float((ratio - 1 - ratio.log()).mean()))
    assert metrics["sampler/truncated_share"] == pytest.approx(float((ratio > 1.3).double().mean()))


@pytest.mark.parametrize("cap", [1.1, 2.0, None])
@pytest.mark.parametrize("course", [{}, {"num_epochs": 3}, {"per_device_train_batch_size": 5, "num_epochs": 2},
                                    {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2}])  # fmt: skip
def test_an_update_is_that_of_the_learners_own_numbers_at_its_start_weighted_for_the_sampler(
    course: dict[str, Any], cap: float | None
) -> None:
    """The whole course of several epochs and optimiser steps, not just its beginning."""
    batch = make_batch(TablePolicy())
    cfg = settings(**course, sampler_weight_cap=cap, learning_rate=0.5)
    found, metrics = updated(sampled_by(batch, 0), cfg)
    expected, plain = updated(against_itself(batch, cap), cfg)
    assert same(found, expected)
    assert metrics["policy/kl"] == pytest.approx(plain["policy/kl"])
    assert not same(found, updated(batch, cfg)[0])


@pytest.mark.parametrize("version", [3, SEARCHED])
def test_fault_7_samples_of_older_versions_and_of_searches_keep_their_own_numbers(version: int) -> None:
    batch, cfg = make_batch(TablePolicy()), settings(num_epochs=2)
    found, metrics = updated(sampled_by(batch, version), cfg)
    assert same(found, updated(batch, cfg)[0])
    assert not any(name.startswith("sampler/") for name in metrics)


def test_rows_that_were_shown_are_learned_by_their_likelihood_alone() -> None:
    batch, cfg = make_batch(TablePolicy()), settings(num_epochs=2)
    found, metrics = updated(sampled_by(batch, SHOWN), cfg)
    assert same(found, updated(against_itself(batch, None), cfg)[0])
    assert not any(name.startswith("sampler/") for name in metrics)


def test_a_first_step_without_a_token_of_the_present_version_does_not_speak_for_the_others() -> None:
    batch = make_batch(TablePolicy(), rows=2)
    first = torch.randperm(2, generator=torch.Generator().manual_seed(settings().run.seed))[0]
    versions = torch.where(torch.arange(2)[:, None] == first, 7, 0).expand(2, 6).contiguous()
    cfg = settings(per_device_train_batch_size=1)
    found, metrics = updated(replace(batch, versions=versions), cfg)
    mixed = against_itself(batch)
    of_old = (versions == 7) & batch.mask
    assert mixed.weights is not None
    expected = replace(
        mixed,
        behavior_logp=torch.where(of_old, batch.behavior_logp, mixed.behavior_logp),
        weights=torch.where(of_old, 1.0, mixed.weights),
    )
    assert same(found, updated(expected, cfg)[0])
    assert metrics["sampler/ratio_gap"] > 0.1


@pytest.mark.parametrize(
    ("noise", "epochs", "rows"), [(1e-6, 1, 12), (1e-6, 2, 24), (0.1, 1, 12 + 8), (0.1, 2, 24 + 12)]
)
def test_nothing_is_computed_twice_where_the_sampler_agrees_with_the_learner(
    noise: float, epochs: int, rows: int
) -> None:
    """Three optimiser steps of four rows; those of the first are not needed again in a single epoch."""
    policy = TablePolicy()
    batch = sampled_by(make_batch(policy), 0)
    seen: list[int] = []
    evaluate = policy.evaluate
    policy.evaluate = lambda inputs: seen.append(len(inputs["states"])) or evaluate(inputs)  # type: ignore[func-returns-value,method-assign]
    with torch.no_grad():
        logp = evaluate(batch.inputs).logp
    cfg = settings(per_device_train_batch_size=4, num_epochs=epochs)
    Learner(policy, cfg).update(replace(batch, behavior_logp=logp + noise))
    assert sum(seen) == rows
