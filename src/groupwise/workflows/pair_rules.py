"""Rules about two activities: one waits for the other, or a case has only one of them.

A pair is judged at the block where their paths separate: in a sequence one comes before the other, in a choice they
never both happen. Besides the rules that say so, data and outcomes order activities: a reader waits for the writer, and
what an outcome decides about waits for the decision.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any, TypeAlias

import groupwise.workflows.blocks as blocks
from groupwise.workflows.case_flow import data_order, precedence, responses
from groupwise.workflows.partial_orders import in_order
from groupwise.workflows.places import ActivityPlace, relation
from groupwise.workflows.requirements import Requirements
from groupwise.workflows.violations import Kind, Violation

DOES_NOT_WAIT = "{1!r} does not wait for {0!r}"
BOTH = "{0!r} and {1!r} can both happen in one case"


@dataclass(frozen=True, slots=True)
class PairRule:
    """Two activities and the words for breaking their rule; without words, how they stand to each other is said."""

    kind: Kind
    names: tuple[str, str]
    words: str = ""


def order_rules(requirements: Requirements) -> Iterator[PairRule]:
    """Pairs of which the first comes before the second in every case that has both."""
    rules = requirements.rules
    yield from (PairRule("precedes", pair) for pair in precedence(requirements))
    yield from (PairRule("response", pair) for pair in responses(requirements))
    yield from (PairRule("chain", pair) for pair in rules.chain)
    for writer, reader, item in data_order(requirements):
        yield PairRule("data", (writer, reader), f"{{1!r}} may read {item!r} before {{0!r}} has written it")
    for outcome in requirements.outcomes:
        for pair in outcome.decisions:
            yield PairRule("outcome", pair, "{1!r} does not wait for {0!r}, which decides about it")
    for loop in requirements.loops:
        words = f"{{0!r}} may not be done when {{1!r}} decides about another round of {loop.name!r}"
        yield from (PairRule("loop", (name, loop.after), words) for name in loop.activities if name != loop.after)


def exclusive_rules(requirements: Requirements) -> Iterator[PairRule]:
    """Pairs of which a case has only one."""
    for pair in (*requirements.rules.excludes, *requirements.rules.not_coexist):
        yield PairRule("excludes", pair, BOTH)
    for outcome in requirements.outcomes:
        words = f"{{0!r}} and {{1!r}} are in different branches of {outcome.name!r}, but can both happen in one case"
        for one, other in combinations(outcome.branches.values(), 2):
            yield from (PairRule("outcome", (a, b), words) for a in one.activities for b in other.activities)


Masks: TypeAlias = tuple[int, int, int]
NOTHING: Masks = (0, 0, 0)


class _PairBroken(Exception):
    """The walk met a pair that breaks a rule."""


class PairRules:
    """Are precedence and exclusion kept? Decided for a tree in one walk over bit masks, without naming the broken pair.

    `masks` has three masks per activity: itself, the activities that must come before it, and those it excludes.
    """

    def __init__(self, requirements: Requirements) -> None:
        self.order, self.exclusive = list(order_rules(requirements)), list(exclusive_rules(requirements))
        named = dict.fromkeys(name for rule in (*self.order, *self.exclusive) for name in rule.names)
        bit = {name: 1 << number for number, name in enumerate(named)}
        before, apart = dict.fromkeys(named, 0), dict.fromkeys(named, 0)
        for first, second in (rule.names for rule in self.order):
            before[second] |= bit[first]
        for one, other in (rule.names for rule in self.exclusive):
            apart[one] |= bit[other]
            apart[other] |= bit[one]
        self.masks: dict[str, Masks] = {name: (bit[name], before[name], apart[name]) for name in named}

    def __bool__(self) -> bool:
        return bool(self.masks)

    def broken(self, root: blocks.Block, places: Mapping[str, ActivityPlace]) -> Iterator[Violation]:
        """Every pair that breaks its rule, in words."""
        for rule in self.order:
            paths = [places[name].path for name in rule.names if name in places]
            if len(paths) == 2:
                found = relation(root, paths[0], paths[1])
                if found in ("after", "beside"):
                    words = rule.words or ("{1!r} comes before {0!r}" if found == "after" else DOES_NOT_WAIT)
                    yield Violation(rule.kind, words.format(*rule.names), rule.names)
        for rule in self.exclusive:
            paths = [places[name].path for name in rule.names if name in places]
            if len(paths) == 2 and relation(root, paths[0], paths[1]) != "never both":
                yield Violation(rule.kind, rule.words.format(*rule.names), rule.names)

    def kept(self, root: Any) -> bool:
        try:
            self._masks(root)
        except _PairBroken:
            return False
        return True

    def _masks(self, block: Any) -> Masks:
        kind = type(block)
        if kind is blocks.Activity:
            return self.masks.get(block.name, NOTHING)
        if kind is blocks.Sequence:
            return self._all_of(block.parts)
        if kind is blocks.Parallel:
            return self._all_of(block.parts, in_turn=False)
        if kind is blocks.Choice:
            return self._one_of(block.parts)
        if kind is blocks.PartialOrder:
            return self._ordered(block)
        if kind is blocks.Loop:
            return self._all_of((block.body, block.redo))
        if kind is blocks.Cancellable:
            return self._all_of((block.body, block.handler))
        return self._masks(block.body) if kind is blocks.Instances else NOTHING

    def _all_of(self, parts: tuple[Any, ...], in_turn: bool = True) -> Masks:
        own = before = apart = 0
        for part in parts:
            there, wants, hates = self._masks(part)
            # Something here must come before, or never with, an earlier part; or after one that it does not wait for.
            if there & (before | apart) or (wants & own and not in_turn):
                raise _PairBroken
            own |= there
            before |= wants
            apart |= hates
        return own, before, apart

    def _one_of(self, parts: tuple[Any, ...]) -> Masks:
        own = before = apart = 0
        for part in parts:
            there, wants, hates = self._masks(part)
            own |= there
            before |= wants
            apart |= hates
        return own, before, apart

    def _ordered(self, block: blocks.PartialOrder) -> Masks:
        masks = [self._masks(part) for part in block.parts]
        followers: list[list[int]] = [[] for _ in masks]
        for earlier, later in block.edges:
            followers[earlier].append(later)
        done = [0] * len(masks)  # the activities that the order puts before each part
        for number in in_order(len(masks), block.edges):
            for later in followers[number]:
                done[later] |= done[number] | masks[number][0]
        own = before = apart = 0
        for there, _, _ in masks:
            own |= there
        for number, (there, wants, hates) in enumerate(masks):
            # What must come first has to be in a part that the order puts before this one.
            if there & apart or wants & own & ~done[number] & ~there:
                raise _PairBroken
            before |= wants
            apart |= hates
        return own, before, apart
