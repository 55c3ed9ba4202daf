"""The contract of environments and policies with a rollout, checked as their arrays arrive.

The checks of every step look at attributes only. Whether numbers are finite is checked by the recording, where it
concerns one copy and not the environment.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from groupwise.errors import ContractError, GroupwiseError
from groupwise.types import ActionSpace, Array, Box, Discrete, MultiDiscrete, VectorEnvironment

Step: TypeAlias = tuple[Array, Array, Array, Array]

SIZES = ("observation_size", "action_count", "max_steps")


def check_sizes(env: VectorEnvironment) -> None:
    """Check that the three sizes of an environment are positive integers."""
    for name in SIZES:
        size = getattr(env, name, None)
        # bool is an int in Python.
        if not isinstance(size, (int, np.integer)) or isinstance(size, bool) or size < 1:
            raise broken(env, f"{name} must be a positive integer", size, f"Set `self.{name}`.")


def action_space_of(env: VectorEnvironment) -> ActionSpace:
    """The environment's action space; by default `Discrete(action_count)`."""
    space: ActionSpace = getattr(env, "action_space", None) or Discrete(env.action_count)
    if isinstance(space, Discrete):
        numbers = space.count
    else:
        numbers = sum(space.counts) if isinstance(space, MultiDiscrete) else len(space.low)
    if numbers != env.action_count:
        raise broken(env, f"action_count must be {numbers} for {space}", env.action_count, "Set `self.action_count`.")
    return space


def action_mask_of(env: VectorEnvironment, count: int) -> Array | None:
    """Which actions [N, action_count] are allowed now; None if the environment forbids none."""
    ask = getattr(env, "action_mask", None)
    mask: Array | None = None if ask is None else ask()
    if mask is None:
        return None
    if not isinstance(mask, np.ndarray) or mask.shape != (count, env.action_count) or mask.dtype != np.bool_:
        rule = f"action_mask() must return a boolean array of shape ({count}, {env.action_count})"
        raise broken(env, rule, mask, "Return one row per copy, true where an action is allowed.")
    space = action_space_of(env)
    # Several choices at once: their masks lie side by side, and each needs an allowed action.
    parts = np.split(mask, np.cumsum(space.counts)[:-1], axis=1) if isinstance(space, MultiDiscrete) else [mask]
    if not all(part.any(axis=1).all() for part in parts):
        rule = "action_mask() must allow every copy some action"
        raise broken(env, rule, mask, "Allow all actions for a copy that has ended.")
    return mask


def completed(masks: Sequence[Array | None], *shape: int) -> list[Array] | None:
    """The masks, each of that shape, all true where one is None; None if no step has one."""
    if all(mask is None for mask in masks):
        return None
    return [np.ones(shape, np.bool_) if mask is None else mask for mask in masks]


def random_actions(env: VectorEnvironment, rng: np.random.Generator, count: int) -> Array:
    """Random allowed actions, uniform for each copy; normal in unbounded dimensions of a box."""
    space = action_space_of(env)
    if isinstance(space, Box):
        low, high = np.array(space.low), np.array(space.high)
        limited = np.isfinite(low) & np.isfinite(high)
        even = rng.uniform(np.where(limited, low, -1.0), np.where(limited, high, 1.0), (count, len(low)))
        return np.where(limited, even, rng.normal(size=even.shape)).astype(np.float32)
    mask = action_mask_of(env, count)
    # Allowed actions get 1 on top of a uniform in [0, 1), so that the largest is an allowed one, each equally likely.
    chances = rng.random((count, env.action_count)) + (0.0 if mask is None else mask)
    if isinstance(space, Discrete):
        choices: Array = np.argmax(chances, axis=1)
        return choices
    parts = np.split(chances, np.cumsum(space.counts)[:-1], axis=1)
    return np.stack([np.argmax(part, axis=1) for part in parts], axis=1)


def ask(env: VectorEnvironment, method: str, *arguments: Any) -> Any:
    """Call `env.method(...)`; an exception becomes a `ContractError` that names the environment."""
    try:
        return getattr(env, method)(*arguments)
    except GroupwiseError:
        raise
    except Exception as error:
        hint = "`groupwise doctor SETTINGS` checks the environment; --debug shows the traceback."
        raise ContractError(f"{name_of(env)}.{method} raised {type(error).__name__}: {error}", hint=hint) from error


def check_observations(env: VectorEnvironment, obs: Any, count: int) -> Array:
    if isinstance(obs, np.ndarray) and obs.shape == (count, env.observation_size) and obs.dtype.kind == "f":
        return obs
    rule = f"observations must be a float array of shape ({count}, {env.observation_size})"
    hint = "Return one row of `observation_size` numbers per copy, as np.float32."
    raise broken(env, rule, obs, hint)


def check_step(env: VectorEnvironment, answer: Any, count: int) -> Step:
    if not isinstance(answer, tuple) or len(answer) != 4:
        rule = "step must return (obs, rewards, terminated, truncated)"
        raise broken(env, rule, answer, "Leave out Gymnasium's fifth value, `info`.")
    obs, rewards, terminated, truncated = answer
    check_observations(env, obs, count)
    if not isinstance(rewards, np.ndarray) or rewards.shape != (count,) or rewards.dtype.kind not in "fiu":
        rule = f"rewards must be a numeric array of shape ({count},)"
        raise broken(env, rule, rewards, "Return one number per copy, as np.float64.")
    _check_flags(env, "terminated", terminated, count)
    _check_flags(env, "truncated", truncated, count)
    return obs, rewards, terminated, truncated


def _check_flags(env: VectorEnvironment, name: str, flags: Any, count: int) -> None:
    if not isinstance(flags, np.ndarray) or flags.shape != (count,) or flags.dtype != np.bool_:
        rule = f"{name} must be a boolean array of shape ({count},)"
        raise broken(env, rule, flags, "Return one np.bool_ per copy; `values.astype(bool)` makes them.")


def check_choice(actor: object, choice: Any, count: int, space: ActionSpace) -> tuple[Array, Array]:
    """What a policy returned: actions of the space, [N] or [N, ...], and their log-probabilities [N]."""
    actions, logp = choice
    shape, kind = (count, *space.shape), "f" if isinstance(space, Box) else "iu"
    if getattr(actions, "shape", None) != shape or actions.dtype.kind not in kind:
        rule = f"actions must be {'a float' if kind == 'f' else 'an integer'} array of shape {shape}"
        raise broken(actor, rule, actions, "Return one action per observation.")
    if getattr(logp, "shape", None) != (count,) or logp.dtype.kind != "f":
        rule = f"log-probabilities must be a float array of shape ({count},)"
        raise broken(actor, rule, logp, "Return the log-probability of each action taken.")
    return actions, logp


def broken(owner: object, rule: str, value: object, remedy: str) -> ContractError:
    """The error that names who broke which rule, the value, and the remedy."""
    return ContractError(f"{name_of(owner)}: {rule}, not {described(value)}", hint=remedy)


def name_of(owner: object) -> str:
    """Its `name`, or else the name of its class."""
    return str(getattr(owner, "name", "")) or type(owner).__name__


def described(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} of shape {value.shape}: {value.ravel()[:4].tolist()}"
    return f"{type(value).__name__}: {value!r:.80}"
