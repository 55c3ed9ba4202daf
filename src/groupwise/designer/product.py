"""The designer product: requirements, the graph policy and groups of designs, ready for the loop."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from groupwise.config import TrainingConfig
from groupwise.designer.construction import construct
from groupwise.designer.generation_metrics import GenerationMetrics, PolicyUpdateResult
from groupwise.designer.generations import Candidate, Generations
from groupwise.designer.memory import Recalls, RememberingSource, open_memory
from groupwise.designer.plans import Plans
from groupwise.designer.policy import GraphPolicy
from groupwise.designer.problem import Bools, DesignProblem, Floats
from groupwise.designer.sampling import Parents, PolicyChooser, Preference, Preferences, Retake, Views
from groupwise.designer.tasks import PreparedRequirements, RequirementsLibrary, score_design
from groupwise.designer.trajectories import Collation, trajectories
from groupwise.errors import ConfigError
from groupwise.training.estimators import Attempts
from groupwise.training.learner import Learner
from groupwise.training.loop import Evaluate
from groupwise.training.session import Parts
from groupwise.training.source import BatchRows, GroupSource, NumberedTasks
from groupwise.training.step_groups import StepGroups
from groupwise.types import Failed, Group, Policy, Score, ScoredGroup, Task, Tensors, Trajectory
from groupwise.types import Score as Reward
from groupwise.workflows.requirements import Requirements, read_requirements
from groupwise.workflows.scoring.measures import GROUPS

HELD_OUT = 1_000_000_000
"""Worlds from this number on are never trained on."""


def build(cfg: TrainingConfig, requirements: Mapping[str, Requirements] | None = None) -> Parts:
    """Everything a designer run needs. Without `requirements` or `task.options.requirements` it designs for worlds."""
    check(cfg)
    library = RequirementsLibrary(requirements or own_requirements(cfg))
    policy = first_policy(cfg)
    recalls = _recalls(cfg, library)
    source = RememberingSource(
        cfg,
        recalls,
        tasks=NumberedTasks(lambda number: library.task(cfg.run.seed * 10_000_000 + number)),
        rollout=Drafts(cfg, policy, library, recalls),
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
    edit_share(cfg)


def edit_share(cfg: TrainingConfig) -> float:
    """`task.options.edit_share`: which part of the groups are edits of one plan instead of plans."""
    given = cfg.task.options.get("edit_share", 0.0)
    if not isinstance(given, int | float) or not 0 <= given <= 1:
        raise ConfigError(
            f"task.options.edit_share = {given!r} must be between 0 and 1", field="task.options.edit_share"
        )
    return float(given)


def own_requirements(cfg: TrainingConfig) -> dict[str, Requirements]:
    """The requirements that the settings name, by the names of their files."""
    paths = [part for part in str(cfg.task.options.get("requirements", "")).split(",") if part]
    return {Path(path).stem: read_requirements(path) for path in paths}


def _recalls(cfg: TrainingConfig, library: RequirementsLibrary) -> Recalls | None:
    """The memory that `task.options.memory` names; None without."""
    path = str(cfg.task.options.get("memory", ""))
    return Recalls(open_memory(path, cfg.memory), lambda task_id: library(task_id).problem) if path else None


def first_policy(cfg: TrainingConfig) -> GraphPolicy:
    """The policy before the first step: weights that `task.options.start` names, or made from the seed."""
    from groupwise.designer.policy import load_policy

    torch.manual_seed(cfg.run.seed)
    start = str(cfg.task.options.get("start", ""))
    return load_policy(start) if start else GraphPolicy()


class Drafts:
    """Groups of designs by the present policy, with shares of chance as `[generation]` says.

    With a memory, chance is replaced by habits that worked for requirements like these, as many as are recalled. Every
    log-probability is that of the mixture, so what was recalled is learned from like the rest.
    """

    def __init__(
        self, cfg: TrainingConfig, policy: GraphPolicy, library: RequirementsLibrary, recalls: Recalls | None = None
    ) -> None:
        self.policy, self.library, self.generation, self.recalls = policy, library, cfg.generation, recalls
        self.group_size = cfg.rollout.num_generations
        self.edit_share = edit_share(cfg)
        self.rng = np.random.default_rng([cfg.run.seed, 7])
        self.rounds = 0

    def collect(self, tasks: Sequence[Task]) -> list[Group]:
        self.rounds += 1
        if self.recalls is not None:
            self.recalls.recall([task.id for task in tasks])
        edits = round(self.edit_share * len(tasks))
        return [self._group(task, edit=number < edits) for number, task in enumerate(tasks)]

    def _group(self, task: Task, edit: bool) -> Group:
        prepared = self.library(task.id)
        views = Views(self.policy, prepared.problem)
        group_id = f"{self.rounds}/{task.id}"
        if edit:
            plans, logp, taken = self._edits(prepared, views)
        else:
            plans, logp, taken = self._plans(prepared, views, self._guide(group_id, task))
        members = trajectories(
            plans,
            prepared.drafter(plans),
            logp,
            task_id=task.id,
            group_id=group_id,
            version=self.policy.version,
            taken=taken,
        )
        return Group(group_id, task, members)

    def _guide(self, group_id: str, task: Task) -> Preferences | None:
        """What memory has for the plans that explore; nothing for edits, which are about single decisions."""
        if self.recalls is None:
            return None
        habits: list[Preference] = [{} for _ in range(self.group_size)]
        habits[: self._exploring] = self.recalls.habits(group_id, task.id, self._exploring, self.rng)
        return Preferences(habits)

    def _plans(
        self, prepared: PreparedRequirements, views: Views, guide: Preferences | None
    ) -> tuple[Plans, Floats, Bools | None]:
        """Whole plans, each on its own."""
        chooser = PolicyChooser(views, self.rng, self._epsilon(), guide=guide)
        plans = construct(prepared.problem, chooser, self.group_size, record=True)
        return plans, chooser.log_probabilities(plans), None

    def _edits(self, prepared: PreparedRequirements, views: Views) -> tuple[Plans, Floats, Bools | None]:
        """Edits of one plan that take the same decisions again: what differs in their scores is due to those alone."""
        parent = construct(prepared.problem, PolicyChooser(views, self.rng), 1)
        again = some_decisions(prepared.problem, self.rng)
        parents = Parents(
            np.repeat(parent.choices, self.group_size, 0),
            np.repeat(parent.unit_order, self.group_size, 0),
            np.repeat(again[None], self.group_size, 0),
        )
        retake = Retake(prepared.problem, parents, PolicyChooser(views, self.rng, self._epsilon()))
        plans = construct(prepared.problem, retake, self.group_size, record=True)
        return plans, retake.logp, retake.taken

    @property
    def _exploring(self) -> int:
        return round(self.generation.exploration_share * self.group_size)

    def _epsilon(self) -> Floats:
        epsilon = np.full(self.group_size, self.generation.epsilon_greedy)
        epsilon[: self._exploring] = self.generation.exploration_epsilon
        return epsilon

    def state_dict(self) -> dict[str, Any]:
        return {"rng": self.rng.bit_generator.state, "rounds": self.rounds}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.rng.bit_generator.state = state["rng"]
        self.rounds = state["rounds"]


def some_decisions(problem: DesignProblem, rng: np.random.Generator, most: int = 8) -> Bools:
    """One to a few decisions: every kind as likely as the other, and every decision of a kind."""
    kinds = np.unique(problem.heads)
    again = np.zeros(len(problem.heads), np.bool_)
    for kind in rng.choice(kinds, int(rng.integers(1, most + 1))):
        again[rng.choice(np.flatnonzero(problem.heads == kind))] = True
    return again


class DesignReward:
    """The score of a design. All of a group meet the same chance: simulations share the task's seed."""

    def __init__(self, library: RequirementsLibrary) -> None:
        self.library = library

    async def __call__(self, task: Task, group: Sequence[Trajectory]) -> Sequence[Score | Failed]:
        prepared = self.library(task.id)
        return [self._score(prepared, task, member) for member in group]

    def _score(self, prepared: PreparedRequirements, task: Task, member: Trajectory) -> Score:
        found = score_design(prepared, member.meta["design"], task.seed)
        parts = {str(name): share for name, share in zip(GROUPS, found.groups, strict=True) if share is not None}
        flags = tuple(violation.rule for violation in found.broken)
        return Score(found.total, {} if found.broken else parts, flags)


def report_sections(run_dir: Path, cfg: TrainingConfig) -> list[str]:
    """What a run's report tells of its designs."""
    from groupwise.designer.page import sections_of_run

    return sections_of_run(run_dir, cfg)


def _frozen(policy: GraphPolicy) -> Callable[[Tensors], Tensor]:
    reference = copy.deepcopy(policy).eval()

    def logp(inputs: Tensors) -> Tensor:
        with torch.no_grad():
            return reference.evaluate(inputs).logp

    return logp


def held_out(cfg: TrainingConfig, library: RequirementsLibrary) -> list[Task]:
    """The tasks that evaluations are made of."""
    first = 0 if library.own else HELD_OUT + cfg.run.eval_seed
    count = min(cfg.run.eval_episodes, len(library.own)) if library.own else cfg.run.eval_episodes
    return [library.task(first + n) for n in range(count)]


def greedy_evaluation(cfg: TrainingConfig, library: RequirementsLibrary) -> Evaluate:
    """The likeliest design for each of the held-out requirements (a person's own, where they are given)."""
    tasks = held_out(cfg, library)

    def evaluation(policy: Policy) -> dict[str, float]:
        totals = [_greedy(cast(GraphPolicy, policy), library(task.id), task.seed) for task in tasks]
        return {
            "eval/reward_mean": float(np.mean(totals)),
            "eval/reward_std": float(np.std(totals)),
            "eval/reward_min": float(np.min(totals)),
            "eval/attempts": float(len(totals)),
        }

    return evaluation


def _greedy(policy: GraphPolicy, prepared: PreparedRequirements, seed: int) -> float:
    chooser = PolicyChooser(Views(policy, prepared.problem), np.random.default_rng(0), greedy=np.ones(1, bool))
    plans = construct(prepared.problem, chooser, 1)
    return float(score_design(prepared, prepared.drafter(plans)[0], seed).total)


SETTINGS: Mapping[str, Any] = {
    "product": "designer", "estimator": "outcome", "advantage_scale": "group_std", "loss_type": "dapo",
    "learning_rate": 3e-4, "lr_scheduler_type": "constant", "warmup_ratio": 0.0, "tasks_per_step": 1,
    "per_device_train_batch_size": 64, "gradient_accumulation_steps": 1, "num_epochs": 1,
}  # fmt: skip


class Improvement:
    """One learner for as many calls as its designer makes."""

    def __init__(self, policy: GraphPolicy, **settings: Any) -> None:
        self.cfg = TrainingConfig.from_dict({**SETTINGS, **settings})
        self.policy = policy
        self.learner = Learner(policy, self.cfg)
        self.collation: Collation | None = None
        self.groups = 0
        library = RequirementsLibrary()
        self.source = GroupSource(
            self.cfg,
            tasks=NumberedTasks(library.task),
            rollout=Drafts(self.cfg, policy, library),
            reward=DesignReward(library),
            collate=self._collate,
        )

    def begin(self, generations: Generations) -> LearningPolicy:
        """The policy that learns from these generations."""
        problem = generations.prepared.problem
        self.collation = Collation(lambda _: problem)
        return LearningPolicy(self, generations)

    def learn(self, group: ScoredGroup) -> dict[str, Any]:
        batch = self.source.compare(StepGroups((group,), (), 1))
        return self.learner.update(batch)

    def close(self) -> None:
        self.source.close()

    def _collate(self, attempts: Attempts) -> BatchRows:
        assert self.collation is not None
        return self.collation(attempts)


class LearningPolicy:
    """`policy.update(candidates, metrics)` of one call."""

    def __init__(self, improvement: Improvement, generations: Generations) -> None:
        self.improvement, self.generations = improvement, generations

    def update(self, candidates: Sequence[Candidate], metrics: GenerationMetrics) -> PolicyUpdateResult:
        """One GRPO update from the newest generation, whose results are in `metrics`."""
        before = time.perf_counter()
        group = self.group(metrics)
        seen = self.improvement.learn(group) if group is not None else {}
        return PolicyUpdateResult(
            attempts=len(group.scores) if group is not None else 0,
            left_out=sum(candidate.origin != "sample" for candidate in candidates),
            policy_loss=float(seen.get("loss/policy", 0.0)),
            entropy=float(seen.get("policy/entropy", 0.0)),
            kl=float(seen.get("policy/kl", 0.0)),
            gradient_norm=float(seen.get("optim/grad_norm", 0.0)),
            version=self.improvement.policy.version,
            seconds=time.perf_counter() - before,
        )

    def group(self, metrics: GenerationMetrics) -> ScoredGroup | None:
        """What was drawn from the policy at the first go of the newest generation, scored; None if nothing was.

        Later goes only fill up for designs that had been there before: how many there are depends on what was drawn.
        """
        draft = next((draft for draft in self.generations.drafts if draft.logp is not None), None)
        if draft is None or draft.logp is None:
            return None
        known = {**self.generations.scores, **{one.candidate.key: one.score for one in metrics.results}}
        drawn = [one.origin == "sample" and one.key in known for one in draft.candidates]
        rows = [n for n, counts in enumerate(drawn) if counts]
        self.improvement.groups += 1
        task = Task(f"call/{self.improvement.groups}")
        designs = [candidate.design for candidate in draft.candidates]
        version = self.generations.views.version
        everyone = trajectories(draft.plans, designs, draft.logp, task_id=task.id, group_id=task.id, version=version)
        totals = tuple(Reward(known[draft.candidates[n].key].total) for n in rows)
        return ScoredGroup(Group(task.id, task, tuple(everyone[n] for n in rows)), totals)
