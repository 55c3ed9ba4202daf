"""What a model earns: in an environment by name, in Gymnasium's environments and in their vector form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from groupwise.config import TaskSettings
from groupwise.control.environments import make_environment
from groupwise.control.gymnasium_environment import mask_method
from groupwise.control.gymnasium_ids import import_gymnasium
from groupwise.control.provided import is_vector_environment, name_of_environment
from groupwise.control.spaces import MASK
from groupwise.control.vector_form import VectorMasks
from groupwise.errors import ContractError
from groupwise.rollout.contract import name_of
from groupwise.rollout.episodes import evaluate_greedy
from groupwise.types import Array

EVALUATION_SEED = 2_000_000
# Far beyond any episode of a known environment: one that is longer has no limit.
LONGEST = 1_000_000


def evaluate_policy(
    model: Any, environment: Any, n_eval_episodes: int = 10, *, deterministic: bool = True, seed: int = EVALUATION_SEED
) -> tuple[float, float]:
    """Mean and standard deviation of the return over `n_eval_episodes` episodes with seeds from `seed` on.

    `model` is anything with `predict`. The environment is an id, a function that makes one, a Gymnasium environment or
    vector environment, wrapped or not, or a `VectorEnvironment`: the same episodes earn the same in each of them.
    """
    seeds = range(seed, seed + n_eval_episodes)
    if isinstance(environment, str) and not hasattr(model, "choose") and environment in import_gymnasium().registry:
        # A model of another library wants what Gymnasium gives it, not our rows.
        environment = import_gymnasium().make(environment)
    if isinstance(environment, str) or (callable(environment) and not hasattr(environment, "reset")):
        environment = make_environment(TaskSettings(environment=name_of_environment(environment)))
    if is_vector_environment(environment):
        _insist_on_fit(model, environment)
        returns = evaluate_greedy(environment, _Rows(model, deterministic), seeds)[0]
    elif isinstance(environment, import_gymnasium().vector.VectorEnv):
        returns = np.concatenate(list(_rounds(model, environment, seeds, deterministic)))
    else:
        returns = np.array([_episode(model, environment, start, deterministic) for start in seeds])
    return float(np.mean(returns)), float(np.std(returns))


def _insist_on_fit(model: Any, environment: Any) -> None:
    interface = getattr(model, "interface", None)
    if interface is not None and interface.observation_size != environment.observation_size:
        sizes = f"{interface.observation_size} numbers, but {name_of(environment)} shows {environment.observation_size}"
        tasks = ", ".join(map(repr, interface.members))
        hint = f"For one task of its suite: evaluate_policy(model.task(NAME), ...), of {tasks}." if tasks else ""
        raise ContractError(f"the policy sees {sizes}", hint=hint or "Pass the environment that it was trained on.")


class _Rows:
    """A model that is given rows of numbers instead of observations."""

    def __init__(self, model: Any, deterministic: bool) -> None:
        self.model, self.deterministic = model, deterministic

    def greedy(self, obs: Array, mask: Array | None = None) -> Array:
        if hasattr(self.model, "choose"):
            chosen: Array = self.model.choose(obs, self.deterministic, mask)
            return chosen
        # A model of another library sees the rows as they are.
        actions: Array = self.model.predict(obs, deterministic=self.deterministic)[0]
        return actions


def _episode(model: Any, environment: Any, seed: int, deterministic: bool) -> float:
    method = mask_method(environment.unwrapped)
    obs, info = environment.reset(seed=seed)
    total, mask = 0.0, None
    for _ in range(LONGEST):
        # An environment that says nothing allows what it last did.
        told = getattr(environment.unwrapped, method)() if method and MASK not in info else info.get(MASK)
        mask = mask if told is None else told
        action, _ = model.predict(obs, deterministic=deterministic, **_masked(mask))
        obs, reward, terminated, truncated, info = environment.step(action)
        total += float(reward)
        if terminated or truncated:
            return total
    raise _endless(environment)


def _rounds(model: Any, environment: Any, seeds: Sequence[int], deterministic: bool) -> Iterator[Array]:
    """The returns, as many episodes at a time as there are copies."""
    count, interface = environment.num_envs, getattr(model, "interface", None)
    disabled = environment.metadata.get("autoreset_mode") is import_gymnasium().vector.AutoresetMode.DISABLED
    for first in range(0, len(seeds), count):
        own = [*seeds[first : first + count]]
        # Copies without a seed of their own repeat the last one and are not counted.
        obs, info = environment.reset(seed=own + own[-1:] * (count - len(own)))
        masks = None if interface is None else VectorMasks(environment, interface)
        mask = _told(masks, obs, info)
        live, totals = np.ones(count, np.bool_), np.zeros(count)
        for _ in range(LONGEST):
            actions, _ = model.predict(obs, deterministic=deterministic, **_masked(mask))
            obs, rewards, terminated, truncated, info = environment.step(actions)
            mask = _told(masks, obs, info)
            totals += np.where(live, rewards, 0.0)
            over = terminated | truncated
            live &= ~over
            if not live[: len(own)].any():
                break
            if disabled and over.any():
                obs, info = environment.reset(options={"reset_mask": over})
                mask = _told(masks, obs, info)
        else:
            raise _endless(environment)
        yield totals[: len(own)]


def _told(masks: VectorMasks | None, obs: Any, info: Any) -> Any:
    # A model of another library is given the info's as they are.
    return info.get(MASK) if masks is None else masks.after(obs, info)


def _masked(mask: Any) -> dict[str, Any]:
    return {} if mask is None else {"action_mask": mask}


def _endless(environment: Any) -> ContractError:
    message = f"an episode of {environment} has not ended after {LONGEST:,} steps"
    return ContractError(message, hint="Wrap it in gymnasium.wrappers.TimeLimit(env, max_episode_steps=...).")
