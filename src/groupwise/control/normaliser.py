"""Running means and scales of observations and returns, so that an environment's units do not matter.

They are frozen while a policy acts and while it learns from those actions, so that the learner computes the recorded
log-probabilities again. New data counts from the policy's next version on. Both are part of a checkpoint: the scale of
observations is stored with the weights, the running sums with the rollout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from groupwise.control.policy import MLPPolicy
from groupwise.core import discounted_returns
from groupwise.training.estimators import credited, padded
from groupwise.types import Array, Failed, Group, Reward, Score, Task, Trajectory


class Moments:
    """Count, mean and sum of squared deviations of the rows seen so far (Chan, Golub and LeVeque, 1979)."""

    def __init__(self, size: int) -> None:
        self.count = 0
        self.mean = np.zeros(size)
        self.squares = np.zeros(size)

    def add(self, rows: Array) -> None:
        """Add rows [N, size]."""
        if len(rows):
            mean: Array = np.add.reduce(rows, axis=0, dtype=np.float64) / len(rows)
            squares: Array = np.add.reduce(np.square(rows - mean), axis=0)
            self._merge(len(rows), mean, squares)

    def join(self, other: Moments) -> None:
        """Add everything that `other` has seen."""
        self._merge(other.count, other.mean, other.squares)

    def std(self) -> NDArray[np.float64]:
        deviation: NDArray[np.float64] = np.sqrt(self.squares / max(1, self.count))
        return deviation

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count, "mean": torch.from_numpy(self.mean), "squares": torch.from_numpy(self.squares)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.count = int(state["count"])
        self.mean, self.squares = state["mean"].numpy(), state["squares"].numpy()

    def _merge(self, count: int, mean: Array, squares: Array) -> None:
        # Two sets merge exactly: M = M₁ + M₂ + δ² n₁ n₂ / n, with δ the difference of their means.
        total = self.count + count
        if total:
            apart = mean - self.mean
            self.squares = self.squares + squares + apart * apart * (self.count * count / total)
            self.mean = self.mean + apart * (count / total)
            self.count = total


class Normaliser:
    """The statistics of a run's observations and returns, and their hand-over to its policy.

    `known` is in use; `fresh` was gathered since and joins it when the policy's version changes.
    """

    def __init__(self, policy: MLPPolicy, observation_size: int) -> None:
        self.policy = policy
        self.version = policy.version
        self.known = {"obs": Moments(observation_size), "returns": Moments(1)}
        self.fresh = {"obs": Moments(observation_size), "returns": Moments(1)}

    @property
    def return_scale(self) -> float:
        """What returns are divided by: their standard deviation, or 1 until there is one."""
        spread = float(self.known["returns"].std()[0])
        return spread if spread > 1e-8 else 1.0

    def freeze(self) -> None:
        """Before a rollout: if the policy has learned since the last one, count what was gathered in between."""
        # Several rollouts of one version must all see the same scale.
        if self.policy.version == self.version:
            return
        self.version = self.policy.version
        for name, moments in self.known.items():
            moments.join(self.fresh[name])
            self.fresh[name] = Moments(len(moments.mean))
        if self.policy.normalise and self.known["obs"].count:
            self.policy.set_normalisation(self.known["obs"].mean, self.known["obs"].std())

    def see(self, groups: Sequence[Group]) -> None:
        for group in groups:
            for member in group.members:
                self.fresh["obs"].add(member.obs)

    def state_dict(self) -> dict[str, Any]:
        both = {"known": self.known, "fresh": self.fresh}
        tables = {name: {key: m.state_dict() for key, m in table.items()} for name, table in both.items()}
        return {"version": self.version, **tables}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.version = state["version"]
        for name, table in (("known", self.known), ("fresh", self.fresh)):
            for key, moments in table.items():
                moments.load_state_dict(state[name][key])


class ScaledReward:
    """A reward whose totals are unchanged, while the rewards of single steps are divided by the spread of returns."""

    def __init__(self, reward: Reward, normaliser: Normaliser, gamma: float) -> None:
        self.reward, self.normaliser, self.gamma = reward, normaliser, gamma

    async def __call__(self, task: Task, group: Sequence[Trajectory]) -> list[Score | Failed]:
        scores = list(await self.reward(task, group))
        earned = {
            # Failed attempts have no rewards and are left as they are.
            number: credited(member, score)
            for number, (member, score) in enumerate(zip(group, scores, strict=True))
            if isinstance(score, Score) and len(member)
        }
        if earned:
            mask = padded([np.ones(len(rewards), np.bool_) for rewards in earned.values()], np.bool_)
            returns = discounted_returns(padded(list(earned.values()), np.float64), mask, self.gamma)[mask]
            self.normaliser.fresh["returns"].add(returns.numpy()[:, np.newaxis])
        for number, rewards in earned.items():
            score = scores[number]
            assert isinstance(score, Score)
            scores[number] = replace(score, rewards=rewards / self.normaliser.return_scale)
        return scores

    def state_dict(self) -> Any:
        return self.reward.state_dict() if hasattr(self.reward, "state_dict") else None

    def load_state_dict(self, state: Any) -> None:
        if hasattr(self.reward, "load_state_dict"):
            self.reward.load_state_dict(state)
