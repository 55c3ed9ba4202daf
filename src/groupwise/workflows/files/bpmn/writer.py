"""Writes BPMN 2.0 with a diagram: made from the document, in the order of the schema, and ready to run.

A gateway without conditions gets some: a variable named after it says where the case goes. `_File` writes the document,
a `Process` one graph, with sub-processes for guarded bodies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import groupwise.workflows.files.bpmn.vocabulary as bpmn
from groupwise.workflows.document import Document, calling_order
from groupwise.workflows.endings import ANSWER, role_of
from groupwise.workflows.files.annotations import document_values, to_text
from groupwise.workflows.files.bpmn.arrangement import Arrangement, arranged
from groupwise.workflows.files.bpmn.diagram import EVENT, GATE, DiagramSheet, box_of, marked_as_ours
from groupwise.workflows.files.bpmn.elements import element_of, gates_of, named_graph
from groupwise.workflows.files.bpmn.lanes import carried_lanes, has_lanes, lane_set, lanes_for
from groupwise.workflows.files.bpmn.wiring import GuardedBody, Wiring
from groupwise.workflows.files.xml_tree import free_name, serialise
from groupwise.workflows.graph import Flow, Graph, Node
from groupwise.workflows.pictures.drawing_layout import NodeBox, Point, layout, placed
from groupwise.xml_reader import Element, first, named

# The band at the left of a pool or lane that has its name.
BAND = 30.0
# Room for the name of a sub-process above its content.
INSET = 16.0


class Process:
    """A graph while it is written; drawn inside the box of the element `around` if it is embedded there."""

    def __init__(self, file: _File, graph: Graph, sheet: DiagramSheet, around: str = "") -> None:
        self.file, self.given, self.sheet = file, graph, sheet
        self.graph = named_graph(file.document, graph)
        self.wiring = Wiring(self.graph, file.ids[graph.name], file.taken)
        self.ids = self.wiring.ids
        self.names = {flow.id: flow.name for flow in graph.flows}
        self.pool = "" if around else file.pools.get(graph.name, "")
        self.lanes = lanes_for(file.document, graph, file.taken) if not around and graph.name in file.laned else None
        self.arrangement = Arrangement()
        self.boxes = self._boxes(around)

    def content(self) -> list[Element]:
        extras = self.graph.extras
        nodes, flows = self._level([node.id for node in self.graph.nodes if node.id not in self.wiring.added])
        kept = [e for name in (*bpmn.AMONG, *bpmn.TASKS, *bpmn.CALLS) for e in named(extras, name, bpmn.BPMN)]
        before = [e for name in bpmn.BEFORE for e in named(extras, name, bpmn.BPMN)]
        after = [e for name in (*bpmn.ARTIFACTS, *bpmn.ROLES) for e in named(extras, name, bpmn.BPMN)]
        inner = [(graph, self.file.ids[graph.name]) for graph in self._embedded(self.graph)]
        lanes = [lane_set(self.wiring, self.lanes)] if self.lanes else carried_lanes(self.wiring, inner)
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
        flows += self._flows_among(set(here))
        return bpmn.connected(nodes, flows), flows

    def _node(self, node: Node) -> Element:
        name = self.ids[node.id]
        self._place(name, self.boxes[node.id])
        for gate, side, _ in self.wiring.gates[node.id]:
            box = self.boxes[node.id]
            x = box.x - GATE - 20 if side == "join" else box.right + 20
            self._place(gate, NodeBox(x, box.middle[1] - GATE / 2, GATE, GATE))
        given, file = self.given.by_id[node.id], self.file
        element = element_of(self.wiring, node, file.document, given, file.processes, file.embedded)
        if node.calls not in self.file.embedded:
            return element
        if self.arrangement.boxes or self.wiring.bodies:
            self.sheet.expanded.add(name)
        inner = Process(self.file, self.file.graphs[node.calls], self.sheet, around=name)
        return replace(element, children=(*element.children, *inner.content()))

    def _place(self, name: str, box: NodeBox) -> None:
        self.sheet.boxes[name] = self.arrangement.boxes.get(name, box)
        if name in self.arrangement.names:
            self.sheet.labels[name] = self.arrangement.names[name]

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
        ends = (bpmn.el("startEvent", id=start, name="started"), bpmn.el("endEvent", id=end, name="done"))
        # The start and end event exist only in the file; the reader removes them again.
        links = (self._link(start, wiring.entry[body.first]), self._link(wiring.exit[body.last], end))
        # The nodes know the flows among them already, but not yet those from the start and to the end.
        whole = [*links, *flows]
        sheet.expanded.add(sub)
        return bpmn.el("subProcess", noted, *bpmn.connected([*ends, *nodes], whole), *whole, id=sub)

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
        values: dict[str, float | str] = {} if flow.probability is None else {"probability": flow.probability}
        values |= {"named": flow.name} if flow.name != self.names[flow.id] else {}
        values |= {"exit": "true"} if role_of(flow) else {}
        answer = first(flow.extras, ANSWER, bpmn.OWN)
        values |= {ANSWER: answer.get("of")} if answer is not None else {}
        if values:
            notes.append(bpmn.annotation("flow", values))
        children = [e for e in carried.children if e.name not in ("extensionElements", "conditionExpression")]
        children += [bpmn.el("extensionElements", *notes)] if notes else []
        if route.condition:
            expression = bpmn.formal("conditionExpression", route.condition)
            spelled = first(carried.children, "conditionExpression", bpmn.BPMN) or bpmn.el("conditionExpression")
            children.append(replace(expression, attributes=(*expression.attributes, *spelled.attributes)))
        children.sort(key=lambda e: bpmn.in_place(e, "sequenceFlow"))
        self.sheet.lines[name] = ends
        self._route(name, ends)
        drawn = first(flow.extras, "BPMNEdge", bpmn.BPMNDI)
        if drawn is not None:
            self.sheet.carried[name] = drawn
        attributes = {**dict(carried.attributes), "id": name, **({"name": flow.name} if flow.name else {})}
        attributes |= {"sourceRef": ends[0], "targetRef": ends[1]}
        return Element(carried.tag, tuple(attributes.items()), "", tuple(children))

    def _link(self, source: str, target: str) -> Element:
        name = bpmn.flow_id(source, target)
        self.sheet.lines[name] = (source, target)
        self._route(name, (source, target))
        return bpmn.el("sequenceFlow", id=name, sourceRef=source, targetRef=target)

    def _route(self, flow: str, ends: tuple[str, str]) -> None:
        if ends in self.arrangement.routes:
            self.sheet.routes[flow] = self.arrangement.routes[ends]
        if ends in self.arrangement.labels:
            self.sheet.labels[flow] = self.arrangement.labels[ends]

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
        right, down = self._corner(around)
        if not self.wiring.bodies:
            numbers = {name: self.lanes.number(name) for name in self.lanes.pools} if self.lanes else None
            corner = right + (2 * BAND if self.pool else 0), down
            self.arrangement = arranged(self.wiring, corner, numbers, self._sizes(self.graph))
            if self.pool:
                self._draw_pool(right, down)
            return {name: self.arrangement.boxes[self.ids[name]] for name in self.ids}
        # Sub-processes need room for their frame, start and end; routes would not fit, so edges are direct.
        found = {}
        for name, box in layout(self.graph, sizes=self._sizes(self.graph)).boxes.items():
            x, y = box.middle
            found[name] = _box((x * 1.8 + right, y * 1.5 + down + 2 * EVENT), (box.width, box.height))
        for node in self.graph.nodes:
            if role_of(node) == "event":
                owner = found[self.graph.into(node.id)[0].source]
                found[node.id] = _box((owner.right, owner.bottom), (found[node.id].width, found[node.id].height))
        return found

    def _sizes(self, graph: Graph) -> dict[str, tuple[float, float]]:
        """The sizes of the tasks that contain other graphs."""
        return {n.id: self._extent(self.file.graphs[n.calls]) for n in graph.nodes if n.calls in self.file.embedded}

    def _extent(self, graph: Graph) -> tuple[float, float]:
        """How much room a graph needs inside a sub-process."""
        shown = named_graph(self.file.document, graph)
        wiring = Wiring(shown, {node.id: node.id for node in graph.nodes}, {node.id for node in graph.nodes})
        if not wiring.bodies:
            drawing = arranged(wiring, (0.0, 0.0), sizes=self._sizes(graph))
            return drawing.width, drawing.height + INSET
        plain = layout(shown, sizes=self._sizes(graph))
        return plain.width * 1.8 + 4 * EVENT, plain.height * 1.5 + 6 * EVENT

    def _draw_pool(self, right: float, down: float) -> None:
        """A pool with its lanes around the drawing."""
        boxes, drawing = self.sheet.boxes, self.arrangement
        boxes[self.pool] = NodeBox(right, down, drawing.width + 2 * BAND, drawing.height)
        lines = [down, *drawing.borders, down + drawing.height]
        lanes = list(self.lanes.ids.values()) if self.lanes else []
        for name, top, bottom in zip(lanes, lines, lines[1:], strict=False):
            boxes[name] = NodeBox(right + BAND, top, drawing.width + BAND, bottom - top)
        self.sheet.level |= {self.pool, *lanes}

    def _corner(self, around: str) -> Point:
        """Where to start drawing: inside the sub-process `around`, or below the graphs already on this sheet."""
        if around in self.sheet.boxes:
            outer = self.sheet.boxes[around]
            return outer.x, outer.y + INSET
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


def _may_contain(node: Node) -> bool:
    """Whether a task that calls a graph is a sub-process, or may become one because nobody drew it otherwise."""
    carried = bpmn.source_element(node)
    if carried is not None:
        return carried.name in ("subProcess", "transaction")
    return first(node.extras, "BPMNShape", bpmn.BPMNDI) is None


class _File:
    """A file while it is written. `ids` has the ids in the file, by graph and node."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.taken = {name for carried in document.all_extras() for e in carried.walk() if (name := e.get("id"))}
        callers = Counter(node.calls for graph in document.graphs for node in graph.nodes if node.calls)
        # A graph is written inside the task that calls it if nobody else does, unless the file had it elsewhere.
        order, _ = calling_order(document.graphs)
        self.embedded = {
            node.calls
            for graph in document.graphs
            for node in graph.nodes
            if callers[node.calls] == 1 and node.calls in order[:-1] and _may_contain(node)
        }
        self.graphs = {graph.name: graph for graph in document.graphs}
        self.processes = {
            graph.name: free_name(graph.name, self.taken)
            for graph in document.graphs
            if graph.name not in self.embedded
        }
        self.laned = {name for name in self.processes if has_lanes(document, self.graphs[name])}
        # Where there are lanes, every process is a pool.
        self.pools = {n: free_name(f"{identity}_pool", self.taken) for n, identity in self.processes.items()
                      if self.laned}  # fmt: skip
        self.ids = {
            graph.name: {node.id: free_name(node.id, self.taken) for node in graph.nodes} for graph in document.graphs
        }

    def root(self) -> Element:
        sheets: list[DiagramSheet] = []
        processes = []
        shared = first(self.document.extras, "collaboration", bpmn.BPMN) or self._collaboration()
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
        roots += [shared] if shared is not None and shared not in roots else []
        children = (*imports, *before, *roots, *processes, *diagrams, *after)
        old = first(self.document.extras, "definitions", bpmn.BPMN) or bpmn.el("definitions")
        attributes = {"id": free_name("definitions", self.taken), "name": self.document.name}
        attributes |= {"targetNamespace": bpmn.OWN, "exporter": "Groupwise", **dict(old.attributes)}
        used = {prefix for prefix, _ in bpmn.PREFIXES}
        prefixes = (*bpmn.PREFIXES, *(pair for pair in old.prefixes if pair[0] not in used))
        return Element(f"{{{bpmn.BPMN}}}definitions", tuple(attributes.items()), "", children, prefixes=prefixes)

    def _collaboration(self) -> Element | None:
        """Pools for the processes, if there are lanes."""
        if not self.pools:
            return None
        titles = {name: self.document.name if name == self.document.root.name else name for name in self.processes}
        pools = [
            bpmn.el("participant", id=self.pools[name], name=titles[name], processRef=identity)
            for name, identity in self.processes.items()
        ]
        return bpmn.el("collaboration", *pools, id=free_name(bpmn.COLLABORATION, self.taken))

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
        before = set(sheet.boxes)
        content = Process(self, graph, sheet).content()
        if graph.name in self.pools and self.pools[graph.name] not in sheet.boxes:
            sheet.boxes[self.pools[graph.name]] = sheet.around(name for name in sheet.boxes if name not in before)
            sheet.level.add(self.pools[graph.name])
        said = [bpmn.el("documentation", text=graph.documentation)] if graph.documentation else []
        noted = [bpmn.el("extensionElements", *notes)] if notes else []
        return Element(f"{{{bpmn.BPMN}}}process", tuple(attributes.items()), "", (*said, *noted, *content))
