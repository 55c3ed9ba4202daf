"""PPO, the baseline: fixed-length segments of many copies, a critic, and the one loop and learner of all products.

"Proximal Policy Optimization Algorithms" (arXiv 1707.06347), in the form that Stable-Baselines3 made the usual one:

    play T steps with N copies → V of every state → GAE(γ, λ) → K epochs of minibatches: clipped ratio, ½(V − R)², entropy

What lies after "GAE" is `training.learner`; here is what comes before it. Departures from Stable-Baselines3, on purpose:
- advantages are centred and scaled over the whole batch, not in every minibatch anew: a step's weight should not
  depend on whom the shuffle put beside it;
- actor and critic are clipped apart, so that a large value error cannot starve the policy's gradient;
- the value loss carries its ½, so `loss.value_coef = 1` is what Stable-Baselines3 calls `vf_coef = 0.5`;
- a copy that ends is started anew at once, and the state it ended in is kept for the value beyond a truncation: no row
  of the batch is a reset.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from groupwise.config import TrainingConfig
from groupwise.control.product import (
    ActorCritic, MakePolicy, greedy_evaluation, make_environment, make_policy, refuse_sequence_losses, reset_seeds,
)  # fmt: skip
from groupwise.core import gae, zscore
from groupwise.errors import ConfigError
from groupwise.rollout.contract import broken, check_choice, check_observations, check_sizes, check_step
from groupwise.rollout.copies import restarting
from groupwise.training.records import advantage_metrics
from groupwise.training.session import Parts
from groupwise.training.source import NumberedTasks
from groupwise.types import Array, Batch, End, GroupRecord, Policy, RestartingEnvironment, Task

IDLE_SETTINGS = ("num_generations", "tasks_per_step", "dynamic_sampling", "replay_groups", "baseline_type")


def build(cfg: TrainingConfig, policy_of: MakePolicy = make_policy) -> Parts:
    """Everything a PPO run needs, made from its settings."""
    check(cfg)
    environment = restarting(lambda: make_environment(cfg.task))
    policy = policy_of(cfg, environment)
    copies = Copies(environment, cfg.rollout.num_envs, reset_seeds(cfg.task.environment, cfg.run.seed), cfg.run.seed)
    evaluate = greedy_evaluation(cfg, make_environment(cfg.task))
    return Parts(policy, SegmentSource(cfg, copies, policy), evaluate, notes=notes(cfg))


def check(cfg: TrainingConfig) -> None:
    """Refuse settings that are not PPO's, before a run folder exists."""
    refuse_sequence_losses(cfg)
    if cfg.advantage.estimator != "gae":
        raise ConfigError(
            f"advantage.estimator = {cfg.advantage.estimator!r} compares attempts of a group, and PPO has none",
            hint='Set advantage.estimator = "gae", or task.product = "control" for groups.',
            field="advantage.estimator",
        )
    if cfg.policy.use_reference_model:
        raise ConfigError(
            "policy.use_reference_model = true: PPO stays near the policy that sampled, by its clip, not near a reference",
            hint="Leave it out; optim.kl_stop bounds a single update.",
            field="policy.use_reference_model",
        )
    make_environment(cfg.task)


def notes(cfg: TrainingConfig) -> tuple[str, ...]:
    """Settings that were changed but that PPO does not look at."""
    usual = TrainingConfig()
    changed = [name for name in IDLE_SETTINGS if getattr(cfg, name) != getattr(usual, name)]
    return tuple(f"{name} has no effect on a PPO run" for name in changed)


@dataclass(frozen=True)
class Episode:
    """One that ended: its task, what it earned in how many steps, and how it ended."""

    task_id: str
    total: float
    length: int
    end: End


@dataclass(frozen=True)
class Segment:
    """T steps of N copies in tables [T, N]. `obs` has a row more: what each copy sees next.

    `cut_obs` [K, D] is what the episodes cut off by a limit would have seen next, in the order in which
    `truncated & ~terminated` is true, step by step.
    """

    obs: Array
    actions: Array
    logp: Array
    rewards: Array
    terminated: Array
    truncated: Array
    cut_obs: Array
    episodes: tuple[Episode, ...]


class Copies:
    """N copies of an environment, played on from segment to segment, each started anew as soon as it ends.

    To resume, nothing is asked of the environment but what it promises anyway, that equal seeds and actions give equal
    runs: kept are the tasks under way and all actions since the oldest of them began, and they are played again.
    """

    def __init__(self, environment: RestartingEnvironment, count: int, tasks: NumberedTasks, seed: int) -> None:
        check_sizes(environment)
        self.environment = environment
        self.count = count
        self.tasks = tasks
        self.rng = np.random.default_rng([seed, 1])
        self.under_way: list[Task] = []
        self.began = np.zeros(count, np.int64)
        self.totals = np.zeros(count)
        self.tape: list[Array] = []
        self.obs: Array = np.empty(0)

    def play(self, policy: Any, steps: int) -> Segment:
        """The next `steps` steps of every copy, by `policy` as it is now."""
        if not self.under_way:
            self.under_way = self.tasks.take(self.count)
            self.obs = self._reset()
        self._forget_what_ended()
        seen, played, cut, episodes = [self.obs], [], [], []
        for _ in range(steps):
            choice = policy.act(self.obs, self.rng.random(self.count))
            actions, logp = check_choice(policy, choice, self.count)
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
        tables = (np.stack(column) for column in zip(*played, strict=True))
        return Segment(np.stack(seen), *tables, np.concatenate([*cut, self.obs[:0]]), tuple(episodes))

    def _forget_what_ended(self) -> None:
        oldest = int(self.began.min())
        del self.tape[:oldest]
        self.began -= oldest

    def _reset(self) -> Array:
        obs = self.environment.reset([task.seed for task in self.under_way])
        return check_observations(self.environment, obs, self.count)

    def _step(self, actions: Array) -> tuple[Array, Array, Array, Array]:
        answer = check_step(self.environment, self.environment.step(actions), self.count)
        obs, rewards, *_ = answer
        sound = np.isfinite(obs).all(axis=1) & np.isfinite(rewards)
        if not sound.all():
            copy = int(np.argmin(sound))
            raise broken(
                self.environment, "observations and rewards must be finite", [*obs[copy].tolist(), rewards[copy]],
                "Look for a division by 0 or an overflow in the environment.",
            )  # fmt: skip
        self.totals += rewards
        return answer

    def _episode(self, copy: int, terminated: bool) -> Episode:
        end = End.FINISHED if terminated else End.TRUNCATED
        length = len(self.tape) - int(self.began[copy])
        return Episode(self.under_way[copy].id, float(self.totals[copy]), length, end)

    def _start_next(self, copies: Array) -> Array:
        """A new task for each of these copies; the observations of all."""
        for copy, task in zip(copies, self.tasks.take(len(copies)), strict=True):
            self.under_way[copy] = task
        self.began[copies] = len(self.tape)
        return self._restart(copies)

    def _restart(self, copies: Array) -> Array:
        self.totals[copies] = 0.0
        obs = self.environment.restart(copies, [self.under_way[copy].seed for copy in copies])
        return check_observations(self.environment, obs, self.count)

    def state_dict(self) -> dict[str, Any]:
        self._forget_what_ended()
        return {
            "rng": self.rng.bit_generator.state,
            "tasks": self.tasks.state_dict(),
            "under_way": [(task.id, task.payload, task.seed) for task in self.under_way],
            "began": self.began.tolist(),
            "tape": torch.from_numpy(np.stack(self.tape)) if self.tape else None,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if len(state["under_way"]) not in (0, self.count):
            raise ValueError(f"{len(state['under_way'])} copies were under way; rollout.num_envs is {self.count} now")
        self.rng.bit_generator.state = state["rng"]
        self.tasks.load_state_dict(state["tasks"])
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


class SegmentSource:
    """Segments → values → advantages → one row per step: a `Source`."""

    def __init__(self, cfg: TrainingConfig, copies: Copies, policy: ActorCritic) -> None:
        self.cfg = cfg
        self.copies = copies
        self.policy = policy
        self.rounds = 0

    def next(self) -> Batch:
        self.rounds += 1
        clock = time.perf_counter()
        segment = self.copies.play(self.policy, self.cfg.rollout.num_steps)
        played = time.perf_counter()
        values, next_values = self._values(segment)
        raw = gae(
            by_copy(self._clipped(segment.rewards)), values, next_values,
            terminated=by_copy(segment.terminated), truncated=by_copy(segment.truncated),
            mask=torch.ones(values.shape, dtype=torch.bool),
            gamma=self.cfg.advantage.gamma, lam=self.cfg.advantage.gae_lambda,
        )  # fmt: skip
        advantages = raw.advantages.flatten()
        if self.cfg.advantage.advantage_normalization:
            advantages = zscore(advantages)
        rows = {
            "behavior_logp": by_copy(segment.logp),
            "advantages": advantages,
            "returns": raw.returns,
            "values": values,
        }
        obs = by_copy(segment.obs[:-1]).flatten(0, 1)
        return Batch(
            inputs={"obs": obs[:, None], "actions": by_copy(segment.actions).flatten(0, 1)[:, None]},
            mask=torch.ones(values.numel(), 1, dtype=torch.bool),
            denominator=float(values.numel()),
            metrics={**episode_metrics(segment.episodes), **advantage_metrics(raw.advantages)},
            timing={"rollout": played - clock, "advantage": time.perf_counter() - played},
            samples=values.numel(),
            attempts=len(segment.episodes),
            records=self._records(segment),
            **{name: table.reshape(-1, 1).float() for name, table in rows.items()},
        )

    def _values(self, segment: Segment) -> tuple[Tensor, Tensor]:
        """V of every state [N, T], and of the state each step led to: where a limit cut it, the one cut off."""
        with torch.no_grad():
            values = self.policy.value(torch.from_numpy(segment.obs).float()).double()
            beyond = self.policy.value(torch.from_numpy(segment.cut_obs).float()).double()
        following = values[1:].clone()
        following[torch.from_numpy(segment.truncated)] = beyond
        return values[:-1].T, following.T

    def _clipped(self, rewards: Array) -> Array:
        limit = self.cfg.advantage.reward_clip
        return rewards if limit is None else rewards.clip(-limit, limit)

    def _records(self, segment: Segment) -> tuple[GroupRecord, ...]:
        return tuple(
            GroupRecord(
                group_id=f"{self.rounds}", task_id=episode.task_id, trajectory_id=f"{self.rounds}/e{number}",
                total=episode.total, parts={}, flags=(), advantage=0.0, length=episode.length, end=str(episode.end),
                failure="", version=self.policy.version,
            )
            for number, episode in enumerate(segment.episodes)
        )  # fmt: skip

    def publish(self, policy: Policy) -> None:
        """The copies are played by the learner's own policy: nothing has to travel."""

    def state_dict(self) -> dict[str, Any]:
        return {"copies": self.copies.state_dict(), "rounds": self.rounds}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.copies.load_state_dict(state["copies"])
        self.rounds = state["rounds"]

    def close(self) -> None:
        """There is nothing to give back."""


def by_copy(table: Array) -> Tensor:
    """[T, N, ...] → [N, T, ...]."""
    return torch.from_numpy(table.swapaxes(0, 1).copy())


def episode_metrics(episodes: Sequence[Episode]) -> dict[str, float | None]:
    """What the episodes that ended in a segment earned; None where none did."""
    if not episodes:
        return {"reward/mean": None, "attempt/length_mean": None}
    totals, lengths = np.array([e.total for e in episodes]), np.array([e.length for e in episodes])
    return {
        "reward/mean": float(totals.mean()),
        "reward/std": float(totals.std()),
        "reward/min": float(totals.min()),
        "reward/max": float(totals.max()),
        "attempt/length_mean": float(lengths.mean()),
        "attempt/length_max": float(lengths.max()),
        "attempt/truncated_share": sum(e.end is End.TRUNCATED for e in episodes) / len(episodes),
    }
