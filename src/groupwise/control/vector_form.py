"""An environment in Gymnasium's vector form, stepped as a whole: `SyncVectorEnv`, `AsyncVectorEnv`, or its own."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from groupwise.control.gymnasium_environment import TASK, action_count, mask_method, step_limit
from groupwise.control.gymnasium_ids import import_gymnasium
from groupwise.control.spaces import MASK, Interface, read_interface
from groupwise.errors import ConfigError, ContractError
from groupwise.types import Array


class VectorMasks:
    """The action masks of all copies: in the observation, in the info, or from the environments' own method."""

    def __init__(self, vector: Any, interface: Interface) -> None:
        self._vector, self._interface = vector, interface
        with one_member(vector) as member:
            self._method = "" if member is None else mask_method(member.unwrapped)
        self.rows: Array | None = None

    def after(self, obs: Any, info: Any) -> Array | None:
        """The masks [copies, actions] after a reset or step, None if there are none; who is silent keeps the last."""
        count, told = self._vector.num_envs, self._interface.mask(obs)
        said: Array = np.ones(count, np.bool_)
        if told is None and (told := info.get(MASK)) is not None:
            said = np.asarray(info.get(f"_{MASK}", said))
        one_by_one = told is None and bool(self._method)
        if one_by_one:
            told = self._vector.call(self._method)
        if told is None:
            return self.rows
        if self.rows is None:
            self.rows = np.ones((count, action_count(self._interface.action_space)), np.bool_)
        # Gymnasium stacks arrays; lists and tuples stay apart.
        if one_by_one or (isinstance(told, np.ndarray) and told.dtype == object):
            for copy in np.flatnonzero(said).tolist():
                self.rows[copy] = self._interface.mask_rows(told[copy], 1)[0]
        else:
            self.rows[said] = self._interface.mask_rows(told, count)[said]
        return self.rows.copy()


@contextmanager
def one_member(vector: Any) -> Iterator[Any]:
    """One of the environments that a vector is made of, or None if it is not made of any."""
    members, functions = getattr(vector, "envs", None), getattr(vector, "env_fns", None)
    if members or not functions:
        yield members[0] if members else None
        return
    # The environments are in other processes.
    made = functions[0]()
    try:
        yield made
    finally:
        made.close()


class VectorForm:
    """A Gymnasium vector environment as a `VectorEnvironment`; `resized(count)` makes one of another size.

    Gymnasium restarts copies by itself; here a copy that has ended stays where it is until it is reset or restarted.
    """

    def __init__(
        self, first: Any, resized: Callable[[int], Any] | None, *, max_steps: int | None = None, name: str = ""
    ) -> None:
        self.name, self._resized = name or type(first).__name__, resized
        self._take(first)
        self.max_steps = max_steps or self._limit()
        self.interface = read_interface(self.name, first.single_observation_space, first.single_action_space)
        self.observation_size = self.interface.observation_size
        self.action_space = self.interface.action_space
        self.action_count = action_count(self.action_space)
        self.task_names: list[str] = []
        self._masks: Array | None = None
        self._masks_of = VectorMasks(first, self.interface)

    def reset(self, seeds: Sequence[int]) -> Array:
        self._size(len(seeds))
        self._masks_of.rows = None
        obs, info = self._first_obs([int(seed) for seed in seeds])
        self._ended: Array = np.zeros((2, len(seeds)), np.bool_)
        self._obs, self._elapsed = self._rows(obs), np.zeros(len(seeds), np.int64)
        self.task_names = [str(task) for task in info.get(TASK, [""] * len(seeds))]
        self._masks = self._masks_of.after(obs, info)
        return self._obs.copy()

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array]:
        count = len(self._obs)
        if len(actions) != count:
            hint = "Pass one action per copy."
            raise ContractError(f"{self.name} needs {count} actions, not {len(actions)}", hint=hint)
        over, cut = self._ended
        live: Array = ~(over | cut)
        if not live.all() and self._restarts_itself is False:
            # Gymnasium refuses to step a copy that has ended. What is reset here is never looked at.
            self._begin(np.flatnonzero(~live), [0] * int((~live).sum()))
        obs, rewards, terminated, truncated, info = self._vector.step(self.interface.actions(actions))
        rows = self._rows(obs)
        for copy in np.flatnonzero(live & (terminated | truncated)).tolist():
            if "final_obs" in info and info["final_obs"][copy] is not None:
                rows[copy] = self.interface.row(info["final_obs"][copy])
        self._obs[live] = rows[live]
        self._elapsed += live
        over[live], cut[live] = terminated[live], truncated[live] | (self._elapsed[live] >= self.max_steps)
        self._masks = self._masks_of.after(obs, info)
        return self._obs.copy(), np.where(live, rewards, 0.0), over.copy(), cut.copy()

    def action_mask(self) -> Array | None:
        """Which actions are allowed now; None if the environment gives no masks. Ended copies may do anything."""
        return None if self._masks is None else np.asarray(self._masks | np.logical_or(*self._ended)[:, np.newaxis])

    def close(self) -> None:
        self._vector.close()

    def _take(self, vector: Any) -> None:
        self._vector = vector
        if self._resized is not None:
            # We made it. Environments in other processes that nobody closes end with a traceback each.
            weakref.finalize(self, vector.close)

    def _first_obs(self, seeds: list[int]) -> Any:
        if len(seeds) == 1:
            return self._vector.reset(seed=seeds[0])
        try:
            return self._vector.reset(seed=seeds)
        except import_gymnasium().error.Error as error:
            message = f"{self.name} takes one seed for all its copies, so the members of a group cannot start alike"
            hint = "Give the environment in another form (its id, or a SyncVectorEnv), or use PPO."
            raise ContractError(message, hint=hint) from error

    def _begin(self, copies: Array, seeds: Sequence[int]) -> Any:
        """Reset some copies; Gymnasium's observations and infos of all."""
        mask, every = np.zeros(len(self._obs), np.bool_), [0] * len(self._obs)
        mask[copies] = True
        for copy, seed in zip(copies.tolist(), seeds, strict=True):
            every[copy] = int(seed)
        return self._vector.reset(seed=every, options={"reset_mask": mask})

    @property
    def _restarts_itself(self) -> bool:
        mode = self._vector.metadata.get("autoreset_mode")
        return mode is not import_gymnasium().vector.AutoresetMode.DISABLED

    def _size(self, count: int) -> None:
        have = self._vector.num_envs
        if have == count:
            return
        if self._resized is None:
            message = f"{self.name} has {have} copies, but {count} are needed, and it cannot be made again"
            hint = (
                f"Let rollout.num_generations × rollout.tasks_per_step and run.eval_episodes be {have}, or pass a "
                "SyncVectorEnv or a function that makes one environment."
            )
            raise ConfigError(message, hint=hint, field="rollout.num_generations")
        self._vector.close()
        self._take(self._resized(count))
        self._masks_of = VectorMasks(self._vector, self.interface)

    def _rows(self, obs: Any) -> Array:
        try:
            rows = self.interface.rows(obs)[0]
        except (ValueError, TypeError, KeyError, IndexError) as error:
            message = f"{self.name} returned observations that do not fit its single_observation_space"
            raise ContractError(message, hint="Check it with gymnasium.utils.env_checker.") from error
        return rows

    def _limit(self) -> int:
        with one_member(self._vector) as member:
            if member is not None:
                return step_limit(member, self.name)
        known = self._vector.spec.max_episode_steps if self._vector.spec is not None else None
        if known is None:
            message = f"{self.name} has no step limit, so an attempt might never end"
            hint = "Set one: task.max_episode_steps = 1000 (from Python max_episode_steps=1000)."
            raise ConfigError(message, hint=hint, field="task.max_episode_steps")
        return int(known)


class RestartingVectorForm(VectorForm):
    """One whose copies can be reset one by one, each with a seed: Gymnasium's `SyncVectorEnv` and `AsyncVectorEnv`."""

    def restart(self, copies: Array, seeds: Sequence[int]) -> Array:
        """Reset some of the copies, each with its seed; the observations of all."""
        obs, info = self._begin(copies, seeds)
        self._obs[copies] = self._rows(obs)[copies]
        self._masks = self._masks_of.after(obs, info)
        self._ended[:, copies] = False
        self._elapsed[copies] = 0
        return self._obs.copy()
