"""Where the elements of a process are drawn: our layout, with all gateways that BPMN needs and events on boundaries."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from groupwise.workflows.files.bpmn.wiring import Wiring
from groupwise.workflows.graph import Flow, Graph, Node
from groupwise.workflows.pictures.drawing_layout import NAME_LINE, DrawingLayout, NodeBox, Point, layout
from groupwise.workflows.pictures.labels import SMALL, flow_label, name_below, width_of

Ends = tuple[str, str]
Size = tuple[float, float]
TASK = (100.0, 70.0)  # editors draw the kind of a task in its corner, above the name


@dataclass(slots=True)
class Arrangement:
    """Boxes and labels by element, routes by the elements at both ends, labels of flows as well."""

    boxes: dict[str, NodeBox] = field(default_factory=dict)
    names: dict[str, NodeBox] = field(default_factory=dict)
    routes: dict[Ends, tuple[Point, ...]] = field(default_factory=dict)
    labels: dict[Ends, NodeBox] = field(default_factory=dict)
    borders: tuple[float, ...] = ()
    width: float = 0.0
    height: float = 0.0


def arranged(
    wiring: Wiring, corner: Point, lanes: Mapping[str, int] | None = None, sizes: Mapping[str, Size] | None = None
) -> Arrangement:
    """Our layout of a process without guarded bodies, drawn from `corner` on; `lanes` and `sizes` are by node."""
    plan = _plan(wiring)
    numbers = None if lanes is None else _numbers(wiring, lanes)
    given = {wiring.ids[name]: size for name, size in (sizes or {}).items()}
    return _moved(wiring, plan, layout(plan, numbers, TASK, given), corner)


def _plan(wiring: Wiring) -> Graph:
    """The graph of what is drawn, by the ids of elements."""
    graph, ids = wiring.graph, wiring.ids
    nodes: list[Node] = []
    flows: list[Flow] = []
    for node in graph.nodes:
        own = ids[node.id]
        # The gateways are nodes of their own here, so that the node itself has one way in and one way out.
        nodes.append(replace(node, id=own, cancels=(), name=node.name or node.label if not node.silent else node.name))
        for gate, side, rule in wiring.gates[node.id]:
            nodes.append(Node(gate, wiring.questions.get(gate, ""), silent=True, **{side: rule}))  # type: ignore[arg-type]
        for ends in ((wiring.entry[node.id], own), (own, wiring.exit[node.id])):
            flows += [Flow(*ends)] if ends[0] != ends[1] else []
    for flow in wiring.flows:
        # Only names are shown: how likely a branch is, is part of its name.
        way = Flow(wiring.exit[flow.source], wiring.entry[flow.target], name=flow.name)
        flows.append(replace(way, probability=flow.probability if flow.name else None))
    events = [node for node in graph.nodes if wiring.is_boundary(node.id)]
    flows += [Flow(wiring.owner(node), ids[node.id]) for node in events]
    return Graph(graph.name, tuple(nodes), tuple(flows))


def _numbers(wiring: Wiring, lanes: Mapping[str, int]) -> dict[str, int]:
    found = {wiring.ids[name]: lane for name, lane in lanes.items()}
    return found | {gate: lanes[name] for name, gates in wiring.gates.items() for gate, _, _ in gates}


def _moved(wiring: Wiring, plan: Graph, drawing: DrawingLayout, corner: Point) -> Arrangement:
    right, down = corner
    found = Arrangement(width=drawing.width, height=drawing.height)
    found.borders = tuple(border + down for border in drawing.borders)
    for node in plan.nodes:
        box = drawing.boxes[node.id]
        found.boxes[node.id] = NodeBox(box.x + right, box.y + down, box.width, box.height)
    for flow in plan.flows:
        ends = (flow.source, flow.target)
        found.routes[ends] = tuple((x + right, y + down) for x, y in drawing.routes[flow.id])
        if flow.id in drawing.labels:
            x, y = drawing.labels[flow.id]
            width = width_of(flow_label(flow), SMALL)
            found.labels[ends] = NodeBox(x + right, y + down - SMALL, width, NAME_LINE)
    attached: dict[str, int] = {}
    for node in wiring.graph.nodes:
        if wiring.is_boundary(node.id):
            owner = wiring.owner(node)
            _attach(found, owner, wiring.ids[node.id], attached.get(owner, 0))
            attached[owner] = attached.get(owner, 0) + 1
    for node in plan.nodes:
        lines = name_below(node)
        if lines:
            width, box = max(width_of(line, SMALL) for line in lines), found.boxes[node.id]
            found.names[node.id] = NodeBox(box.middle[0] - width / 2, box.bottom + 2, width, NAME_LINE * len(lines))
    return found


def _attach(found: Arrangement, owner: str, event: str, number: int) -> None:
    """Move an event to a corner of its owner, or beside others there; its flows go round by where it stood."""
    at, box = found.boxes[owner], found.boxes[event]
    way = found.routes.pop((owner, event))
    low = number > 0 or box.middle[1] >= at.middle[1]
    half, x, y = box.width / 2, at.right - number * (box.width + 6), at.bottom if low else at.y
    found.boxes[event] = NodeBox(x - half, y - half, box.width, box.height)
    track = way[1][0] if len(way) > 2 else (at.right + box.x) / 2
    # The first leaves to the right, those beside it downwards.
    below = y + half + 6 * number
    lead = ((x, y + half), (x, below), (track, below)) if number else ((x + half, y), (track, y))
    for ends, route in list(found.routes.items()):
        if ends[0] == event:
            found.routes[ends] = (*lead, (track, box.middle[1]), *route[1:])
