"""Designs without a policy: random keys that decode to designs, and heuristics expressed as keys.

    heuristic_keys(problem, HEURISTICS[PORTFOLIO[0]])

A key is a number in [0, 1). A decision takes the legal candidate that its key falls on. The keys for which unit comes
next and where it is placed belong to the unit, not to the turn: changing one key leaves the other decisions alone.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from groupwise.designer.construction import RETRIES, construct
from groupwise.designer.plans import STAGED, WIDEST, DecisionBatch, Plans
from groupwise.designer.problem import Bools, DesignProblem, Floats, Head, Ints


class KeyChooser:
    """Chooses by keys [plans, genes]: slots before the turns, order and places of units, slots after."""

    def __init__(self, problem: DesignProblem, keys: Floats) -> None:
        self.problem = problem
        units, turns = len(problem.units), problem.staffing - problem.rounds
        self.before = keys[:, : problem.rounds]
        self.order = keys[:, problem.rounds : problem.rounds + units]
        self.places = keys[:, problem.rounds + units : problem.rounds + 2 * units]
        self.after = keys[:, problem.rounds + 2 * units :]
        self.skipped = problem.rounds + turns

    def __call__(self, question: DecisionBatch) -> Ints:
        if question.head == Head.NEXT:
            first: Ints = np.where(question.legal[:, 0], self.order, -1.0).argmax(1)[:, None]
            return first
        if question.head == Head.PLACE:
            keys = np.take_along_axis(self.places, question.subjects, 1)
        elif question.slots[0] < self.problem.rounds:
            keys = self.before[:, question.slots]
        else:
            keys = self.after[:, question.slots - self.skipped]
        return nth_legal(question.legal, keys)


def nth_legal(legal: Bools, keys: Floats) -> Ints:
    count = legal.sum(-1)
    wanted = np.minimum((keys * count).astype(np.int64), count - 1)
    found: Ints = (legal.cumsum(-1) > wanted[..., None]).argmax(-1)
    return found


def plans_of(problem: DesignProblem, keys: Floats, record: bool = False) -> Plans:
    keys = np.clip(np.asarray(keys, np.float64), 0.0, 1 - 1e-12)
    return construct(problem, KeyChooser(problem, keys), len(keys), record)


def genes_of(problem: DesignProblem) -> int:
    return problem.rounds + 2 * len(problem.units) + len(problem.slots) - problem.staffing


# The heuristics to try first, each chosen for what it adds to the ones before (`workflow_design.py --tune`).
PORTFOLIO = (23, 65, 592, 358, 598, 593)
# How many of them are tried before the neighbours of the best.
FIRST = 3


@dataclass(frozen=True, slots=True)
class Heuristic:
    """A rule of thumb for a complete design.

    order    "knock-outs" by rejection probability over time (van der Aalst 2001), "longest" remaining work first, or
             "shortest" activity first
    place    in sequence; in parallel where allowed; knock-outs in sequence, the rest in parallel; spread over lanes; or
             the widest design, in which nothing waits for anything but what rules and data demand
    pool     the cheapest with room, the fastest with room, or even load
    spare    how far above the fewest servers that keep up: the key of every staffing decision
    retries  where an attempt can fail
    apart    one choice for each option of a branch
    """

    order: str
    place: str
    pool: str
    spare: float
    retries: int
    apart: bool


CHOICES: Mapping[str, tuple[Any, ...]] = {
    "order": ("knock-outs", "longest", "shortest"),
    "place": ("sequence", "parallel", "knock-outs first", "spread", "widest"),
    "pool": ("cheap", "fast", "even"),
    "spare": (0.0, 0.12, 0.25, 0.4),
    "retries": (0, 1, 3),
    "apart": (False, True),
}
# The widest ones last: the numbers of the others are those of the portfolio.
HEURISTICS = tuple(
    sorted(itertools.starmap(Heuristic, itertools.product(*CHOICES.values())), key=lambda rule: rule.place == "widest")
)
# Parallel designs that are always looked at: little staff at the cheapest pools, and more of the fastest.
ALWAYS = (
    Heuristic("longest", "widest", "cheap", 0.12, 1, False),
    Heuristic("longest", "widest", "fast", 0.25, 1, False),
)
# The load up to which a pool has room.
ROOM = 0.8


def neighbours(rule: Heuristic) -> Iterator[Heuristic]:
    """All heuristics that differ from this one in one respect."""
    for name, ways in CHOICES.items():
        yield from (replace(rule, **{name: way}) for way in ways if way != getattr(rule, name))


class HeuristicQueue:
    """Which heuristic to try next: first the widest and the portfolio, then the neighbours of the best so far.

    Where the policy is familiar with requirements, only one of the widest is tried.
    """

    def __init__(self, familiar: bool = False) -> None:
        self.familiar = familiar
        portfolio = [HEURISTICS[number] for number in PORTFOLIO[:FIRST]]
        self.untried = [ALWAYS[0]] if familiar else [*ALWAYS, *portfolio]
        self.tried: set[Heuristic] = set(self.untried)
        self.best: Heuristic | None = None
        # The score of the best heuristic.
        self.total = float("-inf")

    def next(self, count: int) -> list[Heuristic]:
        if len(self.untried) < count and self.best is not None and not self.familiar:
            more = [rule for rule in neighbours(self.best) if rule not in self.tried]
            self.tried.update(more)
            self.untried += more
        found, self.untried = self.untried[:count], self.untried[count:]
        return found

    def learn(self, rule: Heuristic, total: float) -> None:
        if total > self.total:
            self.best, self.total = rule, total


def heuristic_keys(problem: DesignProblem, rules: Heuristic) -> Floats:
    """The keys of a heuristic; decisions that it does not cover keep their default, without optional activities."""
    pool = _pools(problem, rules.pool)
    keys = np.zeros(genes_of(problem))
    for slot, (head, subject) in enumerate(problem.slots[: problem.rounds]):
        if head == Head.BRANCHING:
            keys[slot] = 0.75 if rules.apart else 0.25  # the middle of the upper or lower half
        elif head == Head.TYPE:
            keys[slot] = 0.75 if problem.machine[pool[subject]] else 0.25
        elif head == Head.ALLOCATION:
            able = problem.pool_candidates(subject)
            alike = [one for one in able if problem.machine[one] == problem.machine[pool[subject]]]
            keys[slot] = (alike.index(pool[subject]) + 0.5) / len(alike)
        elif head == Head.RETRY:
            keys[slot] = (rules.retries + 0.5) / RETRIES
    rounds, units = problem.rounds, len(problem.units)
    order = _order(problem, rules.order)
    keys[rounds : rounds + units] = by_rank(order)
    keys[rounds + units : rounds + 2 * units] = _places(problem, rules.place, order)
    keys[rounds + 2 * units :] = rules.spare
    return keys


def heuristic_plans(problem: DesignProblem, rules: Sequence[Heuristic], record: bool = False) -> Plans:
    """One plan for each heuristic."""
    keys = np.clip([heuristic_keys(problem, rule) for rule in rules], 0.0, 1 - 1e-12)
    freedom = np.array([WIDEST if rule.place == "widest" else STAGED for rule in rules])
    return construct(problem, KeyChooser(problem, keys), len(rules), record, freedom)


def _pools(problem: DesignProblem, rule: str) -> list[int]:
    # A pool for every activity, the most work first: the one the heuristic prefers among those with room.
    work = problem.rate * problem.mean * problem.share / (1 - problem.failure)
    able = problem.most * problem.speed * problem.open
    load, found = np.zeros(len(able)), [-1] * len(work)
    price = problem.wage / problem.speed
    for activity in np.argsort([len(pools) > 1 for pools in problem.eligible] - 1e-12 * work, kind="stable").tolist():
        pools = problem.pool_candidates(activity)
        if not pools:
            continue
        after = {pool: load[pool] + work[activity] / able[pool] for pool in pools}
        free = [pool for pool in pools if after[pool] <= ROOM] if rule != "even" else []
        liked = (lambda pool: price[pool]) if rule == "cheap" else (lambda pool: -problem.speed[pool])
        chosen = min(free, key=liked) if free else min(pools, key=after.__getitem__)
        found[activity] = chosen
        load[chosen] = after[chosen]
    return found


def _order(problem: DesignProblem, rule: str) -> Floats:
    has = problem.members > 0
    time = has @ (problem.mean * problem.share)
    rejects = has @ (problem.knock_out * problem.share)
    if rule == "shortest":
        return np.asarray(-time)
    behind = problem.unit_before @ time
    if rule == "longest":
        return np.asarray(time + behind)
    own = rejects / np.maximum(time, 1e-9)
    # What a knock-out waits for must come as early as the knock-out itself.
    lifted = np.maximum(own, 0.99 * np.where(problem.unit_before, own, 0.0).max(1))
    return np.asarray(lifted + 1e-9 * (time + behind) / max(float((time + behind).max()), 1e-9))


def _places(problem: DesignProblem, rule: str, order: Floats) -> Floats:
    units = len(problem.units)
    if rule == "sequence":
        return np.zeros(units)
    if rule == "spread":
        return np.random.default_rng(0).uniform(0.2, 1.0, units)
    found = np.full(units, 0.999)
    if rule == "knock-outs first":
        checks = ((problem.members > 0) @ problem.knock_out) > 0
        found[checks] = 0.0
        if not checks.all():
            found[np.where(checks, -np.inf, order).argmax()] = 0.0
    return found


def by_rank(values: Floats) -> Floats:
    """Keys for the order of units: the higher the value, the earlier the unit."""
    keys = np.empty(len(values))
    keys[np.argsort(values, kind="stable")] = (np.arange(len(values)) + 0.5) / len(values)
    return keys
