"""Writes BPMN 2.0 with a diagram: made from the document, in the order of the schema, and ready to run.

A gateway without conditions gets some: a variable named after it says where the case goes. `_File` writes the document,
a `Process` one graph, with sub-processes for guarded bodies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import groupwise.workflows.files.bpmn.vocabulary as bpmn
from groupwise.workflows.document import Document
from groupwise.workflows.files.annotations import document_values, handling_values, to_text
from groupwise.workflows.files.bpmn.diagram import EVENT, GATE, DiagramSheet, box_of, marked_as_ours
from groupwise.workflows.files.bpmn.wiring import GuardedBody, Wiring
from groupwise.workflows.files.xml_tree import free_name, serialise
from groupwise.workflows.graph import ONCE, Flow, Graph, Node
from groupwise.workflows.pictures.drawing_layout import NodeBox, Point, layout, placed
from groupwise.xml_reader import Element, first, named


def element_of(wiring: Wiring, node: Node, processes: Mapping[str, str], embedded: set[str]) -> Element:
    """The element of a node; `processes` has the ids of the graphs it may call, unless they are `embedded`."""
    carried = bpmn.source_element(node)
    tag = _tag(wiring, node, carried, embedded)
    attributes = {"id": wiring.ids[node.id], **({"name": node.name} if node.name else {})}
    if tag == "boundaryEvent":
        attributes["attachedToRef"] = wiring.owner(node)
    if tag == "callActivity" and node.calls:
        attributes["calledElement"] = processes[node.calls]
    default = wiring.default_flow(node.id)
    # If a gateway splits for the node, that gateway has the default.
    if default and wiring.exit[node.id] == wiring.ids[node.id] and not tag.startswith(("parallel", "eventBased")):
        attributes["default"] = default
    attributes |= dict(carried.attributes if carried is not None else ())
    children = [bpmn.el("documentation", text=node.documentation)] if node.documentation else []
    children += _noted(wiring, node, tag, carried)
    children += [e for e in (carried.children if carried is not None else ()) if e.name not in _WRITTEN_ANEW]
    if node.id in wiring.bodies:
        # The event that cancels a body needs a trigger: a condition on a variable.
        condition = bpmn.formal("condition", bpmn.variable_name(f"{wiring.subs[node.id]}_broken_off"))
        children.append(bpmn.el("conditionalEventDefinition", condition))
    children += bpmn.written_copies(node)
    children.sort(key=lambda e: bpmn.in_place(e, tag))
    return Element(f"{{{bpmn.BPMN}}}{tag}", tuple(attributes.items()), "", tuple(children))


# Parts of the element it was read from that are made again from the node.
_WRITTEN_ANEW = ("extensionElements", "multiInstanceLoopCharacteristics")


def gates_of(wiring: Wiring, node: Node) -> list[Element]:
    found = []
    for name, side, rule in wiring.gates[node.id]:
        noted = bpmn.el("extensionElements", bpmn.annotation("part", {"of": wiring.ids[node.id], "side": side}))
        default = wiring.default_flow(node.id) if side == "split" and rule != "and" else ""
        found.append(bpmn.el(bpmn.GATEWAY_OF[rule], noted, id=name, **({"default": default} if default else {})))
    return found


def _tag(wiring: Wiring, node: Node, carried: Element | None, embedded: set[str]) -> str:
    if node.id in wiring.bodies:
        return "boundaryEvent"
    if node.calls and node.calls not in embedded:
        return "callActivity"
    if wiring.is_gateway(node):
        rule = wiring.gate_rule(node)
        # A gateway with one flow in and one out keeps whatever kind it had.
        passing = wiring.into[node.id] < 2 and wiring.out[node.id] < 2
        if carried is not None and carried.name in bpmn.GATEWAYS and (passing or bpmn.GATEWAYS[carried.name] == rule):
            return carried.name
        return bpmn.GATEWAY_OF[rule]
    if carried is not None:
        return carried.name
    return f"{node.kind}Event" if node.kind in ("start", "end") else "task"


def _noted(wiring: Wiring, node: Node, tag: str, carried: Element | None) -> list[Element]:
    """Annotations for what BPMN has no place for, after those of other tools."""
    old = carried.find("extensionElements") if carried is not None else None
    notes = list(old.children) if old is not None else []
    values: dict[str, str] = {} if wiring.ids[node.id] == node.id else {"id": node.id}
    if node.kind == "condition" and tag != "eventBasedGateway":
        values["kind"] = "condition"
    if node.kind == "task" and not wiring.is_boundary(node.id):
        values |= wiring.unusual_rules(node)
    # An empty annotation says that the lane is not the pool.
    in_a_lane = first(node.extras, "lane", bpmn.OWN) is not None
    if values or (node.kind == "task" and node.handling.pool is None and in_a_lane):
        notes.append(bpmn.annotation("node", values))
    handling = handling_values(node.handling)
    if handling and not (node.silent and set(handling) == {"delay"}):
        notes.append(bpmn.annotation("handling", handling))
    if node.copies != ONCE and not (carried is not None and bpmn.written_copies(node)):
        copies = node.copies
        notes.append(bpmn.annotation("copies", {"least": copies.least, "most": copies.most, "enough": copies.enough}))
    return [bpmn.el("extensionElements", *notes)] if notes else []


def lanes_of(wiring: Wiring, inner: Iterable[tuple[Graph, dict[str, str]]], embedded: bool) -> list[Element]:
    """The file's lanes with their members, also of `inner` graphs; or new lanes for the pools, unless embedded."""
    carried = [e for e in wiring.graph.extras if e.name == "laneSet" and e.namespace == bpmn.BPMN]
    members: dict[str, list[str]] = {}
    for graph, ids in ((wiring.graph, wiring.ids), *inner):
        for node in graph.nodes:
            lane = first(node.extras, "lane", bpmn.OWN)
            key = lane.text if lane is not None else node.handling.pool
            if key and node.id not in wiring.places and first(node.extras, "added", bpmn.OWN) is None:
                members.setdefault(key, []).append(ids[node.id])
    written = [_filled(lanes, members) for lanes in carried]
    if members and not carried and not embedded:
        new = [
            bpmn.el("lane", *_members(names), id=free_name(f"lane_{pool}", wiring.taken), name=pool)
            for pool, names in members.items()
        ]
        written.append(bpmn.el("laneSet", *new, id=free_name(bpmn.LANES, wiring.taken)))
    return written


def _members(names: Iterable[str]) -> list[Element]:
    return [bpmn.el("flowNodeRef", text=name) for name in names]


def _filled(lanes: Element, members: dict[str, list[str]]) -> Element:
    if lanes.name != "lane":
        return replace(lanes, children=tuple(_filled(child, members) for child in lanes.children))
    found = [*members.pop(lanes.get("id"), []), *members.pop(lanes.get("name"), [])]
    inner = tuple(_filled(child, members) for child in lanes.children)
    at = next((place for place, child in enumerate(inner) if child.name == "childLaneSet"), len(inner))
    return replace(lanes, children=(*inner[:at], *_members(found), *inner[at:]))


class Process:
    """A graph while it is written; drawn inside the box of the element `around` if it is embedded there."""

    def __init__(self, file: _File, graph: Graph, sheet: DiagramSheet, around: str = "") -> None:
        self.file, self.graph, self.sheet = file, graph, sheet
        self.wiring = Wiring(graph, file.ids[graph.name], file.taken)
        self.ids = self.wiring.ids
        self.routes: dict[str, tuple[Point, ...]] = {}
        self.boxes = self._boxes(around)

    def content(self) -> list[Element]:
        extras = self.graph.extras
        nodes, flows = self._level([node.id for node in self.graph.nodes if node.id not in self.wiring.added])
        kept = [e for name in (*bpmn.AMONG, *bpmn.TASKS, *bpmn.CALLS) for e in named(extras, name, bpmn.BPMN)]
        before = [e for name in bpmn.BEFORE for e in named(extras, name, bpmn.BPMN)]
        after = [e for name in (*bpmn.ARTIFACTS, *bpmn.ROLES) for e in named(extras, name, bpmn.BPMN)]
        inner = [(graph, self.file.ids[graph.name]) for graph in self._embedded(self.graph)]
        lanes = lanes_of(self.wiring, inner, self.graph.name in self.file.embedded)
        return [*before, *lanes, *nodes, *kept, *flows, *after]

    def _embedded(self, graph: Graph) -> Iterator[Graph]:
        for node in graph.nodes:
            if node.calls in self.file.embedded:
                yield self.file.graphs[node.calls]
                yield from self._embedded(self.file.graphs[node.calls])

    def _level(self, names: Sequence[str]) -> tuple[list[Element], list[Element]]:
        wiring = self.wiring
        bodies = wiring.bodies_among(names)
        # Nodes of a body are written inside its sub-process, by a deeper call of _level.
        inside = frozenset().union(*(body.hidden for body in bodies))
        here = [name for name in names if name not in inside]
        nodes: list[Element] = []
        flows: list[Element] = []
        for name in here:
            node = self.graph.by_id[name]
            nodes += [*gates_of(wiring, node), self._node(node)]
            own = self.ids[name]
            links = ((wiring.entry[name], own), (own, wiring.exit[name]))
            flows += [self._link(source, target) for source, target in links if source != target]
        for body in bodies:
            nodes.append(self._body(body))
            sub = wiring.subs[body.abort]
            flows += [self._link(wiring.exit[body.split], sub), self._link(sub, wiring.entry[body.complete])]
        return nodes, flows + self._flows_among(set(here))

    def _node(self, node: Node) -> Element:
        name = self.ids[node.id]
        self.sheet.boxes[name] = self.boxes[node.id]
        for gate, side, _ in self.wiring.gates[node.id]:
            box = self.boxes[node.id]
            x = box.x - GATE - 20 if side == "join" else box.right + 20
            self.sheet.boxes[gate] = NodeBox(x, box.middle[1] - GATE / 2, GATE, GATE)
        element = element_of(self.wiring, node, self.file.processes, self.file.embedded)
        if node.calls not in self.file.embedded:
            return element
        inner = Process(self.file, self.file.graphs[node.calls], self.sheet, around=name)
        return replace(element, children=(*element.children, *inner.content()))

    def _body(self, body: GuardedBody) -> Element:
        wiring, sheet = self.wiring, self.sheet
        sub = wiring.subs[body.abort]
        start, end = (free_name(f"{sub}_{what}", self.file.taken) for what in ("start", "end"))
        nodes, flows = self._level([node.id for node in self.graph.nodes if node.id in body.inside])
        self._draw_body(sub, self.ids[body.abort], start, end, [e.get("id") for e in nodes])
        values = {key: self.ids[getattr(body, key)] for key in bpmn.GUARDED}
        values |= {f"{key}_id": getattr(body, key) for key in ("guard", "done") if values[key] != getattr(body, key)}
        chance = {} if body.chance is None else {"chance": body.chance}
        noted = bpmn.el("extensionElements", bpmn.annotation("region", {**values, **chance}))
        ends = (bpmn.el("startEvent", id=start), bpmn.el("endEvent", id=end))
        # The start and end event exist only in the file; the reader removes them again.
        links = (self._link(start, wiring.entry[body.first]), self._link(wiring.exit[body.last], end))
        sheet.expanded.add(sub)
        return bpmn.el("subProcess", noted, *ends, *nodes, *links, *flows, id=sub)

    def _flows_among(self, here: set[str]) -> list[Element]:
        chosen = {
            id(flow): route
            for name in here
            for flow, route in zip(self.wiring.ways[name], self.wiring.routes(name), strict=True)
        }
        flows = [flow for flow in self.wiring.flows if flow.source in here and flow.target in here]
        return [self._flow(flow, chosen[id(flow)]) for flow in flows]

    def _flow(self, flow: Flow, route: bpmn.BpmnRoute) -> Element:
        carried = first(flow.extras, "sequenceFlow", bpmn.BPMN) or bpmn.el("sequenceFlow")
        name = self.wiring.flow_id(flow)
        ends = self.wiring.exit[flow.source], self.wiring.entry[flow.target]
        extension = first(carried.children, "extensionElements", bpmn.BPMN)
        notes = [] if extension is None else list(extension.children)
        if flow.probability is not None:
            notes.append(bpmn.annotation("flow", {"probability": flow.probability}))
        children = [e for e in carried.children if e.name not in ("extensionElements", "conditionExpression")]
        children += [bpmn.el("extensionElements", *notes)] if notes else []
        if route.condition:
            expression = bpmn.formal("conditionExpression", route.condition)
            spelled = first(carried.children, "conditionExpression", bpmn.BPMN) or bpmn.el("conditionExpression")
            children.append(replace(expression, attributes=(*expression.attributes, *spelled.attributes)))
        children.sort(key=lambda e: bpmn.in_place(e, "sequenceFlow"))
        self.sheet.lines[name] = ends
        # A route fits only if no gateway was put before or after the nodes.
        if flow.id in self.routes and ends == (self.ids[flow.source], self.ids[flow.target]):
            self.sheet.routes[name] = self.routes[flow.id]
        drawn = first(flow.extras, "BPMNEdge", bpmn.BPMNDI)
        if drawn is not None:
            self.sheet.carried[name] = drawn
        attributes = {**dict(carried.attributes), "id": name, "sourceRef": ends[0], "targetRef": ends[1]}
        return Element(carried.tag, tuple(attributes.items()), "", tuple(children))

    def _link(self, source: str, target: str) -> Element:
        name = bpmn.flow_id(source, target)
        self.sheet.lines[name] = (source, target)
        return bpmn.el("sequenceFlow", id=name, sourceRef=source, targetRef=target)

    def _boxes(self, around: str) -> dict[str, NodeBox]:
        shapes = {node.id: first(node.extras, "BPMNShape", bpmn.BPMNDI) for node in self.graph.nodes}
        drawn = {name: box for name, shape in shapes.items() if (box := box_of(shape)) is not None}
        if not drawn:
            return self._our_boxes(around)
        # Drawn nodes stay where they are; new ones are put near their neighbours.
        middles = placed(self.graph, {name: box.middle for name, box in drawn.items()})
        self.sheet.carried |= {self.ids[name]: shape for name, shape in shapes.items() if shape and name in drawn}
        return {node.id: drawn.get(node.id) or _box(middles[node.id], _size(node)) for node in self.graph.nodes}

    def _our_boxes(self, around: str) -> dict[str, NodeBox]:
        """Our layout, with more space if there are sub-processes."""
        drawing = layout(self.graph)
        # Sub-processes need room for their frame, start and end; stretched routes would not fit, so edges are direct
        # then.
        wide, high = (1.8, 1.5) if self.wiring.bodies else (1.0, 1.0)
        right, down = self._corner(around)
        if self.wiring.bodies:
            down += 2 * EVENT
        else:
            self.routes = {name: tuple((x + right, y + down) for x, y in way) for name, way in drawing.routes.items()}
        found = {}
        for name, box in drawing.boxes.items():
            x, y = box.middle
            found[name] = _box((x * wide + right, y * high + down), (box.width, box.height))
        return found

    def _corner(self, around: str) -> Point:
        """Where to start drawing: inside the sub-process `around`, or below the graphs already on this sheet."""
        if around in self.sheet.boxes:
            outer = self.sheet.boxes[around]
            return outer.x + 20, outer.y + 20
        lowest = max((box.bottom for box in self.sheet.boxes.values()), default=0.0)
        return 0.0, lowest + 60.0 if lowest else 0.0

    def _draw_body(self, sub: str, event: str, start: str, end: str, inside: Sequence[str]) -> None:
        boxes = self.sheet.boxes
        inner = self.sheet.around(inside)
        top = inner.y + inner.height / 2 - EVENT / 2
        boxes[start], boxes[end] = NodeBox(inner.x - EVENT, top, EVENT, EVENT), NodeBox(inner.right, top, EVENT, EVENT)
        boxes[sub] = whole = self.sheet.around([*inside, start, end])
        boxes[event] = NodeBox(whole.middle[0] - EVENT / 2, whole.bottom - EVENT / 2, EVENT, EVENT)


def _box(middle: Point, size: tuple[float, float]) -> NodeBox:
    return NodeBox(middle[0] - size[0] / 2, middle[1] - size[1] / 2, *size)


def _size(node: Node) -> tuple[float, float]:
    carried = bpmn.source_element(node)
    if node.kind in ("start", "end") or (carried is not None and carried.name.endswith("Event")):
        return EVENT, EVENT
    return (GATE, GATE) if node.kind == "condition" or node.silent else (100.0, 80.0)


def write(document: Document) -> bytes:
    return serialise(_File(document).root())


class _File:
    """A file while it is written. `ids` has the ids in the file, by graph and node."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.taken = {name for carried in document.all_extras() for e in carried.walk() if (name := e.get("id"))}
        callers = Counter(node.calls for graph in document.graphs for node in graph.nodes if node.calls)
        # A graph is written inside the task that calls it if the file had it there and nobody else calls it.
        self.embedded = {
            node.calls
            for graph in document.graphs
            for node in graph.nodes
            if node.calls
            and callers[node.calls] == 1
            and getattr(bpmn.source_element(node), "name", "") in ("subProcess", "transaction")
            and node.calls != document.root.name
        }
        self.graphs = {graph.name: graph for graph in document.graphs}
        self.processes = {
            graph.name: free_name(graph.name, self.taken)
            for graph in document.graphs
            if graph.name not in self.embedded
        }
        self.ids = {
            graph.name: {node.id: free_name(node.id, self.taken) for node in graph.nodes} for graph in document.graphs
        }

    def root(self) -> Element:
        sheets: list[DiagramSheet] = []
        processes = []
        shared = first(self.document.extras, "collaboration", bpmn.BPMN)
        for name, identity in self.processes.items():
            # Processes of a collaboration share one diagram; others have one each.
            if shared is None or not sheets:
                sheets.append(DiagramSheet(identity if shared is None else shared.get("id"), self.taken))
            processes.append(self._process(self.graphs[name], identity, sheets[-1]))
        rest = first(self.document.extras, "BPMNDiagram", bpmn.BPMNDI)
        drawn = rest.parts[0].parts if rest is not None else ()
        diagrams = [sheet.element(number, drawn if number == 0 else ()) for number, sheet in enumerate(sheets)]
        if rest is not None:
            diagrams[0] = replace(diagrams[0], children=(*diagrams[0].children, *rest.parts[1:]))
        elif not any(sheet.carried for sheet in sheets):
            diagrams = marked_as_ours(processes, diagrams)
        carried = [e for e in self.document.extras if e.namespace == bpmn.BPMN and e.name != "definitions"]
        placed_apart = ("import", "extension", "relationship")
        imports, before, after = ([e for e in carried if e.name == name] for name in placed_apart)
        roots = [e for e in carried if e.name not in placed_apart]
        children = (*imports, *before, *roots, *processes, *diagrams, *after)
        old = first(self.document.extras, "definitions", bpmn.BPMN) or bpmn.el("definitions")
        attributes = {"id": free_name("definitions", self.taken), "name": self.document.name}
        attributes |= {"targetNamespace": bpmn.OWN, "exporter": "Groupwise", **dict(old.attributes)}
        used = {prefix for prefix, _ in bpmn.PREFIXES}
        prefixes = (*bpmn.PREFIXES, *(pair for pair in old.prefixes if pair[0] not in used))
        return Element(f"{{{bpmn.BPMN}}}definitions", tuple(attributes.items()), "", children, prefixes=prefixes)

    def _process(self, graph: Graph, identity: str, sheet: DiagramSheet) -> Element:
        old = first(graph.extras, "process", bpmn.BPMN) or bpmn.el("process")
        whole = graph is self.document.root
        notes = list(old.parts[0].parts) if old.parts else []
        if graph.name != identity:
            notes.append(bpmn.annotation("graph", {"name": graph.name}))
        known = document_values(self.document.requirements, self.document.servers) if whole else {}
        if known:
            notes.append(bpmn.annotation("document", {}, to_text(known)))
        attributes = {"id": identity, "isExecutable": "true", **dict(old.attributes)}
        content = Process(self, graph, sheet).content()
        said = [bpmn.el("documentation", text=graph.documentation)] if graph.documentation else []
        noted = [bpmn.el("extensionElements", *notes)] if notes else []
        return Element(f"{{{bpmn.BPMN}}}process", tuple(attributes.items()), "", (*said, *noted, *content))
