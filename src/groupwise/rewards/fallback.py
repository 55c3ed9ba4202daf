"""A reward that may be unreliable (a judge, a remote service) and what to do when it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from groupwise.rewards.scoring import score_group
from groupwise.types import Failed, Group, Reward, Score, Task, Trajectory

FLAG = "fallback"


class WithFallback:
    """Asks `reward` up to `1 + retries` times until it scores the whole group, then asks `fallback`.

    A group is scored by one of them or the other, never half and half: scores are compared within the group,
    and two scales cannot be compared. Scores of the fallback carry the flag "fallback". What `reward` did
    not answer is never made up.
    """

    def __init__(self, reward: Reward, fallback: Reward, retries: int = 1) -> None:
        self.reward = reward
        self.fallback = fallback
        self.retries = retries

    async def __call__(self, task: Task, group: Sequence[Trajectory]) -> Sequence[Score | Failed]:
        attempts = Group(group[0].group_id, task, tuple(group))
        for _ in range(1 + self.retries):
            scores = (await score_group(self.reward, attempts)).scores
            if not any(isinstance(score, Failed) for score in scores):
                return scores
        return await stand_in(self.fallback, attempts, FLAG)


async def stand_in(fallback: Reward, group: Group, flag: str) -> Sequence[Score | Failed]:
    """The scores of a reward that stands in for another, each with a flag that says so."""
    scores = (await score_group(fallback, group)).scores
    return [s if isinstance(s, Failed) else replace(s, flags=(*s.flags, flag)) for s in scores]
