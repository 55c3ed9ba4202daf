"""The designer's memory: what design calls and training runs store, and what they recall.

    with open_memory("memory.sqlite") as memory:
        Designer(policy, memory).design(requirements)

A call recalls once, before its first candidate: preferences of designs that did well for similar requirements, and the
best plan so far for requirements with the same decisions. After each generation it stores the best designs as
experiences and the best of all as a preference, and reports whether the recalled preferences did at least as well as
the rest. In a training run a step is one generation of the memory; a checkpoint stores its number, and a resumed run
rewinds the memory to it.
"""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from groupwise.config import TrainingConfig
from groupwise.config.sections import MemorySettings
from groupwise.designer import MEMORY_FILE
from groupwise.designer.features import ACTIVITY, POOL, SCHEMA_HASH, WHOLE, features_of, situation
from groupwise.designer.generations import Candidate, Generations
from groupwise.designer.problem import DesignProblem, table_order
from groupwise.designer.results.outcome import GenerationMetrics
from groupwise.designer.sampling import Preference, preference_of_decisions, preference_of_plan
from groupwise.memory import Experience, MemorySystem, Pattern, Recall
from groupwise.memory.run_start import rewind_for_run
from groupwise.training.batch_source import GroupSource
from groupwise.training.step_groups import StepGroups
from groupwise.types import Batch, Score, ScoredGroup

WIDTH = len(WHOLE) + len(ACTIVITY) + len(POOL) + 1
SETTINGS = MemorySettings()
# Experiences stored per generation.
KEPT = 3
# The largest share of a generation that comes from memory.
RECALLED = 0.125


def open_memory(path: str | Path = MEMORY_FILE, settings: MemorySettings = SETTINGS) -> MemorySystem:
    """Open a designer's memory, creating it if necessary; close it after use."""
    return MemorySystem(
        path,
        settings,
        features=lambda requirements, context: context["features"],
        width=WIDTH,
        schema=f"designer {SCHEMA_HASH}",
        instantiate=lambda payload, context: payload,
    )


def fingerprint(problem: DesignProblem) -> str:
    """A key shared by all requirements with the same decisions, whatever their durations, costs and demand."""
    return hashlib.sha256(repr((problem.names, problem.pool_names, problem.slots)).encode()).hexdigest()[:16]


class Recollection:
    """The memory of one call. What can be recalled is fixed when the call begins."""

    def __init__(self, memory: MemorySystem, problem: DesignProblem, seed: int) -> None:
        self.memory, self.problem = memory, problem
        # A stream of its own, so that a memory does not change what the policy samples.
        self.rng = np.random.default_rng([seed, 3])
        self.context = {"features": situation(features_of(problem))}
        self.key = f"plan {fingerprint(problem)}"
        self.recall = memory.recall_patterns(problem.requirements, self.context)
        self.used: list[tuple[Pattern, int]] = []
        self.best = float("-inf")

    def recalled(self, generations: Generations, count: int) -> list[Candidate]:
        """Candidates from memory, at most an eighth of `count`; a pattern is used as often as it has succeeded."""
        room = int(RECALLED * count)
        found: list[Candidate] = []
        known = self.memory.contexts.get(self.key)
        if generations.number == 0 and known is not None and room:
            plan = known.last_performance
            plans = np.array([plan["choices"]]), np.array([plan["unit_order"]])
            found += generations.follow(*plans, np.array([int(plan.get("freedom", plan.get("widest", 0)))]))
        drawn = self.recall.draw(self.rng)[: room - len(found)]
        if drawn:
            made = generations.recall([pattern.instantiate(self.context) for pattern in drawn])
            self.used = list(zip(drawn, (candidate.key for candidate in made), strict=True))
            found += made
        else:
            self.used = []
        return found

    def keep(self, generations: Generations, metrics: GenerationMetrics) -> None:
        """Store an evaluated generation in one transaction."""
        judged = sorted((result.candidate for result in metrics.results), key=lambda one: -one.total)
        able = [one for one in judged if one.score is not None and not one.score.broken]
        with self.memory.generation(self.memory.now + 1):
            for candidate in able[:KEPT]:
                self.memory.store_experience(self._experience(candidate), max(candidate.total, 1e-3))
            self._report(generations, metrics)
            if able and able[0].total > self.best:
                self.best = able[0].total
                self._learn(generations, able[0])
            best = self.best if math.isfinite(self.best) else None
            self.memory.working.note({"designed": self.problem.requirements.name, "judged": len(judged), "best": best})

    def _learn(self, generations: Generations, candidate: Candidate) -> None:
        direction = self.memory.direction(self.problem.requirements, self.context)
        for draft in generations.drafts:
            for row, made in enumerate(draft.candidates):
                if made.key == candidate.key:
                    weight = min(max(candidate.total, 1e-3), 1.0)
                    self.memory.patterns.learn(direction, preference_of_plan(draft.plans, row), weight)
                    self._keep_plan(direction, candidate)
                    return

    def _keep_plan(self, direction: Any, candidate: Candidate) -> None:
        # Store the best plan so far for these requirements.
        known = self.memory.contexts.get(self.key)
        better = known is None or candidate.total >= known.last_performance["score"]
        plan = {
            "score": candidate.total,
            "choices": candidate.choices.tolist(),
            "unit_order": candidate.unit_order.tolist(),
            "freedom": candidate.freedom,
        }
        if known is not None and not better:
            plan = known.last_performance
        self.memory.contexts.record(self.key, direction, plan, better)

    def _report(self, generations: Generations, metrics: GenerationMetrics) -> None:
        # Report a pattern as successful if its design is at least as good as the median of those not from memory.
        scores = {result.candidate.key: result.total for result in metrics.results}
        others = [result.total for result in metrics.results if result.candidate.origin != "memory"]
        middle = float(np.median(others)) if others else 0.0
        for pattern, key in self.used:
            known = scores.get(key)
            if known is None and key in generations.scores:
                known = generations.scores[key].total
            if known is not None:
                self.memory.report(pattern, known >= middle)

    def _experience(self, candidate: Candidate) -> Experience:
        asked = self.problem.requirements
        score = candidate.score
        assert score is not None
        performance = {"score": score.total}
        if score.performance is not None:
            performance |= {"cycle_time": score.performance.cycle_time, "cost": score.performance.cost}
        return Experience(
            {"name": asked.name, "activities": len(asked.activities), "plan": self.key},
            {"choices": candidate.choices.tolist(), "unit_order": candidate.unit_order.tolist()},
            {name: value for name, value in performance.items() if math.isfinite(value)},
            {"origin": candidate.origin, "generation": candidate.generation},
        )


class Recalls:
    """What is recalled for the groups of a training step, and what is stored afterwards."""

    def __init__(self, memory: MemorySystem, problem_of: Callable[[str], DesignProblem]) -> None:
        self.memory, self.problem_of = memory, problem_of
        self.found: dict[str, Recall] = {}
        self.used: dict[str, list[Pattern]] = {}

    def recall(self, tasks: Sequence[str]) -> None:
        """Recall for every task of a step, before any of its designs is made."""
        with self.memory.generation(self.memory.now + 1):
            self.found = {task: self.memory.recall_patterns({}, self._context(task)) for task in tasks}

    def preferences(self, group: str, task: str, count: int, rng: np.random.Generator) -> list[Preference]:
        """Preferences for the first designs of a group, drawn by success rate; {} where nothing is recalled."""
        self.used[group] = drawn = list(self.found[task].draw(rng)[:count])
        return [*(pattern.instantiate({}) for pattern in drawn), *({} for _ in range(count - len(drawn)))]

    def keep(self, groups: Sequence[ScoredGroup]) -> None:
        """Store the best design of each group, and report how the guided ones did."""
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
        payload = preference_of_decisions(heads, member.obs, member.action_mask, member.actions)
        direction = self.memory.direction({}, self._context(group.task.id))
        self.memory.patterns.learn(direction, payload, min(float(totals[best]), 1.0))

    def _context(self, task: str) -> dict[str, Any]:
        return {"features": situation(features_of(self.problem_of(task)))}


class RememberingSource(GroupSource):
    """A `GroupSource` that keeps the memory in step with checkpoints, if there is a memory."""

    def __init__(self, cfg: TrainingConfig, recalls: Recalls | None, **parts: Any) -> None:
        super().__init__(cfg, **parts)
        self.recalls = recalls

    def compare(self, drawn: StepGroups) -> Batch:
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
            rewind_for_run(self.recalls.memory.store, state["memory"])

    def close(self) -> None:
        super().close()
        if self.recalls is not None:
            self.recalls.memory.close()
