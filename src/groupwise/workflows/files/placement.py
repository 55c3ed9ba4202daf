"""Where the elements of a diagram stand: as they were drawn, and new ones beside what they are connected to."""

from __future__ import annotations

from collections.abc import Mapping

from groupwise.workflows.graph import Graph
from groupwise.workflows.pictures.drawing_layout import Point, layout

ROW = 110.0
COLUMN = 150.0


def placed(graph: Graph, drawn: Mapping[str, Point]) -> dict[str, Point]:
    """The middle of every node: where it is `drawn`, or else below everything and near its neighbours."""
    if not drawn:
        return {name: box.middle for name, box in layout(graph).boxes.items()}
    found = dict(drawn)
    level = max(y for _, y in drawn.values()) + ROW
    for node in graph.nodes:
        if node.id in found:
            continue
        ends = [flow.source for flow in graph.into(node.id)] + [flow.target for flow in graph.out_of(node.id)]
        near = [found[end][0] for end in ends if end in found]
        x = sum(near) / len(near) if near else COLUMN / 2
        while any(abs(x - other_x) < COLUMN / 2 and abs(level - y) < ROW / 2 for other_x, y in found.values()):
            x += COLUMN
        found[node.id] = (round(x, 1), level)
    return found
