"""Rollouts made elsewhere, as the trajectories, groups and summaries that our parts work on."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from groupwise.config import TrainingConfig
from groupwise.config.rules import needs_critic
from groupwise.control.policy import MLPPolicy
from groupwise.core.grouping.strategies import Summaries, summarise
from groupwise.errors import ContractError
from groupwise.types import End, Group, Task, Trajectory


def in_groups(trajectories: Sequence[Trajectory]) -> list[Group]:
    """Group attempts by task and group id, in order of appearance."""
    found: dict[tuple[str, str], list[Trajectory]] = {}
    for trajectory in trajectories:
        found.setdefault((trajectory.task_id, trajectory.group_id), []).append(trajectory)
    return [Group(group, Task(task), tuple(members)) for (task, group), members in found.items()]


def fitting_policy(rollouts: Sequence[Any], cfg: TrainingConfig) -> MLPPolicy:
    """A policy that fits the observations, with as many actions as were taken, at least two."""
    given = [trajectory_of(rollout, number) for number, rollout in enumerate(rollouts)]
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
    found = trajectory_of(rollout, number)
    if getattr(rollout, "behavior_logp", None) is not None:
        return found
    with torch.no_grad():
        inputs = {"obs": torch.from_numpy(found.obs).float(), "actions": torch.from_numpy(found.actions)}
        found.behavior_logp[:] = policy.evaluate(inputs).logp.numpy()
    return found


def trajectory_of(rollout: Any, number: int) -> Trajectory:
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


def summaries_of(rollouts: Sequence[Any]) -> Summaries:
    given = [trajectory_of(rollout, number) for number, rollout in enumerate(rollouts)]
    return summarise(given, [Task(t.task_id).kind for t in given])
