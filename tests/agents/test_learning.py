"""The whole path learns one-digit sums after a short warm start, by scores alone; with shuffled scores it does not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from groupwise.agents import language_product as product
from groupwise.agents import warm_start
from groupwise.config import TrainingConfig
from groupwise.training.folder import create_run
from groupwise.training.session import Parts, execute
from groupwise.types import Task, Trajectory

COMMON = {
    "seed": 1, "environment": "column_addition", "options": {"digits": 1}, "max_new_tokens": 4, "threads": 1,
    "eval_steps": 0, "gradient_accumulation_steps": 1, "lr_scheduler_type": "constant", "adam_beta2": 0.99,
    "group_log_steps": 0,
}  # fmt: skip


def rewards(cfg: TrainingConfig, build: Any) -> list[float]:
    """The mean score of every step's attempts."""
    return [e.data["metrics"]["reward/mean"] for e in execute(create_run(cfg), build) if e.type == "step"]


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    cfg = TrainingConfig.from_dict(
        {**COMMON, "product": "warm-start", "output_dir": str(folder), "run_name": "warm", "num_episodes": 15,
         "tasks_per_step": 32, "per_device_train_batch_size": 32, "learning_rate": 1e-3, "warmup_ratio": 0.0}
    )  # fmt: skip
    rewards(cfg, warm_start.build)
    return folder / "warm"


def grpo(warm: Path) -> TrainingConfig:
    return TrainingConfig.from_dict(
        {**COMMON, "product": "language", "output_dir": str(warm.parent), "model_name": str(warm), "num_episodes": 40,
         "tasks_per_step": 16, "num_generations": 8, "per_device_train_batch_size": 128, "learning_rate": 3e-4,
         "warmup_ratio": 0.0}
    )  # fmt: skip


def test_scores_teach(warm: Path) -> None:
    course = rewards(grpo(warm), product.build)
    assert np.mean(course[-10:]) > np.mean(course[:5]) + 0.15


class Shuffled:
    def __init__(self, reward: Any) -> None:
        self.reward, self.rng = reward, np.random.default_rng(0)

    async def __call__(self, task: Task, group: Sequence[Trajectory]) -> list[Any]:
        scores = await self.reward(task, group)
        return [scores[place] for place in self.rng.permutation(len(scores))]


def test_scores_of_others_do_not(warm: Path) -> None:
    def build(cfg: TrainingConfig) -> Parts:
        parts = product.build(cfg)
        source: Any = parts.source
        source.reward = Shuffled(source.reward)
        return parts

    course = rewards(grpo(warm), build)
    assert np.mean(course[-10:]) < np.mean(course[:5]) + 0.05
