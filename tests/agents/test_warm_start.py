"""Warm starts over conversations: the model's own turns are imitated, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from groupwise.agents import warm_start
from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError
from groupwise.training.learner import Learner


def config(**changes: Any) -> TrainingConfig:
    usual = {
        "product": "warm-start", "environment": "orders", "model_name": "tiny", "tasks_per_step": 6, "eval_episodes": 2,
        "max_new_tokens": 4, "learning_rate": 2e-3, "max_conversation_turns": 3, "num_episodes": 4, "seed": 0,
    }  # fmt: skip
    return TrainingConfig(**(usual | changes))


def test_a_few_conversations_are_learned_from_and_judged_on_others() -> None:
    cfg = config(options={"demonstrations": "form"})
    parts = warm_start.build(cfg)
    try:
        learner, losses = Learner(parts.policy, cfg), []
        for _ in range(4):
            batch = parts.source.next()
            learner.update(batch)
            parts.source.publish(parts.policy)
            losses.append(batch.metrics["loss/supervised"])
        said: Any = parts.source
        tokenizer = said.engine.tokenizer
        own = [tokenizer.decode(ids[mask]) for ids, mask in zip(batch.inputs["input_ids"], batch.mask, strict=True)]
        assert all(text.startswith("@") and text.endswith("<|end|>") for text in own)
        assert not any("<|tool|>" in text or "<|user|>" in text for text in own)
        assert losses[-1] < losses[0] - 0.5
        assert parts.evaluate is not None
        assert parts.evaluate(parts.policy)["eval/attempts"] == 2
    finally:
        parts.source.close()


def test_scenarios_without_demonstrations_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "desk.jsonl"
    file.write_text('{"topic": "refund"}\n{"topic": "lamp"}\n')
    with pytest.raises(ConfigError, match="no demonstration"):
        warm_start.check(config(environment=f"conversation:{file}"))
    file.write_text('{"topic": "refund", "demonstration": ["Sure."]}\n{"topic": "lamp", "demonstration": ["Yes."]}\n')
    warm_start.check(config(environment=f"conversation:{file}"))
