"""Environments by name: our vectorised ones first, then suites of several tasks, then every id Gymnasium knows."""

from __future__ import annotations

import difflib
import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from groupwise.config import TaskSettings
from groupwise.control.classic.cartpole import CartPole
from groupwise.control.classic.mountain_car import MountainCar, MountainCarContinuous
from groupwise.control.classic.pendulums import Acrobot, Pendulum
from groupwise.control.multitask import SUITES, make_suite
from groupwise.errors import ConfigError, ContractError, MissingExtra
from groupwise.types import ActionSpace, Array, Box, Discrete, MultiDiscrete, VectorEnvironment
from groupwise.user_code import load_module

if TYPE_CHECKING:
    import gymnasium

MASK = "action_mask"
IMPORTED: set[str] = set()  # files and modules of the user's that have registered their environments
# Copies of these carry state over from earlier episodes (Box2D's solver is never cleared), so a reset makes new ones.
REMEMBER = ("bipedal_walker",)
# Which of our extras installs what a module of Gymnasium's environments needs.
EXTRAS = {"box2d": "box2d", "mujoco": "mujoco", "classic_control": "control", "toy_text": "control", "ale_py": "atari"}


class GymnasiumEnvironment:
    """Copies of the Gymnasium environment `id`, made with `options`; a reset makes more when it needs them.

    `max_steps` replaces the environment's own limit. Action masks come from "action_mask" in the observation or info,
    or from the environment's method `action_masks` or `action_mask`.
    """

    def __init__(self, id: str, *, max_steps: int | None = None, **options: Any) -> None:
        self.name, self._options = id, options
        first = make_copy(id, options)
        self._copies = [first]
        self._remembers = any(part in type(first.unwrapped).__module__ for part in REMEMBER)
        self.max_steps = max_steps or step_limit(first)
        self._observation = _Observation(id, first.observation_space)
        self._action = _Action(id, first.action_space)
        self.action_space = self._action.space
        self.action_count = self._action.count
        self.observation_size = self._observation.size
        self._mask_method = mask_method(first.unwrapped)
        self._masks: Array | None = None
        self._obs = np.empty((0, self.observation_size), np.float32)
        self._ended = np.empty((2, 0), np.bool_)
        self._elapsed = 0

    def reset(self, seeds: Sequence[int]) -> Array:
        if self._remembers:
            self._copies = []
        while len(self._copies) < len(seeds):
            self._copies.append(make_copy(self.name, self._options))
        self._elapsed = 0
        self._obs = np.empty((len(seeds), self.observation_size), np.float32)
        # Row 0 is terminated, row 1 truncated.
        self._ended = np.zeros((2, len(seeds)), np.bool_)
        self._masks = None
        for number, seed in enumerate(seeds):
            answer = self._copies[number].reset(seed=int(seed))
            if not isinstance(answer, tuple) or len(answer) != 2:
                raise self._broken("reset must return (observation, info)", answer)
            self._see(number, *answer)
        return self._obs.copy()

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array]:
        if len(actions) != len(self._obs):
            hint = "Pass one action per copy."
            raise ContractError(f"{self.name} needs {len(self._obs)} actions, not {len(actions)}", hint=hint)
        self._elapsed += 1
        rewards = np.zeros(len(actions))
        over, cut = self._ended
        running = np.flatnonzero(~(over | cut)).tolist()
        chosen = self._action.given(actions)
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
        options = {**self._options, "render_mode": "rgb_array"}
        return GymnasiumEnvironment(self.name, max_steps=self.max_steps, **options)

    def render(self) -> Any:
        """A picture of the first copy of a `drawn` environment."""
        return self._copies[0].render()

    @property
    def frames_per_second(self) -> float:
        return float(self._copies[0].metadata.get("render_fps") or 30)

    def close(self) -> None:
        for copy in self._copies:
            copy.close()

    def _see(self, number: int, obs: Any, info: Any) -> None:
        if not isinstance(info, dict):
            raise self._broken("info must be a dictionary", info)
        try:
            mask = obs[MASK] if self._observation.masked else info.get(MASK)
            self._obs[number] = self._observation.row(obs)
        except (ValueError, TypeError, KeyError, IndexError) as error:
            rule = f"observations must fit its observation_space, {self._observation.space}"
            raise self._broken(rule, obs) from error
        if mask is None and self._mask_method:
            mask = getattr(self._copies[number].unwrapped, self._mask_method)()
        if mask is not None:
            self._allow(number, mask)

    def _allow(self, number: int, mask: Any) -> None:
        parts = mask if isinstance(mask, tuple | list) else [mask]
        row = np.concatenate([np.asarray(part).ravel() for part in parts]).astype(np.bool_)
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


class _Observation:
    """Flattens observations into rows of numbers; uint8 images are scaled to 0..1."""

    def __init__(self, id: str, space: gymnasium.Space[Any]) -> None:
        from gymnasium import spaces

        self.masked = isinstance(space, spaces.Dict) and MASK in space.spaces
        if isinstance(space, spaces.Dict) and self.masked:
            space = spaces.Dict({key: part for key, part in space.spaces.items() if key != MASK})
        if not space.is_np_flattenable:
            message = f"{id} has observations of varying size, {space}, and the policies here need a fixed one"
            hint = "Wrap it so that its observation space is a Box, Discrete, Dict or Tuple of fixed size."
            raise ConfigError(message, hint=hint, field="task.environment")
        self.space = space
        self.size = int(spaces.flatdim(space))
        self.shape = space.shape
        self.flatten = spaces.flatten
        self.plain = isinstance(space, spaces.Box)
        # Bytes are shares of 255; other numbers are left to the normaliser.
        self.scale = 1.0 / 255.0 if self.plain and space.dtype == np.uint8 else 1.0

    def row(self, obs: Any) -> Any:
        if self.plain:
            if type(obs) is not np.ndarray:
                obs = np.asarray(obs)
            if obs.shape != self.shape:
                raise ValueError(obs.shape)
            flat = obs if obs.ndim == 1 else obs.ravel()
            return flat if self.scale == 1.0 else flat * self.scale
        if self.masked:
            obs = {key: value for key, value in obs.items() if key != MASK}
        return self.flatten(self.space, obs)


class _Action:
    """The policy's action space, and its actions in Gymnasium's form."""

    def __init__(self, id: str, space: gymnasium.Space[Any]) -> None:
        from gymnasium import spaces

        self.theirs = space
        self.space: ActionSpace
        if isinstance(space, spaces.Discrete):
            self.space = Discrete(int(space.n))
            self.count = self.space.count
        elif isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
            counts = space.nvec if isinstance(space, spaces.MultiDiscrete) else np.full(space.shape, 2)
            self.space = MultiDiscrete(tuple(int(n) for n in np.ravel(counts)))
            self.count = sum(self.space.counts)
        elif isinstance(space, spaces.Box):
            limits = (np.ravel(bound).astype(float).tolist() for bound in (space.low, space.high))
            self.space = Box(*(tuple(limit) for limit in limits))
            self.count = len(self.space.low)
        else:
            message = f"{id} has the action space {space}, which no policy here supports"
            hint = "Wrap it so that its action space is Discrete, MultiDiscrete, MultiBinary or Box."
            raise ConfigError(message, hint=hint, field="task.environment")

    def given(self, actions: Array) -> Sequence[Any]:
        """The actions of all copies as Gymnasium expects them; numbers out of range are clipped."""
        space: Any = self.theirs
        if isinstance(self.space, Discrete):
            # NumPy integers, not Python's: Gymnasium checks them faster.
            return list((actions + space.start).astype(space.dtype))
        if isinstance(self.space, Box):
            inside = np.clip(actions, self.space.low, self.space.high)
            return list(inside.astype(space.dtype).reshape(-1, *space.shape))
        chosen = actions.reshape(-1, *space.shape) + getattr(space, "start", 0)
        return list(chosen.astype(space.dtype))


def make_copy(id: str, options: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    """One copy, without Gymnasium's time limit and checker; an error explains what is wrong with the id."""
    gym = import_gymnasium()
    if id.startswith("ALE/"):
        register_atari(gym)
    if ":" in id:
        id = registered_by_module(id)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            # Without Gymnasium's own limit: `step` counts for all copies.
            copy: gymnasium.Env[Any, Any] = gym.make(id, disable_env_checker=True, max_episode_steps=-1, **options)
    except (gym.error.DependencyNotInstalled, ModuleNotFoundError) as error:
        if isinstance(error, ModuleNotFoundError) and id not in gym.registry:
            raise unknown(id, gym, error) from error
        raise missing(id, gym, error) from error
    except (gym.error.UnregisteredEnv, gym.error.DeprecatedEnv, ImportError) as error:
        raise unknown(id, gym, error) from error
    except gym.error.Error as error:
        raise ConfigError(f"cannot create {id}: {error}", field="task.environment") from error
    return copy


def registered_by_module(id: str) -> str:
    """Import the file or module before the colon, which registers the environment, and return what comes after it."""
    place, _, name = id.rpartition(":")

    def refuse(fault: str) -> ConfigError:
        hint = "Write FILE.py:ID or MODULE:ID, where importing it calls gymnasium.register."
        return ConfigError(f"{id} names {place}, which {fault}", hint=hint, field="task.environment")

    # Importing a file again would register its environments again.
    if place not in IMPORTED:
        load_module(place, refuse)
        IMPORTED.add(place)
    return name


def import_gymnasium() -> Any:
    try:
        import gymnasium
    except ImportError as error:
        hint = 'Install it: pip install "groupwise[control]"'
        raise MissingExtra("this environment needs gymnasium, which is not installed", hint=hint) from error
    return gymnasium


def register_atari(gym: Any) -> None:
    try:
        import ale_py
    except ImportError as error:
        hint = 'Install it: pip install "groupwise[atari]"'
        raise MissingExtra("Atari games need ale-py, which is not installed", hint=hint) from error
    gym.register_envs(ale_py)


def step_limit(copy: Any) -> int:
    """The registered step limit: `make_copy` removed the wrapper, not the number."""
    limit: int | None = import_gymnasium().spec(copy.spec.id).max_episode_steps
    if limit is None:
        message = f"{copy.spec.id} has no step limit, so an attempt might never end"
        hint = "Set one, for example task.max_episode_steps = 1000."
        raise ConfigError(message, hint=hint, field="task.max_episode_steps")
    return limit


def unknown(id: str, gym: Any, error: Exception) -> ConfigError:
    """Why there is no such environment, and which one was probably meant."""
    name, _, version = id.rpartition("-v")
    # The same name in another version is the likeliest mistake.
    versions = [known for known in gym.registry if name and known.rpartition("-v")[0] == name]
    newest = max(versions, key=_version, default=id)
    if newest != id and _version(newest) > _version(id):
        message, meant = f"{id} no longer exists", newest
    elif newest != id:
        message, meant = f"{id} does not exist: {name} has no version {version}", newest
    elif isinstance(error, ImportError):
        message, meant = f"cannot create {id}: {error}", ""
    else:
        message, meant = f"there is no environment {id}", nearest(id, [*gym.registry, *SUITES])
    hint = f"Did you mean {meant!r}?" if meant else "gymnasium.pprint_registry() lists Gymnasium's ids."
    return ConfigError(message, hint=hint, field="task.environment")


def nearest(name: str, known: Iterable[str]) -> str:
    """The closest known name, ignoring version and case; "" if none is close."""
    folded = {_bare(candidate): candidate for candidate in known}
    found = difflib.get_close_matches(_bare(name), folded, 1, 0.65)
    return folded[found[0]] if found else ""


def missing(id: str, gym: Any, error: Exception) -> MissingExtra:
    module = str(gym.spec(id).entry_point)
    extra = next((extra for part, extra in EXTRAS.items() if part in module), None)
    hint = f'Install it: pip install "groupwise[{extra}]"' if extra else str(error)
    return MissingExtra(f"{id} needs a package that is not installed: {error}", hint=hint)


def _bare(id: str) -> str:
    name, mark, version = id.rpartition("-v")
    return (name if mark and version.isdigit() else id).casefold()


def _version(id: str) -> int:
    tail = id.rpartition("-v")[2]
    return int(tail) if tail.isdigit() else -1


def mask_method(env: Any) -> str:
    """The method by which an environment tells allowed actions, "" if it has none.

    One that wants arguments means something else (Taxi's takes a state).
    """
    for name in ("action_masks", MASK):
        method = getattr(env, name, None)
        if callable(method) and not inspect.signature(method).parameters:
            return name
    return ""


OWN: Mapping[str, Callable[..., VectorEnvironment]] = {
    "CartPole-v1": CartPole,
    "Acrobot-v1": Acrobot,
    "MountainCar-v0": MountainCar,
    "MountainCarContinuous-v0": MountainCarContinuous,
    "Pendulum-v1": Pendulum,
}


def registered() -> list[str]:
    """The names that need no import of a module that they mention: ours, and the ids that Gymnasium has registered."""
    names = [*OWN, *SUITES]
    with suppress(MissingExtra):
        gym = import_gymnasium()
        with suppress(MissingExtra):
            register_atari(gym)
        names += gym.registry
    return names


def make(
    name: str, *, max_steps: int | None = None, gymnasium: bool = False, options: Mapping[str, Any] | None = None
) -> VectorEnvironment:
    """The environment of that name; `gymnasium` asks for Gymnasium's own in place of our faster equivalent.

    `options` go to the environment: `half_length` of our CartPole, `gravity` of Gymnasium's LunarLander.
    """
    given = dict(options or {}) | ({} if max_steps is None else {"max_steps": max_steps})
    try:
        if name in SUITES:
            return make_suite(name, **given)
        if name in OWN and not gymnasium:
            return OWN[name](**given)
        return GymnasiumEnvironment(name, **given)
    except TypeError as error:
        message = f"task.options = {dict(options or {})} does not fit {name}: {error}"
        raise ConfigError(message, field="task.options") from error


def make_environment(task: TaskSettings) -> VectorEnvironment:
    """The environment that `task` names: ours, a suite, or Gymnasium's, which `task.options.gymnasium` insists on."""
    options = dict(task.options)
    gymnasium = options.pop("gymnasium", False)
    if not isinstance(gymnasium, bool):
        raise ConfigError(f"task.options.gymnasium = {gymnasium!r} must be true or false", field="task.options")
    return make(task.environment, max_steps=task.max_episode_steps, gymnasium=gymnasium, options=options)
