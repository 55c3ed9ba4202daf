"""Partial orders over parts 0 to n − 1: cycles, closure, reduction, topological order and modular decomposition.

Sets of parts are bit masks: part 3 is the bit 1 << 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Literal, TypeAlias

Edges: TypeAlias = frozenset[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Module:
    """Parts that have the same relation to every part outside: in series, in parallel, or in an order of their own.

    For a "mixed" module, `edges` say which of its `parts` (by index) comes right before which.
    """

    kind: Literal["series", "parallel", "mixed"]
    parts: tuple[Module | int, ...]
    edges: Edges = frozenset()


def closure(count: int, edges: Edges) -> list[int]:
    """For every part, a bit mask of all parts after it, directly or through others (the transitive closure)."""
    followers: list[list[int]] = [[] for _ in range(count)]
    for a, b in edges:
        followers[a].append(b)
    after = [0] * count
    # In reverse topological order, so that what follows a part is complete when it is asked for.
    for part in reversed(in_order(count, edges)):
        for follower in followers[part]:
            after[part] |= after[follower] | 1 << follower
    return after


def reduced(count: int, edges: Edges) -> Edges:
    """The fewest edges with the same closure (the transitive reduction)."""
    after = closure(count, edges)
    # Parts that come after `a` through some direct successor, too.
    implied = [0] * count
    for a, b in edges:
        implied[a] |= after[b]
    return frozenset((a, b) for a, b in edges if not implied[a] >> b & 1)


def modules(count: int, edges: Edges) -> Module | int:
    """The modular decomposition of the order, which is unique.

    Habib and Paul, "A survey of the algorithmic aspects of modular decomposition" (2010).
    """
    after = closure(count, edges)
    before = [0] * count
    for part, mask in enumerate(after):
        for later in bits(mask):
            before[later] |= 1 << part
    return _taken_apart((1 << count) - 1, after, before)


def _taken_apart(some: int, after: list[int], before: list[int]) -> Module | int:
    parts = bits(some)
    if len(parts) == 1:
        return parts[0]
    # Disconnected when comparable parts are joined: parallel. Disconnected when incomparable ones are: series.
    related = {part: after[part] | before[part] for part in parts}
    clusters = _connected(some, related)
    if len(clusters) > 1:
        return Module("parallel", tuple(_taken_apart(mask, after, before) for mask in clusters))
    clusters = _connected(some, {part: ~related[part] for part in parts})
    if len(clusters) > 1:
        # All of a cluster has the same number of parts before it, so any member gives its position.
        clusters.sort(key=lambda mask: (before[bits(mask)[0]] & some).bit_count())
        return Module("series", tuple(_taken_apart(mask, after, before) for mask in clusters))
    masks = _largest_modules(parts, after, before)
    inner = tuple(_taken_apart(mask, after, before) for mask in masks)
    return Module("mixed", inner, _between([bits(mask)[0] for mask in masks], after))


def _between(parts: list[int], after: list[int]) -> Edges:
    some = sum(1 << part for part in parts)
    place = {part: number for number, part in enumerate(parts)}
    edges = set()
    for part in parts:
        # Direct successors: all later parts, without those that come after another later part.
        later = direct = after[part] & some
        for follower in bits(later):
            direct &= ~after[follower]
        edges |= {(place[part], place[follower]) for follower in bits(direct)}
    return frozenset(edges)


def _connected(some: int, near: dict[int, int]) -> list[int]:
    clusters = []
    while some:
        cluster = new = some & -some
        while new:
            reached = 0
            for part in bits(new):
                reached |= near[part]
            new = reached & some & ~cluster
            cluster |= new
        clusters.append(cluster)
        some &= ~cluster
    return clusters


def _largest_modules(parts: list[int], after: list[int], before: list[int]) -> list[int]:
    """The maximal modules of an order that is neither series nor parallel, found by refining a partition."""
    first, whole = parts[0], sum(1 << part for part in parts)
    with_first = 1 << first
    apart = _refined(whole & ~with_first, whole, after, before)
    # A class of parts that look alike without `first` is its own module unless some module joins it with `first`.
    for mask in apart:
        smallest = _smallest_module(first, bits(mask)[0], whole, after, before)
        if smallest != whole:
            with_first |= smallest | mask
    return [with_first, *(mask for mask in apart if not mask & with_first)]


def _refined(some: int, whole: int, after: list[int], before: list[int]) -> list[int]:
    """`some` split into classes whose members have the same relation to everything outside their class."""
    done, classes = [], [some]
    while classes:
        mask = classes.pop()
        outside = whole & ~mask
        alike: dict[tuple[int, int], int] = {}
        for part in bits(mask):
            key = (after[part] & outside, before[part] & outside)
            alike[key] = alike.get(key, 0) | 1 << part
        if len(alike) == 1:
            done.append(mask)
        else:
            classes += alike.values()
    return done


def _smallest_module(a: int, b: int, whole: int, after: list[int], before: list[int]) -> int:
    """The smallest module with `a` and `b`: it grows by every part to which its members relate differently."""
    module, new = 1 << a, 1 << b
    while new:
        module |= new
        apart = 0
        for part in bits(new):
            apart |= (after[a] ^ after[part]) | (before[a] ^ before[part])
            if apart & whole | module == whole:
                return whole
        new = apart & whole & ~module
    return module


def find_ring(count: int, edges: Edges) -> list[int]:
    """A cycle of parts, the first repeated at the end; empty if there is none."""
    after: dict[int, list[int]] = {part: [] for part in range(count)}
    for a, b in sorted(edges):
        after[a].append(b)
    state = [0] * count  # 0 unseen, 1 on the path, 2 done
    for root in range(count):
        path: list[int] = []
        stack: list[tuple[int, int]] = [(root, 0)] if state[root] == 0 else []
        while stack:
            here, child = stack.pop()
            if child == 0:
                state[here] = 1
                path.append(here)
            if child < len(after[here]):
                stack.append((here, child + 1))
                nearby = after[here][child]
                if state[nearby] == 1:
                    return [*path[path.index(nearby) :], nearby]
                if state[nearby] == 0:
                    stack.append((nearby, 0))
            else:
                state[here] = 2
                path.pop()
    return []


def in_order(count: int, edges: Edges) -> list[int]:
    """A topological order; among parts that may come next, the lowest number first."""
    followers: list[list[int]] = [[] for _ in range(count)]
    waits = [0] * count
    for a, b in edges:
        followers[a].append(b)
        waits[b] += 1
    ready = [part for part in range(count) if waits[part] == 0]
    order: list[int] = []
    while ready:
        here = heappop(ready)
        order.append(here)
        for part in followers[here]:
            waits[part] -= 1
            if waits[part] == 0:
                heappush(ready, part)
    return order


def bits(mask: int) -> list[int]:
    """The numbers of the bits that are set, lowest first."""
    numbers = []
    while mask:
        low = mask & -mask
        numbers.append(low.bit_length() - 1)
        mask ^= low
    return numbers
