"""The modular decomposition of a partial order: which parts are in series, which in parallel, and what is neither.

A module is a set of parts that all relate alike to every part outside. The strong ones (those that overlap with no
other) form a tree, which is unique. It is found in two stages, in O(n² / 64 + m log n) word operations for most orders:

1. From the inside out, on the direct edges alone: two parts with only each other in between become a series, parts with
   the same neighbours become parallel (Valdes, Tarjan and Lawler, "The recognition of series parallel digraphs", 1982).
   What is left after this has neither.
2. From the outside in, what is left falls into components (parallel), at cuts that everything passes (series), or into
   its largest modules by refining a partition (Habib and Paul, "A survey of the algorithmic aspects of modular
   decomposition", 2010, sections 3 and 5).
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from groupwise.workflows.partial_orders import Edges, bits, closure, reduced

Kind: TypeAlias = Literal["series", "parallel", "mixed"]
# Modules nested deeper than this become one order of their own, because a tree of blocks is walked recursively.
DEEPEST = 100


@dataclass(frozen=True, slots=True)
class Module:
    """Parts that have the same relation to every part outside: in series, in parallel, or in an order of their own.

    For a "mixed" module, `edges` say which of its `parts` (by index) comes right before which.
    """

    kind: Kind
    parts: tuple[Module | int, ...]
    edges: Edges = frozenset()


@dataclass(slots=True, eq=False)
class _Draft:
    """A module while it is put together; its parts may still contain modules of its own kind."""

    kind: Kind
    parts: deque[_Draft | int]
    edges: set[tuple[int, int]] = field(default_factory=set)


def modules(count: int, edges: Edges) -> Module | int:
    """The modular decomposition of the order of parts 0 to `count` − 1.

    It is cut off above `DEEPEST` levels: what is higher becomes one "mixed" module.
    """
    direct = reduced(count, edges)
    merging = _Merging(count, direct)
    members, between = merging.run()
    return _frozen(_taken_apart(members, between), direct)


class _Merging:
    """Stage 1: parts are merged into series and parallel modules until nothing more can be."""

    def __init__(self, count: int, direct: Edges) -> None:
        self.after: list[set[int]] = [set() for _ in range(count)]
        self.before: list[set[int]] = [set() for _ in range(count)]
        for a, b in direct:
            self.after[a].add(b)
            self.before[b].add(a)
        self.draft: list[_Draft | int] = list(range(count))
        self.gone = [False] * count
        # Sets of neighbours are compared by sums (xor) of random words first, which change with little work.
        rng = random.Random(0)
        self.word = [rng.getrandbits(64) for _ in range(count)]
        self.after_sum = [self._sum(near) for near in self.after]
        self.before_sum = [self._sum(near) for near in self.before]
        self.alike: dict[tuple[int, int], int] = {}

    def _sum(self, near: set[int]) -> int:
        total = 0
        for part in near:
            total ^= self.word[part]
        return total

    def run(self) -> tuple[list[_Draft | int], list[tuple[int, int]]]:
        """What is left, and the direct edges between (by their place in it)."""
        waiting = list(range(len(self.draft)))
        while waiting:
            part = waiting.pop()
            if not self.gone[part]:
                waiting += self._in_series(part) or self._in_parallel(part)
        left = [part for part, gone in enumerate(self.gone) if not gone]
        place = {part: number for number, part in enumerate(left)}
        between = [(place[part], place[later]) for part in left for later in self.after[part]]
        return [self.draft[part] for part in left], between

    def _in_series(self, part: int) -> list[int]:
        """Merge the part with the only one after it, if it is the only one before that; returns what to look at."""
        if len(self.after[part]) != 1:
            return []
        (later,) = self.after[part]
        if len(self.before[later]) != 1:
            return []
        draft = _joined("series", self.draft[part], self.draft[later])
        # The one with more neighbours on its far side stays, the other's few neighbours are told.
        if len(self.before[part]) <= len(self.after[later]):
            kept, lost, sides = later, part, (self.before, self.after, self.before_sum, self.after_sum)
        else:
            kept, lost, sides = part, later, (self.after, self.before, self.after_sum, self.before_sum)
        far, near, far_sum, near_sum = sides
        for neighbour in far[lost]:
            near[neighbour].remove(lost)
            near[neighbour].add(kept)
            near_sum[neighbour] ^= self.word[lost] ^ self.word[kept]
        far[kept], far_sum[kept] = far[lost], far_sum[lost]
        self.gone[lost], self.draft[kept] = True, draft
        return [kept, *far[kept]]

    def _in_parallel(self, part: int) -> list[int]:
        """Merge the part with one that has the same neighbours, if one is known; returns what to look at."""
        key = (self.before_sum[part], self.after_sum[part])
        twin = self.alike.get(key, part)
        if twin == part or self.gone[twin] or key != (self.before_sum[twin], self.after_sum[twin]):
            self.alike[key] = part
            return []
        if self.before[twin] != self.before[part] or self.after[twin] != self.after[part]:
            return []  # the same sum by chance: both stay, and stage 2 finds the truth
        for earlier in self.before[part]:
            self.after[earlier].remove(part)
            self.after_sum[earlier] ^= self.word[part]
        for later in self.after[part]:
            self.before[later].remove(part)
            self.before_sum[later] ^= self.word[part]
        self.gone[part], self.draft[twin] = True, _joined("parallel", self.draft[twin], self.draft[part])
        return [twin, *self.before[part], *self.after[part]]


def _joined(kind: Kind, first: _Draft | int, second: _Draft | int) -> _Draft:
    """Both in one module of this kind; the shorter list of parts is moved into the longer one."""
    a = first if isinstance(first, _Draft) and first.kind == kind else _Draft(kind, deque([first]))
    b = second if isinstance(second, _Draft) and second.kind == kind else _Draft(kind, deque([second]))
    if len(a.parts) >= len(b.parts):
        a.parts.extend(b.parts)
        return a
    b.parts.extendleft(reversed(a.parts))
    return b


def _taken_apart(members: list[_Draft | int], between: list[tuple[int, int]]) -> _Draft | int:
    """Stage 2: the decomposition of an order of modules, from the outside in."""
    top: deque[_Draft | int] = deque([0])
    # What is to be taken apart: its members, the direct edges among them, and where the result goes.
    work = [(members, between, top, 0)]
    while work:
        some, edges, into, place = work.pop()
        if len(some) == 1:
            into[place] = some[0]
            continue
        kind, groups = _groups(len(some), edges)
        into[place] = draft = _Draft(kind, deque([0] * len(groups)))
        number, local = [0] * len(some), [0] * len(some)
        for group, inside in enumerate(groups):
            for index, member in enumerate(inside):
                number[member], local[member] = group, index
        inner: list[list[tuple[int, int]]] = [[] for _ in groups]
        for a, b in edges:
            if number[a] == number[b]:
                inner[number[a]].append((local[a], local[b]))
            else:
                # Direct edges between modules are the direct edges of the order of the modules.
                draft.edges.add((number[a], number[b]))
        for group, inside in enumerate(groups):
            work.append(([some[member] for member in inside], inner[group], draft.parts, group))
    return top[0]


def _groups(count: int, edges: list[tuple[int, int]]) -> tuple[Kind, list[list[int]]]:
    """What kind of module an order is, and the members of its largest parts."""
    components = _components(count, edges)
    if len(components) > 1:
        return "parallel", components
    whole = frozenset(edges)
    after, before = closure(count, whole), closure(count, frozenset((b, a) for a, b in whole))
    series = _series(after, before)
    if len(series) > 1:
        return "series", series
    return "mixed", _largest_modules(after, before)


def _components(count: int, edges: list[tuple[int, int]]) -> list[list[int]]:
    near: list[list[int]] = [[] for _ in range(count)]
    for a, b in edges:
        near[a].append(b)
        near[b].append(a)
    seen = [False] * count
    found = []
    for root in range(count):
        if seen[root]:
            continue
        seen[root], component = True, [root]
        for part in component:  # grows while it is read
            for other in near[part]:
                if not seen[other]:
                    seen[other] = True
                    component.append(other)
        found.append(component)
    return found


def _series(after: list[int], before: list[int]) -> list[list[int]]:
    """The parts of an order between all the cuts where everything before the cut precedes everything after it."""
    count = len(after)
    earlier, later = [mask.bit_count() for mask in before], [mask.bit_count() for mask in after]
    # In a topological order, the pairs that lead out of the first i parts are those that start in them, less those
    # that end in them; a cut has all i · (count − i).
    order = sorted(range(count), key=lambda part: earlier[part])
    out = accumulate(later[part] - earlier[part] for part in order)
    cuts = [i for i, pairs in enumerate(out, 1) if pairs == i * (count - i)]  # the last is at the very end
    return [order[start:stop] for start, stop in pairwise([0, *cuts])]


def _largest_modules(after: list[int], before: list[int]) -> list[list[int]]:
    """The largest modules of an order that is neither series nor parallel."""
    classes = _Refinement(after, before).run()
    # Without part 0 the classes are modules; those that share one with part 0 are joined to it. A module with 0 and y
    # also has every part that relates differently to the two, and so on: `forced` leads there, `forcing` back.
    firsts = [some[0] for some in classes if some[0] != 0]
    others = sum(1 << first for first in firsts)

    def forced(y: int) -> int:
        return ((after[0] ^ after[y]) | (before[0] ^ before[y])) & others

    def forcing(x: int) -> int:
        if after[x] & 1:
            return others & ~after[x] & ~(1 << x)
        return others & ~(before[x] if before[x] & 1 else ~(after[x] | before[x])) & ~(1 << x)

    # The last root of a search through everything leads to all, if anything does; and here something does.
    unseen, root = others, firsts[0]
    for first in firsts:
        if unseen >> first & 1:
            root = first
            unseen = _unreached(first, unseen, forced)
    with_zero = _unreached(root, others, forcing)
    joined = [some for some in classes if some[0] == 0 or with_zero >> some[0] & 1]
    apart = [some for some in classes if some[0] != 0 and not with_zero >> some[0] & 1]
    return [[part for some in joined for part in some], *apart]


def _unreached(first: int, unseen: int, leads: Callable[[int], int]) -> int:
    """`unseen` without `first` and what it leads to."""
    unseen &= ~(1 << first)
    stack = [first]
    while stack:
        new = leads(stack.pop()) & unseen
        if new:
            unseen &= ~new
            stack += bits(new)
    return unseen


class _Refinement:
    """The parts other than 0, split until no part outside a class relates differently to two of its members.

    `order` has the parts class by class. A class is known by the position where it starts; `end` is where it stops.
    """

    def __init__(self, after: list[int], before: list[int]) -> None:
        self.after, self.before, self.count = after, before, len(after)
        self.order: NDArray[np.int64] = np.arange(self.count)
        self.start_at = np.minimum(np.arange(self.count), 1)
        self.position = np.arange(self.count)
        self.end = {0: 1, 1: self.count}
        # Whether a position and the next one are in the same class.
        self.same = np.arange(self.count - 1) > 0
        self.pending: dict[int, None] = {}  # classes of which every member is still to be used as a pivot
        self.pivots = [0]

    def run(self) -> list[list[int]]:
        while len(self.end) < self.count:
            if self.pending:
                start, _ = self.pending.popitem()
                for pivot in self.order[start : self.end[start]].tolist():
                    self._split_by(pivot)
            elif self.pivots:
                self._split_by(self.pivots.pop())
            else:
                break
        return [self.order[start:stop].tolist() for start, stop in self.end.items()]

    def _split_by(self, pivot: int) -> None:
        """Split every class, except the pivot's own, into what is before, after and beside the pivot."""
        relation = (self._flags(self.after[pivot]) + 2 * self._flags(self.before[pivot]))[self.order]
        changes = np.flatnonzero((relation[1:] != relation[:-1]) & self.same)
        if not len(changes):
            return
        own = int(self.start_at[self.position[pivot]])
        for start in np.unique(self.start_at[changes]).tolist():
            if start != own:
                self._split(start, relation)

    def _flags(self, mask: int) -> NDArray[np.uint8]:
        row = np.frombuffer(mask.to_bytes((self.count + 7) // 8, "little"), np.uint8)
        return np.unpackbits(row, count=self.count, bitorder="little")

    def _split(self, start: int, relation: NDArray[np.uint8]) -> None:
        stop = self.end[start]
        some, how = self.order[start:stop].copy(), relation[start:stop]
        pieces, at = [], start
        for piece in (some[how == value] for value in range(3)):
            if len(piece):
                pieces.append((len(piece), at))
                self.order[at : at + len(piece)] = piece
                self.start_at[at : at + len(piece)] = at
                self.end[at] = at + len(piece)
                at += len(piece)
                self.same[at - 1 : at] = False if at < stop else self.same[at - 1 : at]
        self.position[self.order[start:stop]] = np.arange(start, stop)
        if start in self.pending:
            self.pending.update(dict.fromkeys(place for _, place in pieces))
            return
        # All pieces but the largest become pivots. They see no difference within the largest, unless they split it;
        # so one member of it is enough to split them.
        _, largest = max(pieces)
        self.pending.update(dict.fromkeys(place for _, place in pieces if place != largest))
        self.pivots.append(int(self.order[largest]))


def _frozen(root: _Draft | int, direct: Edges) -> Module | int:
    """The module of a draft; modules of one kind inside each other are merged, what is too deep becomes one order."""
    made: dict[int, Module] = {}  # by the id of the draft
    height: dict[int, int] = {}  # by the id of the module
    for draft in _innermost_first(root):
        parts: list[Module | int] = []
        for part in draft.parts:
            inner = part if isinstance(part, int) else made[id(part)]
            merge = isinstance(inner, Module) and inner.kind == draft.kind != "mixed"
            parts += inner.parts if isinstance(inner, Module) and merge else (inner,)
        edges = frozenset(draft.edges) if draft.kind == "mixed" else frozenset()
        made[id(draft)] = module = Module(draft.kind, tuple(parts), edges)
        height[id(module)] = 1 + max(height.get(id(part), 0) for part in parts)
    if isinstance(root, int):
        return root
    top = made[id(root)]
    return top if height[id(top)] <= DEEPEST else _flat(top, height, direct)


def _innermost_first(root: _Draft | int) -> list[_Draft]:
    found = [root] if isinstance(root, _Draft) else []
    for draft in found:  # grows while it is read
        found += [part for part in draft.parts if isinstance(part, _Draft)]
    return found[::-1]


def _flat(top: Module, height: dict[int, int], direct: Edges) -> Module:
    """One order of all modules that are not too deep."""
    parts: list[Module | int] = []
    stack: list[Module | int] = [top]
    while stack:
        part = stack.pop()
        if isinstance(part, Module) and height[id(part)] > DEEPEST:
            stack += part.parts
        else:
            parts.append(part)
    number = {leaf: place for place, part in enumerate(parts) for leaf in _leaves(part)}
    edges = frozenset((number[a], number[b]) for a, b in direct if number[a] != number[b])
    return Module("mixed", tuple(parts), edges)


def _leaves(part: Module | int) -> list[int]:
    if isinstance(part, int):
        return [part]
    return [leaf for inner in part.parts for leaf in _leaves(inner)]
