"""A reward in a real run: its parts, correlations and alarms reach the log, and what was seen survives a resume."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from groupwise.config import TrainingConfig
from groupwise.control import grpo as control
from groupwise.errors import NoSignalError
from groupwise.rewards.function import RewardFunction
from groupwise.training.checkpoint import load_checkpoint
from groupwise.training.folder import create_run
from groupwise.training.session import Parts, execute
from groupwise.types import Hint, Score


def metrics_of(events: list[Any], kind: str) -> dict[str, Any]:
    return next(dict(event.data["metrics"]) for event in reversed(events) if event.type == kind)


class Gamed(RewardFunction):
    """Pays ever more for one thing and less for another, as a policy that games would make it."""

    def __init__(self) -> None:
        super().__init__()
        self.step = 0

    async def score_group(self, task: Any, group: Any) -> list[Score]:
        self.step += 1
        noise = np.random.default_rng(self.step).normal(size=len(group))
        drift = 0.02 * self.step + 0.1 * noise
        return [Score(0.5 + 0.3 * d, {"flattery": 0.2 + d, "substance": 0.9 - 0.5 * d}) for d in drift.tolist()]

    def metrics(self) -> dict[str, float]:
        return {"gamed/step": float(self.step)}

    def hints(self) -> tuple[Hint, ...]:
        return (Hint("gamed_said", "the reward has a word to say", ""),) if self.step == 2 else ()

    def state_dict(self) -> dict[str, Any]:
        return {"step": self.step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.step = state["step"]


def build(cfg: TrainingConfig) -> Parts:
    return control.build(cfg, reward=Gamed())


def hints_of(path: Path) -> list[tuple[int, str]]:
    lines = [json.loads(line) for line in (path / "events.jsonl").read_text().splitlines()]
    found = [(line["step"], line["data"]["code"]) for line in lines if line["type"] == "hint"]
    return [(step, code) for step, code in found if code in ("part_gamed", "gamed_said")]


def test_an_alarm_is_a_hint_of_the_run_and_a_resume_in_the_middle_does_not_delay_it(
    small_config: Callable[..., TrainingConfig],
) -> None:
    settings = {
        "num_episodes": 41, "max_episode_steps": 3, "tasks_per_step": 1, "num_epochs": 1, "eval_steps": 0,
        "save_steps": 20, "group_log_steps": 0, "estimator": "outcome", "advantage_scale": "group_std",
    }  # fmt: skip
    path = create_run(small_config(**settings))
    for event in execute(path, build):
        if event.type == "step" and event.step == 22:
            break
    events = list(execute(path, build))
    assert hints_of(path) == [(2, "gamed_said"), (40, "part_gamed")]
    assert metrics_of(events, "step")["gamed/step"] == 41
    assert metrics_of(events, "step")["reward/correlation/flattery~substance"] == pytest.approx(-1.0)


class Paid(RewardFunction):
    """Pays by the length of an attempt, and `most` for the longest."""

    def __init__(self, most: float) -> None:
        super().__init__()
        self.most = most

    async def score_group(self, task: Any, group: Any) -> list[Score]:
        lengths = [len(attempt) for attempt in group]
        return [Score(self.most * (length / max(lengths))) for length in lengths]


@pytest.mark.parametrize(
    "settings",
    [
        {"estimator": "outcome", "advantage_scale": "group_std"},
        {"estimator": "outcome", "advantage_scale": "none"},
        {"estimator": "group_rtg", "advantage_scale": "task_rms"},
        {"estimator": "gae", "advantage_scale": "none"},
        {"estimator": "group_gae", "advantage_scale": "batch_std"},
    ],
)
def test_rewards_as_large_as_the_limit_train(
    small_config: Callable[..., TrainingConfig], settings: dict[str, Any]
) -> None:
    path = create_run(small_config(**settings, num_episodes=2, eval_steps=0, save_steps=1))
    events = list(execute(path, lambda cfg: control.build(cfg, reward=Paid(1e15))))
    assert all(event.data["metrics"]["optim/skipped"] == 0 for event in events if event.type == "step")
    first, last = (load_checkpoint(folder).model for folder in sorted((path / "checkpoints").iterdir()))
    assert all(value.isfinite().all() for value in last.values())
    assert any((first[name] != last[name]).any() for name in first)


def test_rewards_beyond_the_limit_end_a_run_by_name(small_config: Callable[..., TrainingConfig]) -> None:
    path = create_run(small_config(num_episodes=3))
    with pytest.raises(NoSignalError, match=r"gave a reward of .*e\+299; the limit is 1e\+15") as refused:
        list(execute(path, lambda cfg: control.build(cfg, reward=Paid(9e299))))
    assert "Divide the reward by a constant" in refused.value.hint
