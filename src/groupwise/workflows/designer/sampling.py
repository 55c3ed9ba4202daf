"""Plans drawn from the policy, with their exact log-probabilities.

A plan's candidates come from a mixture: with probability ε any legal one, otherwise the policy's. What is recorded is
the log-probability under the mixture, so that learning corrects for it. `Retake` follows an earlier plan and decides
some of it again: an edit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import torch

from groupwise.workflows.designer.actions import ALLOCATION, NEXT, PLACE
from groupwise.workflows.designer.features import features_of
from groupwise.workflows.designer.plans import Plans, Question
from groupwise.workflows.designer.policy import GraphPolicy
from groupwise.workflows.designer.problem import Bools, Floats, Ints, Problem


class Views:
    """What a policy makes of one set of requirements: its heads as plain arrays, worked out once."""

    def __init__(self, policy: GraphPolicy, problem: Problem) -> None:
        self.problem = problem
        seen = features_of(problem)
        with torch.no_grad():
            nodes, kinds = torch.from_numpy(seen.nodes)[None], torch.from_numpy(seen.kinds)[None]
            graph = policy.encode(nodes, kinds, torch.from_numpy(seen.relations)[None])[0]
            units = torch.from_numpy(padded_members(problem)).float() @ graph
            table = torch.cat([torch.zeros_like(graph[:1]), graph, units])
            whole = torch.einsum("w,hwd->hd", graph[-1], policy.whole) + policy.bias
            self.subject = (torch.einsum("nw,hwd->hnd", table, policy.subject) + whole[:, None]).numpy()
            self.pools = (table @ policy.candidate[ALLOCATION]).numpy()
            self.units = (units @ policy.candidate[NEXT]).numpy()
            self.known = policy.known.detach().numpy()
            self.number = policy.number.detach().numpy()
            self.out = policy.out.detach().numpy()
        self.version = policy.version

    def logits(self, question: Question) -> Floats:
        """[plans, decisions, candidates]."""
        problem, head = self.problem, question.head
        hidden = self.subject[head][table_rows(problem, head, question.subjects)][:, :, None]
        hidden = hidden + (self.units if head == NEXT else self.number[head])
        if head == ALLOCATION:
            able = pool_rows(problem, int(question.subjects[0, 0]))
            hidden = hidden + np.where((able > 0)[:, None], self.pools[able], 0.0)
        hidden = hidden + question.known.astype(np.float32) @ self.known[head]
        logits: Floats = np.maximum(hidden, 0) @ self.out[head]
        return logits


def padded_members(problem: Problem) -> Floats:
    """[units, nodes]: the mean over the activities of a unit."""
    nodes = len(problem.names) + len(problem.pool_names) + 1
    return np.pad(problem.members, ((0, 0), (0, nodes - len(problem.names))))


def table_rows(problem: Problem, head: int, subjects: Ints) -> Ints:
    """Where a subject stands in the table of nothing, nodes and units."""
    if head in (NEXT, PLACE):
        first = 1 + len(problem.names) + len(problem.pool_names) + 1
        return np.where(subjects >= 0, subjects + first, 0)
    return subjects + 1


def pool_rows(problem: Problem, activity: int) -> Ints:
    """The rows of the pools that an activity chooses from; 0 where there are no more."""
    able = problem.pool_candidates(activity)
    rows = np.zeros(10, np.int64)
    rows[: len(able)] = np.array(able) + 1 + len(problem.names)
    return rows


Guide: TypeAlias = Callable[[Question], Floats]
"""Somebody else's shares of the candidates [plans, decisions, candidates], 0 where illegal."""


class PolicyChooser:
    """Draws from the policy; `epsilon` [plans] of the time from anything legal, or as a guide says.

    `greedy` plans take the likeliest.
    """

    def __init__(
        self,
        views: Views,
        rng: np.random.Generator,
        epsilon: Floats | float = 0.0,
        greedy: Bools | None = None,
        temperature: float = 1.0,
        guide: Guide | None = None,
    ) -> None:
        self.views, self.rng, self.temperature, self.guide = views, rng, temperature, guide
        self.epsilon, self.greedy = epsilon, greedy
        self.logp: dict[int, Floats] = {}

    def __call__(self, question: Question) -> Ints:
        choice, logp = self.draw(question)
        for place, slot in enumerate(question.slots.tolist()):
            self.logp[slot] = logp[:, place]
        return choice

    def draw(self, question: Question) -> tuple[Ints, Floats]:
        legal = question.legal
        logits = self.views.logits(question) / self.temperature
        logits = np.where(legal, logits, -np.inf)
        weights = np.exp(logits - logits.max(-1, keepdims=True))
        shares = weights / weights.sum(-1, keepdims=True)
        count = legal.sum(-1, keepdims=True)
        epsilon = np.broadcast_to(np.asarray(self.epsilon, np.float64), legal.shape[:1])[:, None, None]
        other = legal / count if self.guide is None else self.guide(question)
        mixed = (1 - epsilon) * shares + epsilon * other
        point = self.rng.random((*legal.shape[:2], 1)) * mixed.sum(-1, keepdims=True)
        choice = (mixed.cumsum(-1) > point).argmax(-1)
        if self.greedy is not None:
            choice = np.where(self.greedy[:, None], logits.argmax(-1), choice)
        taken = np.take_along_axis(mixed, choice[..., None], -1)[..., 0]
        return choice, np.where(count[..., 0] > 1, np.log(np.maximum(taken, 1e-30)), 0.0)

    def log_probabilities(self, plans: Plans) -> Floats:
        """[plans, slots], 0 where nothing was decided."""
        found = np.zeros(plans.choices.shape)
        for slot, logp in self.logp.items():
            found[:, slot] = np.where(plans.free[:, slot], logp, 0.0)
        return found


@dataclass(slots=True)
class Parents:
    """Plans to be edited, one for each that is made; `again` [plans, slots] is what is decided anew.

    Turns are followed by unit: a unit keeps its place in the order and its lane as long as that is legal.
    """

    choices: Ints
    unit_order: Ints
    again: Bools


class Retake:
    """Follows the parents where it may, and lets another chooser decide what is open.

    With `other`, what is decided again is decided otherwise, wherever there is another way.
    """

    def __init__(self, problem: Problem, parents: Parents, chooser: PolicyChooser, other: bool = False) -> None:
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
        self.taken = np.zeros(parents.choices.shape, np.bool_)
        """Where a decision was taken again, or had to be: the parent's choice was no longer legal."""
        self.logp = np.zeros(parents.choices.shape)

    def __call__(self, question: Question) -> Ints:
        wanted, again = self._wanted(question)
        possible = np.take_along_axis(question.legal, np.maximum(wanted, 0)[..., None], -1)[..., 0] & (wanted >= 0)
        follow = possible & ~again
        drawn, logp = self.chooser.draw(self._narrowed(question, wanted, possible & again) if self.other else question)
        self.taken[:, question.slots] = ~follow
        self.logp[:, question.slots] = np.where(follow, 0.0, logp)
        return np.where(follow, wanted, drawn)

    def _narrowed(self, question: Question, wanted: Ints, again: Bools) -> Question:
        """The question without the parents' choices where they are not to be repeated."""
        legal = question.legal.copy()
        plan, place = np.nonzero(again & (legal.sum(-1) > 1))
        legal[plan, place, wanted[plan, place]] = False
        return replace(question, legal=legal)

    def _wanted(self, question: Question) -> tuple[Ints, Bools]:
        """What the parents chose, and where that is to be decided again."""
        if question.head == NEXT:
            turn = (int(question.slots[0]) - self.problem.rounds) // 2
            wanted = np.where(question.legal[:, 0], self.rank, 1 << 30).argmin(1)
            return wanted[:, None], self.next_again[:, turn : turn + 1]
        if question.head == PLACE:
            again = np.take_along_axis(self.place_again, question.subjects, 1)
            return np.take_along_axis(self.lane, question.subjects, 1), again
        return self.parents.choices[:, question.slots], self.parents.again[:, question.slots]
