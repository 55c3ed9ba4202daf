"""Tells the author of a vector environment which rules of the contract it breaks."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from groupwise.errors import ContractError
from groupwise.rollout.contract import check_observations, check_sizes, check_step, random_actions
from groupwise.types import Array, Failure, VectorEnvironment

Rule: TypeAlias = "Callable[[_Run, _Run], str | None]"

# Two copies that must start the same, and one that need not.
SEEDS = (1, 1, 2)
# Longer environments are not played to their end.
MOST_STEPS = 2000
NAMES = ("obs", "rewards", "terminated", "truncated")


def check_environment(env: VectorEnvironment) -> list[Failure]:
    """Play a few copies twice and report what breaks the contract of `VectorEnvironment`.

    An empty list means that it passed. A wrong shape or an exception ends the check and is the only finding.
    """
    try:
        check_sizes(env)
        check_observations(env, env.reset([SEEDS[0]]), 1)
        first, second = _play(env), _play(env)
    except ContractError as error:
        return [Failure("environment", "contract", error.message, error.hint)]
    except Exception as error:
        message = f"{type(env).__name__} raised {type(error).__name__}: {error}"
        return [Failure("environment", "raised", message, "Call reset and step yourself to see the traceback.")]
    found = [(code, rule(first, second), remedy) for code, (rule, remedy) in RULES.items()]
    return [Failure("environment", code, message, remedy) for code, message, remedy in found if message is not None]


@dataclass(frozen=True, slots=True)
class _Run:
    """What three copies returned for random actions; `obs` [T + 1, N, D] starts with those of `reset`."""

    obs: Array
    rewards: Array
    terminated: Array
    truncated: Array
    reused: tuple[str, ...]
    max_steps: int

    def over(self) -> Array:
        """Which copies had ended before each step [T, N]."""
        # Once true, true for the rest of the run.
        ended = np.logical_or.accumulate(self.terminated | self.truncated)
        return np.concatenate([np.zeros_like(ended[:1]), ended[:-1]])


def _play(env: VectorEnvironment) -> _Run:
    rng = np.random.default_rng(0)
    start = check_observations(env, env.reset(SEEDS), len(SEEDS))
    # `given` are the arrays as returned, `kept` copies of them: if they differ later, the arrays were reused.
    given = [(start, np.zeros(len(SEEDS)), np.zeros(len(SEEDS), np.bool_), np.zeros(len(SEEDS), np.bool_))]
    kept = [tuple(array.copy() for array in given[0])]
    # Two steps more than the limit, to see what copies do after they have ended.
    for _ in range(min(env.max_steps + 2, MOST_STEPS)):
        actions = random_actions(env, rng, len(SEEDS))
        given.append(check_step(env, env.step(actions), len(SEEDS)))
        kept.append(tuple(array.copy() for array in given[-1]))
    tables = [np.stack(arrays) for arrays in zip(*kept, strict=True)]
    later = [np.stack(arrays) for arrays in zip(*given, strict=True)]
    reused = tuple(n for n, a, b in zip(NAMES, tables, later, strict=True) if not _same(a, b))
    obs, rewards, terminated, truncated = tables
    return _Run(obs, rewards[1:], terminated[1:], truncated[1:], reused, env.max_steps)


def _new_arrays(run: _Run, _: _Run) -> str | None:
    reused = ", ".join(run.reused)
    return f"A later call changed arrays that an earlier one returned: {reused}." if reused else None


def _finite(run: _Run, _: _Run) -> str | None:
    for name, values in (("observation", run.obs), ("reward", run.rewards)):
        if not np.isfinite(values).all():
            step, copy = np.argwhere(~np.isfinite(values))[0, :2]
            return f"Copy {copy} has {name} {values[step, copy]} at step {step}."
    return None


def _equal_seeds(run: _Run, _: _Run) -> str | None:
    one, other = run.obs[0, :2]
    if _same(one, other):
        return None
    return f"Two copies reset with seed {SEEDS[0]} start differently: {one.tolist()} and {other.tolist()}."


def _reproducible(run: _Run, again: _Run) -> str | None:
    for name in NAMES:
        if not _same(getattr(run, name), getattr(again, name)):
            return f"The same seeds and actions gave a different `{name}` the second time."
    return None


def _stays_put(run: _Run, _: _Run) -> str | None:
    # [T, N]: whether the observation differs from the one before.
    moved = (run.obs[1:] != run.obs[:-1]).any(axis=2) & run.over()
    if not moved.any():
        return None
    step, copy = np.argwhere(moved)[0]
    seen = f"from {run.obs[step, copy].tolist()} to {run.obs[step + 1, copy].tolist()}"
    return f"Copy {copy} had ended, but moved at step {step} {seen}."


def _earns_nothing_more(run: _Run, _: _Run) -> str | None:
    paid = (run.rewards != 0) & run.over()
    if not paid.any():
        return None
    step, copy = np.argwhere(paid)[0]
    return f"Copy {copy} had ended, but earned {run.rewards[step, copy]} at step {step}."


def _ends(run: _Run, _: _Run) -> str | None:
    limit = run.max_steps
    ended = (run.terminated | run.truncated)[:limit].any(axis=0)
    if ended.all() or len(run.rewards) < limit:
        return None
    return f"Copy {np.argmin(ended)} was neither terminated nor truncated after max_steps = {limit}."


RULES: dict[str, tuple[Rule, str]] = {
    "new_arrays": (_new_arrays, "Return new arrays from every call, or copies of internal buffers."),
    "not_finite": (_finite, "Keep every number finite."),
    "equal_seeds": (
        _equal_seeds, "A group must start in the same state: derive each copy's start from its own seed alone.",
    ),
    "reproducible": (
        _reproducible, "Derive all randomness from the seeds given to `reset`, and reset everything there.",
    ),
    "stays_put": (_stays_put, "A copy that has ended must stay where it is until the next reset: no autoreset."),
    "earns_nothing_more": (_earns_nothing_more, "Return reward 0 for a copy that has ended."),
    "ends": (_ends, "Set `truncated` when `max_steps` is reached; a rollout ends the episode there in any case."),
}  # fmt: skip
"""Each rule, which says how it was broken, and the remedy."""


def _same(one: Array, other: Array) -> bool:
    return np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
