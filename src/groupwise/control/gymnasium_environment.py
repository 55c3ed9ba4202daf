"""Any Gymnasium environment as a `VectorEnvironment`: copies stepped one by one, or in Gymnasium's own vector form."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from groupwise.control.gymnasium_ids import import_gymnasium, make_copy
from groupwise.control.spaces import MASK, read_interface
from groupwise.errors import ConfigError, ContractError
from groupwise.types import ActionSpace, Array, Discrete, MultiDiscrete

if TYPE_CHECKING:
    import gymnasium

# Copies of these carry state over from earlier episodes (Box2D's solver is never cleared), so a reset makes new ones.
REMEMBER = ("bipedal_walker",)
# An info may say which of several tasks an episode is: {"task": "push"}.
TASK = "task"
MakeEnvironment: TypeAlias = "Callable[..., gymnasium.Env[Any, Any]]"


class GymnasiumEnvironment:
    """Copies of a Gymnasium environment, an id or a function that makes one; a reset makes more when it needs them.

    `max_steps` replaces the environment's own limit. Action masks come from "action_mask" in the observation or info,
    or from the environment's method `action_masks` or `action_mask`. `task_names` says which of its tasks each copy
    plays, if the info of its reset says so.
    """

    def __init__(
        self, id: str | MakeEnvironment, *, max_steps: int | None = None, name: str = "", **options: Any
    ) -> None:
        self.name = name or (id if isinstance(id, str) else getattr(id, "__name__", type(id).__name__))
        self._id, self._options = id, options
        first = self.make_one()
        self._copies = [first]
        self._spaces = (first.observation_space, first.action_space)
        self._remembers = any(part in type(first.unwrapped).__module__ for part in REMEMBER)
        self.max_steps = max_steps or step_limit(first, self.name)
        self.interface = read_interface(self.name, first.observation_space, first.action_space)
        self.observation_size = self.interface.observation_size
        self.action_space = self.interface.action_space
        self.action_count = action_count(self.action_space)
        self._mask_method = mask_method(first.unwrapped)
        self._masks: Array | None = None
        self.task_names: list[str] = []
        self._obs = np.empty((0, self.observation_size), np.float32)
        self._ended = np.empty((2, 0), np.bool_)
        self._elapsed = 0

    def make_one(self, **more: Any) -> gymnasium.Env[Any, Any]:
        """Another copy, made with `more` options than the others."""
        options = {**self._options, **more}
        return make_copy(self._id, options) if isinstance(self._id, str) else self._id(**options)

    def reset(self, seeds: Sequence[int]) -> Array:
        if self._remembers:
            self._copies = []
        while len(self._copies) < len(seeds):
            self._copies.append(self.make_one())
        self._elapsed = 0
        self._obs = np.empty((len(seeds), self.observation_size), np.float32)
        # Row 0 is terminated, row 1 truncated.
        self._ended = np.zeros((2, len(seeds)), np.bool_)
        self._masks = None
        self.task_names = [""] * len(seeds)
        for number, seed in enumerate(seeds):
            answer = self._copies[number].reset(seed=int(seed))
            if not isinstance(answer, tuple) or len(answer) != 2:
                raise self._broken("reset must return (observation, info)", answer)
            self._insist_on_its_spaces(self._copies[number])
            self._see(number, *answer)
            self.task_names[number] = str(answer[1].get(TASK, ""))
        return self._obs.copy()

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array]:
        if len(actions) != len(self._obs):
            hint = "Pass one action per copy."
            raise ContractError(f"{self.name} needs {len(self._obs)} actions, not {len(actions)}", hint=hint)
        self._elapsed += 1
        rewards = np.zeros(len(actions))
        over, cut = self._ended
        running = np.flatnonzero(~(over | cut)).tolist()
        chosen = self.interface.each_action(actions)
        for number in running:
            answer = self._copies[number].step(chosen[number])
            if not isinstance(answer, tuple) or len(answer) != 5:
                raise self._broken("step must return (observation, reward, terminated, truncated, info)", answer)
            obs, reward, terminated, truncated, info = answer
            self._see(number, obs, info)
            rewards[number] = self._number(reward)
            # Few steps end an episode, and checking is cheaper than writing.
            if terminated is not False or truncated is not False:
                over[number], cut[number] = self._flag(terminated), self._flag(truncated)
        # All copies start together, so one clock serves them all.
        if self._elapsed == self.max_steps:
            cut[running] = True
        return self._obs.copy(), rewards, over.copy(), cut.copy()

    def action_mask(self) -> Array | None:
        """Which actions are allowed now; None if the environment gives no masks. Ended copies may do anything."""
        if self._masks is None:
            return None
        return np.asarray(self._masks | np.logical_or(*self._ended)[:, np.newaxis])

    def drawn(self) -> GymnasiumEnvironment:
        """The same environment with a first copy that can `render`."""
        if "rgb_array" not in (self._copies[0].metadata.get("render_modes") or ()):
            message = f"{self.name} cannot be drawn: it has no render mode rgb_array"
            hint = 'Add it to metadata["render_modes"], take render_mode in __init__, and return a picture in render().'
            raise ConfigError(message, hint=hint)
        if self._copies[0].render_mode == "rgb_array":
            return self
        options = {**self._options, "render_mode": "rgb_array"}
        try:
            return GymnasiumEnvironment(self._id, max_steps=self.max_steps, name=self.name, **options)
        except TypeError as error:
            hint = 'Give it the argument render_mode="rgb_array" when you make it.'
            raise ConfigError(f"{self.name} cannot be drawn: it takes no render_mode", hint=hint) from error

    def render(self) -> Any:
        """A picture of the first copy of a `drawn` environment."""
        return self._copies[0].render()

    @property
    def frames_per_second(self) -> float:
        return float(self._copies[0].metadata.get("render_fps") or 30)

    def close(self) -> None:
        for copy in self._copies:
            copy.close()

    def _insist_on_its_spaces(self, copy: Any) -> None:
        """Refuse a copy, or an episode, that has other spaces than the ones that the policy was made for."""
        for was, now in zip(self._spaces, (copy.observation_space, copy.action_space), strict=True):
            # Most share one object; comparing the limits of an image takes long.
            if was is not now and was != now:
                message = f"{self.name} changes its spaces: it had {was} and then {now}"
                hint = "A policy needs the same in every copy and episode: pad what varies, and mask actions."
                raise ContractError(message, hint=hint, field="task.environment")

    def _see(self, number: int, obs: Any, info: Any) -> None:
        if not isinstance(info, dict):
            raise self._broken("info must be a dictionary", info)
        try:
            mask = self.interface.mask(obs)
            self._obs[number] = self.interface.row(obs)
        except (ValueError, TypeError, KeyError, IndexError, ContractError) as error:
            rule = f"observations must fit its observation_space, {self._copies[0].observation_space}"
            raise self._broken(rule, obs) from error
        if mask is None:
            mask = info.get(MASK)
        if mask is None and self._mask_method:
            mask = getattr(self._copies[number].unwrapped, self._mask_method)()
        if mask is not None:
            self._allow(number, mask)

    def _allow(self, number: int, mask: Any) -> None:
        row = self.interface.mask_rows(mask, 1)[0]
        if row.shape != (self.action_count,):
            raise self._broken(f"an action mask must have {self.action_count} entries", mask)
        if self._masks is None:
            self._masks = np.ones((len(self._obs), self.action_count), np.bool_)
        self._masks[number] = row

    def _number(self, reward: Any) -> float:
        if type(reward) is float:
            return reward
        try:
            return float(reward)
        except (TypeError, ValueError):
            raise self._broken("rewards must be numbers", reward) from None

    def _flag(self, flag: Any) -> bool:
        if isinstance(flag, bool | np.bool_):
            return bool(flag)
        raise self._broken("terminated and truncated must be booleans", flag)

    def _broken(self, rule: str, value: Any) -> ContractError:
        shown = f"an array of shape {value.shape}" if isinstance(value, np.ndarray) else f"{value!r:.100}"
        hint = "Check the environment with gymnasium.utils.env_checker.check_env(env)."
        return ContractError(f"{self.name} breaks Gymnasium's API: {rule}, not {shown}.", hint=hint)


def mask_method(env: Any) -> str:
    """The method by which an environment tells allowed actions, "" if it has none.

    One that wants arguments means something else (Taxi's takes a state).
    """
    for name in ("action_masks", MASK):
        method = getattr(env, name, None)
        if callable(method) and not inspect.signature(method).parameters:
            return name
    return ""


def action_count(space: ActionSpace) -> int:
    """How many numbers a policy gives per step for actions of that space."""
    if isinstance(space, Discrete):
        return space.count
    return sum(space.counts) if isinstance(space, MultiDiscrete) else len(space.low)


def step_limit(copy: Any, name: str) -> int:
    """The limit of a copy's own wrapper, or the registered one: `make_copy` removed the wrapper, not the number."""
    limit = None
    layer = copy
    while limit is None and layer is not None:
        limit, layer = getattr(layer, "_max_episode_steps", None), layer.__dict__.get("env")
    if limit is None and copy.spec is not None:
        known = import_gymnasium().registry.get(copy.spec.id)
        limit = known.max_episode_steps if known else None
    if limit is None or limit < 1:
        message = f"{name} has no step limit, so an attempt might never end"
        hint = (
            "Set one, for example task.max_episode_steps = 1000 (from Python max_episode_steps=1000), or wrap it in "
            "gymnasium.wrappers.TimeLimit."
        )
        raise ConfigError(message, hint=hint, field="task.max_episode_steps")
    return int(limit)
