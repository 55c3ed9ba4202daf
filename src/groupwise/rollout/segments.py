"""Segments of fixed length, for PPO, from copies of an environment that restart one by one as they end."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from groupwise.errors import ContractError
from groupwise.rollout import contract
from groupwise.types import Array, End, RestartingEnvironment, Task, VectorEnvironment


def restarting(make: Callable[[], VectorEnvironment]) -> RestartingEnvironment:
    """The environment itself if it has `restart`; otherwise a separate environment for every copy."""
    environment = make()
    return environment if hasattr(environment, "restart") else SeparateEnvironments(make, environment)  # type: ignore[return-value]


class SeparateEnvironments:
    """One environment per copy: slower than one for all, but it works for any that keeps the contract."""

    def __init__(self, make: Callable[[], VectorEnvironment], first: VectorEnvironment | None = None) -> None:
        first = first or make()
        self._make, self._members = make, [first]
        self.name, self.action_space = contract.name_of(first), contract.action_space_of(first)
        self.observation_size, self.action_count = first.observation_size, first.action_count
        self.max_steps = first.max_steps
        # What a product says of its environments beyond the contract.
        self.interface = getattr(first, "interface", None)

    @property
    def task_names(self) -> list[str]:
        """Which of its tasks each copy plays, where the environment says so."""
        names = [getattr(member, "task_names", []) for member in self._members[: len(self._obs)]]
        return [name for own in names for name in own]

    def reset(self, seeds: Sequence[int]) -> Array:
        self._members += [self._another() for _ in range(len(seeds) - len(self._members))]
        self._obs = np.concatenate([env.reset([seed]) for env, seed in zip(self._members, seeds, strict=False)])
        return self._obs.copy()

    def _another(self) -> VectorEnvironment:
        made = self._make()
        was = self.interface or (self.observation_size, self.action_space)
        now = getattr(made, "interface", None) or (made.observation_size, contract.action_space_of(made))
        if was != now:
            message = f"{self.name} changes its spaces: it had {was} and then {now}"
            hint = "A policy needs the same in every copy and episode: pad what varies, and mask actions."
            raise ContractError(message, hint=hint, field="task.environment")
        return made

    def restart(self, copies: Array, seeds: Sequence[int]) -> Array:
        for copy, seed in zip(copies, seeds, strict=True):
            self._obs[copy] = self._members[copy].reset([seed])[0]
        return self._obs.copy()

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array]:
        count = len(self._obs)
        answers = [env.step(actions[n : n + 1]) for n, env in enumerate(self._members[:count])]
        self._obs, rewards, terminated, truncated = map(np.concatenate, zip(*answers, strict=True))
        return self._obs.copy(), rewards, terminated, truncated

    def action_mask(self) -> Array | None:
        masks = [contract.action_mask_of(env, 1) for env in self._members[: len(self._obs)]]
        given = contract.completed(masks, 1, self.action_count)
        return None if given is None else np.concatenate(given)


MakeTask = Callable[[int, int], Task]


class Player(Protocol):
    """Samples actions that the mask allows, and their log-probabilities [N], from uniform random numbers."""

    def act(self, obs: Array, uniforms: Array, mask: Array | None = None) -> tuple[Array, Array]: ...


@dataclass(frozen=True)
class Episode:
    """An episode that ended: its task, its return, its length in steps, and how it ended."""

    task_id: str
    total: float
    length: int
    end: End


@dataclass(frozen=True)
class RolloutSegment:
    """T steps of N copies, as arrays [T, N]. `obs` [T + 1, N, D] has one more row: what each copy sees next.

    `allowed` [T, N, actions] is None unless the environment forbids actions. `cut_obs` [K, D] is what truncated
    episodes would have seen next, in the order in which `truncated` is true, step by step: their values are
    bootstrapped from it.
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
    """N copies of an environment that play on from segment to segment, each restarted as soon as it ends.

    `make_task(number, copy)` is the task of the number-th episode, played by that copy.

    Environments cannot be saved, but equal seeds and actions give equal episodes. So the state consists of the tasks
    under way and all actions since the oldest of them began, and resuming replays them.
    """

    def __init__(self, environment: RestartingEnvironment, count: int, make_task: MakeTask, seed: int) -> None:
        contract.check_sizes(environment)
        self.environment, self.space = environment, contract.action_space_of(environment)
        self.count, self.make_task = count, make_task
        self.episodes = 0
        self.rng = np.random.default_rng([seed, 1])
        self.under_way: list[Task] = []
        self.began = np.zeros(count, np.int64)  # index in `tape` of each copy's first action
        self.totals = np.zeros(count)
        self.tape: list[Array] = []
        self.obs: Array = np.empty(0)

    def play(self, policy: Player, steps: int) -> RolloutSegment:
        """Play the next `steps` steps of every copy with the policy."""
        if not self.under_way:
            self.under_way = [self._next_task(copy) for copy in range(self.count)]
            self.obs = self._reset()
        self._forget_finished()
        seen, played, masks, cut, episodes = [self.obs], [], [], [], []
        for _ in range(steps):
            mask = contract.action_mask_of(self.environment, self.count)
            masks.append(mask)
            choice = policy.act(self.obs, self.rng.random((self.count, *self.space.shape)), mask)
            actions, logp = contract.check_choice(policy, choice, self.count, self.space)
            obs, rewards, terminated, truncated = self._step(actions)
            self.tape.append(actions)
            # An episode that terminates at its limit has terminated: there is nothing to bootstrap.
            truncated = truncated & ~terminated
            ended = np.flatnonzero(terminated | truncated)
            if len(ended):
                # Before the restart below replaces these rows with those of the next episodes.
                cut.append(obs[truncated])
                episodes += [self._episode(copy, bool(terminated[copy])) for copy in ended]
                obs = self._start_next(ended)
            self.obs = obs
            seen.append(obs)
            played.append((actions, logp, rewards, terminated, truncated))
        actions, logp, rewards, terminated, truncated = (np.stack(column) for column in zip(*played, strict=True))
        given = contract.completed(masks, self.count, self.environment.action_count)
        obs, allowed = np.stack(seen), None if given is None else np.stack(given)
        # The empty slice gives the shape [0, D] when no episode was cut off.
        cut_obs = np.concatenate([*cut, self.obs[:0]])
        return RolloutSegment(obs, actions, logp, rewards, terminated, truncated, allowed, cut_obs, tuple(episodes))

    def _forget_finished(self) -> None:
        oldest = int(self.began.min())  # actions before it belong to episodes that have ended
        del self.tape[:oldest]
        self.began -= oldest

    def _reset(self) -> Array:
        return self._seen(contract.ask(self.environment, "reset", [task.seed for task in self.under_way]))

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
        """Raise: unlike a group, a segment cannot leave one copy out."""
        sound = np.isfinite(obs).all(axis=1) & np.isfinite(rewards)
        if not sound.all():
            copy = int(np.argmin(sound))
            shown = ", ".join(f"{number:.3g}" for number in obs[copy][:6]) + ", …" * (obs.shape[1] > 6)
            returned = f"the observation [{shown}] and the reward {rewards[copy]:g}; both must be finite"
            hint = "Look for a division by 0 or an overflow in the environment."
            raise ContractError(f"{contract.name_of(self.environment)} returned {returned}", hint=hint)

    def _episode(self, copy: np.intp, terminated: bool) -> Episode:
        end = End.FINISHED if terminated else End.TRUNCATED
        length = len(self.tape) - int(self.began[copy])
        return Episode(self.under_way[copy].id, float(self.totals[copy]), length, end)

    def _start_next(self, copies: Array) -> Array:
        """Start a new task in each of these copies; the observations of all copies."""
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
        self._forget_finished()
        return {
            "rng": self.rng.bit_generator.state,
            "episodes": self.episodes,
            "under_way": [(task.id, task.payload, task.seed) for task in self.under_way],
            "began": self.began.tolist(),
            "tape": torch.from_numpy(np.stack(self.tape)) if self.tape else None,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if len(state["under_way"]) not in (0, self.count):
            raise ValueError(f"{len(state['under_way'])} copies were saved, but rollout.num_envs is now {self.count}")
        self.rng.bit_generator.state = state["rng"]
        self.episodes = state["episodes"]
        self.under_way = [Task(*task) for task in state["under_way"]]
        self.began = np.array(state["began"], np.int64)
        self.tape = [] if state["tape"] is None else list(state["tape"].numpy())
        if self.under_way:
            self._replay()

    def _replay(self) -> None:
        self.totals = np.zeros(self.count)
        self.obs = self._reset()
        # Time runs over the tape: restart the copies whose episode began at this point, then repeat the action.
        # An episode that began at 0 was started by the reset.
        for clock in range(len(self.tape) + 1):
            starting = np.flatnonzero(self.began == clock)
            if clock and len(starting):
                self.obs = self._restart(starting)
            if clock < len(self.tape):
                self.obs = self._step(self.tape[clock])[0]
