"""How much memory an update takes at its peak, as the allocator saw it: weights apart, gradients included."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from groupwise.config import TrainingConfig
from groupwise.language.loading import load_model
from groupwise.language.policy import LanguagePolicy
from groupwise.training.learner import Learner
from groupwise.types import Batch

ROWS, TOKENS, PROMPT = 8, 256, 8
PLAIN = {"per_device_train_batch_size": ROWS, "gradient_accumulation_steps": 1}
ACCUMULATED = {"per_device_train_batch_size": ROWS // 4, "gradient_accumulation_steps": 4}


def long_batch() -> Batch:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(5, 60, (ROWS, TOKENS), generator=generator)
    mask = torch.arange(TOKENS).expand(ROWS, TOKENS) >= PROMPT
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "action_mask": mask}
    advantages = torch.randn(ROWS, 1, generator=generator) * mask
    return Batch(inputs, mask, -4.0 * mask, advantages, denominator=float(mask.sum()))


def peak_bytes(gradient_checkpointing: bool = False, **settings: Any) -> int:
    """The most that was allocated at once during an update, beyond what was there before it."""
    language = load_model("tiny", gradient_checkpointing=gradient_checkpointing)
    learner = Learner(LanguagePolicy(language.model, chunk_bytes=1 << 16), TrainingConfig.from_dict(settings))
    batch = long_batch()
    learner.update(batch)  # from here on the optimiser has its state
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        learner.update(batch)
    events = seen.profiler.kineto_results.events()  # type: ignore[union-attr]
    changes = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    return int(max(itertools.accumulate(size for _, size in changes)))


@pytest.fixture(scope="module")
def plain() -> int:
    return peak_bytes(**PLAIN)


@pytest.mark.parametrize(("settings", "share"), [
    ({**PLAIN, "bf16": True}, 0.8),
    ({**PLAIN, "bf16": True, "gradient_checkpointing": True}, 0.35),
    (ACCUMULATED, 0.4),
    ({**ACCUMULATED, "bf16": True, "gradient_checkpointing": True}, 0.15),
    ({**PLAIN, "micro_batch_tokens": 2 * TOKENS}, 0.4),
], ids=["bf16", "bf16+checkpointing", "accumulation", "all three", "token budget"])  # fmt: skip
def test_what_saves_memory_saves_it(plain: int, settings: dict[str, Any], share: float) -> None:
    """All three together must need at most 60% of the plain path; they need a tenth."""
    assert peak_bytes(**settings) < share * plain


def test_the_measure_sees_what_an_update_holds(plain: int) -> None:
    """Each of four layers of width 128 keeps at least ten numbers of that width for every token."""
    assert plain > 4 * 10 * 128 * 4 * ROWS * TOKENS
