"""Copies of an environment that can start anew one by one, whatever the environment itself can do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from groupwise.errors import ContractError
from groupwise.rollout import contract
from groupwise.rollout.contract import action_mask_of, action_space_of, name_of
from groupwise.types import Array, End, RestartingEnvironment, Task, VectorEnvironment


def restarting(make: Callable[[], VectorEnvironment]) -> RestartingEnvironment:
    """The environment itself where it has `restart`; otherwise an object of its own for every copy."""
    environment = make()
    return environment if hasattr(environment, "restart") else SeparateEnvironments(make, environment)  # type: ignore[return-value]


class SeparateEnvironments:
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


MakeTask = Callable[[int, int], Task]


class Player(Protocol):
    """Samples actions and their log-probabilities [N] from uniforms, of those that the mask allows."""

    def act(self, obs: Array, uniforms: Array, mask: Array | None = None) -> tuple[Array, Array]: ...


@dataclass(frozen=True)
class Episode:
    """One that ended: its task, what it earned in how many steps, and how it ended."""

    task_id: str
    total: float
    length: int
    end: End


@dataclass(frozen=True)
class RolloutSegment:
    """T steps of N copies in tables [T, N]. `obs` has a row more: what each copy sees next.

    `allowed` [T, N, actions] is there where the environment forbids some. `cut_obs` [K, D] is what the episodes that a
    limit cut off would have seen next, in the order in which `truncated` (and not terminated) is true, step by step.
    """

    obs: Array
    actions: Array
    logp: Array
    rewards: Array
    terminated: Array
    truncated: Array
    allowed: Array | None
    cut_obs: Array
    episodes: tuple[Episode, ...]


class EnvironmentCopies:
    """N copies of an environment, played on from segment to segment, each started anew as soon as it ends.

    `make_task(number, copy)` is the task of the number-th episode, played by that copy.

    To resume, nothing is asked of the environment but what it promises anyway, that equal seeds and actions give equal
    runs: kept are the tasks under way and all actions since the oldest of them began, and they are played again.
    """

    def __init__(self, environment: RestartingEnvironment, count: int, make_task: MakeTask, seed: int) -> None:
        contract.check_sizes(environment)
        self.environment = environment
        self.space = contract.action_space_of(environment)
        self.count = count
        self.make_task = make_task
        self.episodes = 0
        self.rng = np.random.default_rng([seed, 1])
        self.under_way: list[Task] = []
        self.began = np.zeros(count, np.int64)
        self.totals = np.zeros(count)
        self.tape: list[Array] = []
        self.obs: Array = np.empty(0)

    def play(self, policy: Player, steps: int) -> RolloutSegment:
        """The next `steps` steps of every copy, by `policy` as it is now."""
        if not self.under_way:
            self.under_way = [self._next_task(copy) for copy in range(self.count)]
            self.obs = self._reset()
        self._forget_what_ended()
        seen, played, masks, cut, episodes = [self.obs], [], [], [], []
        for _ in range(steps):
            mask = contract.action_mask_of(self.environment, self.count)
            masks += [] if mask is None else [mask]
            choice = policy.act(self.obs, self.rng.random((self.count, *self.space.shape)), mask)
            actions, logp = contract.check_choice(policy, choice, self.count, self.space)
            obs, rewards, terminated, truncated = self._step(actions)
            self.tape.append(actions)
            truncated = truncated & ~terminated
            ended = np.flatnonzero(terminated | truncated)
            if len(ended):
                cut.append(obs[truncated])
                episodes += [self._episode(copy, bool(terminated[copy])) for copy in ended]
                obs = self._start_next(ended)
            self.obs = obs
            seen.append(obs)
            played.append((actions, logp, rewards, terminated, truncated))
        actions, logp, rewards, terminated, truncated = (np.stack(column) for column in zip(*played, strict=True))
        allowed = np.stack(masks) if masks else None
        cut_obs = np.concatenate([*cut, self.obs[:0]])
        return RolloutSegment(
            np.stack(seen), actions, logp, rewards, terminated, truncated, allowed, cut_obs, tuple(episodes)
        )  # fmt: skip

    def _forget_what_ended(self) -> None:
        oldest = int(self.began.min())
        del self.tape[:oldest]
        self.began -= oldest

    def _reset(self) -> Array:
        obs = contract.ask(self.environment, "reset", [task.seed for task in self.under_way])
        return self._seen(obs)

    def _seen(self, obs: Array) -> Array:
        checked = contract.check_observations(self.environment, obs, self.count)
        self._insist_on_finite(checked, np.zeros(self.count))
        return checked.astype(np.float32, copy=False)

    def _step(self, actions: Array) -> tuple[Array, Array, Array, Array]:
        answer = contract.check_step(self.environment, contract.ask(self.environment, "step", actions), self.count)
        obs, rewards, terminated, truncated = answer
        self._insist_on_finite(obs, rewards)
        self.totals += rewards
        return obs.astype(np.float32, copy=False), rewards, terminated, truncated

    def _insist_on_finite(self, obs: Array, rewards: Array) -> None:
        """A copy whose numbers cannot be used would spoil the segments of all: groups leave it out, copies cannot."""
        sound = np.isfinite(obs).all(axis=1) & np.isfinite(rewards)
        if not sound.all():
            copy = int(np.argmin(sound))
            shown = ", ".join(f"{number:.3g}" for number in obs[copy][:6]) + ", …" * (obs.shape[1] > 6)
            raise ContractError(
                f"{contract.name_of(self.environment)} gave the observation [{shown}] and the "
                f"reward {rewards[copy]:g}; both must be finite",
                hint="Look for a division by 0 or an overflow in the environment.",
            )

    def _episode(self, copy: np.intp, terminated: bool) -> Episode:
        end = End.FINISHED if terminated else End.TRUNCATED
        length = len(self.tape) - int(self.began[copy])
        return Episode(self.under_way[copy].id, float(self.totals[copy]), length, end)

    def _start_next(self, copies: Array) -> Array:
        """A new task for each of these copies; the observations of all."""
        for copy in copies.tolist():
            self.under_way[copy] = self._next_task(copy)
        self.began[copies] = len(self.tape)
        return self._restart(copies)

    def _next_task(self, copy: int) -> Task:
        self.episodes += 1
        return self.make_task(self.episodes - 1, copy)

    def _restart(self, copies: Array) -> Array:
        self.totals[copies] = 0.0
        obs = contract.ask(self.environment, "restart", copies, [self.under_way[copy].seed for copy in copies])
        return self._seen(obs)

    def state_dict(self) -> dict[str, Any]:
        self._forget_what_ended()
        return {
            "rng": self.rng.bit_generator.state,
            "episodes": self.episodes,
            "under_way": [(task.id, task.payload, task.seed) for task in self.under_way],
            "began": self.began.tolist(),
            "tape": torch.from_numpy(np.stack(self.tape)) if self.tape else None,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if len(state["under_way"]) not in (0, self.count):
            raise ValueError(f"{len(state['under_way'])} copies were under way; rollout.num_envs is {self.count} now")
        self.rng.bit_generator.state = state["rng"]
        self.episodes = state["episodes"]
        self.under_way = [Task(*task) for task in state["under_way"]]
        self.began = np.array(state["began"], np.int64)
        self.tape = [] if state["tape"] is None else list(state["tape"].numpy())
        if self.under_way:
            self._play_again()

    def _play_again(self) -> None:
        self.totals = np.zeros(self.count)
        self.obs = self._reset()
        for clock in range(len(self.tape) + 1):
            starting = np.flatnonzero(self.began == clock)
            if clock and len(starting):
                self.obs = self._restart(starting)
            if clock < len(self.tape):
                self.obs = self._step(self.tape[clock])[0]
