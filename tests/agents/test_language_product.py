"""The language product on the one loop, with the real tiny model and engine."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from groupwise.agents import language_product as product
from groupwise.agents import warm_start
from groupwise.config import TrainingConfig
from groupwise.language.engine import Engine
from groupwise.rewards.scoring import per_attempt
from groupwise.training.folder import create_run
from groupwise.training.learner import Learner
from groupwise.training.session import execute

LANGUAGE = {
    "product": "language", "environment": "addition", "model_name": "tiny", "max_new_tokens": 5, "num_generations": 4,
    "tasks_per_step": 2, "num_episodes": 4, "save_steps": 2, "eval_steps": 4, "eval_episodes": 8,
    "learning_rate": 1e-3, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 1, "threads": 1,
}  # fmt: skip


@pytest.fixture
def settings(tmp_path: Path) -> Callable[..., TrainingConfig]:
    def make(**changes: Any) -> TrainingConfig:
        return TrainingConfig.from_dict({**LANGUAGE, "output_dir": str(tmp_path / "runs"), **changes})

    return make


def test_the_policy_says_of_sampled_tokens_what_the_engine_said(settings: Callable[..., TrainingConfig]) -> None:
    parts = product.build(settings(beta=0.01, use_reference_model=True))
    batch = parts.source.next()
    with torch.no_grad():
        seen = parts.policy.evaluate(batch.inputs)
    assert batch.mask.any()
    assert torch.allclose(seen.logp[batch.mask], batch.behavior_logp[batch.mask], atol=1e-4)
    assert batch.reference_logp is not None
    assert torch.allclose(batch.reference_logp[batch.mask], seen.logp[batch.mask], atol=1e-5)
    parts.source.close()


def build_with_spread(cfg: TrainingConfig) -> Any:
    """An untrained model gets every sum wrong; this reward tells its answers apart all the same."""
    return product.build(cfg, per_attempt(lambda task, attempt: float(attempt.actions[attempt.mask].sum() % 11)))


def test_after_an_update_the_engine_samples_from_the_new_weights(settings: Callable[..., TrainingConfig]) -> None:
    """Stale weights show as a gap between what the sampler and what the learner says."""
    events = execute(create_run(settings(num_episodes=4, learning_rate=0.02)), build_with_spread)
    steps = [e.data["metrics"] for e in events if e.type == "step"]
    assert [step["sampler/ratio_gap_max"] for step in steps] == pytest.approx([0.0] * 4, abs=1e-3)
    assert [step["policy/ratio_max"] for step in steps] == [1.0] * 4


def test_overlapping_rollout_and_scoring_changes_no_batch(
    settings: Callable[..., TrainingConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a GPU does, on this CPU: groups are scored one by one while the engine's thread makes the next ones."""
    apart = build_with_spread(settings())
    monkeypatch.setattr(Engine, "on_accelerator", True)
    overlapping = build_with_spread(settings())
    for _ in range(2):
        one, other = apart.source.next(), overlapping.source.next()
        for name in ("mask", "behavior_logp", "advantages"):
            assert torch.equal(getattr(one, name), getattr(other, name)), name
        assert {"rollout", "score"} <= set(other.timing)
    assert apart.source.state_dict() == overlapping.source.state_dict()
    apart.source.close()
    overlapping.source.close()


@pytest.mark.parametrize("half", [{"dtype": "bfloat16"}, {"bf16": True}])
@pytest.mark.parametrize("course", [{}, {"num_epochs": 2, "per_device_train_batch_size": 3}])
def test_in_half_precision_gspo_clips_nothing_at_the_first_step(
    settings: Callable[..., TrainingConfig], half: dict[str, Any], course: dict[str, Any]
) -> None:
    """Engine and learner differ by more than the paper's clip. At this learning rate no weight moves in any step."""
    cfg = settings(loss_type="gspo", clip_ratio=3e-4, clip_ratio_high=4e-4, learning_rate=1e-15, **half, **course)
    parts = build_with_spread(cfg)
    parts.source.publish(parts.policy)
    batch = parts.source.next()
    learner = Learner(parts.policy, cfg)
    recorded = Learner(copy.deepcopy(parts.policy), cfg).update(replace(batch, versions=None))
    metrics = learner.update(batch)
    parts.source.close()
    assert recorded["policy/clip_low"] + recorded["policy/clip_high"] > 0.1
    assert (metrics["policy/clip_low"], metrics["policy/clip_high"]) == (0.0, 0.0)
    assert metrics["sampler/ratio_gap"] > 1e-3
    assert metrics["sampler/corrected_gap"] < 0.1 * metrics["sampler/ratio_gap"]


@pytest.mark.parametrize(
    "changes", [{}, {"estimator": "gae"}, {"lora_rank": 4, "beta": 0.05, "use_reference_model": True}]
)
def test_an_interrupted_language_run_ends_like_an_undisturbed_one(
    settings: Callable[..., TrainingConfig], numbers: Callable[[Path], Any], changes: dict[str, Any]
) -> None:
    whole, broken = (create_run(settings(run_name=name, **changes)) for name in ("whole", "broken"))
    list(execute(whole, build_with_spread))
    for event in execute(broken, build_with_spread):
        if event.type == "step" and event.step == 3:
            break
    list(execute(broken, build_with_spread))
    assert numbers(broken) == numbers(whole)


def test_the_warm_start_is_plain_likelihood_and_learns_the_form_of_an_answer(
    settings: Callable[..., TrainingConfig],
) -> None:
    cfg = settings(
        product="warm-start", num_episodes=25, tasks_per_step=32, per_device_train_batch_size=32, learning_rate=3e-3,
        eval_steps=25, eval_episodes=40, warmup_ratio=0.0, lr_scheduler_type="constant",
    )  # fmt: skip
    events = list(execute(create_run(cfg), warm_start.build))
    losses = [e.data["metrics"]["loss/supervised"] for e in events if e.type == "step"]
    evals = [e.data["metrics"] for e in events if e.type == "eval"]
    assert losses[-1] < 0.6 * losses[0]
    assert evals[-1]["eval/format"] >= 0.9 > 0.1 > evals[0]["eval/format"]
