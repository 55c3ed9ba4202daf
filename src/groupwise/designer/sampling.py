"""Sampling plans: from the policy, from preferences learned from good plans, and by editing earlier plans.

A preference is learned from one plan and applies to requirements of any size, because it refers to what is known about
candidates (load, price, failure rate, whether a lane is new) and not to activities or pools by name. For each head

    weight_f = mean(known_f of the chosen − mean known_f of the legal) / (variance_f among the legal + 0.01)
    number_c = ln((share of choices that were c + 0.1) / (share expected of any choice + 0.1))

The first is as in discriminant analysis, the second as in naive Bayes; a candidate's logit is their sum. Candidates of
"next" and "allocation" are numbered differently in all requirements, so these heads have no number_c.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypeAlias

import numpy as np
import torch

from groupwise.designer.features import features_of
from groupwise.designer.plans import DecisionBatch, Plans
from groupwise.designer.policy import GraphPolicy
from groupwise.designer.problem import CANDIDATES, FEATURES, HEADS, Bools, DesignProblem, Floats, Head, Ints

# By head: `known`, a weight for each feature of a candidate, and `number`, one for each candidate number.
Preference: TypeAlias = Mapping[str, Mapping[str, Sequence[float]]]

# Heads whose candidates are numbered by the requirements.
NAMELESS = (Head.ALLOCATION, Head.NEXT)
# The constants 0.01 and 0.1 of the formulas above.
STEADY = 0.01
PRIOR = 0.1


def preference_of_plan(plans: Plans, row: int) -> dict[str, Any]:
    """The preference of one plan that was made with a record."""
    assert plans.seen is not None
    assert plans.legal is not None
    return preference_of_decisions(plans.problem.heads, plans.seen[row], plans.legal[row], plans.choices[row])


def preference_of_decisions(heads: Ints, seen: np.ndarray, legal: Bools, choices: Ints) -> dict[str, Any]:
    """The preference of decisions [decisions, candidates]; rows without a legal candidate were not decisions."""
    found: dict[str, Any] = {}
    for head, name in enumerate(HEADS):
        mine = np.flatnonzero((heads == head) & legal.any(-1))
        if len(mine):
            found[name] = _head_preference(head, seen[mine], legal[mine], choices[mine])
    return found


def _head_preference(head: int, seen: np.ndarray, legal: np.ndarray, chosen: np.ndarray) -> dict[str, list[float]]:
    count = legal.sum(1, keepdims=True)
    middle = (seen * legal[..., None]).sum(1) / count
    apart = (seen - middle[:, None]) * legal[..., None]
    variance = (apart**2).sum((0, 1)) / count.sum()
    decisions = np.arange(len(chosen))
    weight = apart[decisions, chosen].mean(0) / (variance + STEADY)
    weights = {"known": [round(float(one), 1) for one in weight]}
    if head not in NAMELESS:
        expected = (legal / count).mean(0)[:CANDIDATES]
        share = np.bincount(chosen, minlength=CANDIDATES)[:CANDIDATES] / len(chosen)
        weights["number"] = [round(float(one), 1) for one in np.log((share + PRIOR) / (expected + PRIOR))]
    return weights


class Preferences:
    """One preference per plan, as a distribution over the candidates of every decision."""

    def __init__(self, preferences: Sequence[Preference]) -> None:
        self.known = np.zeros((len(preferences), len(HEADS), FEATURES))
        self.number = np.zeros((len(preferences), len(HEADS), CANDIDATES))
        for row, preference in enumerate(preferences):
            for head, name in enumerate(HEADS):
                weights = preference.get(name, {})
                self.known[row, head] = weights.get("known", 0.0)
                self.number[row, head] = weights.get("number", 0.0)

    def __call__(self, question: DecisionBatch) -> Floats:
        """[plans, decisions, candidates]: probabilities that sum to 1 over the legal candidates."""
        head = question.head
        logits = np.einsum("pdcf,pf->pdc", question.known, self.known[:, head])
        if head not in NAMELESS:
            logits = logits + self.number[:, None, head]
        return softmax(np.where(question.legal, logits, -np.inf))


def softmax(logits: Floats) -> Floats:
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    shares: Floats = weights / weights.sum(-1, keepdims=True)
    return shares


class PolicyView:
    """A policy applied to one problem: everything that does not depend on the plan, computed once, as NumPy arrays."""

    def __init__(self, policy: GraphPolicy, problem: DesignProblem) -> None:
        self.problem = problem
        seen = features_of(problem)
        with torch.no_grad():
            nodes, kinds = torch.from_numpy(seen.nodes)[None], torch.from_numpy(seen.kinds)[None]
            graph = policy.encode(nodes, kinds, torch.from_numpy(seen.relations)[None])[0]
            units = torch.from_numpy(problem.padded_members()).float() @ graph
            table = torch.cat([torch.zeros_like(graph[:1]), graph, units])
            whole = torch.einsum("w,hwd->hd", graph[-1], policy.whole) + policy.bias
            self.subject = (torch.einsum("nw,hwd->hnd", table, policy.subject) + whole[:, None]).numpy()
            self.pools = (table @ policy.candidate[Head.ALLOCATION]).numpy()
            self.units = (units @ policy.candidate[Head.NEXT]).numpy()
            self.known = policy.known.detach().numpy()
            self.number = policy.number.detach().numpy()
            self.out = policy.out.detach().numpy()
        self.version = policy.version

    def arrays(self) -> dict[str, Any]:
        """What another process needs to restore the view for its own copy of the problem."""
        return {name: value for name, value in vars(self).items() if name != "problem"}

    @classmethod
    def restored(cls, arrays: Mapping[str, Any], problem: DesignProblem) -> Self:
        view = cls.__new__(cls)
        vars(view).update(arrays, problem=problem)
        return view

    def logits(self, question: DecisionBatch) -> Floats:
        """The logits, [plans, decisions, candidates]."""
        problem, head = self.problem, question.head
        hidden = self.subject[head][problem.table_rows(head, question.subjects)][:, :, None]
        hidden = hidden + (self.units if head == Head.NEXT else self.number[head])
        if head == Head.ALLOCATION:
            able = problem.pool_rows(int(question.subjects[0, 0]))
            hidden = hidden + np.where((able > 0)[:, None], self.pools[able], 0.0)
        hidden = hidden + question.known.astype(np.float32) @ self.known[head]
        logits: Floats = np.maximum(hidden, 0) @ self.out[head]
        return logits


# Another distribution over the candidates, [plans, decisions, candidates], 0 where illegal.
Guide: TypeAlias = Callable[[DecisionBatch], Floats]


class PolicyChooser:
    """Samples from the mixture (1 − ε) · policy + ε · guide, with ε for each plan; the guide is uniform by default.

    Plans marked `greedy` take the likeliest candidate. Log-probabilities are those of the mixture. Each decision of a
    plan has a random number of its own, [plans, slots]: what one plan draws does not depend on the others.
    """

    def __init__(
        self,
        view: PolicyView,
        random: np.random.Generator | Floats,
        epsilon: Floats | float = 0.0,
        greedy: Bools | None = None,
        temperature: float = 1.0,
        guide: Guide | None = None,
    ) -> None:
        self.view, self.random, self.temperature, self.guide = view, random, temperature, guide
        self.epsilon, self.greedy = epsilon, greedy
        self.logp: dict[int, Floats] = {}

    def __call__(self, question: DecisionBatch) -> Ints:
        choice, logp = self.draw(question)
        for place, slot in enumerate(question.slots.tolist()):
            self.logp[slot] = logp[:, place]
        return choice

    def draw(self, question: DecisionBatch) -> tuple[Ints, Floats]:
        legal = question.legal
        logits = np.where(legal, self.view.logits(question) / self.temperature, -np.inf)
        count = legal.sum(-1, keepdims=True)
        epsilon = np.broadcast_to(np.asarray(self.epsilon, np.float64), legal.shape[:1])[:, None, None]
        other = legal / count if self.guide is None else self.guide(question)
        mixed = (1 - epsilon) * softmax(logits) + epsilon * other
        if isinstance(self.random, np.random.Generator):
            self.random = self.random.random((len(legal), len(self.view.problem.slots)))
        # Inverse transform sampling; scaling by the sum absorbs rounding.
        point = self.random[:, question.slots, None] * mixed.sum(-1, keepdims=True)
        choice = (mixed.cumsum(-1) > point).argmax(-1)
        if self.greedy is not None:
            choice = np.where(self.greedy[:, None], logits.argmax(-1), choice)
        taken = np.take_along_axis(mixed, choice[..., None], -1)[..., 0]
        return choice, np.where(count[..., 0] > 1, np.log(np.maximum(taken, 1e-30)), 0.0)

    def log_probabilities(self, plans: Plans) -> Floats:
        """[plans, slots], 0 where there was nothing to decide."""
        found = np.zeros(plans.choices.shape)
        for slot, logp in self.logp.items():
            found[:, slot] = np.where(plans.free[:, slot], logp, 0.0)
        return found


@dataclass(slots=True)
class Parents:
    """Plans to edit, one for each new plan; `again` [plans, slots] marks the decisions to take again.

    The turns of next and place follow units: a unit keeps its position in the order and its lane while that is legal.
    """

    choices: Ints
    unit_order: Ints
    again: Bools


class Retake:
    """Repeats the parents' choices where possible, and lets another chooser take the remaining decisions.

    With `other`, a decision taken again must come out differently, if there is another legal candidate.
    """

    def __init__(self, problem: DesignProblem, parents: Parents, chooser: PolicyChooser, other: bool = False) -> None:
        self.problem, self.parents, self.chooser, self.other = problem, parents, chooser, other
        count, units = len(parents.choices), len(problem.units)
        turns = parents.unit_order.shape[1]
        self.rank = np.full((count, units), turns)
        self.lane = np.full((count, units), -1)
        plan, turn = np.nonzero(parents.unit_order >= 0)
        unit = parents.unit_order[plan, turn]
        self.rank[plan, unit] = turn
        self.lane[plan, unit] = parents.choices[plan, problem.rounds + 2 * turn + 1]
        next_again = parents.again[:, problem.rounds : problem.staffing : 2]
        place_again = parents.again[:, problem.rounds + 1 : problem.staffing : 2]
        self.place_again = np.zeros((count, units), np.bool_)
        self.place_again[plan, unit] = place_again[plan, turn]
        self.next_again = next_again
        # Where a decision was taken again, or had to be because the parent's choice is no longer legal.
        self.taken = np.zeros(parents.choices.shape, np.bool_)
        self.logp = np.zeros(parents.choices.shape)

    def __call__(self, question: DecisionBatch) -> Ints:
        wanted, again = self._wanted(question)
        possible = np.take_along_axis(question.legal, np.maximum(wanted, 0)[..., None], -1)[..., 0] & (wanted >= 0)
        follow = possible & ~again
        drawn, logp = self.chooser.draw(self._narrowed(question, wanted, possible & again) if self.other else question)
        self.taken[:, question.slots] = ~follow
        self.logp[:, question.slots] = np.where(follow, 0.0, logp)
        return np.where(follow, wanted, drawn)

    def _narrowed(self, question: DecisionBatch, wanted: Ints, again: Bools) -> DecisionBatch:
        # The decisions without the parents' choices where they must come out differently.
        legal = question.legal.copy()
        plan, place = np.nonzero(again & (legal.sum(-1) > 1))
        legal[plan, place, wanted[plan, place]] = False
        return replace(question, legal=legal)

    def _wanted(self, question: DecisionBatch) -> tuple[Ints, Bools]:
        # What the parents chose, and which of it to decide again.
        if question.head == Head.NEXT:
            turn = (int(question.slots[0]) - self.problem.rounds) // 2
            # Of the units that may come next, the one that came earliest in the parent.
            wanted = np.where(question.legal[:, 0], self.rank, 1 << 30).argmin(1)
            return wanted[:, None], self.next_again[:, turn : turn + 1]
        if question.head == Head.PLACE:
            again = np.take_along_axis(self.place_again, question.subjects, 1)
            return np.take_along_axis(self.lane, question.subjects, 1), again
        return self.parents.choices[:, question.slots], self.parents.again[:, question.slots]
