"""Where the nodes of a workflow stand and how its flows run, left to right; long drawings are broken into rows.

Coordinates are pixels from the upper left corner, rounded to hundredths, so that a layout is the same on every machine.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, inf, sqrt

from groupwise.workflows.graph import Graph, Node
from groupwise.workflows.pictures.column_assignment import DrawingColumns, Edge, in_columns
from groupwise.workflows.pictures.labels import SMALL, flow_label, is_event, name_below, size_of, width_of
from groupwise.workflows.pictures.placement import SAME, Extent, gaps, heights

Point = tuple[float, float]
MARGIN = 24.0
TRACK = 12.0  # between neighbouring tracks
BEFORE_TRACKS, AFTER_TRACKS = 16.0, 22.0
NAME_LINE = 14.0  # height of a line of a name below a node


@dataclass(frozen=True, slots=True)
class NodeBox:
    """A rectangle by its upper left corner; gateways, conditions and ends are drawn inside theirs."""

    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> Point:
        return self.x + self.width / 2, self.y + self.height / 2

    @property
    def right(self) -> float:
        return self.x + self.width

    @property
    def bottom(self) -> float:
        return self.y + self.height


@dataclass(frozen=True)
class DrawingLayout:
    """Boxes by node id, routes by flow id, and for labels of flows the left end of their base line.

    `borders` are the heights of the lines between lanes.
    """

    boxes: Mapping[str, NodeBox]
    routes: Mapping[str, tuple[Point, ...]]
    labels: Mapping[str, Point]
    width: float
    height: float
    borders: tuple[float, ...] = ()


def layout(
    graph: Graph,
    lanes: Mapping[str, int] | None = None,
    least: tuple[float, float] = (0.0, 0.0),
    sizes: Mapping[str, tuple[float, float]] | None = None,
) -> DrawingLayout:
    """The layout of any graph, including unsound and disconnected ones.

    `lanes` are numbered from above, by node id. Tasks have `least` that width and height, those in `sizes` just that.
    """
    number = {node.id: place for place, node in enumerate(graph.nodes)}
    edges = [(number[flow.source], number[flow.target]) for flow in graph.flows]
    columns = in_columns(len(graph.nodes), edges, number[graph.start.id], number[graph.end.id])
    inside = _lanes(graph, columns, lanes) if lanes else ()
    given = sizes or {}
    every_size = [given.get(node.id) or _at_least(least, node, size_of(graph, node)) for node in graph.nodes]
    names = [NAME_LINE * len(name_below(node)) for node in graph.nodes]
    extents = [Extent(height / 2, height / 2 + name) for (_, height), name in zip(every_size, names, strict=True)]
    extents += [Extent(0, 0)] * (len(columns.column) - len(every_size))
    y, borders = heights(columns, extents, _main_path(graph, columns), inside)
    # The highest node or flow stands at the margin.
    tops = [y[place] - (size[1] / 2) for place, size in enumerate(every_size)] + list(y[len(every_size) :])
    shift = MARGIN - min(tops)
    found = _Sheet(graph, columns, every_size, [round(height + shift, 2) for height in y]).layout()
    return replace(found, borders=tuple(round(border + shift, 2) for border in borders))


def _at_least(least: tuple[float, float], node: Node, size: tuple[float, float]) -> tuple[float, float]:
    return (max(size[0], least[0]), max(size[1], least[1])) if node.kind == "task" and not node.silent else size


def _lanes(graph: Graph, columns: DrawingColumns, lanes: Mapping[str, int]) -> list[int]:
    """The lane of every vertex: bends run in the lane of the node they come from. Orders columns by lane."""
    found = [lanes[node.id] for node in graph.nodes]
    found += [0] * (len(columns.column) - len(found))
    for path in columns.paths:
        for bend in path[1:-1]:
            found[bend] = found[columns.owner.get(bend, path[0])]
    for column in columns.order:
        column.sort(key=found.__getitem__)
    return found


def _main_path(graph: Graph, columns: DrawingColumns) -> list[Edge]:
    """From the start always the most likely flow (ties: the middle one), as far as it leads."""
    place = {vertex: spot for column in columns.order for spot, vertex in enumerate(column)}
    ways: dict[int, list[tuple[float, tuple[int, ...]]]] = {}
    for flow, path in zip(graph.flows, columns.paths, strict=True):
        if columns.column[path[0]] < columns.column[path[-1]]:
            likely = 1.0 if flow.default and flow.probability is None else flow.probability or 0.0
            ways.setdefault(path[0], []).append((likely, path))
    here = next(spot for spot, node in enumerate(graph.nodes) if node.kind == "start")
    links: list[Edge] = []
    while here in ways:
        most = max(likely for likely, _ in ways[here])
        best = sorted((path for likely, path in ways[here] if likely == most), key=lambda path: place[path[1]])
        path = best[(len(best) - 1) // 2]
        links += pairwise(path)
        here = path[-1]
    return links


class _Sheet:
    """The rest of the layout, once heights are known: widths of columns, and the points of flows."""

    def __init__(
        self, graph: Graph, columns: DrawingColumns, sizes: Sequence[tuple[float, float]], y: Sequence[float]
    ) -> None:
        self.graph, self.columns, self.sizes, self.y = graph, columns, sizes, y
        self.gaps = gaps(columns, y)
        self.lefts: list[float] = []
        self.widths: list[float] = []
        self.tracks: list[float] = []
        self.label_starts: list[float] = []
        self._place_columns()

    def _place_columns(self) -> None:
        # From left to right: a column, room for labels of joining flows, the tracks, room for labels of other flows.
        before, after = self._label_room()
        x = MARGIN
        for place, column in enumerate(self.columns.order):
            width = max((self._room(vertex) for vertex in column if vertex < len(self.sizes)), default=0.0)
            self.lefts.append(x)
            self.widths.append(width)
            if place < len(self.gaps):
                x += width + max(BEFORE_TRACKS, before.get(place, 0.0) + 12)
                self.tracks.append(x)
                x += TRACK * max(0, self.gaps[place].places - 1)
                self.label_starts.append(x + 7)
                x += max(AFTER_TRACKS, after.get(place, 0.0) + 22)

    def _room(self, vertex: int) -> float:
        """The width of a node or of the name below it, whichever is larger."""
        return max([self.sizes[vertex][0], *(width_of(line, SMALL) for line in name_below(self.graph.nodes[vertex]))])

    def _label_room(self) -> tuple[dict[int, float], dict[int, float]]:
        """The width of the widest label in each gap, before its tracks and after them."""
        before: dict[int, float] = {}
        after: dict[int, float] = {}
        for flow, path in zip(self.graph.flows, self.columns.paths, strict=True):
            label, link = flow_label(flow), self._first_link(path)
            if label and link is not None:
                room, gap = before if self._joins(link) else after, self.columns.column[link[0]]
                room[gap] = max(room.get(gap, 0.0), width_of(label, SMALL))
        return before, after

    def _first_link(self, path: tuple[int, ...]) -> Edge | None:
        """The first gap that a flow crosses, as the vertices to its left and right."""
        for a, b in pairwise(path):
            if self.columns.column[a] != self.columns.column[b]:
                return (a, b) if self.columns.column[a] < self.columns.column[b] else (b, a)
        return None

    def _joins(self, link: Edge) -> bool:
        """Whether other flows join it at its target, so that its label must stand where it leaves."""
        return len(self.columns.left[link[1]]) > 1 and len(self.columns.right[link[0]]) == 1

    def _label(self, path: tuple[int, ...], route: Sequence[Point]) -> Point:
        link = self._first_link(path)
        if link is None:
            return route[1][0] + 4, route[1][1] - 4
        gap = self.columns.column[link[0]]
        if self._joins(link):
            return round(self.lefts[gap] + self.widths[gap] + 5, 2), self.y[link[0]] - 4
        return round(self.label_starts[gap], 2), self.y[link[1]] - 4

    def layout(self) -> DrawingLayout:
        boxes = {node.id: self._box(place) for place, node in enumerate(self.graph.nodes)}
        routes, labels = {}, {}
        for flow, path in zip(self.graph.flows, self.columns.paths, strict=True):
            routes[flow.id] = simplified(self._route(path))
            if flow_label(flow):
                labels[flow.id] = self._label(path, routes[flow.id])
        right = max([self.lefts[-1] + self.widths[-1], *(x for route in routes.values() for x, _ in route)])
        bottoms = [box.bottom + NAME_LINE * len(name_below(self.graph.by_id[name])) for name, box in boxes.items()]
        low = max([*bottoms, *(y for route in routes.values() for _, y in route)])
        return DrawingLayout(boxes, routes, labels, round(right + MARGIN, 2), round(low + MARGIN, 2))

    def _box(self, vertex: int) -> NodeBox:
        width, height = self.sizes[vertex]
        column = self.columns.column[vertex]
        x = self.lefts[column] + (self.widths[column] - width) / 2
        return NodeBox(round(x, 2), round(self.y[vertex] - height / 2, 2), round(width, 2), height)

    def _route(self, path: tuple[int, ...]) -> list[Point]:
        points: list[Point] = []
        column = self.columns.column
        for a, b in pairwise(path):
            if column[a] == column[b]:
                points += self._hooked(a, b)
            elif column[a] < column[b]:
                points += self._across(a, b)
            else:
                points += reversed(self._across(b, a))
        return points

    def _across(self, a: int, b: int) -> list[Point]:
        """From the right side of one vertex to the left side of another in the next column."""
        gap = self.gaps[self.columns.column[a]]
        start = (self._edge(a, right=True), self.y[a])
        stop = (self._edge(b, right=False), self.y[b])
        # Straight, over one track, or over its own track and the last one.
        if abs(self.y[a] - self.y[b]) <= SAME:
            return [start, (stop[0], start[1])]
        x = self._track(a, gap.tracks[a, b].place)
        if (a, b) not in gap.detours:
            return [start, (x, start[1]), (x, stop[1]), stop]
        height, last = gap.detours[a, b], self._track(a, gap.places - 1)
        return [start, (x, start[1]), (x, height), (last, height), (last, stop[1]), stop]

    def _track(self, vertex: int, place: int) -> float:
        return round(self.tracks[self.columns.column[vertex]] + TRACK * place, 2)

    def _edge(self, vertex: int, *, right: bool) -> float:
        column = self.columns.column[vertex]
        if vertex in self.columns.owner:
            return self._hook_x(vertex)
        if vertex >= len(self.sizes):
            return round(self.lefts[column] + (self.widths[column] if right else 0), 2)
        box = self._box(vertex)
        return box.right if right else box.x

    def _hooked(self, a: int, b: int) -> list[Point]:
        """Between a node and a hook above it: a vertical line."""
        hook, node = (a, b) if a in self.columns.owner else (b, a)
        if not self.columns.left[hook] and not self.columns.right[hook]:
            # A loop on one node: up from its left quarter, down into its right quarter.
            side = -0.25 if hook == a else 0.25
            x = round(self._box(node).middle[0] + side * self.sizes[node][0], 2)
        else:
            x = self._hook_x(hook)
        line = [(x, self.y[hook]), (x, self._top(node, x))]
        return line if hook == a else line[::-1]

    def _hook_x(self, hook: int) -> float:
        """Hooks of one node stand side by side, the lowest ones outermost, so that they do not cross."""
        node = self.columns.owner[hook]
        column = self.columns.order[self.columns.column[node]]
        own = [vertex for vertex in column if self.columns.owner.get(vertex) == node]
        step = min(10.0, self.sizes[node][0] / (2 * len(own) + 2))
        rank = own.index(hook) - (len(own) - 1) / 2
        side = 1 if self.columns.right[hook] else -1
        return round(self._box(node).middle[0] + side * step * rank, 2)

    def _top(self, node: int, x: float) -> float:
        """Where a vertical line at x meets the upper side of a node's shape: a circle, a diamond or a rectangle."""
        box, kind = self._box(node), self.graph.nodes[node]
        half = box.width / 2
        off = min(abs(x - box.middle[0]) / half, 1.0)
        if kind.kind != "task" or is_event(kind):
            return round(box.middle[1] - half * sqrt(1 - off * off), 2)
        return round(box.y + box.height / 2 * off, 2) if kind.silent else box.y


def simplified(points: Sequence[Point]) -> tuple[Point, ...]:
    """The points without repetitions and without those in the middle of a straight line."""
    kept: list[Point] = []
    for point in points:
        if kept and point == kept[-1]:
            continue
        while len(kept) > 1 and (kept[-2][0] == kept[-1][0] == point[0] or kept[-2][1] == kept[-1][1] == point[1]):
            kept.pop()
        kept.append(point)
    return tuple(kept)


# A drawing wider than WIDEST is broken into rows, just before a node that a single flow leads to; the flow then goes
# round by the right, between the rows, and on from the left.
WIDEST = 900.0
BEFORE_A_NODE = 9.0
INDENT = 20.0
ASIDE = 14.0
BETWEEN = 26.0


@dataclass(frozen=True, slots=True)
class _Row:
    """What lies between two breaks, how far it moves, and the height at which a flow runs back to its beginning."""

    left: float
    right: float
    top: float
    bottom: float
    dx: float
    dy: float
    level: float


def in_rows(graph: Graph, place: DrawingLayout, widest: float = WIDEST) -> DrawingLayout:
    """The same drawing in rows of about `widest`, if there are places to break it."""
    breaks = _breaks(graph, place, widest) if place.width > widest else []
    if not breaks:
        return place
    rows = _rows(graph, place, breaks)
    boxes = {}
    for name, box in place.boxes.items():
        boxes[name] = NodeBox(*_moved((box.x, box.y), rows[bisect_right(breaks, box.x)]), box.width, box.height)
    routes = {name: _route(route, breaks, rows) for name, route in place.routes.items()}
    labels = {name: _moved(point, rows[bisect_right(breaks, point[0])]) for name, point in place.labels.items()}
    width = max(row.right + row.dx for row in rows) + ASIDE + MARGIN
    return DrawingLayout(boxes, routes, labels, round(width, 2), round(rows[-1].bottom + rows[-1].dy + MARGIN, 2))


def _breaks(graph: Graph, place: DrawingLayout, widest: float) -> list[float]:
    """Breaks that give as few rows as possible, of about the same length."""
    possible = _possible(graph, place)
    # Rows of equal length, with 8% to spare, so that a break slightly too far right does not cost a row.
    length = place.width / ceil(place.width / widest) * 1.08
    found: list[float] = []
    start = 0.0
    while place.width - start > length:
        fitting = [x for x in possible if start + length / 3 < x <= start + length]
        later = [x for x in possible if x > start + length]
        if not fitting and not later:
            break
        start = fitting[-1] if fitting else later[0]
        found.append(start)
    return found


def _possible(graph: Graph, place: DrawingLayout) -> list[float]:
    """Places just before a node where exactly one flow passes, to the right, and nothing else."""
    spans = sorted((x1, x2) for route in place.routes.values() for (x1, _), (x2, _) in pairwise(route) if x1 < x2)
    # Not through nodes and their names, flows that go left, labels, or what is cancelled together.
    barred = [_span(graph, place, name) for name in place.boxes]
    barred += [(x2, x1) for route in place.routes.values() for (x1, _), (x2, _) in pairwise(route) if x2 < x1]
    for flow in graph.flows:
        if flow.id in place.labels:
            x = place.labels[flow.id][0]
            barred.append((x, x + width_of(flow_label(flow), SMALL)))
    for node in graph.nodes:
        inside = [_span(graph, place, name) for name in node.cancels if name in place.boxes]
        if inside:
            barred.append((min(span[0] for span in inside) - 10, max(span[1] for span in inside) + 10))
    flows, closed = _Count(spans), _Count(barred)
    candidates = sorted({round(box.x - BEFORE_A_NODE, 2) for box in place.boxes.values()})
    return [x for x in candidates if flows.over(x) == 1 and closed.over(x) == 0]


class _Count:
    """Counts the spans that cover a place, by two binary searches."""

    def __init__(self, spans: list[tuple[float, float]]) -> None:
        self.starts, self.ends = sorted(span[0] for span in spans), sorted(span[1] for span in spans)

    def over(self, x: float) -> int:
        return bisect_right(self.starts, x) - bisect_left(self.ends, x)


def _span(graph: Graph, place: DrawingLayout, name: str) -> tuple[float, float]:
    """The left and right end of a node or the name below it."""
    box = place.boxes[name]
    half = max([box.width, *(width_of(line, SMALL) for line in name_below(graph.by_id[name]))]) / 2
    return box.middle[0] - half, box.middle[0] + half


def _rows(graph: Graph, place: DrawingLayout, breaks: list[float]) -> list[_Row]:
    rows: list[_Row] = []
    down = MARGIN
    for left, right in pairwise([-inf, *breaks, inf]):
        boxes = [(name, box) for name, box in place.boxes.items() if left < box.x < right]
        points = [point for route in place.routes.values() for point in route if left < point[0] < right]
        top = min([*(box.y for _, box in boxes), *(y for _, y in points)])
        below = [box.bottom + NAME_LINE * len(name_below(graph.by_id[name])) for name, box in boxes]
        bottom = max([*below, *(y for _, y in points)])
        end = max([*(_span(graph, place, name)[1] for name, _ in boxes), *(x for x, _ in points)])
        dx = 0.0 if not rows else MARGIN + INDENT - left - BEFORE_A_NODE
        rows.append(_Row(left, end, top, bottom, dx, down - top, down - BETWEEN))
        down += bottom - top + 2 * BETWEEN
    return rows


def _route(route: tuple[Point, ...], breaks: list[float], rows: list[_Row]) -> tuple[Point, ...]:
    points = [_moved(route[0], rows[bisect_right(breaks, route[0][0])])]
    for (x1, y), (x2, y2) in pairwise(route):
        for number in range(bisect_right(breaks, x1), bisect_right(breaks, x2)):
            row, following = rows[number], rows[number + 1]
            aside, level = row.right + row.dx + ASIDE, following.level
            points += [(aside, y + row.dy), (aside, level), (MARGIN, level), (MARGIN, y + following.dy)]
        points.append(_moved((x2, y2), rows[bisect_right(breaks, x2)]))
    return simplified([(round(x, 2), round(y, 2)) for x, y in points])


def _moved(point: Point, row: _Row) -> Point:
    return round(point[0] + row.dx, 2), round(point[1] + row.dy, 2)


# How far apart nodes are put that somebody else's drawing does not have yet.
NEW_ROW, NEW_COLUMN = 110.0, 150.0


def placed(graph: Graph, drawn: Mapping[str, Point]) -> dict[str, Point]:
    """The middle of every node: where it is `drawn`, or else below everything and near its neighbours."""
    if not drawn:
        return {name: box.middle for name, box in layout(graph).boxes.items()}
    found = dict(drawn)
    level = max(y for _, y in drawn.values()) + NEW_ROW
    for node in graph.nodes:
        if node.id in found:
            continue
        ends = [flow.source for flow in graph.into(node.id)] + [flow.target for flow in graph.out_of(node.id)]
        near = [found[end][0] for end in ends if end in found]
        x = sum(near) / len(near) if near else NEW_COLUMN / 2
        while any(abs(x - other) < NEW_COLUMN / 2 and abs(level - y) < NEW_ROW / 2 for other, y in found.values()):
            x += NEW_COLUMN
        found[node.id] = (round(x, 1), level)
    return found
