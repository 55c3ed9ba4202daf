"""On a GPU: an update waits for nothing while it runs, and its memory does not grow."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import pytest
import torch

from groupwise.config import TrainingConfig
from groupwise.language.adapters import Lora, add_adapter
from groupwise.language.policy import LanguagePolicy
from groupwise.training.learner import Learner
from groupwise.types import Batch

from ..engine.conftest import make_model
from ..test_batch_layout import groups

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


def learner_of(model: Any, rows: int) -> Learner:
    policy = LanguagePolicy(model.to(device="cuda", dtype=torch.bfloat16))
    assert policy.packs_rows
    cfg = TrainingConfig(
        product="language", model_name="tiny", device="cuda", learning_rate=1e-4,
        per_device_train_batch_size=rows, gradient_accumulation_steps=2,
    )  # fmt: skip
    return Learner(policy, cfg)


def batch_of(seed: int, version: int) -> Batch:
    inputs = groups((40, 33), members=4, seed=seed)
    mask = inputs["action_mask"]
    signs = torch.tensor([1.0, -1.0]).repeat_interleave(2).repeat(2)[:, None]
    return Batch(
        inputs=inputs, mask=mask, behavior_logp=torch.where(mask, -4.0, 0.0), advantages=signs * mask,
        denominator=float(mask.sum()), versions=torch.where(mask, version, -1), total_rows=len(mask),
    )  # fmt: skip


@pytest.mark.parametrize("adapted", [False, True], ids=["all weights", "adapter"])
def test_nothing_is_waited_for_between_the_first_micro_batch_and_the_last_metric(adapted: bool) -> None:
    model = make_model("qwen3")
    learner = learner_of(add_adapter(model, Lora(4, 8), 0) if adapted else model, rows=4)
    learner.update(batch_of(0, learner.policy.version))
    batch = batch_of(1, learner.policy.version)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            metrics = learner.update(batch)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    places = [f"{w.filename}:{w.lineno}" for w in seen if "synchronizing" in str(w.message)]
    # Rows are sent before the first micro-batch, and the metrics are read after the last.
    assert sum("tolist" not in place for place in places) <= 20
    assert not [place for place in places if "language/fused" in place or "core/" in place or "logprobs" in place]
    assert metrics["optim/skipped"] == 0


@pytest.mark.parametrize("adapted", [False, True], ids=["all weights", "adapter"])
def test_memory_is_flat_after_the_third_update(adapted: bool) -> None:
    model = make_model("qwen3")
    learner = learner_of(add_adapter(model, Lora(4, 8), 0) if adapted else model, rows=4)
    held = []
    for number in range(12):
        learner.update(batch_of(number, learner.policy.version))
        held.append(torch.cuda.memory_allocated())
    assert max(held[3:]) <= held[2]


def test_a_gradient_that_is_not_finite_leaves_weights_and_moments_alone() -> None:
    learner = learner_of(make_model("qwen3"), rows=8)
    learner.update(batch_of(0, learner.policy.version))
    before = [p.detach().clone() for p in learner.actor]
    batch = batch_of(1, learner.policy.version)
    metrics = learner.update(replace(batch, advantages=batch.advantages * float("inf")))
    assert metrics["optim/skipped"] == 1
    assert all(torch.equal(one, other) for one, other in zip(before, learner.actor, strict=True))
