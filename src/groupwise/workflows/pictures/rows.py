"""Long drawings in rows, as a text is: broken where a single flow goes on, which then leads down to the next row."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, inf

from groupwise.workflows.graph import Graph
from groupwise.workflows.pictures.layout import MARGIN, NAME_LINE, Box, Layout, Point, simplified
from groupwise.workflows.pictures.text import SMALL, flow_label, name_below, width_of

WIDEST = 1800.0
BEFORE_A_NODE = 9.0
INDENT = 20.0
ASIDE = 14.0
BETWEEN = 26.0


@dataclass(frozen=True, slots=True)
class _Row:
    """What lies between two breaks, how far it moves, and the level on which a flow comes back to its beginning."""

    left: float
    right: float
    top: float
    bottom: float
    dx: float
    dy: float
    level: float


def in_rows(graph: Graph, place: Layout, widest: float = WIDEST) -> Layout:
    """The same drawing in rows of about `widest`, where there are places to break it."""
    breaks = _breaks(graph, place, widest) if place.width > widest else []
    if not breaks:
        return place
    rows = _rows(graph, place, breaks)
    boxes = {name: _moved_box(box, rows[bisect_right(breaks, box.x)]) for name, box in place.boxes.items()}
    routes = {name: _route(route, breaks, rows) for name, route in place.routes.items()}
    labels = {name: _moved(point, rows[bisect_right(breaks, point[0])]) for name, point in place.labels.items()}
    width = max(row.right + row.dx for row in rows) + ASIDE + MARGIN
    return Layout(boxes, routes, labels, round(width, 2), round(rows[-1].bottom + rows[-1].dy + MARGIN, 2))


def _breaks(graph: Graph, place: Layout, widest: float) -> list[float]:
    """As many rows as it takes, of about one length, broken where one may."""
    possible = _possible(graph, place)
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


def _possible(graph: Graph, place: Layout) -> list[float]:
    """Places just before a node that one flow passes, to the right, and nothing else."""
    spans = sorted((x1, x2) for route in place.routes.values() for (x1, _), (x2, _) in pairwise(route) if x1 < x2)
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
    """How many spans lie over a place."""

    def __init__(self, spans: list[tuple[float, float]]) -> None:
        self.starts, self.ends = sorted(span[0] for span in spans), sorted(span[1] for span in spans)

    def over(self, x: float) -> int:
        return bisect_right(self.starts, x) - bisect_left(self.ends, x)


def _span(graph: Graph, place: Layout, name: str) -> tuple[float, float]:
    """From the left to the right of a node and the name below it."""
    box = place.boxes[name]
    half = max([box.width, *(width_of(line, SMALL) for line in name_below(graph.by_id[name]))]) / 2
    return box.middle[0] - half, box.middle[0] + half


def _rows(graph: Graph, place: Layout, breaks: list[float]) -> list[_Row]:
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


def _moved_box(box: Box, row: _Row) -> Box:
    x, y = _moved((box.x, box.y), row)
    return Box(x, y, box.width, box.height)
