"""The hard rules of requirements: which of them a design breaks.

A pair of activities is judged at the block where their paths separate: in a sequence one comes before the other, in a
choice they never both happen. Nothing is simulated; only the deadline needs a design's performance.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import groupwise.workflows.blocks as blocks
from groupwise.workflows.partial_orders import closure
from groupwise.workflows.requirements import Requirements

Masks: TypeAlias = tuple[int, int, int]
NOTHING: Masks = (0, 0, 0)


class _PairBroken(Exception):
    """The walk met a pair that breaks a rule."""


class PairRules:
    """Are precedence and exclusion kept? Decided for a tree in one walk over bit masks, without naming the broken pair.

    `masks` has three masks per activity: itself, the activities that must come before it, and those it excludes.
    """

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
        later = closure(len(masks), block.edges)
        own = before = apart = 0
        for number, (there, wants, hates) in enumerate(masks):
            if there & apart:
                raise _PairBroken
            for other, (those, _, _) in enumerate(masks):
                # What must come first has to be in a part that the order puts before this one.
                if other != number and wants & those and not later[other] >> number & 1:
                    raise _PairBroken
            own |= there
            before |= wants
            apart |= hates
        return own, before, apart


Kind: TypeAlias = Literal[
    "unknown activity", "must include", "every case", "precedes", "excludes", "pool", "staffing", "separate", "deadline"
]
Relation: TypeAlias = Literal["before", "after", "beside", "never both"]
ROUNDING = 1e-6  # by which the share of cases may fall short


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken rule: its kind, an explanation, and the activities or pools it concerns."""

    rule: Kind
    words: str
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.rule}: {self.words}"


@dataclass(frozen=True, slots=True)
class ActivityPlace:
    """Where an activity stands: the child indexes that lead there from the root, and the share of cases that do."""

    activity: blocks.Activity
    path: tuple[int, ...]
    share: float


def needs(requirements: Requirements) -> dict[str, float]:
    """The share of cases that must do each activity: all, or its branch's probability. Optional ones are left out."""
    found = {name: 1.0 for name, activity in requirements.activities.items() if not activity.optional}
    found |= dict.fromkeys(requirements.rules.must_include, 1.0)
    for branch in requirements.branches:
        found |= branch.options
    return found


Runs: TypeAlias = Iterable[tuple[blocks.Activity, float, float]]


class RuleBook:
    """The rules of requirements, prepared for many designs. Most designs keep them all, which a fast path confirms."""

    def __init__(self, requirements: Requirements) -> None:
        self.requirements = requirements
        self.needs = needs(requirements)
        rules = requirements.rules
        self.has_pairs = bool(rules.precedes or rules.excludes)
        self.pairs = PairRules(requirements)
        self.first = {name: next(iter(one.pools), None) for name, one in requirements.activities.items()}
        # Per activity: the share of cases it needs (−1 if optional), whether it must be there, and its pools.
        self.known = {
            name: (self.needs.get(name, -1.0) - ROUNDING, name in self.needs, activity.pools)
            for name, activity in requirements.activities.items()
        }

    def broken(self, design: blocks.Design, runs: Runs | None = None) -> list[Violation]:
        """Every broken rule except the deadline; `runs` has activities and shares if the tree was walked already."""
        # Almost every design of a search is legal: confirm that first, and explain only failures.
        if runs is not None and self._kept(design, runs):
            return []
        places = {place.activity.name: place for place in places_of(design.root)}
        found = [*self._presence(places), *self._people(design, places)]
        if self.has_pairs:
            found += self._pairs(design.root, places)
        return found

    def _kept(self, design: blocks.Design, runs: Runs) -> bool:
        """Whether every rule is kept: the fast path, which does not say what is broken."""
        rules = self.requirements.rules
        present = 0
        for activity, share, *_ in runs:
            known = self.known.get(activity.name)
            if known is None or share < known[0]:
                return False
            pool = activity.handling.pool
            if pool is not None and pool not in known[2]:
                return False
            present += known[1]
        if present < len(self.needs) or (rules.separate and not self._separated(runs)):
            return False
        pools = self.requirements.pools
        if not all(pool in pools and pools[pool].least <= count <= pools[pool].most for pool, count in design.servers):
            return False
        return not self.has_pairs or self.pairs.kept(design.root)

    def _separated(self, runs: Runs) -> bool:
        pools = {activity.name: activity.handling.pool or self.first[activity.name] for activity, *_ in runs}
        pairs = ((pools.get(one), pools.get(other)) for one, other in self.requirements.rules.separate)
        return all(one is None or one != other for one, other in pairs)

    def late(self, cycle_time: float) -> Violation | None:
        deadline = self.requirements.rules.deadline
        if deadline is None or cycle_time <= deadline:
            return None
        return Violation(
            "deadline", f"a case takes {cycle_time:.6g} s on average, but only {deadline:.6g} s are allowed"
        )

    def _presence(self, places: Mapping[str, ActivityPlace]) -> Iterator[Violation]:
        for name in places:
            if name not in self.requirements.activities:
                yield Violation("unknown activity", f"{name!r} is not in the requirements", (name,))
        for name, needed in self.needs.items():
            place = places.get(name)
            if place is None:
                yield Violation("must include", f"{name!r} is missing", (name,))
            elif place.share < needed - ROUNDING:
                words = f"{name!r} is done in {place.share:.4g} of the cases, but must be done in {needed:.4g}"
                yield Violation("every case", words, (name,))

    def _people(self, design: blocks.Design, places: Mapping[str, ActivityPlace]) -> Iterator[Violation]:
        pools, activities = self.requirements.pools, self.requirements.activities
        for name, place in places.items():
            pool, wanted = place.activity.handling.pool, activities.get(name)
            if pool is not None and wanted is not None and pool not in wanted.pools:
                allowed = ", ".join(wanted.pools) or "nobody"
                yield Violation("pool", f"{name!r} is done by {pool!r}, but only {allowed} may do it", (name, pool))
        for pool, count in design.servers:
            known = pools.get(pool)
            if known is None:
                yield Violation("staffing", f"there is no pool {pool!r}", (pool,))
            elif not known.least <= count <= known.most:
                words = f"pool {pool!r} has {count} servers, but {known.least} to {known.most} are allowed"
                yield Violation("staffing", words, (pool,))
        for one, other in self.requirements.rules.separate:
            pool = self._pool(places.get(one))
            if pool is not None and pool == self._pool(places.get(other)):
                yield Violation("separate", f"{one!r} and {other!r} are both done by {pool!r}", (one, other))

    def _pool(self, place: ActivityPlace | None) -> str | None:
        return None if place is None else place.activity.handling.pool or self.first.get(place.activity.name)

    def _pairs(self, root: blocks.Block, places: Mapping[str, ActivityPlace]) -> Iterator[Violation]:
        for first, second in self.requirements.rules.precedes:
            if first in places and second in places:
                found = relation(root, places[first].path, places[second].path)
                if found in ("after", "beside"):
                    how = "comes before" if found == "after" else "does not wait for"
                    yield Violation("precedes", f"{second!r} {how} {first!r}", (first, second))
        for one, other in self.requirements.rules.excludes:
            if one in places and other in places:
                found = relation(root, places[one].path, places[other].path)
                if found != "never both":
                    yield Violation("excludes", f"{one!r} and {other!r} can both happen in one case", (one, other))


def broken_rules(design: blocks.Design, requirements: Requirements, cycle_time: float | None = None) -> list[Violation]:
    """Every rule that the design breaks; the deadline is checked if `cycle_time` is given."""
    book = RuleBook(requirements)
    late = book.late(cycle_time) if cycle_time is not None else None
    return [*book.broken(design), *([late] if late else [])]


def relation(root: blocks.Block, one: tuple[int, ...], other: tuple[int, ...]) -> Relation:
    """How two activities relate, decided at the block where their paths separate: a body precedes redo and handler."""
    block = root
    for a, b in zip(one, other, strict=False):
        if a == b:
            block = blocks.children(block)[a]
            continue
        match block:
            case blocks.Choice():
                return "never both"
            case blocks.Parallel():
                return "beside"
            case blocks.PartialOrder(parts, edges):
                later = closure(len(parts), edges)
                return "before" if later[a] >> b & 1 else "after" if later[b] >> a & 1 else "beside"
            case _:
                return "before" if a < b else "after"
    raise AssertionError("two activities at one place")


def places_of(root: blocks.Block) -> Iterator[ActivityPlace]:
    """Every activity of a tree with its place, in the order in which they are written."""
    stack: list[tuple[blocks.Block, tuple[int, ...], float]] = [(root, (), 1.0)]
    while stack:
        block, path, share = stack.pop()
        if isinstance(block, blocks.Activity):
            yield ActivityPlace(block, path, share)
        elif isinstance(block, blocks.Sequence | blocks.Parallel | blocks.PartialOrder):
            stack += [(part, (*path, number), share) for number, part in enumerate(block.parts)][::-1]
        else:
            stack += _unsure(block, path, share)[::-1]


def _unsure(
    block: blocks.Block, path: tuple[int, ...], share: float
) -> list[tuple[blocks.Block, tuple[int, ...], float]]:
    """The children of a block that not every case reaches, each with its path and share."""
    match block:
        case blocks.Choice(parts, probabilities):
            return [(part, (*path, n), share * probabilities[n]) for n, part in enumerate(parts)]
        case blocks.Loop(body, again, redo):
            return [(body, (*path, 0), share), (redo, (*path, 1), share * again)]
        case blocks.Cancellable(body, chance, handler):
            return [(body, (*path, 0), share), (handler, (*path, 1), share * chance)]
        case _:
            return [(part, (*path, n), share) for n, part in enumerate(blocks.children(block))]
