"""The control product: an environment, a small network and groups of episodes, ready for the loop."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from groupwise.config import TaskSettings, TrainingConfig
from groupwise.control.cartpole import CartPole
from groupwise.control.policy import MLPPolicy
from groupwise.errors import ConfigError
from groupwise.rewards.environment import EnvironmentReward
from groupwise.rollout.episodes import collect_groups, evaluate_greedy
from groupwise.training.estimate import Attempts, Estimate
from groupwise.training.loop import Evaluate
from groupwise.training.session import Parts
from groupwise.training.source import GroupSource
from groupwise.types import Array, Batch, Group, Policy, Reward, Task, Tensors, Trajectory, VectorEnvironment

BEYOND_EVALUATION = 2**32

ENVIRONMENTS: Mapping[str, Callable[..., VectorEnvironment]] = {"CartPole-v1": CartPole}


def build(cfg: TrainingConfig, reward: Reward | None = None) -> Parts:
    """Everything a control run needs, made from its settings; `reward` replaces the environment's own."""
    environment = make_environment(cfg.task)
    policy = MLPPolicy(
        environment.observation_size,
        environment.action_count,
        hidden_sizes=cfg.policy.hidden_sizes,
        critic=cfg.advantage.estimator == "gae",
        seed=cfg.run.seed,
    )
    source = GroupSource(
        cfg,
        tasks=ResetSeeds(cfg.task.environment, cfg.run.seed),
        rollout=Episodes(environment, policy, cfg.rollout.num_generations, cfg.run.seed),
        reward=reward or EnvironmentReward(),
        collate=rows_of_steps,
        values=critic_values(policy) if cfg.advantage.estimator == "gae" else None,
        reference=frozen_reference(policy) if cfg.policy.use_reference_model else None,
    )
    return Parts(policy, source, greedy_evaluation(cfg, make_environment(cfg.task)))


def make_environment(task: TaskSettings) -> VectorEnvironment:
    if task.environment not in ENVIRONMENTS:
        near = difflib.get_close_matches(task.environment, ENVIRONMENTS, 1, 0.3)
        hint = f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(ENVIRONMENTS)}."
        raise ConfigError(
            f"task.environment = {task.environment!r} is not an environment we know",
            hint=hint, field="task.environment",
        )  # fmt: skip
    options = dict(task.options)
    if task.max_episode_steps is not None:
        options["max_steps"] = task.max_episode_steps
    try:
        return ENVIRONMENTS[task.environment](**options)
    except TypeError as error:
        raise ConfigError(
            f"task.options = {dict(task.options)} does not fit {task.environment}: {error}",
            field="task.options",
        ) from error


class ResetSeeds:
    """An endless stream of tasks: the same environment, started from ever new seeds.

    They lie above every seed that `run.eval_seed` can name, so no start is both learned from and judged on.
    """

    def __init__(self, environment: str, seed: int) -> None:
        self.environment = environment
        self.seed = seed
        self.cursor = 0

    def take(self, count: int) -> list[Task]:
        numbers = range(self.cursor, self.cursor + count)
        self.cursor += count
        return [self._task(number) for number in numbers]

    def _task(self, number: int) -> Task:
        seed = BEYOND_EVALUATION + int(np.random.SeedSequence([self.seed, number]).generate_state(1)[0])
        return Task(f"{self.environment}/{seed}", self.environment, seed)

    def state_dict(self) -> dict[str, Any]:
        return {"cursor": self.cursor}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.cursor = state["cursor"]


class Episodes:
    """Whole episodes by the present policy, every group from one reset state."""

    def __init__(self, environment: VectorEnvironment, policy: MLPPolicy, group_size: int, seed: int) -> None:
        self.environment = environment
        self.policy = policy
        self.group_size = group_size
        self.rng = np.random.default_rng([seed, 1])
        self.rounds = 0

    def collect(self, tasks: Sequence[Task]) -> list[Group]:
        self.rounds += 1
        return collect_groups(
            self.environment, self.policy, tasks, self.group_size, self.rng,
            version=self.policy.version, prefix=str(self.rounds),
        )  # fmt: skip

    def state_dict(self) -> dict[str, Any]:
        return {"rng": self.rng.bit_generator.state, "rounds": self.rounds}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.rng.bit_generator.state = state["rng"]
        self.rounds = state["rounds"]


def rows_of_steps(attempts: Attempts, estimate: Estimate) -> Batch:
    """Every step its own row [N, 1]: a control policy needs no history, so steps may be shuffled."""
    members = attempts.members
    mask = attempts.mask

    def rows(name: str, dtype: torch.dtype) -> Tensor:
        joined = np.concatenate([getattr(m, name) for m in members]) if members else np.zeros((0, 1))
        return torch.from_numpy(joined).to(dtype)[:, None]

    def picked(table: Tensor | None) -> Tensor | None:
        return None if table is None else table[mask].float()[:, None]

    advantages = picked(estimate.advantages)
    assert advantages is not None
    return Batch(
        inputs={"obs": rows("obs", torch.float32), "actions": rows("actions", torch.int64)},
        mask=torch.ones(advantages.shape, dtype=torch.bool),
        behavior_logp=rows("behavior_logp", torch.float32),
        advantages=advantages,
        denominator=1.0,
        keep=None if estimate.keep is None else estimate.keep[mask][:, None],
        returns=picked(estimate.returns),
        values=picked(estimate.values),
    )


def critic_values(policy: MLPPolicy) -> Callable[[Sequence[Trajectory]], list[Array]]:
    """For every attempt the critic's view of each state and of the one after the last: [T + 1]."""

    def values(members: Sequence[Trajectory]) -> list[Array]:
        seen = []
        for member in members:
            after = member.obs[-1:] * 0 if member.last_obs is None else member.last_obs[None]
            states = torch.from_numpy(np.concatenate([member.obs, after])).float()
            with torch.no_grad():
                seen.append(policy.value(states).numpy())
        return seen

    return values


def frozen_reference(policy: MLPPolicy) -> Callable[[Tensors], Tensor]:
    """The policy as it is now, for the KL term. It is the same after a resume: it comes from the seed."""
    reference = copy.deepcopy(policy)
    return lambda inputs: reference.evaluate(inputs).logp


def greedy_evaluation(cfg: TrainingConfig, environment: VectorEnvironment) -> Evaluate:
    """Greedy episodes from starts that training never sees."""
    seeds = [cfg.run.eval_seed + n for n in range(cfg.run.eval_episodes)]

    def evaluate(policy: Policy) -> dict[str, float]:
        assert isinstance(policy, MLPPolicy)
        returns, lengths = evaluate_greedy(environment, policy, seeds)
        return {
            "eval/reward_mean": float(np.mean(returns)),
            "eval/reward_std": float(np.std(returns)),
            "eval/reward_min": float(np.min(returns)),
            "eval/length_mean": float(np.mean(lengths)),
            "eval/attempts": float(len(seeds)),
        }

    return evaluate
