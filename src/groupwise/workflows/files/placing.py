"""Where the elements of a diagram stand: as they were drawn, and new ones beside what they are connected to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from groupwise.workflows.graph import Graph

ROW = 110.0
COLUMN = 150.0


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle by its upper left corner and its size."""

    x: float
    y: float
    width: float
    height: float

    @property
    def centre(self) -> tuple[float, float]:
        return self.x + self.width / 2, self.y + self.height / 2


def centred(centre: tuple[float, float], width: float, height: float) -> Box:
    return Box(centre[0] - width / 2, centre[1] - height / 2, width, height)


def centres(graph: Graph) -> dict[str, tuple[float, float]]:
    """The middle of every node, drawn from left to right."""
    after: dict[str, list[str]] = {node.id: [] for node in graph.nodes}
    for flow in graph.flows:
        after[flow.source].append(flow.target)
    column = {graph.start.id: 0}
    queue = [graph.start.id]
    for here in queue:
        for target in after[here]:
            if target not in column:
                column[target] = column[here] + 1
                queue.append(target)
    column[graph.end.id] = max(column.values(), default=0) + (graph.end.id not in column)
    used: dict[int, int] = {}
    found = {}
    for node in graph.nodes:
        x = column.get(node.id, 0)
        y = used[x] = used.get(x, -1) + 1
        found[node.id] = (COLUMN * (x + 0.5), ROW * (y + 0.5))
    return found


def placed(graph: Graph, drawn: Mapping[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
    """The middle of every node: where it is `drawn`, or else below everything and near its neighbours."""
    if not drawn:
        return centres(graph)
    found = dict(drawn)
    lowest = max(y for _, y in drawn.values())
    for node in graph.nodes:
        if node.id in found:
            continue
        ends = [flow.source for flow in graph.into(node.id)] + [flow.target for flow in graph.out_of(node.id)]
        near = [found[end][0] for end in ends if end in found]
        x = sum(near) / len(near) if near else COLUMN / 2
        level = lowest + ROW
        while any(abs(x - other_x) < COLUMN / 2 and abs(level - y) < ROW / 2 for other_x, y in found.values()):
            x += COLUMN
        found[node.id] = (round(x, 1), level)
    return found
