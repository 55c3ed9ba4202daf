"""Are precedence and exclusion kept? Answered for a whole tree in one walk over bit masks, without saying where not.

Every block tells which activities it has, which must come before one of these, and which never with one of these.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from groupwise.workflows.blocks import (
    Activity,
    Cancellable,
    Choice,
    Instances,
    Loop,
    Parallel,
    PartialOrder,
    Sequence,
)
from groupwise.workflows.orders import closure
from groupwise.workflows.requirements import Requirements

Masks: TypeAlias = tuple[int, int, int]
NOTHING: Masks = (0, 0, 0)


class Broken(Exception):
    """A pair that a rule forbids."""


class PairRules:
    """The pairs of `precedes` and `excludes` as masks: of an activity, of what comes before it, of what excludes it."""

    def __init__(self, requirements: Requirements) -> None:
        rules = requirements.rules
        named = dict.fromkeys(name for pair in (*rules.precedes, *rules.excludes) for name in pair)
        bit = {name: 1 << number for number, name in enumerate(named)}
        before, apart = dict.fromkeys(named, 0), dict.fromkeys(named, 0)
        for first, second in rules.precedes:
            before[second] |= bit[first]
        for one, other in rules.excludes:
            apart[one] |= bit[other]
            apart[other] |= bit[one]
        self.masks: dict[str, Masks] = {name: (bit[name], before[name], apart[name]) for name in named}

    def kept(self, root: Any) -> bool:
        try:
            self._masks(root)
        except Broken:
            return False
        return True

    def _masks(self, block: Any) -> Masks:
        kind = type(block)
        if kind is Activity:
            return self.masks.get(block.name, NOTHING)
        if kind is Sequence:
            return self._in_turn(block.parts)
        if kind is Parallel:
            return self._at_once(block.parts)
        if kind is Choice:
            return self._one_of(block.parts)
        if kind is PartialOrder:
            return self._ordered(block)
        if kind is Loop:
            return self._in_turn((block.body, block.redo))
        if kind is Cancellable:
            return self._in_turn((block.body, block.handler))
        return self._masks(block.body) if kind is Instances else NOTHING

    def _in_turn(self, parts: tuple[Any, ...]) -> Masks:
        own = before = apart = 0
        for part in parts:
            there, wants, hates = self._masks(part)
            if there & (before | apart):
                raise Broken
            own |= there
            before |= wants
            apart |= hates
        return own, before, apart

    def _at_once(self, parts: tuple[Any, ...]) -> Masks:
        own = before = apart = 0
        for part in parts:
            there, wants, hates = self._masks(part)
            if there & (before | apart) or wants & own:
                raise Broken
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

    def _ordered(self, block: PartialOrder) -> Masks:
        masks = [self._masks(part) for part in block.parts]
        later = closure(len(masks), block.edges)
        own = before = apart = 0
        for number, (there, wants, hates) in enumerate(masks):
            if there & apart:
                raise Broken
            for other, (those, _, _) in enumerate(masks):
                if other != number and wants & those and not later[other] >> number & 1:
                    raise Broken
            own |= there
            before |= wants
            apart |= hates
        return own, before, apart
