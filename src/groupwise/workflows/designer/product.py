"""The designer product: requirements, the graph policy and groups of designs, ready for the loop."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError
from groupwise.training.loop import Evaluate
from groupwise.training.session import Parts
from groupwise.training.source import GroupSource, NumberedTasks
from groupwise.types import Failed, Group, Policy, Score, Task, Tensors, Trajectory
from groupwise.workflows.blocks import Design
from groupwise.workflows.designer.construction import construct
from groupwise.workflows.designer.policy import GraphPolicy
from groupwise.workflows.designer.rows import Collation, trajectories
from groupwise.workflows.designer.sampling import PolicyChooser, Views
from groupwise.workflows.designer.tasks import Library, Prepared
from groupwise.workflows.evaluation import evaluate
from groupwise.workflows.requirements import Requirements, read_requirements
from groupwise.workflows.scoring import Score as DesignScore
from groupwise.workflows.scoring.measures import GROUPS

HELD_OUT = 1_000_000_000
"""Worlds from this number on are never trained on."""
CASES = 400


def build(cfg: TrainingConfig, requirements: Mapping[str, Requirements] | None = None) -> Parts:
    """Everything a designer run needs. Without `requirements` or `task.options.requirements` it designs for worlds."""
    check(cfg)
    library = Library(requirements or _own(cfg))
    torch.manual_seed(cfg.run.seed)
    policy = _start(cfg)
    source = GroupSource(
        cfg,
        tasks=NumberedTasks(lambda number: library.task(cfg.run.seed * 10_000_000 + number)),
        rollout=Drafts(cfg, policy, library),
        reward=DesignReward(library),
        collate=Collation(lambda task_id: library(task_id).problem),
        reference=_frozen(policy) if cfg.policy.use_reference_model else None,
    )
    return Parts(policy, source, greedy_evaluation(cfg, library))


def check(cfg: TrainingConfig) -> None:
    """Refuse what no designer run can be made of."""
    if cfg.advantage.estimator != "outcome":
        raise ConfigError(
            f"advantage.estimator = {cfg.advantage.estimator!r} looks at single steps; a design is judged as a whole",
            hint='Set advantage.estimator = "outcome".',
            field="advantage.estimator",
        )


def _own(cfg: TrainingConfig) -> dict[str, Requirements]:
    """The requirements that the settings name, by the names of their files."""
    paths = [part for part in str(cfg.task.options.get("requirements", "")).split(",") if part]
    return {Path(path).stem: read_requirements(path) for path in paths}


def _start(cfg: TrainingConfig) -> GraphPolicy:
    from groupwise.workflows.designer.shipped import load_policy

    start = str(cfg.task.options.get("start", ""))
    return load_policy(start) if start else GraphPolicy()


class Drafts:
    """Groups of designs by the present policy, with shares of chance as `[generation]` says."""

    def __init__(self, cfg: TrainingConfig, policy: GraphPolicy, library: Library) -> None:
        self.policy, self.library, self.generation = policy, library, cfg.generation
        self.group_size = cfg.rollout.num_generations
        self.rng = np.random.default_rng([cfg.run.seed, 7])
        self.rounds = 0

    def collect(self, tasks: Sequence[Task]) -> list[Group]:
        self.rounds += 1
        return [self._group(task) for task in tasks]

    def _group(self, task: Task) -> Group:
        prepared = self.library(task.id)
        exploring = round(self.generation.exploration_share * self.group_size)
        epsilon = np.full(self.group_size, self.generation.epsilon_greedy)
        epsilon[:exploring] = self.generation.exploration_epsilon
        chooser = PolicyChooser(Views(self.policy, prepared.problem), self.rng, epsilon)
        plans = construct(prepared.problem, chooser, self.group_size, record=True)
        group_id = f"{self.rounds}/{task.id}"
        members = trajectories(
            plans,
            prepared.drafter(plans),
            chooser.log_probabilities(plans),
            task_id=task.id,
            group_id=group_id,
            version=self.policy.version,
        )
        return Group(group_id, task, members)

    def state_dict(self) -> dict[str, Any]:
        return {"rng": self.rng.bit_generator.state, "rounds": self.rounds}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.rng.bit_generator.state = state["rng"]
        self.rounds = state["rounds"]


class DesignReward:
    """The score of a design. All of a group meet the same chance: simulations share the task's seed."""

    def __init__(self, library: Library) -> None:
        self.library = library

    async def __call__(self, task: Task, group: Sequence[Trajectory]) -> Sequence[Score | Failed]:
        prepared = self.library(task.id)
        return [self._score(prepared, task, member) for member in group]

    def _score(self, prepared: Prepared, task: Task, member: Trajectory) -> Score:
        found = judge(prepared, member.meta["design"], task.seed)
        parts = {str(name): share for name, share in zip(GROUPS, found.groups, strict=True) if share is not None}
        flags = tuple(violation.rule for violation in found.broken)
        return Score(found.total, {} if found.broken else parts, flags)


def judge(prepared: Prepared, design: Design, seed: int = 0) -> DesignScore:
    """One evaluation: performance by the quickest tier that holds, and the score."""
    performance = evaluate(design, prepared.problem.requirements, "analytic", seed=seed % 2**31, cases=CASES)
    return prepared.scorer(design, performance)


def _frozen(policy: GraphPolicy) -> Callable[[Tensors], Tensor]:
    reference = copy.deepcopy(policy).eval()

    def logp(inputs: Tensors) -> Tensor:
        with torch.no_grad():
            return reference.evaluate(inputs).logp

    return logp


def greedy_evaluation(cfg: TrainingConfig, library: Library) -> Evaluate:
    """The likeliest design for each of the held-out requirements (a person's own, where they are given)."""
    first = 0 if library.own else HELD_OUT + cfg.run.eval_seed
    count = min(cfg.run.eval_episodes, len(library.own)) if library.own else cfg.run.eval_episodes
    tasks = [library.task(first + n) for n in range(count)]

    def evaluation(policy: Policy) -> dict[str, float]:
        totals = [_greedy(cast(GraphPolicy, policy), library(task.id), task.seed) for task in tasks]
        return {
            "eval/reward_mean": float(np.mean(totals)),
            "eval/reward_std": float(np.std(totals)),
            "eval/reward_min": float(np.min(totals)),
            "eval/attempts": float(len(totals)),
        }

    return evaluation


def _greedy(policy: GraphPolicy, prepared: Prepared, seed: int) -> float:
    chooser = PolicyChooser(Views(policy, prepared.problem), np.random.default_rng(0), greedy=np.ones(1, bool))
    plans = construct(prepared.problem, chooser, 1)
    return float(judge(prepared, prepared.drafter(plans)[0], seed).total)
