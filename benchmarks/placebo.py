"""The placebo: scores that tell nothing, because the members of a group get each other's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

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
