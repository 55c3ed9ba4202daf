"""What worked, without what was particular: of each kind of decision, what its chosen candidates had more of.

A habit is learned from one plan and means something for requirements of any size, since it speaks of what is known of
candidates (load, price, chance of failure, whether a lane is new) and not of activities or pools by name. For each head

    weight_f = mean(known_f of the chosen − mean known_f of the legal) / (variance_f among the legal + 0.01)
    number_c = ln((share of choices that were c + 0.1) / (share expected of any choice + 0.1))

the first as in discriminant analysis, the second as in naive Bayes; a candidate's logit is their sum. Those of "next"
and "allocation" are numbered by the requirements, so for those the number says nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from groupwise.workflows.designer.actions import ALLOCATION, CANDIDATES, FEATURES, HEADS, NEXT
from groupwise.workflows.designer.plans import Plans, Question
from groupwise.workflows.designer.problem import Bools, Floats, Ints

Habit: TypeAlias = Mapping[str, Mapping[str, Sequence[float]]]
"""By head: `known`, a weight for each number known of a candidate, and `number`, one for each candidate's place."""

NAMELESS = (ALLOCATION, NEXT)
STEADY = 0.01
PRIOR = 0.1


def habit_of(plans: Plans, row: int) -> dict[str, Any]:
    """The habit of one plan, which was made with a record."""
    assert plans.seen is not None
    assert plans.legal is not None
    return habit(plans.problem.heads, plans.seen[row], plans.legal[row], plans.choices[row])


def habit(heads: Ints, seen: np.ndarray, legal: Bools, choices: Ints) -> dict[str, Any]:
    """The habit of decisions [decisions, candidates]; those without a legal candidate were none."""
    found: dict[str, Any] = {}
    for head, name in enumerate(HEADS):
        mine = np.flatnonzero((heads == head) & legal.any(-1))
        if len(mine):
            found[name] = _preference(head, seen[mine], legal[mine], choices[mine])
    return found


def _preference(head: int, seen: np.ndarray, legal: np.ndarray, chosen: np.ndarray) -> dict[str, list[float]]:
    count = legal.sum(1, keepdims=True)
    middle = (seen * legal[..., None]).sum(1) / count
    apart = (seen - middle[:, None]) * legal[..., None]
    variance = (apart**2).sum((0, 1)) / count.sum()
    decisions = np.arange(len(chosen))
    weight = apart[decisions, chosen].mean(0) / (variance + STEADY)
    told = {"known": [round(float(one), 1) for one in weight]}
    if head not in NAMELESS:
        expected = (legal / count).mean(0)[:CANDIDATES]
        share = np.bincount(chosen, minlength=CANDIDATES)[:CANDIDATES] / len(chosen)
        told["number"] = [round(float(one), 1) for one in np.log((share + PRIOR) / (expected + PRIOR))]
    return told


class Habits:
    """Habits as somebody to ask: of each plan one, the share of each candidate in every decision."""

    def __init__(self, habits: Sequence[Habit]) -> None:
        self.known = np.zeros((len(habits), len(HEADS), FEATURES))
        self.number = np.zeros((len(habits), len(HEADS), CANDIDATES))
        for row, habit in enumerate(habits):
            for head, name in enumerate(HEADS):
                told = habit.get(name, {})
                self.known[row, head] = told.get("known", 0.0)
                self.number[row, head] = told.get("number", 0.0)

    def __call__(self, question: Question) -> Floats:
        """[plans, decisions, candidates]: shares that add up to 1 over the legal."""
        head = question.head
        logits = np.einsum("pdcf,pf->pdc", question.known, self.known[:, head])
        if head not in NAMELESS:
            logits = logits + self.number[:, None, head]
        logits = np.where(question.legal, logits, -np.inf)
        weights = np.exp(logits - logits.max(-1, keepdims=True))
        shares: Floats = weights / weights.sum(-1, keepdims=True)
        return shares
