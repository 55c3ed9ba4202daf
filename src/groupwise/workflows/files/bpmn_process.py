"""Writes the content of one process: its nodes, the gateways they need, the flows between them, and where they stand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from groupwise.workflows.elements import Element, first, named
from groupwise.workflows.files.bpmn_diagram import EVENT, GATE, Sheet, box_of
from groupwise.workflows.files.bpmn_regions import Guarded, guarded_bodies
from groupwise.workflows.files.bpmn_words import (
    AMONG,
    ARTIFACTS,
    BEFORE,
    BPMN,
    BPMNDI,
    GATEWAY_OF,
    GATEWAYS,
    LANES,
    OWN,
    PARTS,
    ROLES,
    TASKS,
    Route,
    el,
    flow_id,
    formal,
    has_event,
    in_place,
    own,
    own_self,
    routes,
    written_copies,
)
from groupwise.workflows.files.formats import CannotExpress
from groupwise.workflows.files.knowledge import handling_values
from groupwise.workflows.files.names import free_name
from groupwise.workflows.files.placing import placed
from groupwise.workflows.graph import ONCE, Flow, Graph, Node, Rule
from groupwise.workflows.pictures.layout import Box, Point, layout


class File(Protocol):
    """What a process needs of the file it is written to."""

    taken: set[str]
    ids: dict[str, dict[str, str]]
    processes: dict[str, str]
    embedded: set[str]

    def sub_process(self, name: str, sheet: Sheet, at: str) -> list[Element]: ...


class Process:
    """A graph while it is written."""

    def __init__(self, file: File, graph: Graph, sheet: Sheet, around: str = "") -> None:
        self.file, self.graph, self.sheet = file, graph, sheet
        self.ids = file.ids[graph.name]
        self.bodies = guarded_bodies(graph)
        self.subs = {abort: free_name(f"{self.ids[abort]}_body", file.taken) for abort in self.bodies}
        self.hidden = frozenset().union(*(body.hidden for body in self.bodies.values()))
        self.added = {node.id for node in graph.nodes if first(node.extras, "added", OWN) is not None}
        self._refuse_other_cancels()
        self.flows = [flow for flow in graph.flows if self._is_written(flow)]
        self.entry, self.exit = dict(self.ids), dict(self.ids)
        self.gates: dict[str, list[Element]] = {node.id: [] for node in graph.nodes}
        self.into, self.out = self._counts()
        self._middles(around)
        for node in graph.nodes:
            if node.id not in self.added:
                self._parts(node)

    def _refuse_other_cancels(self) -> None:
        for node in self.graph.nodes:
            if node.cancels and node.id not in self.bodies and not has_event(own_self(node), "terminate"):
                raise CannotExpress(
                    f"{self.graph.name}: {node.label!r} clears others away, and BPMN can only end a whole sub-process"
                )

    def _is_written(self, flow: Flow) -> bool:
        """Whether the flow is one in BPMN, too: neither a link, nor on a boundary, nor to or from a node we added."""
        source, target = (own_self(self.graph.by_id[end]) for end in (flow.source, flow.target))
        if flow.source in self.added or flow.target in self.added or self._is_boundary(flow.target):
            return False
        linked = has_event(source, "link") and has_event(target, "link")
        return not linked or first(flow.extras, "sequenceFlow", BPMN) is not None

    def _is_boundary(self, name: str) -> bool:
        carried = own_self(self.graph.by_id[name])
        return name in self.bodies or (carried is not None and carried.name == "boundaryEvent")

    def _counts(self) -> tuple[dict[str, int], dict[str, int]]:
        """How many flows lead into and out of each node in BPMN; those of a guarded body count as one."""
        into, out = ({node.id: 0 for node in self.graph.nodes} for _ in range(2))
        for flow in self.flows:
            out[flow.source] += 1
            into[flow.target] += 1
        for body in self.bodies.values():
            out[body.split] -= 1
            into[body.complete] -= 1
        return into, out

    # Where things stand

    def _middles(self, around: str) -> None:
        shapes = {node.id: first(node.extras, "BPMNShape", BPMNDI) for node in self.graph.nodes}
        drawn = {name: box for name, shape in shapes.items() if (box := box_of(shape)) is not None}
        middles = placed(self.graph, {name: box.middle for name, box in drawn.items()})
        usual = layout(self.graph).boxes if not drawn else {}
        shift = self._shift(middles, around) if not drawn else (0.0, 0.0)
        self.boxes: dict[str, Box] = {}
        for node in self.graph.nodes:
            x, y = middles[node.id]
            width, height = _size(node, usual.get(node.id))
            moved = Box(x - width / 2 + shift[0], y - height / 2 + shift[1], width, height)
            self.boxes[node.id] = drawn.get(node.id, moved)
            shape = shapes[node.id]
            if shape is not None and node.id in drawn:
                self.sheet.carried[self.ids[node.id]] = shape

    def _shift(self, middles: dict[str, Point], around: str) -> Point:
        """Graphs on one sheet stand one below the other; one inside a sub-process where that is drawn."""
        if around in self.sheet.boxes:
            outer = self.sheet.boxes[around]
            return outer.x - min(x for x, _ in middles.values()) + 80, outer.y - min(
                y for _, y in middles.values()
            ) + 60
        lowest = max((box.bottom for box in self.sheet.boxes.values()), default=0.0)
        return 0.0, lowest + 60.0 if lowest else 0.0

    # Gateways for the joins and splits that only gateways have in BPMN

    def _parts(self, node: Node) -> None:
        if node.id in self.hidden and self.graph.by_id[node.id].kind == "condition" and self._is_hidden_place(node.id):
            return
        join = self.into[node.id] > 1 and self._needs_join(node)
        split = self.out[node.id] > 1 and self._needs_split(node)
        if join:
            self.entry[node.id] = self._gate(node, "join", node.join)
        if split:
            self.exit[node.id] = self._gate(node, "split", "xor" if node.kind == "start" else node.split)

    def _is_hidden_place(self, name: str) -> bool:
        return any(name in (body.guard, body.done) for body in self.bodies.values())

    def _is_gateway(self, node: Node) -> bool:
        carried = own_self(node)
        return node.kind == "condition" or (node.silent and (carried is None or carried.name in GATEWAYS))

    def _needs_join(self, node: Node) -> bool:
        if node.kind != "task":
            return False
        if self._is_gateway(node):
            return self.out[node.id] > 1 and not (own_self(node) is not None and node.join == node.split)
        return node.join != "xor"

    def _needs_split(self, node: Node) -> bool:
        return not self._is_gateway(node)

    def _gate(self, node: Node, side: str, rule: Rule) -> str:
        name = free_name(f"{self.ids[node.id]}_{side}", self.file.taken)
        noted = el("extensionElements", own("part", {"of": self.ids[node.id], "side": side}))
        self.gates[node.id].append(el(GATEWAY_OF[rule], noted, id=name))
        box = self.boxes[node.id]
        x = box.x - GATE - 20 if side == "join" else box.right + 20
        self.sheet.boxes[name] = Box(x, box.middle[1] - GATE / 2, GATE, GATE)
        return name

    # Content

    def content(self) -> list[Element]:
        """Everything in the process, in the order of the schema."""
        extras = self.graph.extras
        names = [node.id for node in self.graph.nodes if node.id not in self.added]
        inner = self._level(names)
        parts = [e for name in BEFORE for e in named(extras, name, BPMN)]
        parts += self._lanes()
        parts += [
            *inner[0],
            *(e for name in (*AMONG, "subProcess", *TASKS) for e in named(extras, name, BPMN)),
            *inner[1],
        ]
        return parts + [e for name in (*ARTIFACTS, *ROLES) for e in named(extras, name, BPMN)]

    def _level(self, names: Sequence[str]) -> tuple[list[Element], list[Element]]:
        """The nodes and the flows among `names`, with sub-processes for the guarded bodies in them."""
        here = set(names)
        within = [body for body in self.bodies.values() if body.abort in here]
        bodies = [body for body in within if not any(body.abort in other.inside for other in within)]
        inside = frozenset().union(*(body.hidden for body in bodies))
        nodes: list[Element] = []
        flows: list[Element] = []
        for name in names:
            if name in inside:
                continue
            node = self.graph.by_id[name]
            self.sheet.boxes[self.ids[name]] = self.boxes[name]
            nodes += [*self.gates[name], self._node(node)]
            flows += self._part_flows(node)
        for body in bodies:
            nodes.append(self._body(body))
            sub = self.subs[body.abort]
            flows += [self._link(self.exit[body.split], sub), self._link(sub, self.entry[body.complete])]
        flows += self._flows_among(here - inside)
        return nodes, flows

    def _flows_among(self, here: set[str]) -> list[Element]:
        found = []
        for name in here:
            ways = [flow for flow in self.flows if flow.source == name and flow.target in here]
            chosen = self._routes(name, ways)
            found += [(flow, route) for flow, route in zip(ways, chosen, strict=True)]
        order = {id(flow): place for place, flow in enumerate(self.flows)}
        return [self._flow(flow, route) for flow, route in sorted(found, key=lambda pair: order[id(pair[0])])]

    def _routes(self, name: str, ways: Sequence[Flow]) -> list[Route]:
        """The conditions there are; where none is, and the way is chosen, conditions on data."""
        node = self.graph.by_id[name]
        given = [Route(flow.condition, flow.default) for flow in ways]
        rule: Rule = node.split if node.kind == "task" else "xor"
        carried = own_self(node)
        waits = carried is not None and carried.name == "eventBasedGateway"
        if len(ways) < 2 or waits or any(route != Route() for route in given):
            return given
        return routes(self.exit[name], rule, [self.entry[flow.target] for flow in ways])

    def _body(self, body: Guarded) -> Element:
        """A guarded body: a sub-process with the event that breaks it off on its boundary."""
        sub = self.subs[body.abort]
        start, end = (free_name(f"{sub}_{what}", self.file.taken) for what in ("start", "end"))
        nodes, flows = self._level([node.id for node in self.graph.nodes if node.id in body.inside])
        drawn = [e.get("id") for e in nodes]
        outer = self.sheet.around(drawn)
        self.sheet.boxes[start] = Box(outer.x - EVENT, outer.y + outer.height / 2 - EVENT / 2, EVENT, EVENT)
        self.sheet.boxes[end] = Box(outer.right, outer.y + outer.height / 2 - EVENT / 2, EVENT, EVENT)
        self.sheet.boxes[sub] = whole = self.sheet.around([*drawn, start, end])
        self.sheet.expanded.add(sub)
        event = self.ids[body.abort]
        self.sheet.boxes[event] = Box(whole.middle[0] - EVENT / 2, whole.bottom - EVENT / 2, EVENT, EVENT)
        values = {key: self.ids[getattr(body, key)] for key in ("split", "guard", "done", "complete", "abort")}
        values |= {f"{key}_id": getattr(body, key) for key in ("guard", "done") if values[key] != getattr(body, key)}
        chance = {} if body.chance is None else {"chance": body.chance}
        noted = el("extensionElements", own("region", values | chance))
        begin = (el("startEvent", id=start), el("endEvent", id=end))
        links = (self._link(start, self.entry[body.first]), self._link(self.exit[body.last], end))
        return el("subProcess", noted, *begin, *nodes, *links, *flows, id=sub)

    # One element

    def _node(self, node: Node) -> Element:
        carried = own_self(node)
        name = self._tag(node, carried)
        attributes = {"id": self.ids[node.id], **({"name": node.name} if node.name else {})}
        attributes |= self._references(node, name)
        attributes |= dict(carried.attributes if carried is not None else ())
        children = [el("documentation", text=node.documentation)] if node.documentation else []
        children += self._noted(node, name, carried)
        children += [e for e in (carried.children if carried is not None else ()) if _is_kept(e)]
        if node.id in self.bodies:
            condition = formal("condition", f"{self.subs[node.id].replace('-', '_').replace('.', '_')}_broken_off")
            children.append(el("conditionalEventDefinition", condition))
        children += written_copies(node)
        children.sort(key=lambda e: in_place(e, el(name)))
        if node.calls in self.file.embedded:
            children += self.file.sub_process(node.calls, self.sheet, self.ids[node.id])
        return Element(f"{{{BPMN}}}{name}", tuple(attributes.items()), "", tuple(children))

    def _tag(self, node: Node, carried: Element | None) -> str:
        if node.id in self.bodies:
            return "boundaryEvent"
        if node.calls and node.calls not in self.file.embedded:
            return "callActivity"
        if self._is_gateway(node):
            rule = self._gate_rule(node)
            passing = self.into[node.id] < 2 and self.out[node.id] < 2
            if carried is not None and carried.name in GATEWAYS and (passing or GATEWAYS[carried.name] == rule):
                return carried.name
            return GATEWAY_OF[rule]
        if carried is not None:
            return carried.name
        return f"{node.kind}Event" if node.kind in ("start", "end") else "task"

    def _gate_rule(self, node: Node) -> Rule:
        """The rule of the gateway that a silent node is."""
        if node.kind == "condition":
            return "xor"
        if self.out[node.id] > 1:
            return node.split
        return node.join if self.into[node.id] > 1 else "xor"

    def _references(self, node: Node, name: str) -> dict[str, str]:
        found = {}
        if name == "boundaryEvent":
            owner = self._owner(node)
            found["attachedToRef"] = owner
        if name == "callActivity" and node.calls:
            found["calledElement"] = self.file.processes[node.calls]
        ways = [flow for flow in self.flows if flow.source == node.id]
        if self.exit[node.id] == self.ids[node.id]:
            default = [f for f, route in zip(ways, self._routes(node.id, ways), strict=True) if route.default]
            if default and len(ways) > 1:
                found["default"] = self._flow_id(default[0])
        return found

    def _owner(self, node: Node) -> str:
        if node.id in self.bodies:
            return self.subs[node.id]
        into = self.graph.into(node.id)
        if not into:
            raise CannotExpress(f"{self.graph.name}: the boundary event {node.label!r} is attached to nothing")
        return self.ids[into[0].source]

    def _noted(self, node: Node, name: str, carried: Element | None) -> list[Element]:
        """What BPMN has no word for, beside what others noted."""
        old = carried.find("extensionElements") if carried is not None else None
        notes = list(old.children) if old is not None else []
        values: dict[str, str] = {} if self.ids[node.id] == node.id else {"id": node.id}
        if node.kind == "condition" and name != "eventBasedGateway":
            values["kind"] = "condition"
        if node.kind == "task" and not self._is_boundary(node.id):
            values |= self._unusual_rules(node)
        if values or (node.kind == "task" and node.handling.pool is None and self._in_a_lane(node)):
            notes.append(own("node", values))
        handling = handling_values(node.handling)
        if handling and not (node.silent and set(handling) == {"delay"}):
            notes.append(own("handling", handling))
        if node.copies != ONCE and not (carried is not None and written_copies(node)):
            copies = node.copies
            notes.append(own("copies", {"least": copies.least, "most": copies.most, "enough": copies.enough}))
        return [el("extensionElements", *notes)] if notes else []

    def _in_a_lane(self, node: Node) -> bool:
        return first(node.extras, "lane", OWN) is not None

    def _unusual_rules(self, node: Node) -> dict[str, str]:
        """The join and split of a node, where its element would be read otherwise."""
        join, split = "xor", "and"
        if self._is_gateway(node):
            rule = self._gate_rule(node)
            join = rule if self.into[node.id] > 1 else join
            split = rule if self.out[node.id] > 1 else split
        join = node.join if self.entry[node.id] != self.ids[node.id] else join
        split = node.split if self.exit[node.id] != self.ids[node.id] else split
        ends = {body.split for body in self.bodies.values()}, {body.complete for body in self.bodies.values()}
        found = {}
        if node.join != join and node.id not in ends[1]:
            found["join"] = node.join
        boundary = any(self._is_boundary(flow.target) for flow in self.graph.out_of(node.id))
        if node.split != split and node.id not in ends[0] and not boundary:
            found["split"] = node.split
        return found

    # Flows

    def _flow_id(self, flow: Flow) -> str:
        carried = first(flow.extras, "sequenceFlow", BPMN)
        if carried is not None and carried.get("id"):
            return carried.get("id")
        return flow_id(self.exit[flow.source], self.entry[flow.target])

    def _flow(self, flow: Flow, route: Route) -> Element:
        carried = first(flow.extras, "sequenceFlow", BPMN)
        name = self._flow_id(flow)
        ends = self.exit[flow.source], self.entry[flow.target]
        children = list(carried.children) if carried is not None else []
        if flow.probability is not None:
            noted = own("flow", {"probability": flow.probability})
            old = [e for e in children if e.name == "extensionElements"]
            children = [e for e in children if e.name != "extensionElements"]
            children.append(el("extensionElements", *(old[0].children if old else ()), noted))
        spelled = [e for e in children if e.name == "conditionExpression"]
        children = [e for e in children if e.name != "conditionExpression"]
        children.sort(key=lambda e: PARTS.index(e.name) if e.name in PARTS else len(PARTS))
        if route.condition:
            expression = formal("conditionExpression", route.condition)
            attributes = (*expression.attributes, *(spelled[0].attributes if spelled else ()))
            children.append(replace(expression, attributes=attributes))
        self.sheet.lines[name] = ends
        drawn = first(flow.extras, "BPMNEdge", BPMNDI)
        if drawn is not None:
            self.sheet.carried[name] = drawn
        kept = {key: value for key, value in (carried.attributes if carried is not None else ()) if key != "id"}
        attributes = {"id": name, "sourceRef": ends[0], "targetRef": ends[1], **kept}
        return Element(f"{{{BPMN}}}sequenceFlow", tuple(attributes.items()), "", tuple(children))

    def _link(self, source: str, target: str) -> Element:
        name = flow_id(source, target)
        self.sheet.lines[name] = (source, target)
        return el("sequenceFlow", id=name, sourceRef=source, targetRef=target)

    def _part_flows(self, node: Node) -> list[Element]:
        """From the join to the node, and from the node to the split."""
        found = []
        if self.entry[node.id] != self.ids[node.id]:
            found.append(self._link(self.entry[node.id], self.ids[node.id]))
        if self.exit[node.id] != self.ids[node.id]:
            found.append(self._link(self.ids[node.id], self.exit[node.id]))
            self._default_of_gate(node)
        return found

    def _default_of_gate(self, node: Node) -> None:
        ways = [flow for flow in self.flows if flow.source == node.id]
        default = [f for f, route in zip(ways, self._routes(node.id, ways), strict=True) if route.default]
        if default:
            gates = self.gates[node.id]
            chosen = [
                e.with_attributes(default=self._flow_id(default[0])) if e.get("id") == self.exit[node.id] else e
                for e in gates
            ]
            gates[:] = chosen

    # Lanes

    def _lanes(self) -> list[Element]:
        """The lanes there were, with their members, and new ones for pools that had none."""
        carried = [e for e in self.graph.extras if e.name == "laneSet" and e.namespace == BPMN]
        members: dict[str, list[str]] = {}
        for node in self.graph.nodes:
            if node.id in self.added or self._is_hidden_place(node.id):
                continue
            lane = first(node.extras, "lane", OWN)
            key = lane.text if lane is not None else node.handling.pool
            if key:
                members.setdefault(key, []).append(self.ids[node.id])
        written = [_filled(lanes, members) for lanes in carried]
        if members and not carried:
            lanes = [
                el("lane", *_members(names), id=free_name(f"lane_{pool}", self.file.taken), name=pool)
                for pool, names in members.items()
            ]
            name = LANES if LANES not in self.file.taken else free_name(LANES, self.file.taken)
            self.file.taken.add(name)
            written.append(el("laneSet", *lanes, id=name))
        return written


def _members(names: Iterable[str]) -> list[Element]:
    return [el("flowNodeRef", text=name) for name in names]


def _filled(lanes: Element, members: dict[str, list[str]]) -> Element:
    """Lanes with the nodes that stand in them, by the lane's id or by its name."""
    if lanes.name != "lane":
        return replace(lanes, children=tuple(_filled(child, members) for child in lanes.children))
    found = [*members.pop(lanes.get("id"), []), *members.pop(lanes.get("name"), [])]
    inner = tuple(_filled(child, members) for child in lanes.children)
    at = next((place for place, child in enumerate(inner) if child.name == "childLaneSet"), len(inner))
    return replace(lanes, children=(*inner[:at], *_members(found), *inner[at:]))


def _is_kept(element: Element) -> bool:
    return element.name not in ("extensionElements", "multiInstanceLoopCharacteristics")


def _size(node: Node, usual: Box | None) -> tuple[float, float]:
    carried = own_self(node)
    if node.kind in ("start", "end") or (carried is not None and carried.name.endswith("Event")):
        return EVENT, EVENT
    if node.kind == "condition" or node.silent:
        return GATE, GATE
    return (max(100.0, usual.width), max(80.0, usual.height)) if usual is not None else (100.0, 80.0)
