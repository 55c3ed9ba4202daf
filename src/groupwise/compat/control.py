"""GRPO for control with the names of the seed documents: an object that learns from rollouts made elsewhere.

A thin layer: groups, weights and advantages come from `core` and `training`, the update from `training.learner`.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from groupwise.compat.clipped_ppo import ClippedPPO
from groupwise.compat.rollouts import as_trajectory, fitting_policy, in_groups, summaries_of, trajectory_of
from groupwise.config import TrainingConfig
from groupwise.config.rules import OUTCOME_STRATEGIES, needs_critic
from groupwise.control.checks import refuse_sequence_losses
from groupwise.control.grpo import critic_values, rows_of_steps
from groupwise.control.policy import MLPPolicy
from groupwise.core.grouping.kmeans import Floats, Ints
from groupwise.core.grouping.strategies import HISTORY, Adaptive, make_grouping
from groupwise.core.grouping.weighting import group_sizes, make_weighting
from groupwise.errors import ContractError
from groupwise.rewards.function import EnvironmentReward
from groupwise.training.batch_source import GroupSource, NumberedTasks
from groupwise.training.learner import Learner
from groupwise.types import Group, Task, Trajectory

# A step of one group weighs at most this many times the average step.
LARGEST = 4.0
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

    The plan's parts are there to be used by themselves: `grouping_strategy`, `group_normalizer`,
    `group_weight_calculator`, `base_ppo`, `compute_gae` and `compute_group_policy_loss` follow the same settings.
    `update` does all of it at once, and over several epochs.
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
        self.grouping_strategy = GroupingStrategy(group_strategy, n_groups)
        self.group_normalizer = GroupAdvantageNormalizer()
        self.group_weight_calculator = GroupWeightCalculator(group_weight_method)
        self.base_ppo = ClippedPPO(self.cfg, policy)
        self.metrics: dict[str, float | None] = {}
        self.notice = outcome_notice(group_strategy)
        if self.notice:
            warnings.warn(self.notice, stacklevel=2)
        self._learning: tuple[GroupSource, Learner] | None = None
        self._given = _Given()

    @property
    def policy(self) -> MLPPolicy | None:
        return self.base_ppo.policy

    def compute_gae(self, rollouts: Sequence[Any]) -> Tensor:
        """The advantages of all steps of the rollouts, one rollout after the other: [steps]."""
        return self.base_ppo.advantages(self._trajectories(rollouts))

    def compute_group_policy_loss(self, rollouts: Sequence[Any], advantages: Any) -> Tensor:
        """PPO's clipped loss of one group, a mean over its steps; differentiable. One of `advantages` for each step."""
        return self.base_ppo.loss(self._trajectories(rollouts), advantages)

    def _trajectories(self, rollouts: Sequence[Any]) -> list[Trajectory]:
        if not len(rollouts):
            raise ContractError("there are no rollouts to learn from", hint="Pass at least one episode.")
        if self.base_ppo.policy is None:
            self.base_ppo.policy = fitting_policy(rollouts, self.cfg)
        policy = self.base_ppo.policy
        return [as_trajectory(rollout, number, policy) for number, rollout in enumerate(rollouts)]

    def update(self, rollouts: Sequence[Any]) -> float:
        """Improve the policy on rollouts and return the policy loss; `metrics` has the rest.

        A rollout is a `Trajectory`, or any object with `obs` [T, D], `actions` [T] and `rewards` [T], and optionally
        `terminated`, `last_obs`, `behavior_logp`, `task_id` and `group_id`. Without log-probabilities it is assumed to
        come from the current policy.
        """
        trajectories = self._trajectories(rollouts)
        source, learner = self._start()
        self._given.groups = in_groups(trajectories)
        batch = source.next()
        self.metrics = {**batch.metrics, **learner.update(batch)}
        return float(self.metrics.get("loss/policy") or 0.0)

    def _start(self) -> tuple[GroupSource, Learner]:
        if self._learning is None:
            loss_type, policy = self.cfg.loss.loss_type, self.policy
            assert policy is not None
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
        for number, rollout in zip(self.grouping(summaries_of(rollouts)).tolist(), rollouts, strict=True):
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
    """The weight of each group per step; over all steps that have an advantage the weights average 1.

    No step weighs more than `largest`: under "balanced" alone, a lone short rollout beside long ones would get 20 or
    30, and one episode would decide the update.
    """

    def __init__(self, method: str = "balanced", largest: float = LARGEST) -> None:
        self.method, self.largest = method, largest
        self.rule = make_weighting(method)

    def compute_weights(
        self, grouped_rollouts: Mapping[int, Sequence[Any]], group_advantages: Mapping[int, Any] | None = None
    ) -> dict[int, float]:
        """Weights by group. Without `group_advantages` every step counts.

        With them, a group is as large as it has steps whose advantage is not 0; a group without any, such as one
        rollout compared with itself, has nothing to teach: it weighs 0, and the others share the weight.
        """
        pairs = [(group, trajectory_of(r, 0)) for group, rollouts in grouped_rollouts.items() for r in rollouts]
        if not pairs:
            return {}
        found = group_sizes(
            np.array([group for group, _ in pairs], np.int64),
            np.array([len(t) for _, t in pairs], np.float64),
            np.array([float(t.rewards.sum()) for _, t in pairs]),
        )
        if group_advantages:
            teaching = [_teaching_steps(group, group_advantages.get(group)) for group in found.groups.tolist()]
            found = replace(found, size=np.where(np.isnan(teaching), found.size, teaching))
        weights = np.where(found.size > 0, self.rule(found), 0.0)
        return dict(zip(found.groups.tolist(), limited(weights, found.size, self.largest).tolist(), strict=True))


def _teaching_steps(group: int, advantages: Any) -> float:
    """How many steps of a group have an advantage other than 0; NaN if the group's advantages are not given."""
    if advantages is None:
        return math.nan
    values = np.asarray(advantages.detach() if isinstance(advantages, Tensor) else advantages, np.float64)
    if not np.isfinite(values).all():
        message = f"the advantages of group {group!r} are not all finite"
        raise ContractError(message, hint="Look for NaN in rewards and values.")
    return float(np.count_nonzero(values))


def limited(weights: Floats, size: Floats, largest: float) -> Floats:
    """Weights of at most `largest` that average 1 over all steps: what is cut off goes to the other groups alike."""
    result, capped = weights.copy(), np.zeros(len(weights), np.bool_)
    total = float(size.sum())
    while total > 0:
        free = ~capped & (weights > 0)
        left, share = total - largest * float(size[capped].sum()), float((weights * size)[free].sum())
        if share <= 0:
            return result
        result[free] = weights[free] * left / share
        over = free & (result > largest * (1 + 1e-9))
        if not over.any():
            return result
        result[over], capped = largest, capped | over
    return result


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
        return self.grouping(summaries_of(new_trajectories))
