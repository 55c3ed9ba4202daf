"""How high everything stands: rows of vertices that belong in one straight line, placed near what they connect to.

The main path is one row. Every other vertex is in line with at most one neighbour to either side, after Brandes and
Köpf; rows that never cross can always be put above each other, and then move towards their neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf

from groupwise.workflows.pictures.columns import Columns, Edge

PASSES = 12
BETWEEN_NODES, BESIDE_A_BEND, ABOVE_A_NODE = 24.0, 22.0, 20.0


@dataclass(frozen=True, slots=True)
class Extent:
    """How far a vertex reaches above and below its middle."""

    above: float
    below: float


def heights(columns: Columns, extents: Sequence[Extent], main: Sequence[Edge]) -> list[float]:
    """The middle of every vertex, from 0 down."""
    row = _rows(columns, set(main))
    limits = _limits(columns, extents, row)
    order = _top_down(set(row), limits)
    above: dict[int, list[tuple[int, float]]] = {name: [] for name in order}
    below: dict[int, list[tuple[int, float]]] = {name: [] for name in order}
    for (upper, lower), gap in limits.items():
        above[lower].append((upper, gap))
        below[upper].append((lower, gap))
    y = dict.fromkeys(order, 0.0)
    for name in order:
        y[name] = max((y[other] + gap for other, gap in above[name]), default=0.0)
    pulls = _pulls(columns, extents, row, set(main))
    for _ in range(PASSES):
        for name in [*reversed(order), *order]:
            if pulls[name]:
                weight = sum(pull[1] for pull in pulls[name])
                wish = sum((y[other] + shift) * share for other, share, shift in pulls[name]) / weight
                least = max((y[other] + gap for other, gap in above[name]), default=-inf)
                most = min((y[other] - gap for other, gap in below[name]), default=inf)
                y[name] = max(min(wish, most), least)
    return [y[row[vertex]] for vertex in range(len(columns.column))]


def _rows(columns: Columns, main: set[Edge]) -> list[int]:
    """The row of every vertex, by the number of its leftmost."""
    row = list(range(len(columns.column)))
    nodes = len(columns.column) - sum(len(path) - 2 for path in columns.paths)
    for left, right in pairwise(columns.order):
        for a, b in _aligned(columns, left, right, main, nodes):
            row[b] = row[a]
    return row


def _aligned(columns: Columns, left: list[int], right: list[int], main: set[Edge], nodes: int) -> list[Edge]:
    """Links of one gap that become straight: the main path first, then long flows, then middle neighbours."""
    here = {vertex: place for place, vertex in enumerate(left)}
    there = {vertex: place for place, vertex in enumerate(right)}

    def rank(edge: Edge) -> tuple[float, ...]:
        a, b = edge
        out = sorted(there[vertex] for vertex in columns.right[a])
        into = sorted(here[vertex] for vertex in columns.left[b])
        off = abs(out.index(there[b]) - (len(out) - 1) / 2) + abs(into.index(here[a]) - (len(into) - 1) / 2)
        return (edge not in main, not (a >= nodes and b >= nodes), off, here[a], there[b])

    chosen: list[Edge] = []
    taken: list[tuple[int, int]] = []
    for a, b in sorted({(one, other) for one in left for other in columns.right[one]}, key=rank):
        p, q = here[a], there[b]
        if all((p < other) == (q < mate) and p != other and q != mate for other, mate in taken):
            taken.append((p, q))
            chosen.append((a, b))
    return chosen


def _limits(columns: Columns, extents: Sequence[Extent], row: Sequence[int]) -> dict[Edge, float]:
    """How far rows that meet in a column must be apart: (upper, lower) → least distance."""
    limits: dict[Edge, float] = {}
    for column in columns.order:
        for upper, lower in pairwise(column):
            pair = (row[upper], row[lower])
            limits[pair] = max(limits.get(pair, 0.0), _apart(columns, extents, upper, lower))
    return limits


def _apart(columns: Columns, extents: Sequence[Extent], upper: int, lower: int) -> float:
    bends = (extents[upper].above == 0) + (extents[lower].above == 0)
    gap = (BETWEEN_NODES, BESIDE_A_BEND, BESIDE_A_BEND)[bends]
    if columns.owner.get(upper) == lower:
        gap = ABOVE_A_NODE
    return extents[upper].below + gap + extents[lower].above


def _top_down(rows: set[int], limits: dict[Edge, float]) -> list[int]:
    """Every row after all that lie above it."""
    below: dict[int, list[int]] = {name: [] for name in rows}
    waits = dict.fromkeys(rows, 0)
    for upper, lower in limits:
        below[upper].append(lower)
        waits[lower] += 1
    order = sorted(name for name, count in waits.items() if count == 0)
    for name in order:
        for lower in below[name]:
            waits[lower] -= 1
            if waits[lower] == 0:
                order.append(lower)
    assert len(order) == len(rows), "rows that do not cross have an order from top to bottom"
    return order


Pull = tuple[int, float, float]


def _pulls(columns: Columns, extents: Sequence[Extent], row: Sequence[int], main: set[Edge]) -> dict[int, list[Pull]]:
    """Towards which rows each is drawn: (row, how much, how far beside it)."""
    pulls: dict[int, list[Pull]] = {name: [] for name in set(row)}
    for a, b in columns.links():
        if row[a] != row[b]:
            weight = 4.0 if (a, b) in main else 1.0
            pulls[row[a]].append((row[b], weight, 0.0))
            pulls[row[b]].append((row[a], weight, 0.0))
    for hook, node in columns.owner.items():
        pulls[row[hook]].append((row[node], 1.0, -_apart(columns, extents, hook, node)))
    return pulls
