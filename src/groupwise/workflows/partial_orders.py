"""Partial orders over parts 0 to n − 1: cycles, closure, reduction and topological order.

Sets of parts are bit masks: part 3 is the bit 1 << 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import TypeAlias

Edges: TypeAlias = frozenset[tuple[int, int]]


def closure(count: int, edges: Edges) -> list[int]:
    """For every part, a bit mask of all parts after it, directly or through others (the transitive closure)."""
    followers = _followers(count, edges)
    after = [0] * count
    # In reverse topological order, so that what follows a part is complete when it is asked for.
    for part in reversed(in_order(count, edges)):
        for follower in followers[part]:
            after[part] |= after[follower] | 1 << follower
    return after


def _followers(count: int, edges: Edges) -> list[list[int]]:
    followers: list[list[int]] = [[] for _ in range(count)]
    for a, b in edges:
        followers[a].append(b)
    return followers


def reduced(count: int, edges: Edges) -> Edges:
    """The fewest edges with the same closure (the transitive reduction)."""
    after = closure(count, edges)
    # Parts that come after `a` through some direct successor, too.
    implied = [0] * count
    for a, b in edges:
        implied[a] |= after[b]
    return frozenset((a, b) for a, b in edges if not implied[a] >> b & 1)


def among(kept: Sequence[int], count: int, edges: Edges) -> Edges:
    """Edges between the `kept` parts (by their place in `kept`) that lead wherever edges through the others do."""
    place = {part: number for number, part in enumerate(kept)}
    followers = _followers(count, edges)
    # For each part, a mask of the kept parts that come next, directly or through parts that are not kept.
    following = [0] * count
    for part in reversed(in_order(count, edges)):
        for later in followers[part]:
            following[part] |= 1 << place[later] if later in place else following[later]
    return frozenset((number, later) for part, number in place.items() for later in bits(following[part]))


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
    # Every operation on a mask costs as much as the mask is long, so it is turned into a string once.
    digits = bin(mask)[:1:-1]
    numbers = []
    at = digits.find("1")
    while at >= 0:
        numbers.append(at)
        at = digits.find("1", at + 1)
    return numbers
