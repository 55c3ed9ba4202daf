"""Rewards that are computed by a run's workers: one request for each group.

A reward that keeps anything from one group to the next (a learned network, a judge's records) stays in the run's own
process, and so does one that cannot be sent. Of a combination, the components are sent that keep nothing.
"""

import copy
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from groupwise.config import RewardSettings, TrainingConfig
from groupwise.rewards.combination import MultiObjectiveRewardFunction
from groupwise.rewards.function import EnvironmentReward
from groupwise.rewards.registry import find_reward
from groupwise.rewards.scoring import score_group
from groupwise.rollout.backends import RolloutWorkers
from groupwise.types import Failed, Group, Reward, Score, Task, Trajectory

# What a reward has that keeps something: its own metrics, hints, or a state for checkpoints.
KEEPS = ("metrics", "hints", "state_dict")


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """The sound attempts of a group, which component to score them with, and the seconds that this may take."""

    task: Task
    members: tuple[Trajectory, ...]
    component: str | None
    timeout: float | None


class RewardWorker:
    """The handler in a worker. `source` is the run's [reward] section, or a reward that was made in code."""

    def __init__(self, source: Mapping[str, Any] | Reward | None) -> None:
        self.reward: Any = find_reward(RewardSettings(**source)) if isinstance(source, Mapping) else source

    async def __call__(self, request: ScoreRequest) -> Sequence[Score | Failed]:
        group = Group("", request.task, request.members)
        reward = self.reward if request.component is None else self.reward.components[request.component]
        return (await score_group(reward, group, request.timeout)).scores


class RemoteReward:
    """A reward, or one component of a combination, as its run sees it."""

    def __init__(
        self, workers: RolloutWorkers, name: str, *, component: str | None = None, timeout: float | None = None
    ) -> None:
        self.workers, self.component, self.timeout = workers, component, timeout
        self.__qualname__ = name

    async def __call__(self, task: Task, group: Sequence[Trajectory]) -> list[Score | Failed]:
        request = ScoreRequest(task, tuple(group), self.component, self.timeout)
        scores: Sequence[Score | Failed] = await self.workers.ask(request)
        return list(scores)


def reward_for_workers(cfg: TrainingConfig, reward: Reward | None) -> Mapping[str, Any] | Reward | None:
    """What a worker makes the reward of; None for one that stays here. `reward` replaces the one of the settings."""
    if cfg.rollout.backend == "local":
        return None
    found = reward or find_reward(cfg.reward)
    if found is None or not (_sendable(found) or _sendable_components(found)):
        return None
    if reward is None:
        return dict(cfg.to_dict()["reward"])
    try:
        pickle.dumps(reward)
    except Exception:
        return None
    return reward


def sent_to(workers: RolloutWorkers, cfg: TrainingConfig, reward: Reward) -> Reward:
    """The reward with everything that keeps nothing replaced by a request to a worker."""
    if _sendable(reward):
        return RemoteReward(workers, _name(reward), timeout=cfg.rollout.reward_timeout)
    assert isinstance(reward, MultiObjectiveRewardFunction)
    remote = {name: RemoteReward(workers, name, component=name) for name in _sendable_components(reward)}
    combined = copy.copy(reward)
    combined.components = {**reward.components, **remote}
    return combined


def _sendable(reward: Reward) -> bool:
    if isinstance(reward, MultiObjectiveRewardFunction):
        return all(map(_sendable, reward.components.values()))
    return not isinstance(reward, EnvironmentReward) and not any(hasattr(reward, name) for name in KEEPS)


def _sendable_components(reward: Reward) -> list[str]:
    parts = reward.components if isinstance(reward, MultiObjectiveRewardFunction) else {}
    return [name for name, part in parts.items() if _sendable(part)]


def _name(reward: Reward) -> str:
    return str(getattr(reward, "__qualname__", type(reward).__name__))
