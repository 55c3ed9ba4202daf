"""What answers are worth by the section `reward` of the settings, in place of the task's own grade."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from groupwise.agents import language_product as product
from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError
from groupwise.training.folder import create_run
from groupwise.training.session import execute

LANGUAGE = {
    "product": "language", "environment": "addition", "model_name": "tiny", "max_new_tokens": 5, "num_generations": 4,
    "tasks_per_step": 2, "num_episodes": 2, "save_steps": 1, "eval_steps": 2, "eval_episodes": 4,
    "learning_rate": 1e-3, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 1, "threads": 1,
}  # fmt: skip
MINE = "def varied(turns):\n    return len(set(turns[-1]['content'])) / 5\n"


@pytest.fixture
def language(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., TrainingConfig]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE)

    def make(**changes: Any) -> TrainingConfig:
        return TrainingConfig.from_dict({**LANGUAGE, "output_dir": str(tmp_path / "runs"), **changes})

    return make


def metrics_of(events: list[Any], kind: str) -> dict[str, Any]:
    return next(dict(event.data["metrics"]) for event in reversed(events) if event.type == kind)


def test_a_reward_from_the_settings_takes_the_place_of_the_tasks_own_grade(
    language: Callable[..., TrainingConfig],
) -> None:
    components = ["python:mine.py:varied", "numeric"]
    options = {"components": components, "weights": [1, 1], "normalization_method": "normalize_then_sum"}
    cfg = language(reward={"name": "multi_objective", "options": options})
    product.check(cfg)
    events = list(execute(create_run(cfg), product.build))
    step, evaluation = metrics_of(events, "step"), metrics_of(events, "eval")
    parts = {name.rpartition("/")[2] for name in step if name.startswith("reward/part/")}
    assert parts == {"average", "varied", "numeric", "numeric.correct", "numeric.format"}
    assert step["reward/mean"] == pytest.approx(0.0, abs=1e-9)
    assert step["reward/part_std/varied"] > 0
    # A greedy answer has no group: evaluation tells the average of the parts, and right from wrong by `numeric`.
    assert 0 < evaluation["eval/reward_mean"] < 1
    assert evaluation["eval/accuracy"] == 0.0


def test_prompts_without_answers_are_enough_where_a_reward_is_named(
    language: Callable[..., TrainingConfig], tmp_path: Path
) -> None:
    data = tmp_path / "prompts.jsonl"
    data.write_text("".join(json.dumps({"prompt": f"{n}+{n}"}) + "\n" for n in range(20)))
    only_prompts = {"environment": str(data), "options": {"check": "none"}, "num_episodes": 1}
    events = list(execute(create_run(language(**only_prompts, reward_name="python:mine.py:varied")), product.build))
    assert metrics_of(events, "step")["reward/mean"] > 0
    assert metrics_of(events, "eval")["eval/reward_mean"] > 0


def test_a_wrong_name_is_refused_before_there_is_a_run(language: Callable[..., TrainingConfig]) -> None:
    with pytest.raises(ConfigError, match="Did you mean 'customer_service'"):
        product.check(language(reward_name="customerservice"))
