"""Reads one process or sub-process of a BPMN file: every element becomes a node, a flow, or one of the extras."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from groupwise.errors import ConfigError
from groupwise.workflows.document import Document
from groupwise.workflows.files.annotations import document_parts, from_text, handling_of, seconds_of
from groupwise.workflows.files.bpmn.diagram import drawings, is_our_layout, rest_of_diagrams
from groupwise.workflows.files.bpmn.sketch import Region, Sketch
from groupwise.workflows.files.bpmn.vocabulary import (
    AMONG,
    ARTIFACTS,
    BEFORE,
    BPMN,
    BPMNDI,
    CALLS,
    EVENTS,
    GATEWAYS,
    LANES,
    NODES,
    OWN,
    PREFIXES,
    ROLES,
    TASKS,
    TYPE,
    XSI,
    copies_of,
    el,
    flow_id,
    normal,
    noted,
    values_of,
    without_own,
    written_copies,
)
from groupwise.workflows.files.formats import BadFile
from groupwise.workflows.files.xml_tree import parse, place
from groupwise.workflows.graph import Flow, Graph, Node
from groupwise.xml_reader import COMMENT, Element

ORDER = (*BEFORE, "laneSet", *AMONG, "subProcess", *TASKS, "callActivity", "transaction", *ARTIFACTS, *ROLES)
_NOT_CARRIED = ("incoming", "outgoing", "standardLoopCharacteristics")


def refuse(element: Element, message: str) -> BadFile:
    return BadFile(f"{place(element)}{message}")


class Scope:
    """A process or sub-process while it is read."""

    def __init__(self, file: _File, element: Element) -> None:
        self.file, self.element, self.sketch = file, element, Sketch()
        self.extras: list[Element] = []
        self.belongs: list[tuple[Element, str]] = []

    def fill(self, element: Element) -> tuple[str, str]:
        """Put the content of a process into the sketch; the first and the last node if it is a guarded body."""
        here: list[str] = []
        whole = element.name == "process"
        for part in element.parts:
            if part.name in NODES:
                here.append(self._node(part))
            elif part.name == "laneSet":
                self.extras += [] if part.get("id") == LANES else [normal(_bare_lanes(part))]
            elif part.name in (*AMONG, *ARTIFACTS) or (whole and part.name in (*BEFORE, *ROLES)):
                self.extras.append(normal(part))
            elif part.name in ("adHocSubProcess", "choreographyTask", "subChoreography", "callChoreography"):
                raise refuse(part, f"<{part.name}> {part.get('name') or part.get('id')!r} has no place in a workflow")
            elif whole and part.name not in ("sequenceFlow", "documentation", "extensionElements"):
                self.file.notes.append(f"{place(part)}<{part.name}> is left out")
        for part in self.file.flows[element.get("id")]:
            self._flow(part)
        return self._ends_of_body(element, here) if element is not self.element else ("", "")

    def check(self) -> None:
        """Refuse events and guards that are attached to nothing."""
        for name, region in self.sketch.regions.items():
            for key in ("split", "complete", "abort"):
                if region.names[key] not in self.sketch.nodes:
                    raise refuse(self.element, f"{name!r} is guarded by {region.names[key]!r}, which does not exist")
        for part, owner in self.belongs:
            if owner not in self.sketch.nodes:
                raise refuse(part, f"<{part.name}> {part.get('id')!r} belongs to {owner!r}, which does not exist")

    def _ends_of_body(self, element: Element, here: list[str]) -> tuple[str, str]:
        """Take the start and the end of a guarded body away: it begins and ends with its own nodes."""
        sketch = self.sketch
        starts, ends = ([n for n in here if sketch.nodes[n].kind == kind] for kind in ("start", "end"))
        ways = [flow for flow in sketch.flows if flow.source in starts or flow.target in ends]
        if len(starts) != 1 or len(ends) != 1 or len(ways) != 2:
            raise refuse(element, f"the guarded sub-process {element.get('id')!r} has no single way in and out")
        (start,), (end,) = starts, ends
        first, last = sketch.out_of(start)[0].target, sketch.into(end)[0].source
        sketch.flows = [flow for flow in sketch.flows if flow.source != start and flow.target != end]
        del sketch.nodes[start], sketch.nodes[end]
        return first, last

    # Nodes

    def _node(self, part: Element) -> str:
        name = part.get("id")
        if not name:
            raise refuse(part, f"a <{part.name}> has no id")
        values = values_of(part, "node")
        self.file.names[name] = values.get("id", name)
        region = values_of(part, "region")
        if region:
            return self._region(part, region)
        if part.get("triggeredByEvent") == "true" or part.get("isForCompensation") == "true":
            self.extras.append(normal(part))
            self.file.notes.append(f"{place(part)}<{part.name}> {name!r} is kept, but no flow leads to it in the graph")
            return name
        node = Node(name, part.get("name"), documentation=part.says("documentation"))
        if part.name in GATEWAYS:
            node = self._gateway(node, part)
        elif part.name in EVENTS:
            node = self._event(node, part)
        else:
            node = self._activity(node, part)
        extras = (*self._self(node, part), *self._lane(node), *self.file.drawing(part))
        self.sketch.nodes[name] = replace(node, extras=extras)
        rules = {side: values[side] for side in ("join", "split") if values.get(side) in ("and", "or", "xor")}
        if rules:
            self.sketch.rules[name] = rules
        if noted(part, "part") is not None:
            marks = values_of(part, "part")
            self.sketch.parts[name] = (marks.get("of", ""), marks.get("side", ""))
            self.belongs.append((part, marks.get("of", "")))
        return name

    def _region(self, part: Element, values: dict[str, str]) -> str:
        try:
            chance = float(values["chance"]) if "chance" in values else None
        except ValueError:
            raise refuse(part, f"the chance of {part.get('id')!r} is no number") from None
        if not {"split", "guard", "done", "complete", "abort"} <= set(values):
            raise refuse(part, f"the sub-process {part.get('id')!r} does not say what guards it")
        before = list(self.sketch.nodes)
        first, last = self.fill(part)
        inside = [name for name in self.sketch.nodes if name not in before]
        for key in ("guard", "done"):
            self.file.names[values[key]] = values.get(f"{key}_id", values[key])
        self.sketch.nodes[part.get("id")] = Node(part.get("id"))
        self.sketch.regions[part.get("id")] = Region(values, chance, inside, first, last)
        return part.get("id")

    def _gateway(self, node: Node, part: Element) -> Node:
        self.sketch.gates[node.id] = GATEWAYS[part.name]
        if part.name == "complexGateway":
            self.file.notes.append(f"{place(part)}the complex gateway {node.id!r} is read as an inclusive one")
        deferred = part.name == "eventBasedGateway" or values_of(part, "node").get("kind") == "condition"
        return replace(node, kind="condition") if deferred else replace(node, silent=True)

    def _event(self, node: Node, part: Element) -> Node:
        if part.name == "startEvent":
            return replace(node, kind="start")
        if part.name == "endEvent":
            return replace(node, kind="end")
        if part.name == "boundaryEvent":
            owner = part.get("attachedToRef").rpartition(":")[2]
            self.sketch.attached[node.id] = owner
            self.belongs.append((part, owner))
        timer = part.find("timerEventDefinition")
        wait = None if timer is None or part.name == "boundaryEvent" else seconds_of(timer.says("timeDuration"))
        node = replace(node, silent=True)
        return node if wait is None else replace(node, handling=handling_of({"delay": wait}))

    def _activity(self, node: Node, part: Element) -> Node:
        calls = ""
        if part.name in ("subProcess", "transaction"):
            calls = self.file.sub_process(part)
        elif part.name == "callActivity":
            called = part.get("calledElement").rpartition(":")[2]
            calls = self.file.titles.get(called, "")
            if called and not calls:
                self.file.notes.append(f"{place(part)}{node.id!r} calls {called!r}, which is not in this file")
        for loop in part.all("standardLoopCharacteristics"):
            self.sketch.repeats[node.id] = loop
        for loop in part.all("multiInstanceLoopCharacteristics"):
            if loop.get("isSequential") == "true":
                self.file.notes.append(f"{place(loop)}the instances of {node.id!r} come one after the other")
        values = values_of(part, "handling")
        if (
            not values
            and noted(part, "node") is None
            and node.id in self.file.lanes
            and part.name not in ("subProcess",)
        ):
            values = {"pool": self.file.lanes[node.id][1]}
        try:
            return replace(node, calls=calls, handling=handling_of(values), copies=copies_of(part))
        except (ConfigError, KeyError, ValueError) as error:
            said = error.message if isinstance(error, ConfigError) else f"{error} is no number"
            raise refuse(part, f"{node.id!r}: {said}") from error

    def _self(self, node: Node, part: Element) -> tuple[Element, ...]:
        """The element without what the node says; none where it says all."""
        inner = NODES if part.name in ("subProcess", "transaction") else ()
        skipped = (*_NOT_CARRIED, *inner, *((*AMONG, *ARTIFACTS, "sequenceFlow", "laneSet") if inner else ()))
        bare = without_own(part)
        children = tuple(e for e in bare.children if e.name not in skipped and e.tag != COMMENT)
        if node.documentation and children and children[0].name == "documentation":
            children = children[1:]
        attributes = tuple(p for p in part.attributes if p[0] not in ("id", "name", "default", "attachedToRef"))
        if node.calls and part.name == "callActivity":
            attributes = tuple(pair for pair in attributes if pair[0] != "calledElement")
        usual = written_copies(replace(node, extras=()))
        children = tuple(e for e in children if e not in usual)
        plain = not attributes and not children and part.name in _plain_names(node, self.sketch)
        return () if plain else (Element(part.tag, attributes, "", tuple(map(normal, children))),)

    def _lane(self, node: Node) -> tuple[Element, ...]:
        if node.id not in self.file.lanes or node.handling.pool == self.file.lanes[node.id][1]:
            return ()
        return (Element(f"{{{OWN}}}lane", text=self.file.lanes[node.id][0]),)

    # Flows

    def _flow(self, part: Element) -> None:
        ends = [part.get(side).rpartition(":")[2] for side in ("sourceRef", "targetRef")]
        for end in ends:
            if end not in self.sketch.nodes:
                raise refuse(part, f"the flow {part.get('id')!r} names {end!r}, which is no element of its process")
        condition = part.find("conditionExpression")
        values = values_of(part, "flow")
        try:
            share = float(values["probability"]) if "probability" in values else None
        except ValueError:
            raise refuse(part, f"the probability of {part.get('id')!r} is {values['probability']!r}") from None
        default = self.file.defaults.get(ends[0]) == part.get("id")
        text = "" if condition is None else condition.text.strip()
        flow = Flow(ends[0], ends[1], share, text, default)
        bare = without_own(part)
        children = tuple(e for e in bare.parts if e.name != "conditionExpression")
        spelled = () if condition is None or not text else tuple(p for p in condition.attributes if p[0] != TYPE)
        carried = [el("conditionExpression", **dict(spelled))] if spelled else []
        kept = tuple(p for p in part.attributes if p[0] not in ("sourceRef", "targetRef"))
        kept = tuple(p for p in kept if p != ("id", flow_id(ends[0], ends[1])))
        if kept or children or carried:
            flow = replace(flow, extras=(Element(part.tag, kept, "", tuple(map(normal, (*children, *carried)))),))
        flow = replace(flow, extras=(*flow.extras, *self.file.drawing(part)))
        self.sketch.flows.append(flow)

    # The graph

    def graph(self, title: str) -> Graph:
        sketch, names = self.sketch, self.file.names
        for name in sketch.nodes:
            names.setdefault(name, name)

        def flow_name(flow: Flow) -> str:
            return f"{names[flow.source]}→{names[flow.target]}"

        renamed = {flow.id: flow_name(flow) for flow in sketch.flows}
        nodes = tuple(
            replace(n, id=names[n.id], cancels=tuple(renamed.get(c) or names[c] for c in n.cancels))
            for n in sketch.nodes.values()
        )
        flows = tuple(replace(f, source=names[f.source], target=names[f.target]) for f in sketch.flows)
        attributes = tuple(p for p in self.element.attributes if p[0] not in ("id", "isExecutable"))
        own = without_own(self.element)
        kept = tuple(map(normal, own.all("extensionElements")))
        extras = sorted(self.extras, key=lambda e: ORDER.index(e.name))
        whole = self.element.name == "process"
        if whole and (attributes or kept):
            extras.append(Element(f"{{{BPMN}}}process", attributes, "", kept))
        documentation = (
            self.element.says("documentation") if whole else values_of(self.element, "graph").get("says", "")
        )
        try:
            return Graph(title, nodes, flows, documentation, tuple(extras))
        except ConfigError as error:
            raise refuse(self.element, error.message) from error


def _plain_names(node: Node, sketch: Sketch) -> tuple[str, ...]:
    """The elements that the node would be written as anyway."""
    if node.calls:
        return ("callActivity",)
    if node.kind in ("start", "end"):
        return (f"{node.kind}Event",)
    if node.kind == "condition":
        return ("exclusiveGateway",)
    return ("exclusiveGateway", "parallelGateway", "inclusiveGateway") if node.silent else ("task",)


def _bare_lanes(lanes: Element) -> Element:
    """Lanes without their members, which nodes know."""
    children = tuple(_bare_lanes(e) for e in lanes.children if e.name != "flowNodeRef")
    return replace(lanes, children=children)


def read(content: bytes) -> Document:
    """The document in a BPMN file."""
    root = parse(content)
    if root.name != "definitions" or root.namespace != BPMN:
        raise BadFile(f"{place(root)}the root element is <{root.name}>, and a BPMN 2.0 file has <definitions>")
    return _File(root, {} if is_our_layout(root) else drawings(root)).document()


class _File:
    """A file while it is read.

    `names` has the id in the model for every id in the file, `titles` the graph of every process, `defaults` the flow
    that an element prefers, `flows` those of every process and sub-process, and `lanes` the id and the name of the lane
    that an element stands in.
    """

    def __init__(self, root: Element, drawn: Mapping[str, Element]) -> None:
        self.root, self.drawn = root, dict(drawn)
        self.notes: list[str] = []
        self.names: dict[str, str] = {}
        self.graphs: dict[str, Graph] = {}
        self.processes = {one.get("id"): one for one in root.all("process")}
        self.defaults = {e.get("id"): e.get("default") for e in root.walk() if e.namespace == BPMN and e.get("default")}
        self.flows = self._flows()
        self.lanes = {
            member.text.strip(): (lane.get("id"), lane.get("name") or lane.get("id"))
            for lane in root.walk()
            if lane.name == "lane" and lane.namespace == BPMN
            for member in lane.all("flowNodeRef")
        }
        self._refuse_double_ids()

    def _flows(self) -> dict[str, list[Element]]:
        """The flows of every process and sub-process: some tools write them elsewhere than the nodes they connect."""
        holders = [e for e in self.root.walk() if e.namespace == BPMN and e.name in ("process", *CALLS)]
        holder = {part.get("id"): one.get("id") for one in holders for part in one.parts if part.name in NODES}
        found: dict[str, list[Element]] = {one.get("id"): [] for one in holders}
        for one in holders:
            for flow in one.all("sequenceFlow"):
                ends = {holder.get(flow.get(side).rpartition(":")[2]) for side in ("sourceRef", "targetRef")}
                (home,) = ends if len(ends) == 1 else (None,)
                found[home or one.get("id")].append(flow)
        return found

    def _refuse_double_ids(self) -> None:
        seen = set()
        for element in self.root.walk():
            name = element.get("id")
            if name and element.namespace in (BPMN, BPMNDI) and name in seen:
                raise refuse(element, f"the id {name!r} is used twice")
            seen.add(name)

    def document(self) -> Document:
        drawn = {name: one for name, one in self.processes.items() if any(p.name in NODES for p in one.parts)}
        if not drawn:
            raise refuse(self.root, "there is no process with anything in it")
        runs = [name for name, one in drawn.items() if one.get("isExecutable") == "true"]
        root = (runs or list(drawn))[0]
        self.titles = self._titles(drawn)
        for name in [root, *(other for other in drawn if other != root)]:
            self._process(drawn[name])
        first = self.titles[root]
        graphs = (self.graphs[first], *(graph for name, graph in self.graphs.items() if name != first))
        known = noted(drawn[root], "document")
        values = {} if known is None else self._values(known)
        requirements, servers = document_parts(values)
        name = str(values.get("name") or self.root.get("name") or first)
        extras = (*self._extras(drawn), *rest_of_diagrams(self.root, self.drawn))
        return Document(name, graphs, requirements, servers, tuple(self.notes), extras)

    def drawing(self, part: Element) -> tuple[Element, ...]:
        """How the diagram draws an element; nothing else will be drawn so."""
        found = self.drawn.pop(part.get("id"), None)
        return () if found is None else (normal(found.with_attributes(bpmnElement=None)),)

    def _titles(self, drawn: dict[str, Element]) -> dict[str, str]:
        """The name of a process is its id, unless Groupwise noted another."""
        return {name: values_of(one, "graph").get("name", name) for name, one in drawn.items()}

    def _values(self, known: Element) -> dict[str, object]:
        try:
            return from_text(known.text)
        except ConfigError as error:
            raise refuse(known, error.message) from error

    def _extras(self, drawn: dict[str, Element]) -> tuple[Element, ...]:
        kept = []
        for part in self.root.parts:
            if part.namespace == BPMN and not (part.name == "process" and part.get("id") in drawn):
                kept.append(normal(part))
        usual = (("exporter", "Groupwise"), ("targetNamespace", OWN))
        ours = ("id", "name", f"{{{XSI}}}schemaLocation")
        attributes = tuple(p for p in self.root.attributes if p not in usual and p[0] not in ours)
        prefixes = tuple(pair for pair in self.root.prefixes if pair[0] and pair not in PREFIXES)
        if attributes or prefixes:
            kept.append(Element(f"{{{BPMN}}}definitions", attributes, prefixes=prefixes))
        for part in self.root.children:
            if part.tag == COMMENT:
                self.notes.append(f"{place(part)}a comment is left out")
        return tuple(kept)

    def _process(self, element: Element) -> None:
        title = self.titles.get(element.get("id"), element.get("id"))
        scope = Scope(self, element)
        scope.fill(element)
        scope.check()
        scope.sketch.shaped()
        self.notes += scope.sketch.notes
        self.graphs[title] = scope.graph(title)

    def sub_process(self, element: Element) -> str:
        """Read a sub-process; the name of its graph."""
        title = values_of(element, "graph").get("name", element.get("id"))
        self.titles[element.get("id")] = title
        self._process(element)
        return title
