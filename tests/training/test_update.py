"""One update against the same update written out: every term, every setting, both optimisers, every metric."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from groupwise import core
from groupwise.config import TrainingConfig
from groupwise.training.learner import Learner, UpdateMetrics, schedule_factor
from groupwise.types import SHOWN, Batch, Evaluation, Tensors

STATES, ACTIONS, ROWS, WIDTH = 5, 4, 9, 6


class Tables(nn.Module):
    """Logits and values by state."""

    def __init__(self) -> None:
        super().__init__()
        self.version = 0
        draw = torch.Generator().manual_seed(3)
        self.logits = nn.Parameter(torch.randn(STATES, ACTIONS, generator=draw, dtype=torch.float64))
        self.values = nn.Parameter(torch.randn(STATES, generator=draw, dtype=torch.float64))

    def evaluate(self, inputs: Tensors) -> Evaluation:
        logp = self.logits[inputs["states"]].log_softmax(-1)
        chosen = logp.gather(-1, inputs["actions"][..., None])[..., 0]
        return Evaluation(chosen, -(logp.exp() * logp).sum(-1), self.values[inputs["states"]])

    def actor_parameters(self) -> list[nn.Parameter]:
        return [self.logits]

    def critic_parameters(self) -> list[nn.Parameter]:
        return [self.values]


def make_batch(**changes: Any) -> Batch:
    """Ragged rows with a hole in them, sampled and valued a little off the policy. Padding is not 0 anywhere."""
    draw = torch.Generator().manual_seed(4)

    def noise(size: float) -> Tensor:
        return size * torch.randn(ROWS, WIDTH, generator=draw, dtype=torch.float64)

    inputs = {name: torch.randint(most, (ROWS, WIDTH), generator=draw)
              for name, most in (("states", STATES), ("actions", ACTIONS))}  # fmt: skip
    mask = torch.arange(WIDTH) < torch.randint(1, WIDTH + 1, (ROWS, 1), generator=draw)
    mask[:, 1] = False
    mask[:, 0] = True
    with torch.no_grad():
        seen = Tables().evaluate(inputs)
    assert seen.value is not None
    advantages = torch.randn(ROWS, 1, generator=draw, dtype=torch.float64).expand(ROWS, WIDTH).clone()
    batch = Batch(
        inputs, mask, seen.logp + noise(0.6), advantages, denominator=1.3 * float(mask.sum()),
        reference_logp=seen.logp + noise(0.5), values=seen.value + noise(0.5), returns=seen.value + noise(2.0),
        weights=torch.rand(ROWS, WIDTH, generator=draw, dtype=torch.float64) + 0.5,
        keep=torch.rand(ROWS, WIDTH, generator=draw) < 0.8, samples=70, attempts=ROWS,
    )  # fmt: skip
    return replace(batch, **changes)


def settings(**changes: Any) -> TrainingConfig:
    plain = {
        "learning_rate": 0.1, "lr_scheduler_type": "constant", "warmup_ratio": 0.0, "max_grad_norm": 1e9,
        "per_device_train_batch_size": 100, "gradient_accumulation_steps": 1, "beta": 0.3, "kl_target": None,
        "use_reference_model": True, "estimator": "gae", "adam_epsilon": 0.1, "num_episodes": 10,
    }  # fmt: skip
    return TrainingConfig.from_dict({**plain, **changes})


def written_out(policy: Tables, batch: Batch, cfg: TrainingConfig) -> Tensor:
    """The loss of DAPO with a KL, an entropy and a value term, one token after the other."""
    loss, total = cfg.loss, torch.zeros((), dtype=torch.float64)
    seen = policy.evaluate(batch.inputs)
    tokens = int(batch.mask.sum())
    clip_high = loss.clip_ratio if loss.clip_ratio_high is None else loss.clip_ratio_high
    for i, t in batch.mask.nonzero().tolist():
        assert seen.value is not None
        d = seen.logp[i, t] - batch.reference_logp[i, t]  # type: ignore[index]
        ratio = (seen.logp[i, t] - batch.behavior_logp[i, t]).exp()
        advantage = batch.advantages[i, t]
        narrow = ratio.clamp(1 - loss.clip_ratio, 1 + clip_high)  # type: ignore[operator]
        gain = torch.minimum(ratio * advantage, narrow * advantage)
        if loss.dual_clip is not None and advantage < 0:
            gain = torch.maximum(gain, loss.dual_clip * advantage)
        kl = {"k1": d, "k2": d**2 / 2, "k3": (-d).exp() + d - 1}[loss.kl_estimator]
        if loss.kl_importance_correction:
            kl = kl * (ratio.detach() if loss.kl_estimator == "k2" else ratio)
        kept = bool(batch.keep[i, t]) and far_from(batch, seen.logp, i, loss.off_policy_threshold)  # type: ignore[index]
        weight = batch.weights[i, t]  # type: ignore[index]
        total = total + weight * (loss.beta * kl - (gain if kept else 0)) / batch.denominator
        total = total - loss.entropy_coef * (seen.entropy[i, t] if kept else 0) / tokens
        value, old, wanted = seen.value[i, t], batch.values[i, t], batch.returns[i, t]  # type: ignore[index]
        error = (value - wanted) ** 2
        if loss.value_clip is not None:
            near = old + (value - old).clamp(-loss.value_clip, loss.value_clip)
            error = torch.maximum(error, (near - wanted) ** 2)
        total = total + loss.value_coef * 0.5 * error / tokens
    return total


def far_from(batch: Batch, logp: Tensor, row: int, threshold: float | None) -> bool:
    """Whether a row is kept although the policy has moved: its advantage is not negative, or it is still near."""
    own = batch.mask[row]
    moved = float((batch.behavior_logp[row] - logp.detach()[row])[own].mean())
    return threshold is None or float(batch.advantages[row, 0]) >= 0 or moved <= threshold


def adamw(policy: Tables, batch: Batch, cfg: TrainingConfig, rates: list[tuple[float, float]]) -> None:
    """One step of AdamW for each pair of learning rates, with actor and critic clipped apart."""
    optim = cfg.optim
    limits = (optim.max_grad_norm, optim.critic_max_grad_norm or optim.max_grad_norm)
    moments = [[torch.zeros_like(p), torch.zeros_like(p)] for p in (policy.logits, policy.values)]
    for number, pair in enumerate(rates, 1):
        gradients = torch.autograd.grad(written_out(policy, batch, cfg), [policy.logits, policy.values])
        for p, g, (m, v), rate, limit in zip(
            (policy.logits, policy.values), gradients, moments, pair, limits, strict=True
        ):
            g = g * min(1.0, limit / (float(g.norm()) + 1e-6))
            m.mul_(optim.adam_beta1).add_((1 - optim.adam_beta1) * g)
            v.mul_(optim.adam_beta2).add_((1 - optim.adam_beta2) * g**2)
            step = (m / (1 - optim.adam_beta1**number)) / (
                (v / (1 - optim.adam_beta2**number)).sqrt() + optim.adam_epsilon
            )
            with torch.no_grad():
                p.sub_(rate * (optim.weight_decay * p + step))


PLAIN = {"clip_ratio": 0.2}
CHANGES: list[dict[str, Any]] = [
    {}, {"clip_ratio": 0.05}, {"clip_ratio_high": 0.6}, {"dual_clip": 1.25}, {"beta": 0.7}, {"kl_estimator": "k1"},
    {"kl_estimator": "k2"}, {"kl_importance_correction": False}, {"entropy_coef": 0.5}, {"value_coef": 2.0},
    {"value_coef": 0.0}, {"value_clip": None}, {"value_clip": 0.01}, {"off_policy_threshold": 0.05},
    {"weight_decay": 0.5}, {"adam_beta1": 0.3}, {"adam_beta2": 0.4}, {"adam_epsilon": 2.0}, {"max_grad_norm": 0.05},
    {"critic_max_grad_norm": 0.03}, {"critic_learning_rate": 0.01}, {"learning_rate": 0.02},
]  # fmt: skip


@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_an_update_is_the_one_written_out_token_by_token(changes: dict[str, Any]) -> None:
    """Two epochs: the second begins where the first has moved the ratios and the moments."""
    cfg, batch = settings(**{**PLAIN, "num_epochs": 2, **changes}), make_batch()
    learned, expected = Tables(), Tables()
    Learner(learned, cfg).update(batch)
    rate = cfg.optim.learning_rate
    adamw(expected, batch, cfg, [(rate, cfg.optim.critic_learning_rate or rate)] * 2)
    torch.testing.assert_close(learned.logits, expected.logits, rtol=0, atol=1e-9)
    torch.testing.assert_close(learned.values, expected.values, rtol=0, atol=1e-9)
    if changes:
        plain = Tables()
        adamw(plain, batch, settings(**PLAIN), [(0.1, 0.1)] * 2)
        assert not (torch.equal(expected.logits, plain.logits) and torch.equal(expected.values, plain.values))


LOSSES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"loss_type": "dapo"}, {"clip_low": 0.2, "clip_high": 0.2}),
    ({"loss_type": "dapo", "clip_ratio": 0.1, "clip_ratio_high": 0.3}, {"clip_low": 0.1, "clip_high": 0.3}),
    ({"loss_type": "grpo", "clip_ratio": 0.1}, {"clip_low": 0.1, "clip_high": 0.1}),
    ({"loss_type": "dapo", "importance_level": "sequence"}, {"importance_level": "sequence"}),
    ({"loss_type": "gspo"}, {"clip_low": 3e-4, "clip_high": 4e-4}),
    ({"loss_type": "luspo"}, {"clip_low": 2e-3, "clip_high": 2.5e-3}),
    ({"loss_type": "bnpo", "dual_clip": 1.25}, {"dual_clip": 1.25}),
    ({"loss_type": "cispo", "clip_ratio_high": 1.3}, {"cap": 1.3}), ({"loss_type": "cispo"}, {"cap": 5.0}),
    ({"loss_type": "sapo", "sapo_temperature_pos": 3.0}, {"temperature_pos": 3.0, "temperature_neg": 1.05}),
    ({"loss_type": "sapo", "sapo_temperature_neg": 0.4}, {"temperature_pos": 1.0, "temperature_neg": 0.4}),
    ({"loss_type": "vespo", "vespo_k_pos": 4.0}, {"k_pos": 4.0, "lambda_pos": 3.0, "k_neg": 3.0, "lambda_neg": 2.0}),
    ({"loss_type": "vespo", "vespo_lambda_pos": 5.0}, {"k_pos": 2.0, "lambda_pos": 5.0}),
    ({"loss_type": "vespo", "vespo_k_neg": 1.0}, {"k_neg": 1.0, "lambda_neg": 2.0}),
    ({"loss_type": "vespo", "vespo_lambda_neg": 1.0}, {"k_neg": 3.0, "lambda_neg": 1.0}),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "parameters"), LOSSES, ids=str)
def test_every_loss_gets_its_own_settings(changes: dict[str, Any], parameters: dict[str, Any]) -> None:
    batch = make_batch()
    found = Learner(Tables(), settings(**changes)).losses(batch)
    expected = core.policy_loss(
        Tables().evaluate(batch.inputs).logp, batch.behavior_logp, batch.advantages, batch.mask,
        loss_type=changes["loss_type"], denominator=batch.denominator, weights=batch.weights, keep=batch.keep,
        **parameters,
    )  # fmt: skip
    torch.testing.assert_close(found["loss/policy"], expected.policy)


@pytest.mark.parametrize(("changes", "parameters"), [
    ({"loss_type": "dapo", "clip_ratio": 0.5, "clip_ratio_high": 1.0}, {"clip_low": 0.05, "clip_high": 0.1}),
    ({"loss_type": "cispo", "clip_ratio_high": 3.0}, {"cap": 1.2}), ({"loss_type": "cispo"}, {"cap": 1.4}),
])  # fmt: skip
def test_a_clip_shrinks_on_both_sides_to_a_ratio_of_1_and_has_no_warm_up(
    changes: dict[str, Any], parameters: dict[str, Any]
) -> None:
    """After 9 of 10 updates a tenth of it is left. The cap of cispo is a ratio itself: a tenth of what is above 1."""
    batch = make_batch()
    learner = Learner(Tables(), settings(**changes, clip_scheduler_type="linear", warmup_ratio=0.95))
    learner.updates = 9
    learner._follow_schedules()
    expected = core.policy_loss(
        Tables().evaluate(batch.inputs).logp, batch.behavior_logp, batch.advantages, batch.mask,
        loss_type=changes["loss_type"], denominator=batch.denominator, weights=batch.weights, keep=batch.keep,
        **parameters,
    )  # fmt: skip
    torch.testing.assert_close(learner.losses(batch)["loss/policy"], expected.policy)


STANDING = {**PLAIN, "learning_rate": 1e-13, "entropy_coef": 0.1}


@pytest.mark.parametrize(("split", "steps"), [
    ({}, 1), ({"per_device_train_batch_size": 2}, 5), ({"num_epochs": 3}, 3),
    ({"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2}, 3),
])  # fmt: skip
def test_metrics_are_means_over_the_policys_own_tokens_however_they_are_split(
    split: dict[str, int], steps: int
) -> None:
    """The policy stands still, so that every optimiser step sees the same numbers."""
    batch, policy = make_batch(), Tables()
    found = Learner(policy, settings(**{**STANDING, **split})).update(batch)
    with torch.no_grad():
        seen = Tables().evaluate(batch.inputs)
    own = batch.mask
    ratio = (seen.logp - batch.behavior_logp).exp()[own]
    better = (batch.advantages > 0)[own]
    d = (seen.logp - batch.reference_logp)[own]  # type: ignore[operator]
    expected = {
        "policy/entropy": seen.entropy[own].mean(),
        "policy/kl": (ratio - 1 - ratio.log()).mean(),
        "policy/clip_low": ((ratio < 0.8) & ~better).double().mean(),
        "policy/clip_high": ((ratio > 1.2) & better).double().mean(),
        "policy/ratio_max": ratio.max(),
        "policy/reference_kl": (ratio * ((-d).exp() + d - 1)).mean(),
    }
    for name, value in expected.items():
        assert found[name] == pytest.approx(float(value)), name
    assert 0 < found["policy/clip_low"] != found["policy/clip_high"] > 0
    counted = [found[f"optim/{name}"] for name in ("steps", "epochs", "skipped")]
    assert counted == [steps, split.get("num_epochs", 1), 0]
    whole = Learner(Tables(), settings(**STANDING)).losses(batch)
    for name in (*expected, "loss/policy", "loss/kl"):
        assert found[name] == pytest.approx(float(whole[name].detach())), name


def test_the_largest_ratio_may_be_below_1() -> None:
    """Padding has no ratio, not one of 1."""
    batch = make_batch()
    metrics = Learner(Tables(), settings(**STANDING)).update(replace(batch, behavior_logp=batch.behavior_logp + 5))
    assert metrics["policy/ratio_max"] < 0.5


def test_the_critics_explained_variance_is_of_its_values_before_the_update() -> None:
    batch = make_batch()
    found = Learner(Tables(), settings()).update(batch)["value/explained_variance"]
    values, returns = batch.values[batch.mask], batch.returns[batch.mask]  # type: ignore[index]
    assert found == pytest.approx(float(1 - (returns - values).var() / returns.var()))
    for lacking in ({"values": None}, {"returns": None}):
        metrics = Learner(Tables(), settings(value_clip=None)).update(make_batch(**lacking))
        assert "value/explained_variance" not in metrics


@pytest.mark.parametrize(("kind", "ratio", "total", "expected"), [
    ("constant", 0.0, 3, [1, 1, 1, 1, 1]), ("linear", 0.0, 4, [1, 0.75, 0.5, 0.25, 0, 0]),
    ("linear", 1.0, 2, [1 / 3, 2 / 3, 1, 0]), ("constant", 0.1, 11, [1 / 3, 2 / 3, 1, 1]),
    ("cosine", 0.0, 4, [1, 0.8535533905932737, 0.5, 0.1464466094067262, 0, 0]), ("linear", 0.25, 4, [0.5, 1, 2 / 3]),
    ("cosine", 0.25, 4, [0.5, 1, 0.75, 0.25, 0, 0]), ("linear", 0.0, 1, [1, 0, 0]),
])  # fmt: skip
def test_a_schedule_at_its_edges_and_beyond_its_end(kind: str, ratio: float, total: int, expected: list[float]) -> None:
    found = [schedule_factor(step, total, kind=kind, warmup_ratio=ratio) for step in range(len(expected))]
    assert found == pytest.approx(expected)


def test_learning_rates_follow_the_schedule_of_updates_or_of_samples() -> None:
    by_updates = Learner(Tables(), settings(lr_scheduler_type="linear", num_episodes=4, critic_learning_rate=0.5))
    batch = make_batch()
    seen = []
    for _ in range(3):
        assert by_updates.update(batch)["optim/learning_rate"] == by_updates.optimizer.param_groups[0]["lr"]
        seen.append([group["lr"] for group in by_updates.optimizer.param_groups])
    assert seen == [pytest.approx([0.1 * f, 0.5 * f]) for f in (1, 0.75, 0.5)]
    by_samples = Learner(Tables(), settings(lr_scheduler_type="linear", num_episodes=1000, total_samples=280))
    rates = [by_samples.update(batch)["optim/learning_rate"] for _ in range(4)]
    assert rates == pytest.approx([0.1, 0.075, 0.05, 0.025])


@pytest.mark.parametrize(("beta", "value_coef", "returns", "moves"), [
    (0.0, 0.0, True, False), (0.3, 0.0, True, True), (0.0, 0.5, True, True), (0.0, 0.5, False, False),
])  # fmt: skip
def test_without_advantages_only_a_kl_or_a_value_term_moves_the_weights(
    beta: float, value_coef: float, returns: bool, moves: bool
) -> None:
    policy = Tables()
    batch = make_batch(advantages=torch.zeros(ROWS, WIDTH, dtype=torch.float64))
    batch = batch if returns else replace(batch, returns=None, values=None)
    cfg = settings(beta=beta, value_coef=value_coef, weight_decay=0.1, entropy_coef=1.0)
    metrics = Learner(policy, cfg).update(batch)
    assert (metrics["optim/steps"], policy.version) == (float(moves), int(moves))
    assert torch.equal(policy.logits, Tables().logits) is not moves


@pytest.mark.parametrize("attempts", [9, 3, 0])
def test_the_adaptive_coefficient_counts_attempts_over_its_horizon(attempts: int) -> None:
    """Rows count only where a source does not say how many attempts there were."""
    cfg = settings(beta=0.3, kl_target=1e-6, kl_horizon=40)
    learner = Learner(Tables(), cfg)
    metrics = learner.update(make_batch(attempts=attempts))
    assert learner.kl_coef == metrics["optim/kl_coef"] == pytest.approx(0.3 * (1 + 0.2 * (attempts or ROWS) / 40))


def test_a_kl_term_without_a_reference_is_refused_and_an_empty_batch_has_a_loss_of_nothing() -> None:
    with pytest.raises(ValueError, match=r"loss.beta is 0.3, but the batch has no reference_logp"):
        Learner(Tables(), settings()).update(make_batch(reference_logp=None))
    policy = Tables()
    empty = Learner(policy, settings()).losses(make_batch().select(slice(0, 0)))["loss/total"]
    empty.backward()
    assert (float(empty.detach()), float(policy.logits.grad.abs().sum())) == (0.0, 0.0)  # type: ignore[union-attr]


@pytest.mark.parametrize(("target", "expected"), [(None, 0.9), (0.05, 0.3)])
def test_a_resumed_learner_obeys_the_settings_it_is_given_now(target: float | None, expected: float) -> None:
    """Only an adaptive KL coefficient goes on where it was; rates, betas, epsilon and decay are the present ones."""
    before = Learner(Tables(), settings(kl_target=target))
    before.update(make_batch())
    before.kl_coef = 0.3
    now = {"weight_decay": 0.7, "adam_beta1": 0.1, "adam_beta2": 0.2, "adam_epsilon": 0.5, "learning_rate": 0.01}
    after = Learner(Tables(), settings(beta=0.9, kl_target=target, critic_learning_rate=0.02, **now))
    after.load_state_dict(before.state_dict())
    for group in after.optimizer.param_groups:
        assert (group["weight_decay"], group["betas"], group["eps"]) == (0.7, (0.1, 0.2), 0.5)
    assert after.kl_coef == expected
    after.update(make_batch())
    assert [group["lr"] for group in after.optimizer.param_groups] == [0.01, 0.02]


def test_a_version_grows_if_any_optimiser_step_was_applied() -> None:
    batch = make_batch()
    batch.advantages[0, 0] = float("nan")
    policy = Tables()
    metrics = Learner(policy, settings(per_device_train_batch_size=3)).update(batch)
    assert (metrics["optim/skipped"], metrics["optim/steps"], policy.version) == (1.0, 3.0, 1)


@pytest.mark.parametrize("size", [1, 2, 4, 8, 9, 10])
def test_rows_are_split_into_equal_shares_of_at_most_a_step(size: int) -> None:
    learner = Learner(Tables(), settings(per_device_train_batch_size=size, seed=size))
    batch = make_batch()
    orders = []
    for _ in range(2):
        shares = learner._shares(batch)
        assert len(shares) == -(-ROWS // size)
        assert max(len(s) for s in shares) - min(len(s) for s in shares) <= 1
        assert sorted(row for share in shares for row in share.tolist()) == list(range(ROWS))
        last = torch.tensor([int(row.nonzero().max()) for row in batch.mask])
        assert all(last[share].tolist() == sorted(last[share].tolist()) for share in shares)
        orders.append([share.tolist() for share in shares])
    if 1 < len(orders[0]) < ROWS:
        assert orders[0] != orders[1], "every epoch has an order of its own"
        again, other = (
            Learner(Tables(), settings(per_device_train_batch_size=size, seed=seed)) for seed in (size, size + 99)
        )
        assert [share.tolist() for share in again._shares(batch)] == orders[0]
        assert [share.tolist() for share in other._shares(batch)] != orders[0]


@pytest.mark.parametrize("idle", [0, 6, 900])
def test_the_share_of_an_optimiser_step_in_denominators_counts_idle_rows(idle: int) -> None:
    """Nine rows, and idle ones left out before: as many steps as all would have made, but at most one a row."""
    batch = make_batch()
    tokens = int(batch.mask.sum())
    batch = replace(batch, total_rows=ROWS + idle if idle else 0, total_tokens=tokens + 4 * idle if idle else 0)
    learner = Learner(Tables(), settings(per_device_train_batch_size=3))
    shares = learner._shares(batch)
    assert len(shares) == {0: 3, 6: 5, 900: 9}[idle]
    step = learner._step(batch, shares[0], len(shares), first=True)
    assert step.denominator == pytest.approx(batch.denominator / len(shares))
    assert step.tokens == float(batch.mask[shares[0]].sum())
    assert step.entropy_denominator == pytest.approx((tokens + 4 * idle) / len(shares))


def test_tokens_are_kept_only_if_the_source_and_the_quantile_both_keep_them() -> None:
    batch, policy = make_batch(), Tables()
    learner = Learner(policy, settings(top_entropy_quantile=0.5))
    with torch.no_grad():
        entropy = policy.evaluate(batch.inputs).entropy
    half = entropy >= entropy[batch.mask].median()
    assert torch.equal(learner._narrow(batch, torch.arange(ROWS)).keep & batch.mask, half & batch.keep & batch.mask)  # type: ignore[operator]
    alone = learner._narrow(replace(batch, keep=None), torch.arange(ROWS)).keep
    assert torch.equal(alone & batch.mask, half & batch.mask)  # type: ignore[operator]


def test_the_loss_of_a_batch_measures_the_sampler_as_an_update_does() -> None:
    batch = make_batch()
    versions = torch.where(torch.arange(ROWS)[:, None] < 4, 0, 7).expand(ROWS, WIDTH)
    batch = replace(batch, versions=versions)
    cfg = settings(**STANDING, sampler_weight_cap=1.2)
    whole, found = Learner(Tables(), cfg).losses(batch), Learner(Tables(), cfg).update(batch)
    with torch.no_grad():
        ratio = (Tables().evaluate(batch.inputs).logp - batch.behavior_logp).exp()[batch.mask & (versions == 0)]
    assert found["sampler/ratio_gap"] == pytest.approx(float((ratio - 1).abs().mean()))
    assert found["sampler/truncated_share"] == pytest.approx(float((ratio > 1.2).double().mean()))
    for name in ("ratio_gap", "ratio_gap_max", "corrected_gap", "kl", "truncated_share"):
        assert float(whole[f"sampler/{name}"]) == pytest.approx(found[f"sampler/{name}"]), name
    assert "sampler/tokens" not in {**whole, **found}
    none = Learner(Tables(), cfg).losses(replace(batch, versions=versions * 0 + 7))
    assert float(none["sampler/ratio_gap"]) == 0.0


def test_whoever_watches_the_weights_notices_an_update() -> None:
    policy = Tables()
    before = [p._version for p in (policy.logits, policy.values)]
    Learner(policy, settings()).update(make_batch())
    assert all(p._version > old for p, old in zip((policy.logits, policy.values), before, strict=True))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_whatever_precision_a_policy_answers_in_its_loss_is_at_least_single(dtype: torch.dtype) -> None:
    policy = Tables().to(dtype)
    seen = Learner(policy, settings())._evaluate(make_batch())
    expected = torch.float64 if dtype == torch.float64 else torch.float32
    assert [t.dtype for t in (seen.logp, seen.entropy, seen.value) if t is not None] == [expected] * 3


def test_norms_are_those_of_the_gradient_before_it_is_clipped() -> None:
    batch, cfg = make_batch(), settings(**PLAIN, max_grad_norm=0.01, critic_max_grad_norm=0.02)
    metrics, policy = Learner(Tables(), cfg).update(batch), Tables()
    norms = [
        float(g.norm()) for g in torch.autograd.grad(written_out(policy, batch, cfg), [policy.logits, policy.values])
    ]
    assert [metrics["optim/grad_norm"], metrics["optim/critic_grad_norm"]] == pytest.approx(norms)


def test_in_float16_gradients_are_scaled_back_before_they_are_clipped() -> None:
    batch = make_batch(versions=torch.full((ROWS, WIDTH), 7))
    norms = {}
    for half in (False, True):
        policy = Tables().float()
        cfg = settings(**PLAIN, fp16=half, max_grad_norm=0.01, adam_epsilon=1.0)
        norms[half] = Learner(policy, cfg).update(batch)["optim/grad_norm"]
        moved = float((policy.logits.detach() - Tables().float().logits.detach()).norm())
        # Adam's first step is 0.1 · g / (|g| + 1): a tenth of a gradient of norm 0.01.
        assert moved == pytest.approx(0.001, rel=0.02)
    assert norms[True] == pytest.approx(norms[False], rel=0.02)


def test_an_update_that_the_kl_ends_leaves_no_gradient_behind() -> None:
    policy, cfg = Tables(), settings(**PLAIN, num_epochs=9, kl_stop=0.01)
    batch = make_batch(behavior_logp=policy.evaluate(make_batch().inputs).logp.detach())
    learner = Learner(policy, cfg)
    metrics = learner.update(batch)
    assert 1 <= metrics["optim/epochs"] == metrics["optim/steps"] < 9
    assert policy.logits.grad is None
    assert policy.values.grad is None
    twin = Tables()
    adamw(twin, batch, cfg, [(0.1, 0.1)] * int(metrics["optim/steps"]))
    torch.testing.assert_close(policy.logits, twin.logits, rtol=0, atol=1e-9)


@pytest.mark.parametrize("changes", CHANGES[:16], ids=str)
def test_the_loss_of_a_batch_is_the_one_written_out_with_its_gradient(changes: dict[str, Any]) -> None:
    """Idle rows that were left out before make the entropy bonus of an update smaller, but not that of the batch."""
    cfg, batch = settings(**{**PLAIN, **changes}), make_batch(total_rows=50, total_tokens=500)
    policy, other = Tables(), Tables()
    found, expected = Learner(policy, cfg).losses(batch)["loss/total"], written_out(other, batch, cfg)
    torch.testing.assert_close(found, expected)
    parts = [torch.autograd.grad(total, [of.logits, of.values]) for total, of in ((found, policy), (expected, other))]
    torch.testing.assert_close(parts[0], parts[1])


def test_an_updates_total_is_the_sum_of_its_terms_as_they_count() -> None:
    cfg = settings(**STANDING, value_coef=0.7)
    found = Learner(Tables(), cfg).update(make_batch())
    batch = make_batch()
    with torch.no_grad():
        entropy = Tables().evaluate(batch.inputs).entropy
    assert batch.keep is not None
    bonus = 0.1 * float(entropy[batch.mask & batch.keep].sum()) / int(batch.mask.sum())
    terms = found["loss/policy"] + found["loss/kl"] + 0.7 * found["loss/value"] - bonus
    assert found["loss/total"] == pytest.approx(terms)


@pytest.mark.parametrize(("kl", "start", "stops"), [
    (0.25, 0.0, False), (0.26, 0.0, True), (0.5, 0.25, False), (0.51, 0.25, True), (0.3, None, False),
])  # fmt: skip
def test_an_update_may_move_the_policy_by_exactly_as_much_as_the_kl_allows(
    kl: float, start: float | None, stops: bool
) -> None:
    learner, tally = Learner(Tables(), settings(kl_stop=0.25)), UpdateMetrics()
    tally.kl_at_start = start
    assert learner._moved_too_far(tally, torch.tensor(kl, dtype=torch.float64), 1.0) is stops
    assert tally.kl_at_start == (kl if start is None else start), "the first measurement is the start"
    assert not Learner(Tables(), settings())._moved_too_far(tally, torch.tensor(1e9), 1.0)


def test_an_epoch_counts_once_all_its_optimiser_steps_were_taken() -> None:
    """Three optimiser steps an epoch, and the policy has moved far enough within the second."""
    batch = make_batch(behavior_logp=Tables().evaluate(make_batch().inputs).logp.detach())
    counts = set()
    for stop in (0.003, 0.01, 0.02, 0.04, 0.08):
        cfg = settings(**PLAIN, per_device_train_batch_size=3, num_epochs=4, kl_stop=stop, learning_rate=0.05)
        metrics = Learner(Tables(), cfg).update(batch)
        steps, epochs = int(metrics["optim/steps"]), metrics["optim/epochs"]
        assert epochs == steps // 3
        counts.add(steps)
    assert any(steps % 3 for steps in counts), "one of them stopped within an epoch"


def test_an_update_is_skipped_as_a_whole_if_the_critics_gradient_alone_is_not_finite() -> None:
    policy, batch = Tables(), make_batch()
    assert batch.returns is not None
    batch.returns[0, 0] = float("nan")
    metrics = Learner(policy, settings(value_clip=None, weight_decay=0.1)).update(batch)
    assert (metrics["optim/skipped"], policy.version) == (1.0, 0)
    assert torch.isfinite(torch.tensor(metrics["optim/grad_norm"]))
    assert torch.equal(policy.logits, Tables().logits)
    assert torch.equal(policy.values, Tables().values)


def test_a_step_that_overflows_in_float16_is_counted_and_makes_no_new_version() -> None:
    policy, batch = Tables().float(), make_batch()
    batch.advantages[0, 0] = float("inf")
    metrics = Learner(policy, settings(fp16=True)).update(batch)
    assert (metrics["optim/skipped"], metrics["optim/steps"], policy.version) == (1.0, 1.0, 0)


def test_the_clip_follows_samples_where_those_are_limited() -> None:
    learner = Learner(Tables(), settings(clip_scheduler_type="linear", num_episodes=1000, total_samples=280))
    seen = []
    for _ in range(5):
        learner.update(make_batch())
        seen.append(learner.clip_factor)
    assert seen == pytest.approx([1.0, 0.75, 0.5, 0.25, 0.0])


@pytest.mark.parametrize(("gap", "again"), [(0.9e-4, 0), (1.1e-4, 6)])
def test_the_sampler_agrees_up_to_a_ten_thousandth(gap: float, again: int) -> None:
    """Beyond it, the six rows of the two optimiser steps to come are asked about before anything changes."""
    policy, asked = Tables(), []
    logp = policy.evaluate(make_batch().inputs).logp.detach()
    batch = make_batch(behavior_logp=logp + gap, versions=torch.zeros(ROWS, WIDTH, dtype=torch.long))
    evaluate = policy.evaluate
    policy.evaluate = lambda inputs: asked.append(len(inputs["states"])) or evaluate(inputs)  # type: ignore[func-returns-value,method-assign]
    Learner(policy, settings(per_device_train_batch_size=3)).update(batch)
    assert sum(asked) == ROWS + again


@pytest.mark.parametrize("threshold", [None, 0.05])
def test_shown_and_sampled_tokens_side_by_side_are_each_treated_as_their_own_kind(threshold: float | None) -> None:
    """Only what the sampler drew with the present weights is weighed; what was shown has a ratio of 1 and no weight."""
    kinds = torch.tensor([0, SHOWN, 7])[torch.arange(ROWS) % 3][:, None].expand(ROWS, WIDTH)
    batch, cfg = make_batch(versions=kinds), settings(**PLAIN, sampler_weight_cap=1.2, off_policy_threshold=threshold)
    own = Tables().evaluate(batch.inputs).logp.detach()
    weighed = torch.where(kinds == 0, (own - batch.behavior_logp).exp().clamp(max=1.2), 1.0)
    old = torch.where(kinds == 7, batch.behavior_logp, own)
    keep = batch.keep
    if threshold is not None:
        # How far the policy has moved is counted from what was recorded, whoever recorded it.
        keep = keep & core.off_policy_mask(batch.advantages, own, batch.behavior_logp, batch.mask, threshold)  # type: ignore[operator]
        assert not torch.equal(keep, batch.keep)  # type: ignore[arg-type]
    found = Learner(Tables(), cfg).losses(batch)
    wanted = core.policy_loss(
        own, old, batch.advantages, batch.mask, denominator=batch.denominator, weights=batch.weights,
        keep=keep, sampler_weights=weighed, clip_low=0.2, clip_high=0.2,
    )  # fmt: skip
    torch.testing.assert_close(found["loss/policy"].detach(), wanted.policy)
    assert float(found["policy/ratio_max"]) == pytest.approx(float((own - old).exp()[batch.mask].max()))
    assert float(found["sampler/ratio_gap"]) == pytest.approx(
        float(((own - batch.behavior_logp).exp() - 1).abs()[batch.mask & (kinds == 0)].mean())
    )


def test_a_state_from_before_samples_were_counted_is_read() -> None:
    before, after = Learner(Tables(), settings()), Learner(Tables(), settings())
    before.update(make_batch())
    after.samples = 5
    after.load_state_dict({k: v for k, v in before.state_dict().items() if k not in ("samples", "micro_batches")})
    assert (after.samples, after.updates, after.policy.version) == (0, 1, 1)


def test_rows_of_equal_length_stay_in_the_order_they_were_drawn_in() -> None:
    """So that a share has the same micro-batches on every machine, however its sort treats ties."""
    rows = 300
    batch = Batch({}, torch.ones(rows, 2, dtype=torch.bool), torch.zeros(rows, 2), torch.ones(rows, 2), 1.0)
    shares = Learner(Tables(), settings(per_device_train_batch_size=150, seed=5))._shares(batch)
    drawn = torch.randperm(rows, generator=torch.Generator().manual_seed(5))
    assert [share.tolist() for share in shares] == [drawn[:150].tolist(), drawn[150:].tolist()]


def test_what_a_micro_batch_reports_keeps_no_graph_in_memory() -> None:
    learner, batch = Learner(Tables(), settings()), make_batch()
    step = learner._step(batch, torch.arange(ROWS), 1, first=True)
    terms = learner.micro_batches.over(step.batch, lambda part: learner._backward(part, step))
    assert not [name for part in terms for name, value in part.items() if value.requires_grad]
