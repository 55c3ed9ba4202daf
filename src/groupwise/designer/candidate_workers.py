"""How candidates are made and evaluated: in this process, or shared out among workers elsewhere.

A request has one row for each plan, with the random numbers of all its decisions, so it can be split anywhere: any
number of workers makes the same designs. A worker gets the requirements with every request and prepares them once.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from groupwise.designer.construction import construct
from groupwise.designer.plans import Plans
from groupwise.designer.problem import Bools, DesignProblem, Floats, Ints
from groupwise.designer.sampling import Parents, PolicyChooser, PolicyView, Preference, Preferences, Retake
from groupwise.designer.tasks import PreparedRequirements, score_design
from groupwise.rollout.backends import RolloutWorkers
from groupwise.workflows.blocks import Design
from groupwise.workflows.requirements import Requirements, Weights
from groupwise.workflows.scoring import DesignScore


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """Plans to make: random numbers [plans, slots], ε and whether to be greedy [plans], and what to start from.

    With `parents` they are edits, which come out differently with `other`; with `preferences` those take the place of
    uniform exploration. `record` and `freedom` are as in `construct`.
    """

    points: Floats
    epsilon: Floats
    greedy: Bools
    freedom: Ints
    parents: Parents | None = None
    other: bool = False
    preferences: tuple[Preference, ...] = ()
    temperature: float = 1.0
    record: bool = False

    def part(self, rows: slice) -> PlanRequest:
        parents = self.parents
        if parents is not None:
            parents = Parents(parents.choices[rows], parents.unit_order[rows], parents.again[rows])
        arrays = {name: getattr(self, name)[rows] for name in ("points", "epsilon", "greedy", "freedom", "preferences")}
        return replace(self, parents=parents, **arrays)


@dataclass(frozen=True, slots=True)
class MadePlans:
    """Plans, their designs, and the log-probabilities [plans, slots] of what was decided for them."""

    plans: Plans
    designs: Sequence[Design]
    logp: Floats


def make_plans(prepared: PreparedRequirements, view: PolicyView, request: PlanRequest) -> MadePlans:
    guide = Preferences(request.preferences) if request.preferences else None
    chooser = PolicyChooser(view, request.points, request.epsilon, request.greedy, request.temperature, guide)
    problem, count = prepared.problem, len(request.points)
    if request.parents is None:
        plans = construct(problem, chooser, count, request.record, request.freedom)
        return MadePlans(plans, prepared.drafter(plans), chooser.log_probabilities(plans))
    retake = Retake(problem, request.parents, chooser, request.other)
    plans = construct(problem, retake, count, request.record, request.freedom)
    return MadePlans(plans, prepared.drafter(plans), retake.logp)


@dataclass(frozen=True, slots=True)
class TimedScore:
    """A score, and the seconds it took."""

    score: DesignScore
    seconds: float


def timed_score(prepared: PreparedRequirements, design: Design, seed: int) -> TimedScore:
    before = time.perf_counter()
    score = score_design(prepared, design, seed)
    return TimedScore(score, time.perf_counter() - before)


class LocalCandidates:
    """Makes and evaluates candidates for one set of requirements in this process."""

    def __init__(self, prepared: PreparedRequirements) -> None:
        self.prepared = prepared

    def make(self, view: PolicyView, request: PlanRequest) -> MadePlans:
        return make_plans(self.prepared, view, request)

    def score(self, designs: Sequence[Design], seed: int) -> list[TimedScore]:
        return [timed_score(self.prepared, design, seed) for design in designs]


class SharedCandidates(LocalCandidates):
    """The same, shared out among workers in equal parts."""

    def __init__(self, prepared: PreparedRequirements, weights: Weights | None, workers: RolloutWorkers) -> None:
        super().__init__(prepared)
        self.workers = workers
        self.about = (prepared.problem.requirements, weights)

    def make(self, view: PolicyView, request: PlanRequest) -> MadePlans:
        arrays = view.arrays()
        shares = _shares(len(request.points), self.workers.size)
        parts = self.workers.ask_all([("make", *self.about, arrays, request.part(rows)) for rows in shares])
        packed, designs, logp = zip(*parts, strict=True)
        plans = _joined(packed, self.prepared.problem)
        return MadePlans(plans, [one for part in designs for one in part], np.concatenate(logp))

    def score(self, designs: Sequence[Design], seed: int) -> list[TimedScore]:
        shares = _shares(len(designs), self.workers.size)
        parts = self.workers.ask_all([("score", *self.about, designs[rows], seed) for rows in shares])
        return [one for part in parts for one in part]


def _shares(count: int, workers: int) -> list[slice]:
    ends = [count * number // workers for number in range(workers + 1)]
    return [slice(first, last) for first, last in itertools.pairwise(ends) if last > first]


@dataclass(slots=True)
class CandidateWorker:
    """The handler of a worker process; it keeps the requirements that it was asked about last."""

    asked: tuple[Requirements, Weights | None] | None = None
    prepared: PreparedRequirements | None = field(default=None)

    def __call__(self, request: tuple[Any, ...]) -> Any:
        operation, requirements, weights, *rest = request
        if self.prepared is None or self.asked != (requirements, weights):
            self.asked, self.prepared = (requirements, weights), PreparedRequirements.of(requirements, weights)
        if operation == "score":
            designs, seed = rest
            return [timed_score(self.prepared, design, seed) for design in designs]
        arrays, wanted = rest
        made = make_plans(self.prepared, PolicyView.restored(arrays, self.prepared.problem), wanted)
        return _packed(made.plans), made.designs, made.logp


def _packed(plans: Plans) -> dict[str, Any]:
    # Everything but the problem, which the other process has as well.
    return {one.name: getattr(plans, one.name) for one in fields(plans) if one.name != "problem"}


def _joined(parts: Sequence[dict[str, Any]], problem: DesignProblem) -> Plans:
    joined: dict[str, Any] = {}
    for name, first in parts[0].items():
        if isinstance(first, dict):
            joined[name] = {key: np.concatenate([part[name][key] for part in parts]) for key in first}
        else:
            joined[name] = None if first is None else np.concatenate([part[name] for part in parts])
    return Plans(problem, **joined)
