"""Rules of thumb for a whole design: what a process designer would try first.

keys = [rule_keys(construction.problem, RULES[n]) for n in PORTFOLIO]
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from groupwise.workflows.designer.actions import ALLOCATION, BRANCHING, RETRY, TYPE
from groupwise.workflows.designer.construction import RETRIES
from groupwise.workflows.designer.keys import genes_of
from groupwise.workflows.designer.problem import Floats, Problem

PORTFOLIO = (23, 65, 592, 358, 598, 593)
"""The rules to try first, each for what it adds to those before; `workflow_design.py --tune` found them."""
FIRST = 3
"""How many of them are tried before those that resemble the best."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Rules of thumb for a whole design.

    `order`: "knock-outs" by reject probability over time (van der Aalst 2001), the longest work behind it first, or the
    shortest first. `place`: in sequence, in parallel where allowed, knock-outs in sequence and the rest in parallel, or
    spread over lanes. `pool`: the cheapest with room, the fastest with room, or evenly. `spare`: how far above the
    fewest servers that keep up. `retries` where a try can fail; `apart`: a choice for each option of a branch.
    """

    order: str
    place: str
    pool: str
    spare: float
    retries: int
    apart: bool


WAYS: Mapping[str, tuple[Any, ...]] = {
    "order": ("knock-outs", "longest", "shortest"),
    "place": ("sequence", "parallel", "knock-outs first", "spread"),
    "pool": ("cheap", "fast", "even"),
    "spare": (0.0, 0.12, 0.25, 0.4),
    "retries": (0, 1, 3),
    "apart": (False, True),
}
RULES = tuple(itertools.starmap(Rule, itertools.product(*WAYS.values())))
ROOM = 0.8


def neighbours(rule: Rule) -> Iterator[Rule]:
    """All that differ from it in one respect."""
    for name, ways in WAYS.items():
        yield from (replace(rule, **{name: way}) for way in ways if way != getattr(rule, name))


class Thumb:
    """Which rule to try next: those of the portfolio, then the neighbours of the best so far."""

    def __init__(self) -> None:
        self.untried = [RULES[number] for number in PORTFOLIO[:FIRST]]
        self.tried: set[Rule] = set(self.untried)
        self.best: Rule | None = None
        self.total = float("-inf")
        """The best rule's score."""

    def next(self, count: int) -> list[Rule]:
        if len(self.untried) < count and self.best is not None:
            more = [rule for rule in neighbours(self.best) if rule not in self.tried]
            self.tried.update(more)
            self.untried += more
        found, self.untried = self.untried[:count], self.untried[count:]
        return found

    def learn(self, rule: Rule, total: float) -> None:
        if total > self.total:
            self.best, self.total = rule, total


def rule_keys(problem: Problem, rules: Rule) -> Floats:
    """The keys that a rule comes to; what it says nothing of stays as it is by default, no optional work."""
    pool = _pools(problem, rules.pool)
    keys = np.zeros(genes_of(problem))
    for slot, (head, subject) in enumerate(problem.slots[: problem.rounds]):
        if head == BRANCHING:
            keys[slot] = 0.75 if rules.apart else 0.25
        elif head == TYPE:
            keys[slot] = 0.75 if problem.machine[pool[subject]] else 0.25
        elif head == ALLOCATION:
            able = problem.pool_candidates(subject)
            alike = [one for one in able if problem.machine[one] == problem.machine[pool[subject]]]
            keys[slot] = (alike.index(pool[subject]) + 0.5) / len(alike)
        elif head == RETRY:
            keys[slot] = (rules.retries + 0.5) / RETRIES
    rounds, units = problem.rounds, len(problem.units)
    order = _order(problem, rules.order)
    keys[rounds : rounds + units] = by_rank(order)
    keys[rounds + units : rounds + 2 * units] = _places(problem, rules.place, order)
    keys[rounds + 2 * units :] = rules.spare
    return keys


def _pools(problem: Problem, rule: str) -> list[int]:
    """Who does what, the most work first: the pool that the rule likes best among those that have room."""
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


def _order(problem: Problem, rule: str) -> Floats:
    has = problem.members > 0
    time = has @ (problem.mean * problem.share)
    rejects = has @ (problem.knock_out * problem.share)
    if rule == "shortest":
        return np.asarray(-time)
    behind = problem.unit_before @ time
    if rule == "longest":
        return np.asarray(time + behind)
    own = rejects / np.maximum(time, 1e-9)
    # What a knock-out waits for comes as early as the knock-out.
    lifted = np.maximum(own, 0.99 * np.where(problem.unit_before, own, 0.0).max(1))
    return np.asarray(lifted + 1e-9 * (time + behind) / max(float((time + behind).max()), 1e-9))


def _places(problem: Problem, rule: str, order: Floats) -> Floats:
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
    """Keys for the order of units: the higher the value, the earlier."""
    keys = np.empty(len(values))
    keys[np.argsort(values, kind="stable")] = (np.arange(len(values)) + 0.5) / len(values)
    return keys
