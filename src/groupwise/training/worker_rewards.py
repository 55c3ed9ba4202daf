"""Rewards that are computed by a run's workers: one request for each group.

A reward that keeps anything from one group to the next (a learned network, a judge's records, running statistics) stays
in the run's own process, and so does one that cannot be sent.
"""

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from groupwise.config import RewardSettings, TrainingConfig
from groupwise.rewards.function import EnvironmentReward
from groupwise.rewards.registry import find_reward
from groupwise.rewards.scoring import score_group
from groupwise.rollout.backends import RolloutWorkers
from groupwise.types import Failed, Group, Reward, Score, Task, Trajectory

# What a reward has that keeps something: its own metrics, hints, or a state for checkpoints.
KEEPS = ("metrics", "hints", "state_dict")


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """The sound attempts of a group, and the seconds that their scores may take."""

    task: Task
    members: tuple[Trajectory, ...]
    timeout: float | None


class RewardWorker:
    """The handler in a worker. `source` is the run's [reward] section, or a reward that was made in code."""

    def __init__(self, source: Mapping[str, Any] | Reward | None) -> None:
        self.reward = find_reward(RewardSettings(**source)) if isinstance(source, Mapping) else source

    async def __call__(self, request: ScoreRequest) -> Sequence[Score | Failed]:
        assert self.reward is not None
        group = Group("", request.task, request.members)
        return (await score_group(self.reward, group, request.timeout)).scores


class RemoteReward:
    """The reward, as its run sees it."""

    def __init__(self, workers: RolloutWorkers, timeout: float | None, name: str) -> None:
        self.workers, self.timeout = workers, timeout
        self.__qualname__ = name

    async def __call__(self, task: Task, group: Sequence[Trajectory]) -> list[Score | Failed]:
        scores: Sequence[Score | Failed] = await self.workers.ask(ScoreRequest(task, tuple(group), self.timeout))
        return list(scores)


def reward_for_workers(cfg: TrainingConfig, reward: Reward | None) -> Mapping[str, Any] | Reward | None:
    """What a worker makes the reward of; None for one that stays here. `reward` replaces the one of the settings."""
    if cfg.rollout.backend == "local":
        return None
    found = reward or find_reward(cfg.reward)
    if found is None or isinstance(found, EnvironmentReward) or any(hasattr(found, name) for name in KEEPS):
        return None
    if reward is None:
        return dict(cfg.to_dict()["reward"])
    try:
        pickle.dumps(reward)
    except Exception:
        return None
    return reward


def sent_to(workers: RolloutWorkers, cfg: TrainingConfig, reward: Reward) -> RemoteReward:
    return RemoteReward(workers, cfg.rollout.reward_timeout, getattr(reward, "__qualname__", type(reward).__name__))
