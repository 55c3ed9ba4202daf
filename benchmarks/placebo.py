"""Rewards of comparison arms: the placebo's shuffled scores, and rejection sampling's right or wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from groupwise.config import TrainingConfig
from groupwise.types import Reward, Score, Task, Trajectory


class Shuffled:
    """A reward that gives the members of a group each other's scores."""

    def __init__(self, reward: Reward, seed: int) -> None:
        self.reward, self.rng = reward, np.random.default_rng(seed)

    async def __call__(self, task: Task, group: Sequence[Trajectory]) -> Sequence[Any]:
        scores = await self.reward(task, group)
        return [_total(scores[place]) for place in self.rng.permutation(len(scores))]


def _total(score: Any) -> Any:
    """A score without the steps it was earned at: those are another attempt's."""
    return replace(score, rewards=None) if isinstance(score, Score) else score


class OnlyCorrect:
    """A reward of 1 for a correct attempt and 0 for any other: without a baseline, that imitates the correct ones."""

    def __init__(self, reward: Reward) -> None:
        self.reward = reward

    async def __call__(self, task: Task, group: Sequence[Trajectory]) -> Sequence[Any]:
        scores = await self.reward(task, group)
        return [Score(score.parts["correct"], score.parts) if isinstance(score, Score) else score for score in scores]


def imitation_of_correct(grpo: TrainingConfig) -> TrainingConfig:
    """The settings of rejection sampling beside `grpo`: no baseline and no scale, so a wrong attempt weighs 0."""
    return grpo.replace(baseline_type="none", advantage_normalization=False)
