"""The policy, improved on the designs of a call by the one learner.

The group is what was drawn from the policy for one generation, designs that came twice among them, each with the
log-probability under the mixture it was drawn from. Edits, recalled designs, the likeliest design and elites were not
drawn from the policy and stay out of the gradient.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from groupwise.config import TrainingConfig
from groupwise.training.drawing import Drawn
from groupwise.training.estimate import Attempts
from groupwise.training.learner import Learner
from groupwise.training.source import GroupSource, NumberedTasks, Rows
from groupwise.types import Group, ScoredGroup, Task
from groupwise.types import Score as Reward
from groupwise.workflows.designer.generation import Candidate, Generations
from groupwise.workflows.designer.monitoring import GenerationMetrics, PolicyUpdateResult
from groupwise.workflows.designer.policy import GraphPolicy
from groupwise.workflows.designer.product import DesignReward, Drafts
from groupwise.workflows.designer.rows import Collation, trajectories
from groupwise.workflows.designer.tasks import Library

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
        library = Library()
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
        batch = self.source.compare(Drawn((group,), (), 1))
        return self.learner.update(batch)

    def close(self) -> None:
        self.source.close()

    def _collate(self, attempts: Attempts) -> Rows:
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
