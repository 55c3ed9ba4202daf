"""Memory in a training run: recalled once for each group, kept step by step, and taken back when the run is resumed.

A step is one generation of the memory. What a checkpoint carries is its number: resumed from there, the memory is as it
was then, whatever came after, and the run goes on as it would have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from groupwise.config import TrainingConfig
from groupwise.memory import Experience, MemorySystem, Pattern, Recall
from groupwise.training.drawing import Drawn
from groupwise.training.source import GroupSource
from groupwise.types import Batch, Score, ScoredGroup
from groupwise.workflows.designer.features import features_of
from groupwise.workflows.designer.habits import Habit, habit
from groupwise.workflows.designer.memories import situation
from groupwise.workflows.designer.problem import Problem
from groupwise.workflows.designer.rows import table_order


class Recalls:
    """What is recalled for the groups of a step, and what becomes of it."""

    def __init__(self, memory: MemorySystem, problem_of: Callable[[str], Problem]) -> None:
        self.memory, self.problem_of = memory, problem_of
        self.found: dict[str, Recall] = {}
        self.used: dict[str, list[Pattern]] = {}

    def recall(self, tasks: Sequence[str]) -> None:
        """For every task of a step, before any of its designs is made."""
        with self.memory.generation(self.memory.now + 1):
            self.found = {task: self.memory.recall_patterns({}, self._context(task)) for task in tasks}

    def habits(self, group: str, task: str, count: int, rng: np.random.Generator) -> list[Habit]:
        """A habit for each of the first designs of a group, by success rate; {} where nothing is recalled."""
        self.used[group] = drawn = list(self.found[task].draw(rng)[:count])
        return [*(pattern.instantiate({}) for pattern in drawn), *({} for _ in range(count - len(drawn)))]

    def keep(self, groups: Sequence[ScoredGroup]) -> None:
        """The best design of each group, and how those did that were guided."""
        with self.memory.generation(self.memory.now):
            for scored in groups:
                self._keep(scored)
        self.used = {}

    def _keep(self, scored: ScoredGroup) -> None:
        group, totals = scored.group, scored.totals()
        guided = self.used.get(group.id, [])
        others = totals[len(guided) :]
        if np.isfinite(others).any():
            for pattern, total in zip(guided, totals, strict=False):
                if np.isfinite(total):
                    self.memory.report(pattern, bool(total >= np.nanmedian(others)))
        best = int(np.nanargmax(np.append(totals, -1.0)))
        if best == len(totals) or not isinstance(scored.scores[best], Score) or totals[best] <= 0:
            return
        member, problem = group.members[best], self.problem_of(group.task.id)
        assert member.action_mask is not None
        experience = Experience(
            {"name": problem.requirements.name, "activities": len(problem.names)},
            {"actions": member.actions.tolist()},
            {"score": float(totals[best])},
            {"task": group.task.id},
        )
        self.memory.store_experience(experience, float(totals[best]))
        heads = problem.heads[np.concatenate(table_order(problem))]
        payload = habit(heads, member.obs, member.action_mask, member.actions)
        direction = self.memory.direction({}, self._context(group.task.id))
        self.memory.patterns.learn(direction, payload, min(float(totals[best]), 1.0))

    def _context(self, task: str) -> dict[str, Any]:
        return {"features": situation(features_of(self.problem_of(task)))}


class RememberingSource(GroupSource):
    """The usual source, with a memory beside it or without."""

    def __init__(self, cfg: TrainingConfig, recalls: Recalls | None, **parts: Any) -> None:
        super().__init__(cfg, **parts)
        self.recalls = recalls

    def compare(self, drawn: Drawn) -> Batch:
        if self.recalls is not None:
            self.recalls.keep(drawn.all)
        return super().compare(drawn)

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        if self.recalls is not None:
            self.recalls.memory.sync()
            state["memory"] = self.recalls.memory.now
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        if self.recalls is not None and "memory" in state:
            self.recalls.memory.rewind(state["memory"])

    def close(self) -> None:
        super().close()
        if self.recalls is not None:
            self.recalls.memory.close()
