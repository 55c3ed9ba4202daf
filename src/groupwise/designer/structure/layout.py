"""Gives every item of requirements its region, and the units that it becomes."""

from __future__ import annotations

from collections.abc import Sequence
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
    """`share` of the cases that come to `unit` (−1: the whole case) come to the region."""

    unit: int
    share: float


@dataclass(frozen=True, slots=True)
class Unit:
    """A piece of a region, with all activities inside and the regions it is made of.

    `early` is the region it can be moved up to (−1: none). A gate is placed last. `last` are loops' deciding units.
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
        self.found = RegionLayout()

    def build(self) -> RegionLayout:
        self.found.limits += self.items.torn_loops()
        self._region(self.items.of(WHOLE), -1, 1.0, gates=True)
        return self.found

    def _region(self, items: Sequence[Item], owner: int, share: float, gates: bool, last: int = -1) -> int:
        """A new region with the items, each of which may come with a region to move up to."""
        return self._filled([(item, -1) for item in items], owner, share, gates, last)

    def _filled(self, items: Sequence[tuple[Item, int]], owner: int, share: float, gates: bool, last: int = -1) -> int:
        region = len(self.found.regions)
        self.found.regions.append(CaseRegion(owner, share))
        items = self._without_rings(items)
        gate = self._gate([item for item, _ in items]) if gates else None
        if gate is None:
            self._note_rings([item for item, _ in items])
            for item, early in items:
                self._unit(item, region, early, last=last, gates=gates)
            return region
        others = [(item, early) for item, early in items if item is not gate]
        going = [branch for branch in gate.branches if not branch.ends]
        # The decision itself and what happens to cases that it ends; the other branches can wait for their own work.
        ended = tuple(branch for branch in gate.branches if branch.ends)
        waits = self._before(composed("choice", ended, gate.after), [item for item, _ in others])
        follows = [item for item, _ in others if self._is_before(gate, item)]
        if not going or (len(going) > 1 and all(not branch.ends for branch in gate.branches)):
            # Nobody goes on, or those who do are in several branches: the rest is done first, if it can be.
            if going and follows:
                self._note_merging(gate, follows[0])
            for item, early in others:
                self._unit(item, region, early, last=last, gates=gates)
            self._unit(gate, region, -1, gate=True, gates=gates)
            return region
        for item, early in others:
            if item in waits:
                self._unit(item, region, early, last=last, gates=gates)
        rest = [
            (item, early if early >= 0 else -1 if item in follows else region)
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
            inside = [(composed("choice", among, gate.after), -1)]
        number = len(self.found.units)
        acts = bits_of(gate.mask | mask_of(a for item, _ in rest for a in item.activities))
        if not acts:
            return
        self.found.units.append(Unit("choice", acts, region, gate=True, after=gate.after))
        inner = [
            self._region(branch.items, number, branch.share, gates=True) for branch in gate.branches if branch.ends
        ]
        inner.append(self._filled([*inside, *rest], number, share, gates=True))
        self.found.units[number] = replace(self.found.units[number], inner=tuple(inner))

    def _unit(self, item: Item, region: int, early: int, *, gates: bool, gate: bool = False, last: int = -1) -> None:
        if not item.activities:
            return
        number = len(self.found.units)
        decides = last >= 0 and last in item.activities
        unit = Unit(item.kind, item.activities, region, early, fork=item.fork, gate=gate, last=decides)
        if item.kind == "choice":
            unit = replace(unit, after=item.after)
        self.found.units.append(unit)
        if item.kind == "choice":
            inner = tuple(self._region(branch.items, number, branch.share, gates) for branch in item.branches)
            self.found.units[number] = replace(unit, inner=inner)
        elif item.kind == "loop":
            body, redo = item.branches
            inner = (
                self._region(body.items, number, 1.0, False, item.after),
                self._region(redo.items, number, redo.share, False),
            )
            self.found.units[number] = replace(unit, inner=inner)

    def _gate(self, items: Sequence[Item]) -> Item | None:
        """The first decision that may end the case: of those that wait for no other, the most ended per work before."""
        ending = [item for item in items if item.may_end]
        if not ending:
            return None
        free = [one for one in ending if not any(other in self._before(one, items) for other in ending)] or ending

        def pressure(one: Item) -> float:
            decided = composed("choice", (), one.after)
            work = sum(self.work[a] for item in self._before(decided, items) for a in item.activities)
            return one.ended / max(work, 1e-9)

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
        return bool(decides) or any(self.later[activity] & other.mask for activity in one.activities)

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

    def _note_merging(self, gate: Item, later: Item) -> None:
        """Some cases of a branch end inside it, the others go on together with those of other branches."""
        inside = next(branch for branch in gate.branches if any(item.may_end for item in branch.items))
        ending = self.names[next(item for item in inside.items if item.may_end).after]
        decided, wanted = self.names[gate.after], self.names[later.activities[0]]
        self.found.limits.append(
            f"some cases end after {ending!r}, inside a branch of the outcome after {decided!r}, while others go on "
            f"from there to {wanted!r}, together with another branch: a design would need {wanted!r} twice"
        )

    def _note_rings(self, items: Sequence[Item]) -> None:
        """Something must come between two activities of one outcome or loop, which is placed as one piece."""
        for piece in items:
            if piece.kind not in ("choice", "loop"):
                continue
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
