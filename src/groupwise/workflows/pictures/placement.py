"""Heights of vertices, and the tracks on which flows change their height between two columns.

Vertices that belong on one straight line form a row. The main path is one row; every other vertex is aligned with at
most one neighbour on either side, after Brandes and Köpf. Rows never cross, so they can always be stacked; they then
move towards their neighbours. Between two columns there are vertical tracks, one for each group of flows that bend.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf

from groupwise.workflows.pictures.column_assignment import DrawingColumns, Edge

PASSES = 12  # times that all rows move towards their neighbours
BETWEEN_NODES, BESIDE_A_BEND, ABOVE_A_NODE = 24.0, 22.0, 20.0
INSIDE_A_LANE, EMPTY_LANE = 20.0, 60.0


@dataclass(frozen=True, slots=True)
class Extent:
    """How far a vertex extends above and below its middle; 0 and 0 for a bend."""

    above: float
    below: float


def heights(
    columns: DrawingColumns, extents: Sequence[Extent], main: Sequence[Edge], lanes: Sequence[int] = ()
) -> tuple[list[float], list[float]]:
    """The y of the middle of every vertex, growing downwards from 0, and of the borders below all lanes but the last.

    `lanes` has the lane of every vertex; columns must be ordered by it.
    """
    row = _rows(columns, set(main), lanes)
    limits = _limits(columns, extents, row)
    # Borders are rows of their own, numbered from −1 downwards.
    borders = [-1 - lane for lane in range(max(lanes, default=0))]
    limits |= _borders(extents, row, lanes, borders)
    order = _top_down({*row, *borders}, limits)
    above: dict[int, list[tuple[int, float]]] = {name: [] for name in order}
    below: dict[int, list[tuple[int, float]]] = {name: [] for name in order}
    for (upper, lower), gap in limits.items():
        above[lower].append((upper, gap))
        below[upper].append((lower, gap))
    # Stack the rows as tightly as allowed, then let each move to the weighted mean of its neighbours within its limits.
    y = dict.fromkeys(order, 0.0)
    for name in order:
        y[name] = max((y[other] + gap for other, gap in above[name]), default=0.0)
    pulls = _pulls(columns, extents, row, set(main))
    pulls |= {border: [] for border in borders}
    for _ in range(PASSES):
        for name in [*reversed(order), *order]:
            if pulls[name]:
                weight = sum(pull[1] for pull in pulls[name])
                wish = sum((y[other] + shift) * share for other, share, shift in pulls[name]) / weight
                least = max((y[other] + gap for other, gap in above[name]), default=-inf)
                most = min((y[other] - gap for other, gap in below[name]), default=inf)
                y[name] = max(min(wish, most), least)
    return [y[row[vertex]] for vertex in range(len(columns.column))], [y[border] for border in borders]


def _borders(
    extents: Sequence[Extent], row: Sequence[int], lanes: Sequence[int], borders: Sequence[int]
) -> dict[Edge, float]:
    """The least distances between the rows of a lane and its borders; every lane has some height."""
    limits = {pair: EMPTY_LANE for pair in pairwise(borders)}
    for vertex, lane in enumerate(lanes):
        if lane < len(borders):
            pair, room = (row[vertex], borders[lane]), extents[vertex].below + INSIDE_A_LANE
            limits[pair] = max(limits.get(pair, 0.0), room)
        if lane > 0:
            pair, room = (borders[lane - 1], row[vertex]), extents[vertex].above + INSIDE_A_LANE
            limits[pair] = max(limits.get(pair, 0.0), room)
    return limits


def _rows(columns: DrawingColumns, main: set[Edge], lanes: Sequence[int]) -> list[int]:
    """The row of every vertex, named after its leftmost vertex."""
    row = list(range(len(columns.column)))
    nodes = len(columns.column) - sum(len(path) - 2 for path in columns.paths)
    for left, right in pairwise(columns.order):
        for a, b in _aligned(columns, left, right, main, nodes, lanes):
            row[b] = row[a]
    return row


def _aligned(
    columns: DrawingColumns, left: list[int], right: list[int], main: set[Edge], nodes: int, lanes: Sequence[int]
) -> list[Edge]:
    """Links between two columns that become straight: the main path first, then long flows, then median neighbours.

    Only links within a lane can be straight.
    """
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
        if lanes and lanes[a] != lanes[b]:
            continue
        p, q = here[a], there[b]
        # Chosen links must not cross or share an end: then rows never cross.
        if all((p < other) == (q < mate) and p != other and q != mate for other, mate in taken):
            taken.append((p, q))
            chosen.append((a, b))
    return chosen


def _limits(columns: DrawingColumns, extents: Sequence[Extent], row: Sequence[int]) -> dict[Edge, float]:
    """The least distance between rows that are neighbours in some column, by (upper, lower)."""
    limits: dict[Edge, float] = {}
    for column in columns.order:
        for upper, lower in pairwise(column):
            pair = (row[upper], row[lower])
            limits[pair] = max(limits.get(pair, 0.0), _apart(columns, extents, upper, lower))
    return limits


def _apart(columns: DrawingColumns, extents: Sequence[Extent], upper: int, lower: int) -> float:
    bends = (extents[upper].above == 0) + (extents[lower].above == 0)
    gap = (BETWEEN_NODES, BESIDE_A_BEND, BESIDE_A_BEND)[bends]
    if columns.owner.get(upper) == lower:
        gap = ABOVE_A_NODE
    return extents[upper].below + gap + extents[lower].above


def _top_down(rows: set[int], limits: dict[Edge, float]) -> list[int]:
    """Rows in topological order: each after all rows above it."""
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


def _pulls(
    columns: DrawingColumns, extents: Sequence[Extent], row: Sequence[int], main: set[Edge]
) -> dict[int, list[Pull]]:
    """Towards which rows each is drawn: (row, how much, how far beside it)."""
    pulls: dict[int, list[Pull]] = {name: [] for name in set(row)}
    for a, b in columns.links():
        if row[a] != row[b]:
            # A link of the main path pulls four times as hard as any other.
            weight = 4.0 if (a, b) in main else 1.0
            pulls[row[a]].append((row[b], weight, 0.0))
            pulls[row[b]].append((row[a], weight, 0.0))
    for hook, node in columns.owner.items():
        pulls[row[hook]].append((row[node], 1.0, -_apart(columns, extents, hook, node)))
    return pulls


SAME = 0.5  # heights closer than this count as equal
NEAR = 7.0  # vertical lines closer than this would look like one


@dataclass(slots=True)
class Track:
    """A vertical line: the heights at which flows arrive from the left and leave to the right."""

    lefts: set[float] = field(default_factory=set)
    rights: set[float] = field(default_factory=set)
    top: float = inf
    bottom: float = -inf
    place: int = 0

    def add(self, left: float, right: float) -> None:
        self.lefts.add(left)
        self.rights.add(right)
        self.top, self.bottom = min(self.top, left, right), max(self.bottom, left, right)

    def overlaps(self, other: Track) -> bool:
        return self.top <= other.bottom + NEAR and other.top <= self.bottom + NEAR


@dataclass(slots=True)
class Gap:
    """The space between two columns: the track of every link that is not straight.

    A link with a detour leaves its track at another height, short of its goal, and gets there on the last track.
    """

    tracks: dict[Edge, Track]
    detours: dict[Edge, float]

    @property
    def places(self) -> int:
        return max((track.place for track in self.tracks.values()), default=-1) + 1 + bool(self.detours)


def gaps(columns: DrawingColumns, y: Sequence[float]) -> list[Gap]:
    """The gap to the right of every column but the last."""
    found: list[Gap] = []
    for column in columns.order[:-1]:
        links = [(a, b) for a in column for b in columns.right[a] if abs(y[a] - y[b]) > SAME]
        tracks = _tracks(columns, links, y)
        found.append(Gap(tracks, _detours(tracks, y)))
    return found


def _detours(tracks: dict[Edge, Track], y: Sequence[float]) -> dict[Edge, float]:
    """Links that would overlap another one that leaves, further right, from the height at which they arrive."""
    found = {}
    for (a, b), track in tracks.items():
        beside = (other for other in tracks.values() if other is not track and other.place > track.place)
        if any(abs(left - y[b]) < SAME for other in beside for left in other.lefts):
            found[a, b] = y[b] + (NEAR + 1 if y[a] > y[b] else -NEAR - 1)
    return found


def _tracks(columns: DrawingColumns, links: Sequence[Edge], y: Sequence[float]) -> dict[Edge, Track]:
    shared: dict[Hashable, Track] = {}
    of: dict[Edge, Track] = {}
    for a, b in links:
        of[a, b] = shared.setdefault(_company(columns, a, b), Track())
        of[a, b].add(y[a], y[b])
    _place(list(shared.values()))
    return of


def _company(columns: DrawingColumns, a: int, b: int) -> Hashable:
    """The key of the track a link shares: all links of its source, of its target, or of a complete bipartite set."""
    targets, sources = columns.right[a], columns.left[b]
    if len(targets) == 1 or len(sources) == 1:
        return (a, -1) if len(targets) > 1 else (-1, b) if len(sources) > 1 else (a, b)
    goals, origins = set(targets), set(sources)
    complete = all(set(columns.right[one]) == goals for one in origins)
    complete = complete and all(set(columns.left[one]) == origins for one in goals)
    return (frozenset(origins), frozenset(goals)) if complete else (a, b)


def _place(found: list[Track]) -> None:
    """Order the tracks so that pairs cost little (greedily, the cheapest to put first), then pack them."""
    count = len(found)
    behind: list[dict[int, int]] = [{} for _ in found]
    waits = [0] * count
    for a in range(count):
        for b in range(a + 1, count):
            if found[a].overlaps(found[b]):
                # a stands left of b unless that costs more; +1 makes even a free choice an order.
                saved = _cost(found[b], found[a]) - _cost(found[a], found[b])
                before, after = (a, b) if saved >= 0 else (b, a)
                behind[before][after] = abs(saved) + 1
                waits[after] += abs(saved) + 1
    left = list(range(count))
    placed: list[Track] = []
    while left:
        chosen = min(left, key=lambda one: (waits[one], one))
        left.remove(chosen)
        for after, cost in behind[chosen].items():
            waits[after] -= cost
        track = found[chosen]
        track.place = 1 + max((other.place for other in placed if other.overlaps(track)), default=-1)
        placed.append(track)


def _cost(left: Track, right: Track) -> int:
    """Crossings if `left` stands left of `right`, plus 100 for each pair of flows that would overlap."""
    cost = sum(_inside(height, left) for height in right.lefts) + sum(_inside(height, right) for height in left.rights)
    cost += 100 * sum(abs(a - b) < NEAR for a in left.rights for b in right.lefts)
    return cost


def _inside(height: float, track: Track) -> int:
    return 1 if track.top + SAME < height < track.bottom - SAME else 0
