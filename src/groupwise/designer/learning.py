"""How the policy learns: plans as trajectories, groups of designs, their reward, and updates during a design call.

The decisions of a plan are stored in two tables: those with few candidates, then the turns in which the next unit is
chosen. The arrays of a trajectory contain them in that order.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from groupwise.config import TrainingConfig
from groupwise.designer.construction import construct
from groupwise.designer.declaration import CorrectionSettings, edit_share
from groupwise.designer.features import NUMBERS, features_of
from groupwise.designer.generations import Candidate, DesignDraft, Generations
from groupwise.designer.memory import Recalls
from groupwise.designer.plans import Plans
from groupwise.designer.policy import GraphPolicy
from groupwise.designer.prediction_correction import LossTerms
from groupwise.designer.problem import CANDIDATES, FEATURES, Bools, DesignProblem, Floats, Head, Ints, table_order
from groupwise.designer.results.outcome import GenerationMetrics, PolicyUpdateResult
from groupwise.designer.sampling import Parents, PolicyChooser, PolicyView, Preference, Preferences, Retake
from groupwise.designer.tasks import PreparedRequirements, RequirementsLibrary, score_design
from groupwise.rollout.backends import RolloutWorkers
from groupwise.training.batch_source import BatchRows, GroupSource, NumberedTasks
from groupwise.training.estimators import Attempts
from groupwise.training.learner import Learner
from groupwise.training.step_groups import StepGroups
from groupwise.types import End, Failed, Group, Score, ScoredGroup, Task, Trajectory
from groupwise.workflows.blocks import Design
from groupwise.workflows.files import json_file
from groupwise.workflows.requirements import Requirements
from groupwise.workflows.scoring import DesignScore
from groupwise.workflows.scoring.measures import GROUPS
from groupwise.workflows.scoring.score import standardised


def trajectories(
    plans: Plans,
    designs: Sequence[Design],
    logp: Floats,
    *,
    task_id: str,
    group_id: str,
    version: int,
    taken: Bools | None = None,
) -> tuple[Trajectory, ...]:
    """One trajectory per plan, with its design in `meta`. Only decisions `taken` by an edit itself are trained on."""
    own = plans.free if taken is None else plans.free & taken
    assert plans.seen is not None, "the plans were made without a record"
    assert plans.legal is not None
    order = np.concatenate(table_order(plans.problem))
    return tuple(
        Trajectory(
            id=f"{group_id}/{row}",
            task_id=task_id,
            group_id=group_id,
            obs=plans.seen[row, order],
            actions=plans.choices[row, order],
            mask=own[row, order],
            behavior_logp=logp[row, order],
            versions=np.full(len(order), version),
            rewards=np.zeros(len(order)),
            end=End.FINISHED,
            terminated=True,
            action_mask=plans.legal[row, order],
            meta={"design": design, "exhibit": partial(design_exhibit, design)},
        )
        for row, design in enumerate(designs)
    )


def design_exhibit(design: Design) -> dict[str, Any]:
    """The design, to be drawn."""
    return {"kind": "design", "workflow": json_file.write(design).decode()}


class _Statics:
    """The part of a row that is the same for all plans of a problem."""

    def __init__(self, problem: DesignProblem) -> None:
        self.problem = problem
        self.small, self.turns = table_order(problem)
        self.features = features_of(problem)
        self.members = problem.padded_members()
        self.heads = problem.heads[self.small]
        self.rows = self._subjects()
        self.candidates = np.zeros((len(self.small), CANDIDATES), np.int64)
        for place in np.flatnonzero(self.heads == Head.ALLOCATION):
            self.candidates[place] = problem.pool_rows(int(problem.subjects[self.small[place]]))

    def _subjects(self) -> Ints:
        # The table row of each decision's subject; that of a place depends on the plan: see `placed`.
        problem = self.problem
        subjects = problem.subjects[self.small].copy()
        forks = self.heads == Head.BRANCHING
        subjects[forks] = [problem.forks[fork].options[0] for fork in subjects[forks].tolist()]
        about_pools = np.isin(self.heads, (Head.SCHEDULING, Head.STAFFING))
        subjects = subjects + about_pools * len(problem.names)
        return np.where(self.heads == Head.PLACE, 0, subjects + 1)

    def placed(self, order: Ints) -> tuple[Ints, Ints]:
        """The subjects' rows including the units that were placed, and for each turn the unit placed before it."""
        rows = self.rows.copy()
        units = self.problem.table_rows(Head.PLACE, order)
        rows[self.heads == Head.PLACE] = units
        last = np.concatenate([[0], units[:-1]]) if len(units) else units
        return rows, last


class Collation:
    """Turns attempts into padded rows for the policy; the features of requirements are computed once for each."""

    def __init__(self, problem_of: Callable[[str], DesignProblem]) -> None:
        self.problem_of = problem_of
        self.known: dict[str, _Statics] = {}

    def _statics(self, task_id: str) -> _Statics:
        if len(self.known) > 256:
            self.known.clear()
        found = self.known.get(task_id)
        if found is None:
            found = self.known[task_id] = _Statics(self.problem_of(task_id))
        return found

    def __call__(self, attempts: Attempts) -> BatchRows:
        members = attempts.members
        statics = [self._statics(member.task_id) for member in members]
        count = len(members)
        few = max(len(one.small) for one in statics)
        turns = max(len(one.turns) for one in statics)
        nodes = max(len(one.features.kinds) for one in statics)
        units = max(len(one.members) for one in statics)
        # Rows with the same number belong to the same requirements, which the policy encodes once.
        numbers = {name: number for number, name in enumerate(dict.fromkeys(member.task_id for member in members))}
        table = {
            "set": np.array([numbers[member.task_id] for member in members]),
            "nodes": np.zeros((count, nodes, NUMBERS), np.float32),
            "kinds": np.full((count, nodes), -1),
            "relations": np.zeros((count, nodes, nodes), np.int64),
            "members": np.zeros((count, units, nodes), np.float32),
            "whole": np.zeros(count, np.int64),
            "heads": np.zeros((count, few), np.int64),
            "subjects": np.zeros((count, few), np.int64),
            "candidates": np.zeros((count, few, CANDIDATES), np.int64),
            "known": np.zeros((count, few, CANDIDATES, FEATURES), np.float32),
            "legal": np.zeros((count, few, CANDIDATES), bool),
            "choices": np.zeros((count, few), np.int64),
            "last": np.zeros((count, turns), np.int64),
            "next_known": np.zeros((count, turns, units, FEATURES), np.float32),
            "next_legal": np.zeros((count, turns, units), bool),
            "next_choices": np.zeros((count, turns), np.int64),
        }
        # Where each column of the padded row comes from in the member's own arrays, and whether there is one.
        index = np.zeros((count, few + turns), np.int64)
        there = np.zeros((count, few + turns), bool)
        for row, (member, one) in enumerate(zip(members, statics, strict=True)):
            _fill(table, row, member, one, nodes)
            own_few, own_turns = len(one.small), len(one.turns)
            index[row, :own_few] = np.arange(own_few)
            index[row, few : few + own_turns] = np.arange(own_few, own_few + own_turns)
            there[row, :own_few] = there[row, few : few + own_turns] = True
        place, known = torch.from_numpy(index), torch.from_numpy(there)

        def pick(values: Tensor) -> Tensor:
            return torch.where(known, values.gather(1, place), torch.zeros((), dtype=values.dtype))

        logp = np.zeros((count, max(len(member) for member in members)), np.float32)
        for row, member in enumerate(members):
            logp[row, : len(member)] = member.behavior_logp
        inputs = {name: torch.from_numpy(values) for name, values in table.items()}
        return BatchRows(inputs, pick(attempts.mask), pick(torch.from_numpy(logp)), pick)


def _fill(table: dict[str, np.ndarray], row: int, member: Trajectory, one: _Statics, nodes: int) -> None:
    seen, few, turns = one.features, len(one.small), len(one.turns)
    own, units = len(seen.kinds), len(one.members)
    table["nodes"][row, :own] = seen.nodes
    table["kinds"][row, :own] = seen.kinds
    table["relations"][row, :own, :own] = seen.relations
    table["members"][row, :units, :own] = one.members
    table["whole"][row] = own - 1
    table["heads"][row, :few] = one.heads
    table["candidates"][row, :few] = np.where(one.candidates > 0, one.candidates, 0)
    table["known"][row, :few] = member.obs[:few, :CANDIDATES]
    assert member.action_mask is not None
    table["legal"][row, :few] = member.action_mask[:few, :CANDIDATES]
    table["choices"][row, :few] = member.actions[:few]
    subjects, last = one.placed(member.actions[few:])
    # The table is: nothing, nodes, units. Nodes are padded to the longest list, so unit rows move up by the padding.
    table["subjects"][row, :few] = np.where(subjects > own, subjects + nodes - own, subjects)
    table["last"][row, :turns] = np.where(last > own, last + nodes - own, last)
    table["next_known"][row, :turns, :units] = member.obs[few:, :units]
    table["next_legal"][row, :turns, :units] = member.action_mask[few:, :units]
    table["next_choices"][row, :turns] = member.actions[few:]


class Drafts:
    """Samples groups of designs from the current policy, with exploration as `[generation]` says.

    With a memory, exploring plans follow preferences that worked for similar requirements, as many as are recalled.
    Every log-probability is that of the mixture, so these plans are learned from like the rest.
    """

    def __init__(
        self, cfg: TrainingConfig, policy: GraphPolicy, library: RequirementsLibrary, recalls: Recalls | None = None
    ) -> None:
        self.policy, self.library, self.generation, self.recalls = policy, library, cfg.generation, recalls
        self.group_size = cfg.rollout.num_generations
        self.edit_share = edit_share(cfg)
        # A stream of its own: other parts of a run derive theirs from the same seed and another number.
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
        view = PolicyView(self.policy, prepared.problem)
        group_id = f"{self.rounds}/{task.id}"
        taken: Bools | None = None
        if edit:
            plans, logp, taken = self._edits(prepared, view)
        else:
            # Complete plans, independent of each other.
            chooser = PolicyChooser(view, self.rng, self._epsilon(), guide=self._guide(group_id, task))
            plans = construct(prepared.problem, chooser, self.group_size, record=True)
            logp = chooser.log_probabilities(plans)
        designs, version = prepared.drafter(plans), self.policy.version
        members = trajectories(plans, designs, logp, task_id=task.id, group_id=group_id, version=version, taken=taken)
        return Group(group_id, task, members)

    def _guide(self, group_id: str, task: Task) -> Preferences | None:
        # Preferences from memory for the plans that explore; edits, about single decisions, get none.
        if self.recalls is None:
            return None
        preferences: list[Preference] = [{} for _ in range(self.group_size)]
        preferences[: self._exploring] = self.recalls.preferences(group_id, task.id, self._exploring, self.rng)
        return Preferences(preferences)

    def _edits(self, prepared: PreparedRequirements, view: PolicyView) -> tuple[Plans, Floats, Bools]:
        # Edits of one plan that all take the same decisions again: only those make their scores differ.
        parent = construct(prepared.problem, PolicyChooser(view, self.rng), 1)
        again = some_decisions(prepared.problem, self.rng)
        parents = Parents(
            np.repeat(parent.choices, self.group_size, 0),
            np.repeat(parent.unit_order, self.group_size, 0),
            np.repeat(again[None], self.group_size, 0),
        )
        retake = Retake(prepared.problem, parents, PolicyChooser(view, self.rng, self._epsilon()))
        plans = construct(prepared.problem, retake, self.group_size, record=True)
        return plans, retake.logp, retake.taken

    @property
    def _exploring(self) -> int:
        exploring: int = round(self.generation.exploration_share * self.group_size)
        return exploring

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
    """One to eight decisions: uniform over kinds, then uniform over the decisions of a kind."""
    kinds = np.unique(problem.heads)
    again = np.zeros(len(problem.heads), np.bool_)
    for kind in rng.choice(kinds, int(rng.integers(1, most + 1))):
        again[rng.choice(np.flatnonzero(problem.heads == kind))] = True
    return again


class DesignReward:
    """The score of a design, less what self-correction takes off. All designs of a group share the task's seed.

    With `workers`, whose handler is `GroupScorer`, the designs of all groups are scored there, a part of a group each.
    """

    def __init__(
        self, library: RequirementsLibrary, correction: CorrectionSettings | None = None,
        workers: RolloutWorkers | None = None,
    ) -> None:  # fmt: skip
        self.scorer, self.workers = GroupScorer(library, correction), workers

    async def __call__(self, task: Task, group: Sequence[Trajectory]) -> Sequence[Score | Failed]:
        designs = [member.meta["design"] for member in group]
        if self.workers is None:
            return self.scorer((task, designs))
        size = max(1, len(designs) // self.workers.size)
        parts = [designs[first : first + size] for first in range(0, len(designs), size)]
        scored = await asyncio.gather(*(self.workers.ask((task, part)) for part in parts))
        return [score for part in scored for score in part]


class GroupScorer:
    """Scores designs for a task, here or as the handler in a worker."""

    def __init__(
        self, library: RequirementsLibrary | None = None, correction: CorrectionSettings | None = None
    ) -> None:
        self.library, self.correction = library or RequirementsLibrary(), correction or CorrectionSettings()

    def __call__(self, request: tuple[Task, Sequence[Design]]) -> list[Score]:
        task, designs = request
        prepared, scores = self.library(task.id), []
        terms = loss_terms(prepared, self.correction, task.seed)
        for design in designs:
            found = score_design(prepared, design, task.seed)
            parts = {str(name): share for name, share in zip(GROUPS, found.groups, strict=True) if share is not None}
            flags = tuple(violation.rule for violation in found.broken)
            scores.append(Score(found.total - terms.penalty(design, found), {} if found.broken else parts, flags))
        return scores


def scorer_of(own: Mapping[str, Requirements], correction: Mapping[str, float]) -> GroupScorer:
    """The handler of a worker."""
    return GroupScorer(RequirementsLibrary(own), CorrectionSettings(**correction))


def loss_terms(prepared: PreparedRequirements, settings: CorrectionSettings, seed: int) -> LossTerms:
    requirements = prepared.problem.requirements
    return LossTerms(requirements, settings.performance_loss_coef, settings.structural_loss_coef, seed % 2**31)


# Updates within a call are small and cautious; a training run has the defaults of `declaration`.
SETTINGS: Mapping[str, Any] = {
    "product": "designer", "estimator": "outcome", "advantage_scale": "group_std", "loss_type": "dapo",
    "learning_rate": 1e-4, "lr_scheduler_type": "constant", "warmup_ratio": 0.0, "tasks_per_step": 1,
    "per_device_train_batch_size": 64, "gradient_accumulation_steps": 1, "num_epochs": 1, "entropy_coef": 0.001,
    "performance_loss_coef": 0.1, "structural_loss_coef": 0.01,
}  # fmt: skip


class Improvement:
    """One learner for all calls of a designer."""

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

    def begin(self, generations: Generations, seed: int = 0) -> LearningPolicy:
        problem = generations.prepared.problem
        self.collation = Collation(lambda _: problem)
        return LearningPolicy(self, generations, loss_terms(generations.prepared, self.cfg.correction, seed))

    def learn(self, group: ScoredGroup) -> dict[str, Any]:
        batch = self.source.compare(StepGroups((group,), (), 1))
        return self.learner.update(batch)

    def close(self) -> None:
        self.source.close()

    def _collate(self, attempts: Attempts) -> BatchRows:
        assert self.collation is not None
        return self.collation(attempts)


class LearningPolicy:
    """Updates the policy during one call."""

    def __init__(self, improvement: Improvement, generations: Generations, terms: LossTerms) -> None:
        self.improvement, self.generations, self.terms = improvement, generations, terms

    def measure(self, metrics: GenerationMetrics) -> None:
        """Compute the losses of the samples that `update` will learn from, which may simulate them."""
        for candidate, score in self._samples(metrics)[1].values():
            self.terms.of(candidate.design, score)

    def update(self, candidates: Sequence[Candidate], metrics: GenerationMetrics) -> PolicyUpdateResult:
        """One GRPO update from the newest generation, whose results are in `metrics`."""
        before = time.perf_counter()
        group = self.group(metrics)
        known = self.terms.known
        losses = [known[one.meta["design"]] for one in group.group.members] if group is not None else []
        spent, self.terms.seconds = self.terms.seconds, 0.0
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
            losses=(float(np.mean([one for one, _ in losses])), float(np.mean([one for _, one in losses])))
            if losses
            else (0.0, 0.0),
            simulation=spent,
        )

    def group(self, metrics: GenerationMetrics) -> ScoredGroup | None:
        """The scored samples of the newest generation's first attempt; None if there were none.

        Later attempts only replace duplicates: how many they make depends on what was sampled, which would bias them.
        """
        draft, samples = self._samples(metrics)
        if draft is None or draft.logp is None or not samples:
            return None
        self.improvement.groups += 1
        task = Task(f"call/{self.improvement.groups}")
        designs = [candidate.design for candidate in draft.candidates]
        version = self.generations.view.version
        everyone = trajectories(draft.plans, designs, draft.logp, task_id=task.id, group_id=task.id, version=version)
        scores = [score for _, score in samples.values()]
        # With z-scores, samples are compared with the other samples of their generation.
        compared = standardised(scores) if self.generations.normalization == "zscore" else scores
        totals = tuple(
            Score(one.total - self.terms.penalty(candidate.design, score))
            for (candidate, score), one in zip(samples.values(), compared, strict=True)
        )
        return ScoredGroup(Group(task.id, task, tuple(everyone[row] for row in samples)), totals)

    def _samples(
        self, metrics: GenerationMetrics
    ) -> tuple[DesignDraft | None, dict[int, tuple[Candidate, DesignScore]]]:
        # The first batch of samples, and by row those of them that have a score.
        draft = next((draft for draft in self.generations.drafts if draft.logp is not None), None)
        known = {**self.generations.scores, **{one.candidate.key: one.score for one in metrics.results}}
        return draft, {
            row: (one, known[one.key])
            for row, one in enumerate(draft.candidates if draft is not None else ())
            if one.origin == "sample" and one.key in known
        }


def likeliest(policy: GraphPolicy, prepared: PreparedRequirements, seed: int = 0) -> tuple[Design, DesignScore]:
    """The policy's likeliest design and its score."""
    chooser = PolicyChooser(PolicyView(policy, prepared.problem), np.random.default_rng(0), greedy=np.ones(1, bool))
    design = prepared.drafter(construct(prepared.problem, chooser, 1))[0]
    return design, score_design(prepared, design, seed)
