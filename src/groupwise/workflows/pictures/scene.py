"""A workflow as shapes: regions at the back, flows, nodes with what is to be known of them, and a legend."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from groupwise.workflows.document import Document
from groupwise.workflows.graph import Flow, Graph, Node
from groupwise.workflows.pictures.drawn import pool_of, pool_styles, without_detours
from groupwise.workflows.pictures.layout import MARGIN, NAME_LINE, Box, Layout, layout
from groupwise.workflows.pictures.legend import legend
from groupwise.workflows.pictures.regions import region
from groupwise.workflows.pictures.rows import in_rows
from groupwise.workflows.pictures.shapes import Disc, Line, Oblong, Scene, Shape, Words, glyph, icon_shapes, moved
from groupwise.workflows.pictures.text import (
    FONT,
    ICON,
    LINE,
    STRIP,
    flow_label,
    mark_width,
    marks_of,
    marks_width,
    name_below,
    seconds,
    shortened,
    strips_of,
    width_of,
    wrapped,
)

BEND = 6.0
TIP = 8.0


@dataclass(frozen=True, slots=True)
class Placed:
    """A graph as it is drawn, and how far down the sheet."""

    graph: Graph
    layout: Layout
    top: float


def arranged(document: Document) -> list[Placed]:
    """The graphs of a document, one below the other, each with room for its name where there are several."""
    placed: list[Placed] = []
    top = 0.0
    for graph in map(without_detours, document.graphs):
        top += MARGIN if len(document.graphs) > 1 else 0.0
        placed.append(Placed(graph, in_rows(graph, layout(graph)), top))
        top += placed[-1].layout.height
    return placed


def scene(document: Document) -> Scene:
    """Every graph of a document, and what its colours and signs mean."""
    pools, placed = pool_styles(document), arranged(document)
    shapes: list[Shape] = []
    width = max(one.layout.width for one in placed)
    for one in placed:
        if len(placed) > 1:
            name = shortened(one.graph.name, 80)
            shapes.append(Words(MARGIN, one.top + 6, name, "heading"))
            width = max(width, 2 * MARGIN + width_of(name, 16))
        shapes += [moved(shape, one.top) for shape in graph_shapes(document, one.graph, one.layout, pools)]
    bottom = placed[-1].top + placed[-1].layout.height
    below, size = legend(document, [one.graph for one in placed], pools, max(width, 480.0), bottom)
    return Scene(document.name, max(width, size[0]), bottom + size[1], (*shapes, *below))


def graph_shapes(document: Document, graph: Graph, place: Layout, pools: Mapping[str, str]) -> Iterator[Shape]:
    """Regions at the back, then flows, then nodes."""
    for node in graph.nodes:
        if node.cancels:
            yield from _region(graph, place, node)
    for flow in graph.flows:
        yield from _flow(flow, place)
    for node in graph.nodes:
        yield from _node(document, graph, node, place.boxes[node.id], pools)


def _region(graph: Graph, place: Layout, node: Node) -> Iterator[Shape]:
    """One line around all that a node clears away: boxes, and flows in between."""
    names = set(node.cancels)
    margin = min(5.0 + 3 * sum(bool(one.cancels) and one.id in names for one in graph.nodes), 8.0)
    inside = [_around(graph, place, one, margin) for one in graph.nodes if one.id in names]
    outside = [_around(graph, place, one, 1) for one in graph.nodes if one.id not in names]
    for flow in graph.flows:
        if flow.id in names and (flow.source in names) + (flow.target in names) != 1:
            for (x1, y1), (x2, y2) in pairwise(place.routes[flow.id]):
                inside.append((min(x1, x2) - 6, min(y1, y2) - 6, max(x1, x2) + 6, max(y1, y2) + 6))
    hint = f"cleared away when {node.label} completes"
    rings = region(inside, outside) if inside else []
    yield from (Line(ring, "region", closed=True, bend=8, hint=hint) for ring in rings)


def _around(graph: Graph, place: Layout, node: Node, margin: float) -> tuple[float, float, float, float]:
    box, below = place.boxes[node.id], NAME_LINE * len(name_below(graph.by_id[node.id]))
    return box.x - margin, box.y - margin, box.right + margin, box.bottom + margin + below


def _flow(flow: Flow, place: Layout) -> Iterator[Shape]:
    route = place.routes[flow.id]
    hint = flow.condition or ("otherwise" if flow.default else "")
    (x1, y1), (x2, y2) = route[-2], route[-1]
    dx, dy = (x2 > x1) - (x2 < x1), (y2 > y1) - (y2 < y1)
    base = (x2 - dx * TIP, y2 - dy * TIP)
    yield Line((*route[:-1], base), "flow", bend=BEND, hint=hint)
    half = TIP * 0.45
    corners = ((x2, y2), (base[0] + dy * half, base[1] + dx * half), (base[0] - dy * half, base[1] - dx * half))
    yield Line(corners, "tip", closed=True)
    label = flow_label(flow)
    if label:
        x, y = place.labels[flow.id]
        yield Words(x, y, label, "label")


def _node(document: Document, graph: Graph, node: Node, box: Box, pools: Mapping[str, str]) -> Iterator[Shape]:
    hint = _hint(document, node)
    x, y = box.middle
    if node.kind != "task":
        yield Disc(x, y, box.width / 2 - 1, node.kind, hint)
    elif node.silent:
        yield from _gate(graph, node, box, hint)
    else:
        yield from _task(graph, node, box, pools.get(pool_of(document, node), "call" if node.calls else "task"), hint)
    for number, line in enumerate(name_below(node)):
        yield Words(x, box.bottom + 12 + NAME_LINE * number, line, "label", "middle")


def _gate(graph: Graph, node: Node, box: Box, hint: str) -> Iterator[Shape]:
    x, y = box.middle
    if node.cancels and len(graph.out_of(node.id)) < 2:
        yield Disc(x, y, box.width / 2 - 2, "end", hint)
        yield from glyph("xor", x, y, 6)
        return
    yield Line(((x, box.y), (box.right, y), (x, box.bottom), (box.x, y)), "gate", closed=True, bend=3, hint=hint)
    splits, joins = len(graph.out_of(node.id)) > 1, len(graph.into(node.id)) > 1
    rules = [node.join] * joins + [node.split] * splits
    if len(set(rules)) == 2:
        yield from glyph(rules[0], x - 7, y, 4)
        yield from glyph(rules[1], x + 7, y, 4)
    elif rules:
        yield from glyph(rules[0], x, y, 7)


def _task(graph: Graph, node: Node, box: Box, style: str, hint: str) -> Iterator[Shape]:
    yield Oblong(box.x, box.y, box.width, box.height, style, 8, hint)
    joins, splits = strips_of(graph, node)
    for wanted, rule, x in ((joins, node.join, box.x), (splits, node.split, box.right - STRIP)):
        if wanted:
            edge = x + STRIP if x == box.x else x
            yield Line(((edge, box.y + 6), (edge, box.bottom - 6)), "icon")
            yield from glyph(rule, x + STRIP / 2, box.middle[1], 5)
    x, y = box.middle[0] + STRIP * (joins - splits) / 2, box.middle[1]
    lines, marks = wrapped(node.label), marks_of(node)
    first = y - LINE * (len(lines) - 1) / 2 + FONT * 0.36 - (8 if marks else 0)
    for number, line in enumerate(lines):
        yield Words(x, first + LINE * number, line, "name", "middle")
    left = x - (marks_width(marks) - 8) / 2
    for icon, text in marks:
        yield from icon_shapes(icon, left + ICON / 2, box.bottom - 13)
        yield Words(left + ICON + 4, box.bottom - 9, text, "mark")
        left += mark_width(text)


def _hint(document: Document, node: Node) -> str:
    """What one wants to know of a node when pointing at it, a line each."""
    handling, lines = node.handling, [node.label]
    pool = pool_of(document, node)
    lines += [f"done by {pool}"] if pool else []
    activity = document.requirements.activities.get(node.label) if document.requirements else None
    if activity and not node.silent:
        lines.append(f"takes {seconds(activity.duration.mean)} on average")
    if handling.retry.most:
        pause = f", the first after {seconds(handling.retry.pause)}" if handling.retry.pause else ""
        lines.append(f"tried up to {handling.retry.most} times again{pause}")
    lines += [f"a try may take {seconds(handling.timeout)}"] if handling.timeout is not None else []
    lines += [f"begins {seconds(handling.delay)} late"] if handling.delay else []
    lines += [f"due {seconds(handling.due)} after the case began"] if handling.due is not None else []
    lines += [f"carried out by {node.calls}"] if node.calls else []
    lines += [node.documentation] if node.documentation else []
    return "\n".join(lines)
