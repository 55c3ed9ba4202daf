"""PPO, the baseline: fixed-length segments of many copies, a critic, and the training loop of all products.

"Proximal Policy Optimization Algorithms" (arXiv 1707.06347), in the form that Stable-Baselines3 made standard:

    play T steps with N copies → V of every state → GAE(γ, λ) → K epochs of minibatches: clip, ½(V − R)², entropy

What follows GAE is in `training.learner`; what precedes it is here. Deliberate departures from Stable-Baselines3:
- advantages are centred and scaled once over the batch, not in each minibatch: a step's weight should not depend on
  which other steps it was shuffled with;
- the gradients of actor and critic are clipped separately, so that a large value error cannot starve the policy;
- the value loss carries its ½, so `loss.value_coef = 1` is what Stable-Baselines3 calls `vf_coef = 0.5`;
- `advantage.advantage_scale = "task_rms"` scales the advantages of each task of a suite by themselves, and with
  `advantage.estimator = "group_gae"` the critic predicts each task's returns in that task's own unit (PopArt);
- a copy that ends restarts at once, and its last state is kept for the value after a truncation: no row of the batch
  is a reset.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from groupwise.config import TrainingConfig
from groupwise.control import grpo as product
from groupwise.control.checks import check_ppo as check
from groupwise.control.environments import make_environment
from groupwise.control.multitask import MultiTask
from groupwise.control.normaliser import Normaliser
from groupwise.control.policy import MLPPolicy, Network
from groupwise.control.spaces import interface_of
from groupwise.core import Gae, zscore
from groupwise.errors import ConfigError
from groupwise.rollout.segments import EnvironmentCopies, Episode, MakeTask, RolloutSegment, restarting
from groupwise.training.estimators import ValueScales, gae_of, task_numbers
from groupwise.training.session import Parts
from groupwise.training.step_groups import advantage_metrics
from groupwise.types import Array, Batch, Box, End, GroupRecord, Policy

# Settings of common sections that PPO does not use.
IDLE_SETTINGS = ("num_generations", "tasks_per_step", "dynamic_sampling", "replay_groups", "baseline_type")


def build(cfg: TrainingConfig, network: Network | None = None) -> Parts:
    """Everything a PPO run needs, made from its settings; `network` as in `product.build`."""
    check(cfg)
    made = make_environment(cfg.task)
    if isinstance(made, MultiTask) and cfg.rollout.num_envs < len(made.kinds):
        message = f"rollout.num_envs = {cfg.rollout.num_envs} copies cannot play {len(made.kinds)} tasks at once"
        hint = f"Each copy keeps to one task: set rollout.num_envs to {len(made.kinds)} or more."
        raise ConfigError(message, hint=hint, field="rollout.num_envs")
    environment = restarting(lambda: make_environment(cfg.task))
    policy = product.make_policy(cfg, interface_of(environment), network)
    copies = EnvironmentCopies(environment, cfg.rollout.num_envs, make_starts(cfg), cfg.run.seed)
    unused = product.changed(cfg, (*IDLE_SETTINGS, *product.idle_sizes(cfg)))
    idle = tuple(f"{name} has no effect on a PPO run" for name in unused)
    return product.make_parts(cfg, policy, SegmentSource(cfg, copies, policy), idle)


def make_starts(cfg: TrainingConfig) -> MakeTask:
    """Ever new starts. In a suite each copy keeps to one task, so that every task gets the same number of steps."""
    name, seed, environment = cfg.task.environment, cfg.run.seed, make_environment(cfg.task)
    return lambda number, copy: product.start_of(environment, name, product.fresh_start(seed, number), copy)


class SegmentSource:
    """Segments → values → advantages → one row per step: a `Source`."""

    def __init__(self, cfg: TrainingConfig, copies: EnvironmentCopies, policy: MLPPolicy) -> None:
        self.cfg, self.copies, self.policy = cfg, copies, policy
        self.gae = gae_of(cfg.advantage)
        self.normaliser = Normaliser(policy, copies.environment.observation_size)
        self.scales = product.chosen(cfg.advantage.normalize_returns, isinstance(policy.action_space, Box))
        self.by_task = cfg.advantage.advantage_scale == "task_rms"
        self.in_units = cfg.advantage.estimator == "group_gae"
        self.task_units = ValueScales()
        self.rounds = 0

    def next(self) -> Batch:
        self.rounds += 1
        self.normaliser.freeze()
        clock = time.perf_counter()
        segment = self.copies.play(self.policy, self.cfg.rollout.num_steps)
        played = time.perf_counter()
        values, next_values = self._values(segment)
        # GAE per copy over the segment: δ_t = r_t + γ V(s_{t+1}) − V(s_t), A_t = Σ (γλ)^k δ_{t+k}.
        rewards = by_copy(self._rewards(segment))
        kinds, every = [task.kind for task in self.copies.under_way], torch.ones(values.shape, dtype=torch.bool)

        def estimate(now: Tensor, after: Tensor, lam: float) -> Gae:
            return self.gae(
                rewards, now, after,
                terminated=by_copy(segment.terminated), truncated=by_copy(segment.truncated),
                mask=every, gamma=self.cfg.advantage.gamma, lam=lam,
            )  # fmt: skip

        unit = torch.ones(len(kinds), 1, dtype=torch.float64)
        if self.in_units:
            # The critic predicts each task's returns in that task's own unit; a new task starts with what was paid.
            paid = estimate(values * 0, next_values * 0, 1.0).returns
            unit = self.task_units.before(kinds, paid, every)[:, None]
        raw = estimate(values * unit, next_values * unit, self.cfg.advantage.gae_lambda)
        self._see(segment, raw.returns)
        if self.in_units:
            unit = self.task_units.after(kinds, raw.returns, every)[:, None]
        advantages = self._normalised(raw.advantages, kinds).flatten()
        apart = self.cfg.optim.gradient_surgery != "none"
        inputs = {"obs": segment.obs[:-1], "actions": segment.actions, "action_mask": segment.allowed}
        return Batch(
            inputs={n: by_copy(table).flatten(0, 1)[:, None] for n, table in inputs.items() if table is not None},
            mask=torch.ones(values.numel(), 1, dtype=torch.bool),
            behavior_logp=column(by_copy(segment.logp)),
            advantages=column(advantages),
            denominator=float(values.numel()),
            returns=column(raw.returns / unit),
            values=column(values),
            tasks=task_numbers(kinds)[:, None].expand(values.shape).reshape(-1, 1) if apart else None,
            metrics={**episode_metrics(segment.episodes), **advantage_metrics(raw.advantages)},
            timing={"rollout": played - clock, "advantage": time.perf_counter() - played},
            samples=values.numel(),
            attempts=len(segment.episodes),
            records=self._records(segment),
        )

    def _values(self, segment: RolloutSegment) -> tuple[Tensor, Tensor]:
        """V of every state [N, T], and of the state each step led to; after a truncation, of the one cut off."""
        with torch.no_grad():
            values = self.policy.value(torch.from_numpy(segment.obs).float()).double()
            beyond = self.policy.value(torch.from_numpy(segment.cut_obs).float()).double()
        # Row t + 1 of `obs` is already the next episode's start where a copy ended; `beyond` is the state it left.
        following = values[1:].clone()
        following[torch.from_numpy(segment.truncated)] = beyond
        return values[:-1].T, following.T

    def _normalised(self, advantages: Tensor, kinds: Sequence[str]) -> Tensor:
        """Centred and scaled once over all N · T steps, see above; with `task_rms` over those of each task."""
        if not self.cfg.advantage.advantage_normalization:
            return advantages
        if not self.by_task:
            return zscore(advantages.flatten()).reshape(advantages.shape)
        scaled = torch.empty_like(advantages)
        for kind in set(kinds):
            rows = torch.tensor([own == kind for own in kinds])
            scaled[rows] = zscore(advantages[rows].flatten()).reshape(advantages[rows].shape)
        return scaled

    def _rewards(self, segment: RolloutSegment) -> Array:
        """Rewards, scaled by the spread of returns and clipped where the settings ask for it."""
        rewards = segment.rewards / self.normaliser.return_scale if self.scales else segment.rewards
        limit = self.cfg.advantage.reward_clip
        return rewards if limit is None else rewards.clip(-limit, limit)

    def _see(self, segment: RolloutSegment, returns: Tensor) -> None:
        """Add to the running statistics, which take effect with the next version of the policy."""
        if self.policy.normalise:
            self.normaliser.fresh["obs"].add(segment.obs[:-1].reshape(-1, segment.obs.shape[-1]))
        if self.scales:
            # GAE saw scaled rewards, so its returns are scaled back before they are counted.
            self.normaliser.fresh["returns"].add(returns.reshape(-1, 1).numpy() * self.normaliser.return_scale)

    def _records(self, segment: RolloutSegment) -> tuple[GroupRecord, ...]:
        return tuple(
            GroupRecord(
                group_id=f"{self.rounds}", task_id=episode.task_id, trajectory_id=f"{self.rounds}/e{number}",
                total=episode.total, parts={}, flags=(), advantage=0.0, length=episode.length, end=str(episode.end),
                failure="", version=self.policy.version,
            )
            for number, episode in enumerate(segment.episodes)
        )  # fmt: skip

    def publish(self, policy: Policy) -> None:
        """The learner's own policy plays the copies: there is nothing to send."""

    def state_dict(self) -> dict[str, Any]:
        copies, normaliser = self.copies.state_dict(), self.normaliser.state_dict()
        units = self.task_units.state_dict()
        return {"copies": copies, "normaliser": normaliser, "rounds": self.rounds, "task_units": units}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.copies.load_state_dict(state["copies"])
        self.normaliser.load_state_dict(state["normaliser"])
        self.rounds = state["rounds"]
        if "task_units" in state:
            self.task_units.load_state_dict(state["task_units"])

    def close(self) -> None:
        """There is nothing to release."""


def by_copy(table: Array) -> Tensor:
    """[T, N, ...] → [N, T, ...]."""
    return torch.from_numpy(table.swapaxes(0, 1).copy())


def column(table: Tensor) -> Tensor:
    """[N, T] → rows of one step each, [N · T, 1]."""
    return table.reshape(-1, 1).float()


def episode_metrics(episodes: Sequence[Episode]) -> dict[str, float | None]:
    """Rewards and lengths of the episodes that ended in a segment; None if none did."""
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
