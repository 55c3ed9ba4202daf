"""Gives every item of requirements its region, and the units that it becomes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from groupwise.designer.structure.items import (
    WHOLE,
    Branch,
    Item,
    ItemTree,
    Kind,
    bits_of,
    composed,
    mask_of,
    without_rings,
)
from groupwise.workflows.case_flow import order_of
from groupwise.workflows.partial_orders import closure, find_ring
from groupwise.workflows.requirements import Requirements


@dataclass(frozen=True, slots=True)
class CaseRegion:
    """`share` of the cases that come to `unit` (−1: the whole case) come to the region, and after it are `over`.

    `answers` are the results of the unit's outcome that lead here.
    """

    unit: int
    share: float
    over: bool = False
    answers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Unit:
    """A piece of a region, with all activities inside and the regions it is made of.

    `early` is the region it can be moved up to (−1: none). A gate is placed last. `last` are loops' deciding units. A
    barrier ends a share of the cases, `ended`, while others go on behind it: nothing runs beside it. If it does so
    because of its own outcome, it is `urgent`: nothing comes between the decision and it. `outcome` is set if other
    units ask for it, too.
    """

    kind: Kind
    activities: tuple[int, ...]
    region: int
    early: int = -1
    inner: tuple[int, ...] = ()
    fork: int = -1
    gate: bool = False
    last: bool = False
    # What must come before it although no activity says so: the activity that decides an outcome.
    after: int = -1
    barrier: bool = False
    urgent: bool = False
    ended: float = 0.0
    outcome: str = ""


@dataclass
class RegionLayout:
    """Everything that is placed, and where.

    `broken` are the forks that cannot be a single choice. `limits` say what no tree of blocks can express, so that
    every design for these requirements would break a rule.
    """

    regions: list[CaseRegion] = field(default_factory=list)
    units: list[Unit] = field(default_factory=list)
    broken: set[int] = field(default_factory=set)
    limits: list[str] = field(default_factory=list)


class LayoutBuilder:
    """Gives every item its region. `later` [activities] are masks: bit b of later[a] means that a comes before b."""

    def __init__(
        self, requirements: Requirements, forks: Sequence[Sequence[int]], whole: set[int], work: Sequence[float]
    ) -> None:
        number = {name: n for n, name in enumerate(requirements.activities)}
        edges = frozenset((number[a], number[b]) for a, b in order_of(requirements))
        self.names = list(requirements.activities)
        self.later = closure(len(number), without_rings(len(number), edges))
        self.items = ItemTree(requirements, forks)
        # Forks whose options exclude each other are never split.
        self.work, self.whole = work, whole
        self.again: set[str] = set()  # outcomes that several units ask for
        self.found = RegionLayout()

    def build(self) -> RegionLayout:
        self.found.limits += [*self.items.torn_loops(), *self.items.torn_pairs()]
        self._region(self.items.of(WHOLE), CaseRegion(-1, 1.0), tail=True)
        return self.found

    def _region(self, items: Sequence[Item], region: CaseRegion, *, tail: bool, last: int = -1) -> int:
        """A new region with the items. With `tail`, the case is over after it anyway."""
        return self._filled([(item, -1) for item in items], region, tail=tail, last=last)

    def _filled(self, items: Sequence[tuple[Item, int]], own: CaseRegion, *, tail: bool, last: int = -1) -> int:
        """The same; each of the items may come with a region to move up to."""
        region = len(self.found.regions)
        self.found.regions.append(own)
        items = self._without_rings(self._asked_again(items))
        gate = self._gate([item for item, _ in items]) if tail else None
        others = [(item, early) for item, early in items if item is not gate]
        self._note_rings([item for item, _ in items], [one for one, _ in items if one.kind == "loop"])
        if gate is None or (others and _many_go_on(gate)):
            # Nothing ends; or cases of several branches go on together, so that those that do not end on the way.
            self._note_rings([item for item, _ in items], [one for one, _ in items if one.kind == "choice"])
            for item, early in items:
                self._unit(item, region, early, last=last, tail=False)
            return region
        going = [branch for branch in gate.branches if not branch.ends]
        # The decision itself and what happens to cases that it ends; the other branches can wait for their own work.
        ended = tuple(branch for branch in gate.branches if branch.ends)
        waits = self._before(composed("choice", ended, gate.after), [item for item, _ in others])
        follows = [item for item, _ in others if self._is_before(gate, item) or self.later[gate.after] & item.mask]
        if not going or _many_go_on(gate):
            # Nobody goes on, or there is nothing to go on to: the rest is done first.
            for item, early in others:
                self._unit(item, region, early, last=last, tail=False)
            self._unit(gate, region, -1, gate=True, tail=True)
            return region
        for item, early in others:
            if item in waits:
                self._unit(item, region, early, last=last, tail=False)
        # Once it is decided that a case ends, nothing may follow: such a decision stays with its outcome.
        ending = mask_of({one.after for one, _ in others if one.kind == "choice" and one.may_end})
        rest = [
            (item, early if early >= 0 else -1 if item in follows or item.mask & ending else region)
            for item, early in others
            if item not in waits
        ]
        self._gated(gate, going, rest, region)
        return region

    def _gated(self, gate: Item, going: list[Branch], rest: list[tuple[Item, int]], region: int) -> None:
        # The cases that go on: their branch with the rest, or all of their branches as a choice among them.
        share = sum(branch.share for branch in going)
        inside = [(item, -1) for item in going[0].items]
        if len(going) > 1:
            among = tuple(replace(branch, share=branch.share / share) for branch in going)
            inside = [(replace(composed("choice", among, gate.after), outcome=gate.outcome), -1)]
        number = len(self.found.units)
        acts = bits_of(gate.mask | mask_of(a for item, _ in rest for a in item.activities))
        if not acts:
            return
        outcome = gate.outcome if gate.outcome in self.again else ""
        unit = Unit("choice", acts, region, gate=True, after=gate.after, barrier=True, outcome=outcome)
        self.found.units.append(unit)
        inner = [
            self._region(branch.items, CaseRegion(number, branch.share, True, (branch.name,)), tail=True)
            for branch in gate.branches
            if branch.ends
        ]
        answers = tuple(branch.name for branch in going)
        inner.append(self._filled([*inside, *rest], CaseRegion(number, share, answers=answers), tail=True))
        self.found.units[number] = replace(self.found.units[number], inner=tuple(inner))

    def _unit(self, item: Item, region: int, early: int, *, tail: bool, gate: bool = False, last: int = -1) -> None:
        if not item.activities and not item.may_end:
            return
        number = len(self.found.units)
        decides = last >= 0 and last in item.activities
        # A choice that only ends cases is about the activity that decides.
        unit = Unit(item.kind, item.activities or (item.after,), region, early, fork=item.fork, last=decides)
        urgent = item.kind == "choice" and any(branch.ends for branch in item.branches)
        gate = gate or (urgent and all(branch.ends for branch in item.branches))
        unit = replace(unit, gate=gate, barrier=item.may_end, urgent=urgent and not gate, ended=item.ended)
        if item.kind == "choice":
            unit = replace(unit, after=item.after, outcome=item.outcome if item.outcome in self.again else "")
        self.found.units.append(unit)
        if item.kind == "choice":
            inner = tuple(
                self._region(
                    branch.items,
                    CaseRegion(number, branch.share, branch.ends, (branch.name,)),
                    tail=tail,
                    last=last if decides else -1,
                )
                for branch in item.branches
            )
            self.found.units[number] = replace(unit, inner=inner)
        elif item.kind == "loop":
            body, redo = item.branches
            inner = (
                self._region(body.items, CaseRegion(number, 1.0), tail=False, last=item.after),
                self._region(redo.items, CaseRegion(number, redo.share), tail=False),
            )
            self.found.units[number] = replace(unit, inner=inner)

    def _asked_again(self, items: Sequence[tuple[Item, int]]) -> list[tuple[Item, int]]:
        """The items; an outcome between whose activities others must come is asked for several times."""
        found = list(items)
        for item, early in items:
            if item.kind == "choice":
                others = [other for other, _ in found if other is not item]
                levels = self._levels(item, others)
                if levels is not None and len(set(levels.values())) > 1:
                    place = next(n for n, (one, _) in enumerate(found) if one is item)
                    found[place : place + 1] = [(part, early) for part in self._parts(item, levels)]
        return found

    def _parts(self, item: Item, levels: Mapping[int, int]) -> Iterator[Item]:
        for level in sorted(set(levels.values())):
            part = self._stratum(item, levels, level)
            if part is not None and len(part.branches) > 1:
                yield part
            elif part is not None:
                # The other results have ended their cases: there is nothing left to ask.
                yield from part.branches[0].items

    def _stratum(self, item: Item, levels: Mapping[int, int], level: int) -> Item | None:
        """What an item does at one level, of the cases that no lower one has ended; None if it does nothing."""
        if item.kind != "choice":
            return item if levels.get(item.activities[0], 0) == level else None
        found: list[Branch] = []
        for branch in item.branches:
            last = _last_level(branch, levels, item)
            left = 1 - _ended_below(branch, levels, level, item)
            if left > 0:
                inside = tuple(part for one in branch.items if (part := self._stratum(one, levels, level)) is not None)
                found.append(Branch(branch.share * left, branch.ends and last == level, inside, branch.name))
        total = sum(branch.share for branch in found)
        branches = tuple(replace(branch, share=branch.share / total) for branch in found)
        if not any(branch.items or branch.ends for branch in branches):
            return None
        if len(set(_levels_of(item, levels))) > 1:
            self.again.add(item.outcome)
        return replace(composed("choice", branches, item.after), outcome=item.outcome)

    def _levels(self, piece: Item, others: Sequence[Item]) -> dict[int, int] | None:
        """How many times each activity of a choice waits for others that wait for the choice; None if for ever."""
        level = dict.fromkeys(piece.activities, 0) | self._behind_ends(piece, others)
        behind = [(one, [other for other in others if other is not one and self._is_before(one, other)])
                  for one in others]  # fmt: skip
        together = [part.activities for part in _pieces(piece)]
        for _ in range(len(level) + 2):
            entry = {id(other): self._entry(other, piece, level) for other in others}
            for _ in others:
                for one, later in behind:
                    for other in later:
                        entry[id(other)] = max(entry[id(other)], entry[id(one)])
            new = dict(level)
            for other in others:
                for a in other.activities:
                    for b in bits_of(self.later[a] & piece.mask):
                        new[b] = max(new[b], entry[id(other)])
            for a in level:
                for b in bits_of(self.later[a] & piece.mask):
                    new[b] = max(new[b], new[a])
            for some in together:
                new |= dict.fromkeys(some, max(new[a] for a in some))
            if new == level:
                return level
            level = new
        return None

    def _behind_ends(self, piece: Item, others: Sequence[Item]) -> dict[int, int]:
        """Work behind an end inside a branch starts at level 1 if something else could be done beside it.

        Nothing runs beside what may end a case, so the outcome is asked for again for whoever goes on.
        """
        if piece.kind != "choice" or not piece.may_end or not _many_go_on(piece):
            return {}
        found: dict[int, int] = {}
        for branch in piece.branches:
            ending = [one for one in branch.items if one.kind == "choice" and any(b.ends for b in one.branches)]
            if len(ending) == 1 and sum(one.may_end for one in branch.items) == 1:
                ended = tuple(one for one in ending[0].branches if one.ends)
                decided = composed("choice", ended, ending[0].after)
                first = decided.mask | 1 << decided.after
                first |= mask_of(a for one in self._before(decided, branch.items) for a in one.activities)
                rest = mask_of(a for one in branch.items for a in one.activities) & ~first
                free = [one for one in others if one.activities and self._is_beside(one, rest, first)]
                found |= dict.fromkeys(bits_of(rest), 1) if rest and free else {}
        return found

    def _is_beside(self, other: Item, rest: int, first: int) -> bool:
        """Whether an item could be done beside some of `rest`, and need not be done before all of `first` is."""
        early = any(self.later[a] & first for a in other.activities)
        after = all(any(self.later[b] >> a & 1 for a in other.activities) for b in bits_of(rest))
        before = all(any(self.later[a] >> b & 1 for a in other.activities) for b in bits_of(rest))
        return not early and not after and not before

    def _entry(self, other: Item, piece: Item, level: Mapping[int, int]) -> int:
        """The level after which something else comes by itself: of what it waits for, or of what ends the case."""
        waits = [level[a] + 1 for a in level if self.later[a] & other.mask]
        if self._is_over_before(piece, other):
            waits += [_last_level(branch, level, piece) + 1 for branch in piece.branches if branch.ends]
        return max(waits, default=0)

    def _gate(self, items: Sequence[Item]) -> Item | None:
        """The first decision that may end the case: of those that wait for no other, the most ended per work before."""
        ending = [item for item in items if item.kind == "choice" and item.may_end]
        if not ending:
            return None
        free = [one for one in ending if not any(other in self._before(one, items) for other in ending)] or ending

        def pressure(one: Item) -> tuple[bool, float]:
            decided = composed("choice", (), one.after)
            work = sum(self.work[a] for item in self._before(decided, items) for a in item.activities)
            # A case that is over does not wait for work that only follows the decision.
            ended = composed("choice", tuple(branch for branch in one.branches if branch.ends), one.after)
            at_once = not any(self.later[one.after] & item.mask for item in self._before(ended, items))
            return at_once, one.ended / max(work, 1e-9)

        return max(free, key=pressure)

    def _before(self, item: Item, items: Sequence[Item]) -> list[Item]:
        """The items that an item waits for, directly or not."""
        found: list[Item] = []
        stack = [item]
        while stack:
            here = stack.pop()
            more = [one for one in items if one is not here and one not in found and self._is_before(one, here)]
            found += more
            stack += more
        return [one for one in found if one is not item]

    def _is_before(self, one: Item, other: Item) -> bool:
        decides = other.kind == "choice" and one.mask >> other.after & 1
        waits = bool(decides) or any(self.later[activity] & other.mask for activity in one.activities)
        return waits or self._is_over_before(one, other)

    def _is_over_before(self, one: Item, other: Item) -> bool:
        """Whether a choice may end the case that something else would go on with after the decision."""
        ended = [branch for branch in one.branches if branch.ends] if one.kind == "choice" else []
        needed = mask_of(a for branch in ended for item in branch.items for a in item.activities)
        after = bool(ended) and bool(self.later[one.after] & other.mask)
        return after and not any(self.later[a] & needed for a in other.activities)

    def _without_rings(self, items: Sequence[tuple[Item, int]]) -> list[tuple[Item, int]]:
        """The items; a fork between whose options something must come is split into its options."""
        found = list(items)
        while any(item.kind == "fork" for item, _ in found):
            edges = frozenset(
                (a, b)
                for a, (one, _) in enumerate(found)
                for b, (other, _) in enumerate(found)
                if a != b and self._is_before(one, other)
            )
            ring = find_ring(len(found), edges)
            split = next((number for number in ring if self._can_split(found[number][0])), None)
            if split is None:
                break
            fork, early = found.pop(split)
            self.found.broken.add(fork.fork)
            found += [(Item("option", (a,), 1 << a, fork=fork.fork), early) for a in fork.activities]
        return found

    def _note_rings(self, items: Sequence[Item], pieces: Sequence[Item]) -> None:
        """Something must come between two activities of one outcome or loop, which is placed as one piece."""
        for piece in pieces:
            for other in items:
                first = next((a for a in piece.activities if self.later[a] & other.mask), None)
                last = next((b for a in other.activities for b in bits_of(self.later[a] & piece.mask)), None)
                if other is not piece and first is not None and last is not None:
                    once = (
                        ("outcome", "decides an outcome") if piece.kind == "choice" else ("loop", "goes through a loop")
                    )
                    self.found.limits.append(
                        f"{self.names[other.activities[0]]!r} must come after {self.names[first]!r} and before "
                        f"{self.names[last]!r}, which both belong to the {once[0]} after {self.names[piece.after]!r}: "
                        f"a design {once[1]} in one place"
                    )

    def _can_split(self, item: Item) -> bool:
        return item.kind == "fork" and item.fork not in self.whole and len(item.activities) > 1


def _many_go_on(gate: Item) -> bool:
    """Whether cases of several branches go on, and only some inside of these end."""
    return not any(branch.ends for branch in gate.branches)


def _pieces(item: Item) -> Iterator[Item]:
    """What is inside a choice and cannot be taken apart."""
    for branch in item.branches:
        for one in branch.items:
            if one.kind == "choice":
                yield from _pieces(one)
            elif one.activities:
                yield one


def _levels_of(item: Item, levels: Mapping[int, int]) -> list[int]:
    """The levels of what a choice does; one that only ends cases does so right after it is decided."""
    at_once = any(branch.ends and not branch.items for branch in item.branches)
    return [*(levels[a] for a in item.activities), *([levels.get(item.after, 0)] if at_once else [])]


def _last_level(branch: Branch, levels: Mapping[int, int], item: Item) -> int:
    inside = [level for one in branch.items for level in _levels_of(one, levels)]
    return max(inside, default=levels.get(item.after, 0))


def _ended_below(branch: Branch, levels: Mapping[int, int], level: int, item: Item) -> float:
    """The share of a branch's cases that are over before a level."""
    if branch.ends and _last_level(branch, levels, item) < level:
        return 1.0
    inner = [one for one in branch.items if one.kind == "choice"]
    gone = sum(b.share * _ended_below(b, levels, level, one) for one in inner for b in one.branches)
    loops = sum(one.ended for one in branch.items if one.kind == "loop" and max(_levels_of(one, levels)) < level)
    return min(1.0, gone + loops)
