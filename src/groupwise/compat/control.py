"""GRPO for control with the names of the seed documents: an object that learns from rollouts made elsewhere.

A thin layer: groups, weights and advantages come from `core` and `training`, the update from `training.learner`.
"""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from groupwise.config import TrainingConfig
from groupwise.config.rules import OUTCOME_STRATEGIES, needs_critic
from groupwise.control.grpo import critic_values, refuse_sequence_losses, rows_of_steps
from groupwise.control.policy import MLPPolicy
from groupwise.core.grouping.kmeans import Ints
from groupwise.core.grouping.strategies import HISTORY, Adaptive, Summaries, make_grouping, summarise
from groupwise.core.grouping.weighting import group_sizes, make_weighting
from groupwise.errors import ContractError
from groupwise.rewards.function import EnvironmentReward
from groupwise.training.batch_source import GroupSource, NumberedTasks
from groupwise.training.learner import Learner
from groupwise.types import End, Group, Task, Trajectory

DEFAULTS: Mapping[str, Any] = {
    "estimator": "group_gae", "advantage_scale": "task_rms", "learning_rate": 1e-3, "adam_epsilon": 1e-5,
    "lr_scheduler_type": "constant", "warmup_ratio": 0.0, "max_grad_norm": 0.5, "num_epochs": 8, "kl_stop": 0.03,
    "per_device_train_batch_size": 512, "gradient_accumulation_steps": 1, "value_clip": None,
}  # fmt: skip


class GRPO:
    """Learns from rollouts: grouped, scaled and weighted by group, with PPO's clipped loss.

    Args:
      group_strategy: "auto", "task", "difficulty", "length", "adaptive", "hierarchical" or "dirichlet".
      n_groups: the number of groups; None chooses it by silhouette.
      group_weight_method: "none", "balanced", "inv_sqrt_steps", "performance" or "adaptive".
      policy: the policy to train; None makes a small one that fits the first rollouts.
      ppo_kwargs: settings of `TrainingConfig` by their flat names: learning_rate, clip_ratio, gamma, …

    Groups formed from the outcome (all but "task") scale and weight the advantages; their mean is not subtracted, the
    critic is the baseline. `notice` and a warning say so.
    """

    def __init__(
        self,
        group_strategy: str = "auto",
        n_groups: int | None = 4,
        group_weight_method: str = "balanced",
        *,
        policy: MLPPolicy | None = None,
        **ppo_kwargs: Any,
    ) -> None:
        grouping = {"group_strategy": group_strategy, "group_weight_method": group_weight_method}
        self.cfg = TrainingConfig(**{**DEFAULTS, **ppo_kwargs, **grouping, "n_groups": n_groups})
        refuse_sequence_losses(self.cfg)
        self.policy = policy
        self.metrics: dict[str, float | None] = {}
        self.notice = outcome_notice(group_strategy)
        if self.notice:
            warnings.warn(self.notice, stacklevel=2)
        self._learning: tuple[GroupSource, Learner] | None = None
        self._given = _Given()

    def update(self, rollouts: Sequence[Any]) -> float:
        """Improve the policy on rollouts and return the policy loss; `metrics` has the rest.

        A rollout is a `Trajectory`, or any object with `obs` [T, D], `actions` [T] and `rewards` [T], and optionally
        `terminated`, `last_obs`, `behavior_logp`, `task_id` and `group_id`. Without log-probabilities it is assumed to
        come from the current policy.
        """
        source, learner = self._start(rollouts)
        assert self.policy is not None
        self._given.groups = in_groups([as_trajectory(rollout, n, self.policy) for n, rollout in enumerate(rollouts)])
        batch = source.next()
        self.metrics = {**batch.metrics, **learner.update(batch)}
        return float(self.metrics.get("loss/policy") or 0.0)

    def _start(self, rollouts: Sequence[Any]) -> tuple[GroupSource, Learner]:
        if not len(rollouts):
            raise ContractError("there are no rollouts to learn from", hint="Pass at least one episode.")
        if self.policy is None:
            self.policy = fitting_policy(rollouts, self.cfg)
        if self._learning is None:
            loss_type, policy = self.cfg.loss.loss_type, self.policy
            source = GroupSource(
                self.cfg,
                tasks=NumberedTasks(lambda number: Task(str(number))),
                rollout=self._given,
                reward=EnvironmentReward(),
                collate=lambda attempts: rows_of_steps(attempts, loss_type),
                values=critic_values(policy) if needs_critic(self.cfg.advantage.estimator) else None,
            )
            self._learning = source, Learner(policy, self.cfg)
        return self._learning


def outcome_notice(group_strategy: str) -> str:
    """What the user should know about groups formed from the outcome; "" for others."""
    if group_strategy not in OUTCOME_STRATEGIES:
        return ""
    return (
        f"group_strategy = {group_strategy!r} groups rollouts by outcome: the groups scale and weight advantages, "
        "but their mean is not subtracted, because that would reward the best of the worst"
    )


class _Given:
    """A `Rollout` that returns the groups it was given."""

    def __init__(self) -> None:
        self.groups: list[Group] = []

    def collect(self, tasks: Sequence[Task]) -> list[Group]:
        return self.groups

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """There is no state."""


class GroupingStrategy:
    """Rollouts by group: `group_trajectories` returns a dictionary from the group's number to its rollouts."""

    def __init__(self, strategy_type: str = "auto", n_groups: int | None = 4) -> None:
        self.strategy_type = strategy_type
        self.n_groups = n_groups
        self.grouping = make_grouping(strategy_type, n_groups)

    def group_trajectories(self, rollouts: Sequence[Any]) -> dict[int, list[Any]]:
        found: dict[int, list[Any]] = {}
        for number, rollout in zip(self.grouping(_summaries(rollouts)).tolist(), rollouts, strict=True):
            found.setdefault(number, []).append(rollout)
        return dict(sorted(found.items()))


class GroupAdvantageNormalizer:
    """Divides by the group's root mean square, without subtracting a mean: advantages have a baseline already."""

    def __init__(self) -> None:
        self.scales: dict[Any, float] = {}

    def normalize(self, advantages: Any, group_id: Any) -> Any:
        """The group's advantages, an array or tensor of any shape, scaled to a root mean square of 1; zeros stay 0."""
        rms = float((advantages**2).mean()) ** 0.5 if np.prod(advantages.shape) else 0.0
        if not np.isfinite(rms):
            message = f"the advantages of group {group_id!r} are not all finite"
            raise ContractError(message, hint="Look for NaN in rewards and values.")
        self.scales[group_id] = rms
        return advantages / rms if rms > 1e-12 else advantages * 0.0


class GroupWeightCalculator:
    """The weight of each group per step; over all steps the weights average 1."""

    def __init__(self, method: str = "balanced") -> None:
        self.method = method
        self.rule = make_weighting(method)

    def compute_weights(
        self, grouped_rollouts: Mapping[int, Sequence[Any]], group_advantages: Any = None
    ) -> dict[int, float]:
        """Weights by group. `group_advantages` is part of the seed's signature and unused."""
        pairs = [(group, _trajectory(r, 0)) for group, rollouts in grouped_rollouts.items() for r in rollouts]
        found = group_sizes(
            np.array([group for group, _ in pairs], np.int64),
            np.array([len(t) for _, t in pairs], np.float64),
            np.array([float(t.rewards.sum()) for _, t in pairs]),
        )
        return dict(zip(found.groups.tolist(), self.rule(found).tolist(), strict=True))


class AdaptiveGrouper:
    """Groups that follow the last `history_window` trajectories and keep their numbers."""

    def __init__(self, history_window: int = HISTORY, n_groups: int | None = 4) -> None:
        self.grouping = Adaptive(n_groups, history_window)

    @property
    def history(self) -> Any:
        """The features of the remembered trajectories, oldest first."""
        return self.grouping.history

    def update_groups(self, new_trajectories: Sequence[Any]) -> Ints:
        """Add these trajectories and return the group of each [N]."""
        return self.grouping(_summaries(new_trajectories))


def in_groups(trajectories: Sequence[Trajectory]) -> list[Group]:
    """Group attempts by task and group id, in order of appearance."""
    found: dict[tuple[str, str], list[Trajectory]] = {}
    for trajectory in trajectories:
        found.setdefault((trajectory.task_id, trajectory.group_id), []).append(trajectory)
    return [Group(group, Task(task), tuple(members)) for (task, group), members in found.items()]


def fitting_policy(rollouts: Sequence[Any], cfg: TrainingConfig) -> MLPPolicy:
    """A policy that fits the observations, with as many actions as were taken, at least two."""
    given = [_trajectory(rollout, number) for number, rollout in enumerate(rollouts)]
    if any(t.actions.dtype.kind not in "iu" or t.actions.ndim != 1 for t in given):
        message = "the actions are not whole numbers, so a policy cannot be inferred"
        raise ContractError(message, hint="Pass one: GRPO(policy=…).")
    actions = max((int(t.actions.max(initial=1)) for t in given), default=1) + 1
    return MLPPolicy(
        given[0].obs.shape[1], actions, hidden_sizes=cfg.policy.hidden_sizes,
        critic=needs_critic(cfg.advantage.estimator), seed=cfg.run.seed,
    )  # fmt: skip


def as_trajectory(rollout: Any, number: int, policy: MLPPolicy) -> Trajectory:
    """A rollout as a `Trajectory` with log-probabilities: its own, or the policy's."""
    found = _trajectory(rollout, number)
    if getattr(rollout, "behavior_logp", None) is not None:
        return found
    with torch.no_grad():
        inputs = {"obs": torch.from_numpy(found.obs).float(), "actions": torch.from_numpy(found.actions)}
        found.behavior_logp[:] = policy.evaluate(inputs).logp.numpy()
    return found


def _trajectory(rollout: Any, number: int) -> Trajectory:
    if isinstance(rollout, Trajectory):
        return rollout
    missing = [name for name in ("obs", "actions", "rewards") if getattr(rollout, name, None) is None]
    if missing:
        message = f"rollout {number}, a {type(rollout).__name__}, has no {' and no '.join(missing)}"
        raise ContractError(message, hint="A rollout has obs [T, D], actions [T] and rewards [T].")
    rewards = np.asarray(rollout.rewards, np.float64)
    obs = np.asarray(rollout.obs, np.float32).reshape(len(rewards), -1)
    actions = np.asarray(rollout.actions)
    if actions.shape[:1] != rewards.shape or not (np.isfinite(rewards).all() and np.isfinite(obs).all()):
        raise ContractError(
            f"rollout {number} has {actions.shape} actions, {rewards.shape} rewards, or a number that is not finite",
            hint="Pass as many actions as rewards, and check for NaN.",
        )
    logp = getattr(rollout, "behavior_logp", None)
    terminated, last_obs = bool(getattr(rollout, "terminated", True)), getattr(rollout, "last_obs", None)
    task_id, group_id = str(getattr(rollout, "task_id", "task")), str(getattr(rollout, "group_id", "group"))
    return Trajectory(
        str(number), task_id, group_id, obs, actions, mask=np.ones(len(rewards), np.bool_),
        behavior_logp=np.zeros(len(rewards), np.float32) if logp is None else np.asarray(logp, np.float32),
        versions=np.zeros(len(rewards), np.int64), rewards=rewards,
        end=End.FINISHED if terminated else End.TRUNCATED, terminated=terminated,
        last_obs=None if last_obs is None else np.asarray(last_obs, np.float32).reshape(-1),
    )  # fmt: skip


def _summaries(rollouts: Sequence[Any]) -> Summaries:
    given = [_trajectory(rollout, number) for number, rollout in enumerate(rollouts)]
    return summarise(given, [Task(t.task_id).kind for t in given])
