"""A workflow as shapes: cancellation regions at the back, then flows, nodes with their tooltips, and a legend."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import cast

import groupwise.workflows.pictures.labels as labels
from groupwise.workflows.document import Document
from groupwise.workflows.endings import role_of
from groupwise.workflows.graph import Flow, Graph, Node, Rule
from groupwise.workflows.pictures.drawing_layout import MARGIN, NAME_LINE, DrawingLayout, NodeBox, in_rows, layout
from groupwise.workflows.pictures.shapes import POOLS, Disc, Line, Oblong, Scene, Shape, Words, glyph, icon_of, region
from groupwise.workflows.requirements import Requirements
from groupwise.workflows.titles import titled


def without_detours(graph: Graph) -> Graph:
    """The graph without nodes that do nothing: silent, unnamed, one flow in and one flow out."""
    flows = {flow.id: flow for flow in graph.flows}
    if len(flows) < len(graph.flows):
        return graph
    gone: dict[str, str] = {}
    for node in graph.nodes:
        into = [flow for flow in flows.values() if flow.target == node.id]
        out = [flow for flow in flows.values() if flow.source == node.id]
        idle = node.kind == "task" and node.silent and not node.name and not node.cancels and not labels.is_event(node)
        if not idle or len(into) != 1 or len(out) != 1:
            continue
        # One flow takes the place of the two; not if it exists already, or would lead from a node to itself.
        joined = replace(into[0], target=out[0].target)
        if joined.id not in flows and joined.source != joined.target:
            gone |= dict.fromkeys((node.id, into[0].id, out[0].id), joined.id)
            flows = {joined.id if name == into[0].id else name: flow for name, flow in flows.items()}
            flows[joined.id] = joined
            del flows[out[0].id]
    kept = []
    for node in graph.nodes:
        # What a node cancels, by the names used in the drawing: a dropped node is named by the flow that replaced it.
        names = list(node.cancels)
        while any(name in gone for name in names):
            names = [gone.get(name, name) for name in names]
        kept += [replace(node, cancels=tuple(dict.fromkeys(names)))] if node.id not in gone else []
    return replace(graph, nodes=tuple(kept), flows=tuple(flows.values()))


def pool_styles(document: Document) -> dict[str, str]:
    """A style for each pool that does something."""
    known = list(document.requirements.pools) if document.requirements else []
    known += [pool for pool, _ in document.servers]
    known += [node.handling.pool for graph in document.graphs for node in graph.nodes if node.handling.pool]
    used = {pool_of(document, node) for graph in document.graphs for node in graph.nodes}
    shown = [pool for pool in dict.fromkeys(known) if pool in used]
    return {pool: f"pool{number % len(POOLS)}" for number, pool in enumerate(shown)}


def pool_of(document: Document, node: Node) -> str:
    """The pool that does a node: the one it names, or else the first one allowed."""
    if node.handling.pool:
        return node.handling.pool
    activity = document.requirements.activities.get(node.label) if document.requirements else None
    return activity.pools[0] if activity and activity.pools and not node.silent else ""


ROW = 24.0
LEGEND: tuple[tuple[str, str], ...] = (
    ("xor", "exactly one branch"),
    ("and", "all branches"),
    ("or", "one or more branches"),
    ("region", "cancelled together"),
    ("instances", "several instances"),
    ("retry", "retries"),
    ("timeout", "timeout per try"),
    ("delay", "delayed start"),
    ("due", "due time"),
    ("priority", "priority"),
)


def legend(
    document: Document, graphs: Sequence[Graph], pools: Mapping[str, str], width: float, top: float
) -> tuple[list[Shape], tuple[float, float]]:
    """A legend of the pools and symbols that occur, in rows; returns its shapes and its width and height."""
    servers = dict(document.servers)
    entries = [(style, pool + (f" ({servers[pool]})" if pool in servers else "")) for pool, style in pools.items()]
    used = {sign for graph in graphs for sign in _signs(graph)}
    entries += [entry for entry in LEGEND if entry[0] in used]
    shapes: list[Shape] = []
    x, y, right = MARGIN, top + 10.0, 0.0
    for sign, words in entries:
        words = labels.shortened(words, 28)
        step = 24 + labels.width_of(words, labels.SMALL) + 18
        if x > MARGIN and x + step > width - MARGIN + 18:
            x, y = MARGIN, y + ROW
        shapes += [*_sample(sign, x + 8, y), Words(x + 22, y + 4, words, "label")]
        x += step
        right = max(right, x)
    return shapes, (right + MARGIN - 18, y - top + ROW - 4) if entries else (0.0, 0.0)


def _signs(graph: Graph) -> Iterator[str]:
    for node in graph.nodes:
        yield from (icon for icon, _ in labels.marks_of(node))
        if node.cancels:
            yield "region"
        if node.kind == "task" and len(graph.into(node.id)) > 1:
            yield node.join
        if node.kind == "task" and len(graph.out_of(node.id)) > 1:
            yield node.split


def _sample(sign: str, x: float, y: float) -> Iterator[Shape]:
    if sign.startswith("pool"):
        yield Oblong(x - 7, y - 6, 14, 12, sign, 3)
    elif sign == "region":
        yield Oblong(x - 8, y - 6, 16, 12, sign, 3)
    elif sign in ("xor", "and", "or"):
        yield Line(((x, y - 9), (x + 9, y), (x, y + 9), (x - 9, y)), "gate", closed=True)
        yield from glyph(cast(Rule, sign), x, y, 3.5)
    else:
        yield from icon_of(cast(labels.Icon, sign), x, y)


BEND = 6.0
TIP = 8.0


@dataclass(frozen=True, slots=True)
class PlacedGraph:
    """A graph as it is drawn, and how far down the page."""

    graph: Graph
    layout: DrawingLayout
    top: float


def shown(graph: Graph, requirements: Requirements | None) -> Graph:
    """The graph as it is drawn: choices have names, gateways that do nothing are left out, and early ends are ends."""
    found = titled(without_detours(graph), requirements)
    flows = [flow for flow in found.flows if role_of(found.by_id[flow.source]) != "end"]
    # How likely a choice is stands in its name; that an activity usually does not fail goes without saying.
    failing = {flow.source for flow in flows if role_of(found.by_id[flow.target]) == "event"}
    usual = [flow.source in failing and role_of(found.by_id[flow.target]) != "event" for flow in flows]
    plain = (replace(flow, probability=None) if drop else flow for flow, drop in zip(flows, usual, strict=True))
    return replace(found, flows=tuple(plain))


def arranged(document: Document) -> list[PlacedGraph]:
    """The graphs of a document, one below the other; if there are several, with room for a name above each."""
    placed: list[PlacedGraph] = []
    top = 0.0
    for graph in (shown(graph, document.requirements) for graph in document.graphs):
        top += MARGIN if len(document.graphs) > 1 else 0.0
        placed.append(PlacedGraph(graph, in_rows(graph, layout(graph)), top))
        top += placed[-1].layout.height
    return placed


def scene(document: Document) -> Scene:
    """Every graph of a document, with a legend."""
    pools, placed = pool_styles(document), arranged(document)
    shapes: list[Shape] = []
    width = max(one.layout.width for one in placed)
    for one in placed:
        if len(placed) > 1:
            name = labels.shortened(one.graph.name, 80)
            shapes.append(Words(MARGIN, one.top + 6, name, "heading"))
            width = max(width, 2 * MARGIN + labels.width_of(name, 16))
        shapes += [_lower(shape, one.top) for shape in graph_shapes(document, one.graph, one.layout, pools)]
    bottom = placed[-1].top + placed[-1].layout.height
    below, size = legend(document, [one.graph for one in placed], pools, max(width, 480.0), bottom)
    return Scene(document.name, max(width, size[0]), bottom + size[1], (*shapes, *below))


def _lower(shape: Shape, down: float) -> Shape:
    if down == 0:
        return shape
    if isinstance(shape, Line):
        return replace(shape, points=tuple((x, y + down) for x, y in shape.points))
    return replace(shape, y=shape.y + down)


def graph_shapes(document: Document, graph: Graph, place: DrawingLayout, pools: Mapping[str, str]) -> Iterator[Shape]:
    """The shapes of a graph, from back to front: regions, flows, nodes."""
    for node in graph.nodes:
        if node.cancels:
            yield from _region(graph, place, node)
    for flow in graph.flows:
        yield from _flow(flow, place)
    for node in graph.nodes:
        yield from _node(document, graph, node, place.boxes[node.id], pools)


def _region(graph: Graph, place: DrawingLayout, node: Node) -> Iterator[Shape]:
    """An outline around everything a node cancels: boxes, and the flows between them."""
    names = set(node.cancels)
    # A region around another one needs a wider margin, so that their lines do not coincide.
    margin = min(5.0 + 3 * sum(bool(one.cancels) and one.id in names for one in graph.nodes), 8.0)
    inside = [_around(graph, place, one, margin) for one in graph.nodes if one.id in names]
    outside = [_around(graph, place, one, 1) for one in graph.nodes if one.id not in names]
    for flow in graph.flows:
        if flow.id in names and (flow.source in names) + (flow.target in names) != 1:
            for (x1, y1), (x2, y2) in pairwise(place.routes[flow.id]):
                inside.append((min(x1, x2) - 6, min(y1, y2) - 6, max(x1, x2) + 6, max(y1, y2) + 6))
    hint = f"cancelled when {node.label} completes"
    rings = region(inside, outside) if inside else []
    yield from (Line(ring, "region", closed=True, bend=8, hint=hint) for ring in rings)


def _around(graph: Graph, place: DrawingLayout, node: Node, margin: float) -> tuple[float, float, float, float]:
    box, below = place.boxes[node.id], NAME_LINE * len(labels.name_below(graph.by_id[node.id]))
    return box.x - margin, box.y - margin, box.right + margin, box.bottom + margin + below


def _flow(flow: Flow, place: DrawingLayout) -> Iterator[Shape]:
    route = place.routes[flow.id]
    hint = flow.condition or ("otherwise" if flow.default else "")
    (x1, y1), (x2, y2) = route[-2], route[-1]
    dx, dy = (x2 > x1) - (x2 < x1), (y2 > y1) - (y2 < y1)
    # The line ends where the arrowhead begins, or its round end would show beyond the tip.
    base = (x2 - dx * TIP, y2 - dy * TIP)
    yield Line((*route[:-1], base), "flow", bend=BEND, hint=hint)
    half = TIP * 0.45
    corners = ((x2, y2), (base[0] + dy * half, base[1] + dx * half), (base[0] - dy * half, base[1] - dx * half))
    yield Line(corners, "tip", closed=True)
    label = labels.flow_label(flow)
    if label:
        x, y = place.labels[flow.id]
        yield Words(x, y, label, "label")


def _node(document: Document, graph: Graph, node: Node, box: NodeBox, pools: Mapping[str, str]) -> Iterator[Shape]:
    hint = _hint(document, node)
    x, y = box.middle
    if node.kind != "task":
        yield Disc(x, y, box.width / 2 - 1, node.kind, hint)
    elif labels.is_event(node):
        yield from _event(graph, node, box, hint)
    elif node.silent:
        yield from _gate(graph, node, box, hint)
    else:
        yield from _task(graph, node, box, pools.get(pool_of(document, node), "call" if node.calls else "task"), hint)
    for number, line in enumerate(labels.name_below(node)):
        yield Words(x, box.bottom + 12 + NAME_LINE * number, line, "label", "middle")


def _event(graph: Graph, node: Node, box: NodeBox, hint: str) -> Iterator[Shape]:
    """A circle: thick where a case ends, double on the way."""
    (x, y), last = box.middle, all(graph.by_id[flow.target].kind == "end" for flow in graph.out_of(node.id))
    over = role_of(node) == "end" or (last and "event" not in role_of(node))
    yield Disc(x, y, box.width / 2 - 1, "end" if over else "condition", hint)
    if not over:
        yield Disc(x, y, box.width / 2 - 4, "condition", hint)


def _gate(graph: Graph, node: Node, box: NodeBox, hint: str) -> Iterator[Shape]:
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


def _task(graph: Graph, node: Node, box: NodeBox, style: str, hint: str) -> Iterator[Shape]:
    yield Oblong(box.x, box.y, box.width, box.height, style, 8, hint)
    joins, splits = labels.strips_of(graph, node)
    for wanted, rule, x in ((joins, node.join, box.x), (splits, node.split, box.right - labels.STRIP)):
        if wanted:
            edge = x + labels.STRIP if x == box.x else x
            yield Line(((edge, box.y + 6), (edge, box.bottom - 6)), "icon")
            yield from glyph(rule, x + labels.STRIP / 2, box.middle[1], 5)
    x, y = box.middle[0] + labels.STRIP * (joins - splits) / 2, box.middle[1]
    lines, marks = labels.wrapped(node.label), labels.marks_of(node)
    first = y - labels.LINE * (len(lines) - 1) / 2 + labels.FONT * 0.36 - (8 if marks else 0)
    for number, line in enumerate(lines):
        yield Words(x, first + labels.LINE * number, line, "name", "middle")
    left = x - (labels.marks_width(marks) - 8) / 2
    for icon, text in marks:
        yield from icon_of(icon, left + labels.ICON / 2, box.bottom - 13)
        yield Words(left + labels.ICON + 4, box.bottom - 9, text, "mark")
        left += labels.mark_width(text)


def _hint(document: Document, node: Node) -> str:
    """The tooltip of a node, one fact per line."""
    handling, lines = node.handling, [node.label]
    pool = pool_of(document, node)
    lines += [f"done by {pool}"] if pool else []
    activity = document.requirements.activities.get(node.label) if document.requirements else None
    if activity and not node.silent:
        lines.append(f"takes {labels.seconds(activity.duration.mean)} on average")
    if handling.retry.most:
        pause = f", the first after {labels.seconds(handling.retry.pause)}" if handling.retry.pause else ""
        count = handling.retry.most
        lines.append(f"up to {count} {'retry' if count == 1 else 'retries'}{pause}")
    lines += [f"times out after {labels.seconds(handling.timeout)}"] if handling.timeout is not None else []
    lines += [f"starts after a delay of {labels.seconds(handling.delay)}"] if handling.delay else []
    lines += [f"due {labels.seconds(handling.due)} after the case starts"] if handling.due is not None else []
    lines += [f"runs {node.calls}"] if node.calls else []
    lines += [node.documentation] if node.documentation else []
    return "\n".join(lines)
