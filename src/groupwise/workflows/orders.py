"""Partial orders over numbered parts: rings, what follows from what, and an order to go through them."""

from __future__ import annotations

from typing import TypeAlias

Edges: TypeAlias = frozenset[tuple[int, int]]


def reaches(edges: Edges, start: int, goal: int) -> bool:
    """Whether `goal` comes after `start`, directly or through others."""
    seen, stack = {start}, [start]
    while stack:
        here = stack.pop()
        for a, b in edges:
            if a == here and b not in seen:
                seen.add(b)
                stack.append(b)
    return goal in seen - {start}


def reduced(count: int, edges: Edges) -> Edges:
    """The fewest edges that say the same: none that follows from others (the transitive reduction)."""
    return frozenset(edge for edge in edges if not reaches(edges - {edge}, *edge))


def find_ring(count: int, edges: Edges) -> list[int]:
    """Parts that come before themselves, in order and the first again at the end; none if the order is sound."""
    after: dict[int, list[int]] = {part: [] for part in range(count)}
    for a, b in sorted(edges):
        after[a].append(b)
    state = [0] * count
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
    """The parts, each after all that come before it; of those that may come next, the lowest number first."""
    waits = [sum(b == part for _, b in edges) for part in range(count)]
    ready = [part for part in range(count) if waits[part] == 0]
    order: list[int] = []
    while ready:
        here = min(ready)
        ready.remove(here)
        order.append(here)
        for a, b in edges:
            if a == here:
                waits[b] -= 1
                if waits[b] == 0:
                    ready.append(b)
    return order


def connected(count: int, edges: Edges) -> list[list[int]]:
    """The parts that edges connect, whichever way they point, cluster by cluster."""
    cluster = list(range(count))
    for a, b in edges:
        old, new = cluster[a], cluster[b]
        cluster = [new if c == old else c for c in cluster]
    return [[part for part in range(count) if cluster[part] == name] for name in dict.fromkeys(cluster)]
