"""Designs from numbers between 0 and 1: the decoder that searches without a policy use.

A decision takes the candidate that its number falls on, among those that are legal. Which unit comes next, and where it
is placed, is told by a number of the unit and not of the turn, so that a change in one place leaves the others alone.
"""

from __future__ import annotations

import numpy as np

from groupwise.workflows.blocks import Design
from groupwise.workflows.designer.actions import NEXT, PLACE
from groupwise.workflows.designer.blueprint import Drafter
from groupwise.workflows.designer.construction import construct
from groupwise.workflows.designer.plans import Plans, Question
from groupwise.workflows.designer.problem import Bools, Floats, Ints, Problem
from groupwise.workflows.requirements import Requirements


class KeyChooser:
    """Chooses by keys [plans, genes]."""

    def __init__(self, problem: Problem, keys: Floats) -> None:
        self.problem = problem
        units, turns = len(problem.units), problem.staffing - problem.rounds
        self.before = keys[:, : problem.rounds]
        self.order = keys[:, problem.rounds : problem.rounds + units]
        self.places = keys[:, problem.rounds + units : problem.rounds + 2 * units]
        self.after = keys[:, problem.rounds + 2 * units :]
        self.skipped = problem.rounds + turns

    def __call__(self, question: Question) -> Ints:
        if question.head == NEXT:
            first: Ints = np.where(question.legal[:, 0], self.order, -1.0).argmax(1)[:, None]
            return first
        if question.head == PLACE:
            keys = np.take_along_axis(self.places, question.subjects, 1)
        elif question.slots[0] < self.problem.rounds:
            keys = self.before[:, question.slots]
        else:
            keys = self.after[:, question.slots - self.skipped]
        return nth_legal(question.legal, keys)


def nth_legal(legal: Bools, keys: Floats) -> Ints:
    """The legal candidate that a number from 0 to 1 falls on."""
    count = legal.sum(-1)
    wanted = np.minimum((keys * count).astype(np.int64), count - 1)
    found: Ints = (legal.cumsum(-1) > wanted[..., None]).argmax(-1)
    return found


def plans_of(problem: Problem, keys: Floats, record: bool = False) -> Plans:
    keys = np.clip(np.asarray(keys, np.float64), 0.0, 1 - 1e-12)
    return construct(problem, KeyChooser(problem, keys), len(keys), record)


def genes_of(problem: Problem) -> int:
    return problem.rounds + 2 * len(problem.units) + len(problem.slots) - problem.staffing


class Construction:
    """The decoder for one set of requirements."""

    def __init__(self, requirements: Requirements) -> None:
        self.problem = Problem(requirements)
        self.drafter = Drafter(self.problem)

    @property
    def genes(self) -> int:
        return genes_of(self.problem)

    def plans(self, keys: Floats) -> Plans:
        return plans_of(self.problem, keys)

    def decode(self, keys: Floats) -> list[Design]:
        """One design for each row of keys."""
        return self.drafter(self.plans(keys))
