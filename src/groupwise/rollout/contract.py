"""What an environment and an actor promise a rollout, checked where their arrays arrive.

The checks of every step read attributes only; whether numbers are finite is the recording's business, because
there it is a matter of one copy and not of the environment.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from groupwise.errors import ContractError
from groupwise.types import Array, VectorEnvironment

Step: TypeAlias = tuple[Array, Array, Array, Array]

SIZES = ("observation_size", "action_count", "max_steps")


def check_sizes(env: VectorEnvironment) -> None:
    """The three numbers that describe an environment are whole and positive."""
    for name in SIZES:
        size = getattr(env, name, None)
        if not isinstance(size, (int, np.integer)) or isinstance(size, bool) or size < 1:
            raise broken(env, f"{name} must be a positive whole number", size, f"Set `self.{name}`.")


def check_observations(env: VectorEnvironment, obs: Any, count: int) -> Array:
    if isinstance(obs, np.ndarray) and obs.shape == (count, env.observation_size) and obs.dtype.kind == "f":
        return obs
    rule = f"observations must be a float array of shape ({count}, {env.observation_size})"
    raise broken(
        env, rule, obs, "Return one row per copy, as np.float32, in line with `observation_size`."
    )  # fmt: skip


def check_step(env: VectorEnvironment, answer: Any, count: int) -> Step:
    if not isinstance(answer, tuple) or len(answer) != 4:
        raise broken(
            env, "step must return (obs, rewards, terminated, truncated)", answer,
            "Gymnasium's fifth value, `info`, has no place here.",
        )  # fmt: skip
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


def check_choice(actor: object, choice: Any, count: int) -> tuple[Array, Array]:
    """An actor's answer: whole-numbered actions [N] and their log-probabilities [N]."""
    actions, logp = choice
    if getattr(actions, "shape", None) != (count,) or actions.dtype.kind not in "iu":
        rule = f"actions must be an integer array of shape ({count},)"
        raise broken(actor, rule, actions, "Return one action per observation.")
    if getattr(logp, "shape", None) != (count,) or logp.dtype.kind != "f":
        rule = f"log-probabilities must be a float array of shape ({count},)"
        raise broken(actor, rule, logp, "Return the log-probability of each action taken.")
    return actions, logp


def broken(owner: object, rule: str, value: object, remedy: str) -> ContractError:
    """The error that names whose promise it was, the rule, the value and the remedy."""
    return ContractError(f"{type(owner).__name__}: {rule}, not {described(value)}", hint=remedy)


def described(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} of shape {value.shape}: {value.ravel()[:4].tolist()}"
    return f"{type(value).__name__}: {value!r:.80}"
