"""What a construction asks, and what it makes: plans, decision by decision."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from groupwise.workflows.designer.problem import Bools, Floats, Ints, Problem


@dataclass(frozen=True, slots=True)
class Question:
    """Decisions of one head that are taken together, by every plan: [plans, decisions, candidates].

    `slots` says which decisions; `subjects` [plans, decisions] what each is about: an activity, a pool, the unit to be
    placed, or for the next unit the one placed last (−1: none yet). `known` [..., FEATURES] describes candidates.
    """

    head: int
    slots: Ints
    subjects: Ints
    legal: Bools
    known: Floats


class Chooser(Protocol):
    """Takes decisions: a legal candidate for each."""

    def __call__(self, question: Question) -> Ints: ...


@dataclass(slots=True)
class Plans:
    """What was decided, a row for each plan; `free` is true where there was more than one legal candidate."""

    problem: Problem
    choices: Ints
    free: Bools
    kept: Bools
    active: Bools
    pool: Ints
    retries: Ints
    timeout: Ints
    due: Ints
    discipline: Ints
    priority: Ints
    unit_order: Ints
    stage: Ints
    lane: Ints
    servers: Ints
    seen: Floats | None = None
    legal: Bools | None = None
    together: dict[int, Bools] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.choices)
