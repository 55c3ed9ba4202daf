"""The tokens of a conversation as it grows, and which of them the model sampled. None is ever made anew from text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from groupwise.language.engine import Sampled
from groupwise.types import End, Failure, Task, Trajectory


class Transcript:
    """Grows turn by turn: `listen` takes what others said, `speak` what the model sampled."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.mask: list[bool] = []
        self.logp: list[float] = []
        self.versions: list[int] = []
        self.rewards: list[float] = []

    def __len__(self) -> int:
        return len(self.ids)

    def listen(self, ids: Sequence[int]) -> None:
        self._extend(ids, False, [0.0] * len(ids), [0] * len(ids))

    def speak(self, sampled: Sampled) -> None:
        self._extend(sampled.ids.tolist(), True, sampled.logp.tolist(), sampled.versions.tolist())

    def earn(self, reward: float) -> None:
        """Credit a reward to the last token the model sampled."""
        last = len(self.mask) - 1 - self.mask[::-1].index(True)
        self.rewards[last] += reward

    def _extend(self, ids: Sequence[int], own: bool, logp: Sequence[float], versions: Sequence[int]) -> None:
        self.ids += ids
        self.mask += [own] * len(ids)
        self.logp += logp
        self.versions += versions
        self.rewards += [0.0] * len(ids)

    def attempt(
        self, task: Task, number: int, end: End, error: Failure | None = None, meta: Mapping[str, Any] | None = None
    ) -> Trajectory:
        """The conversation as arrays. Its limits are part of the task: one that hits them has ended too."""
        ids = np.array(self.ids, np.int64)
        return Trajectory(
            id=f"g{task.seed}/m{number}",
            task_id=task.id,
            group_id=f"g{task.seed}",
            obs=ids,
            actions=ids,
            mask=np.array(self.mask, bool),
            behavior_logp=np.array(self.logp, np.float32),
            versions=np.array(self.versions, np.int64),
            rewards=np.array(self.rewards, np.float64),
            end=end,
            terminated=True,
            error=error,
            meta=meta or {},
        )
