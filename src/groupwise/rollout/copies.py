"""Copies of an environment that can start anew one by one, whatever the environment itself can do."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from groupwise.rollout.contract import action_mask_of, action_space_of, name_of
from groupwise.types import Array, RestartingEnvironment, VectorEnvironment


def restarting(make: Callable[[], VectorEnvironment]) -> RestartingEnvironment:
    """The environment itself where it has `restart`; otherwise an object of its own for every copy."""
    environment = make()
    return environment if hasattr(environment, "restart") else Separate(make, environment)  # type: ignore[return-value]


class Separate:
    """One environment per copy: slower than one for all, and right for any that keeps its promises."""

    def __init__(self, make: Callable[[], VectorEnvironment], first: VectorEnvironment | None = None) -> None:
        self._make = make
        self._members = [first or make()]
        self.name = name_of(self._members[0])
        self.observation_size = self._members[0].observation_size
        self.action_count = self._members[0].action_count
        self.max_steps = self._members[0].max_steps
        self.action_space = action_space_of(self._members[0])

    def reset(self, seeds: Sequence[int]) -> Array:
        self._members += [self._make() for _ in range(len(seeds) - len(self._members))]
        self._obs = np.concatenate([env.reset([seed]) for env, seed in zip(self._members, seeds, strict=False)])
        return self._obs.copy()

    def restart(self, copies: Array, seeds: Sequence[int]) -> Array:
        for copy, seed in zip(copies, seeds, strict=True):
            self._obs[copy] = self._members[copy].reset([seed])[0]
        return self._obs.copy()

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array]:
        count = len(self._obs)
        answers = [env.step(actions[n : n + 1]) for n, env in enumerate(self._members[:count])]
        self._obs, rewards, terminated, truncated = (
            np.concatenate(column) for column in zip(*answers, strict=True)
        )  # fmt: skip
        return self._obs.copy(), rewards, terminated, truncated

    def action_mask(self) -> Array | None:
        masks = [action_mask_of(env, 1) for env in self._members[: len(self._obs)]]
        given = [mask for mask in masks if mask is not None]
        return np.concatenate(given) if len(given) == len(masks) else None
