"""Which kinds of decision are worth taking again, as this search finds out: those whose edits led to better designs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from groupwise.workflows.designer.actions import HEADS
from groupwise.workflows.designer.problem import Bools, Problem

PATIENCE = 0.5
"""The probability that an edit ends after another decision: most take one or two again."""


class Judged(Protocol):
    """A candidate, as far as luck is concerned."""

    @property
    def key(self) -> int: ...
    @property
    def free(self) -> Bools: ...
    @property
    def total(self) -> float: ...


class Luck:
    """Edits and how they went, by kind of decision."""

    def __init__(self, problem: Problem) -> None:
        self.heads = problem.heads
        self.tried = np.ones(len(HEADS)) * 2
        self.better = np.ones(len(HEADS))
        self.waiting: dict[int, tuple[float, Bools]] = {}

    def decisions(self, parents: Sequence[Judged], rng: np.random.Generator, more: int = 0) -> Bools:
        """For each parent what to take again: kinds by their luck so far, and any free decision of the kind."""
        again = np.zeros((len(parents), len(self.heads)), np.bool_)
        rates = self.better / self.tried
        for row, parent in enumerate(parents):
            free = np.flatnonzero(parent.free)
            if not len(free):
                continue
            kinds, counts = np.unique(self.heads[free], return_counts=True)
            weights = rates[kinds] * np.sqrt(counts)
            for kind in rng.choice(kinds, int(rng.geometric(PATIENCE)) + more, p=weights / weights.sum()):
                again[row, rng.choice(free[self.heads[free] == kind])] = True
        return again

    def remember(self, children: Sequence[Judged], parents: Sequence[Judged], again: Bools) -> None:
        """Note what was tried, until the children are judged."""
        for child, parent, decisions in zip(children, parents, again, strict=True):
            self.waiting.setdefault(child.key, (parent.total, decisions))

    def learn(self, judged: Sequence[Judged]) -> None:
        for candidate in judged:
            known = self.waiting.pop(candidate.key, None)
            if known is not None:
                before, decisions = known
                kinds = np.unique(self.heads[decisions])
                self.tried[kinds] += 1
                self.better[kinds] += candidate.total > before
