"""The reward that is already there: what the environment paid along the way."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from groupwise.types import Failed, Score, Task, Trajectory


class EnvironmentReward:
    """Scores an attempt by the sum of its environment's rewards."""

    async def __call__(self, task: Task, group: Sequence[Trajectory]) -> list[Score | Failed]:
        return [_score(trajectory) for trajectory in group]


def _score(trajectory: Trajectory) -> Score:
    total = float(np.sum(trajectory.rewards, dtype=np.float64))
    parts = trajectory.meta.get("parts", {})
    return Score(total, {"environment": total, **parts}, rewards=trajectory.rewards)
