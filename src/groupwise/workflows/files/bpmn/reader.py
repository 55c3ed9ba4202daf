"""Reads BPMN 2.0: every process and sub-process becomes a graph, every element a node, a flow or one of the extras.

`read` parses the file, `_File` collects what the processes share, and a `Scope` reads one process into a `Sketch`,
which brings it into the form that graphs have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import groupwise.workflows.files.bpmn.vocabulary as bpmn
from groupwise.errors import ConfigError
from groupwise.workflows.document import Document
from groupwise.workflows.endings import ANSWER, MARK, mark, role_of
from groupwise.workflows.files.annotations import document_parts, from_text, handling_of, seconds_of
from groupwise.workflows.files.bpmn.diagram import drawings, is_our_layout, rest_of_diagrams
from groupwise.workflows.files.bpmn.sketch import Region, Sketch
from groupwise.workflows.files.xml_tree import located, parse, place, refuse
from groupwise.workflows.graph import Flow, Graph, Node
from groupwise.xml_reader import COMMENT, Element

# The order of extras in a graph: that of the schema.
ORDER = (
    *bpmn.BEFORE, "laneSet", *bpmn.AMONG, "subProcess", *bpmn.TASKS, "callActivity", "transaction", *bpmn.ARTIFACTS,
    *bpmn.ROLES,
)  # fmt: skip
# Parts of an element that the graph expresses itself.
_NOT_CARRIED = ("incoming", "outgoing", "standardLoopCharacteristics")


class Scope:
    def __init__(self, file: _File, element: Element) -> None:
        self.file, self.element, self.sketch = file, element, Sketch()
        self.extras: list[Element] = []
        self.belongs: list[tuple[Element, str]] = []

    def fill(self, element: Element) -> tuple[str, str]:
        """Add the content of a process to the sketch; for a guarded body, return its first and last node."""
        here: list[str] = []
        whole = element.name == "process"
        for part in element.parts:
            if part.name in bpmn.NODES:
                here.append(self._node(part))
            elif part.name == "laneSet":
                self.extras += [] if _is_ours(part) else [bpmn.normal(_bare_lanes(part))]
            elif part.name in (*bpmn.AMONG, *bpmn.ARTIFACTS) or (whole and part.name in (*bpmn.BEFORE, *bpmn.ROLES)):
                self.extras.append(bpmn.normal(part))
            elif part.name in ("adHocSubProcess", "choreographyTask", "subChoreography", "callChoreography"):
                raise refuse(part, f"<{part.name}> {part.get('name') or part.get('id')!r} is not supported")
            elif whole and part.name not in ("sequenceFlow", "documentation", "extensionElements"):
                self.file.notes.append(f"{place(part)}<{part.name}> is left out")
        for part in self.file.flows[element.get("id")]:
            self._flow(part)
        return self._ends_of_body(element, here) if element is not self.element else ("", "")

    def check(self) -> None:
        for name, region in self.sketch.regions.items():
            for key in ("split", "complete", "abort"):
                if region.names[key] not in self.sketch.nodes:
                    raise refuse(self.element, f"{name!r} is guarded by {region.names[key]!r}, which does not exist")
        for part, owner in self.belongs:
            if owner not in self.sketch.nodes:
                raise refuse(part, f"<{part.name}> {part.get('id')!r} belongs to {owner!r}, which does not exist")

    def _ends_of_body(self, element: Element, here: list[str]) -> tuple[str, str]:
        """Remove the start and the end event of a guarded body: it starts and ends with its own nodes."""
        sketch = self.sketch
        starts, ends = ([n for n in here if sketch.nodes[n].kind == kind] for kind in ("start", "end"))
        ways = [flow for flow in sketch.flows if flow.source in starts or flow.target in ends]
        if len(starts) != 1 or len(ends) != 1 or len(ways) != 2:
            raise refuse(element, f"the guarded sub-process {element.get('id')!r} must have one way in and one way out")
        (start,), (end,) = starts, ends
        first, last = sketch.out_of(start)[0].target, sketch.into(end)[0].source
        sketch.flows = [flow for flow in sketch.flows if flow.source != start and flow.target != end]
        del sketch.nodes[start], sketch.nodes[end]
        return first, last

    def _node(self, part: Element) -> str:
        name = part.get("id")
        if not name:
            raise refuse(part, f"a <{part.name}> has no id")
        values = bpmn.annotated_values(part, "node")
        # Older files have `id`, which some tools take for the id of an element.
        self.file.names[name] = values.get("node", values.get("id", name))
        region = bpmn.annotated_values(part, "region")
        if region:
            return self._region(part, region)
        # Event sub-processes and compensation have no place in the control flow.
        if part.get("triggeredByEvent") == "true" or part.get("isForCompensation") == "true":
            self.extras.append(bpmn.normal(part))
            self.file.notes.append(f"{place(part)}<{part.name}> {name!r} is kept, but is not part of the graph")
            return name
        # A name that we made up is not kept, unless somebody changed it.
        said = "" if part.get("name") == values.get("named") else part.get("name")
        node = Node(name, said, documentation=part.says("documentation"))
        if part.name in bpmn.GATEWAYS:
            node = self._gateway(node, part)
        elif part.name in bpmn.EVENTS:
            node = self._event(node, part)
        else:
            node = self._activity(node, part)
        lane, pool = self.file.lanes.get(node.id, ("", node.handling.pool))
        kept = (Element(f"{{{bpmn.OWN}}}lane", text=lane),) if node.handling.pool != pool else ()
        ending = bpmn.find_annotation(part, MARK)
        ended = () if ending is None else (Element(ending.tag, ending.attributes),)
        if ending is not None and ending.get("role") == "end" and node.kind == "end":
            node = replace(node, kind="task", silent=True)
        extras = (*self._self(replace(node, extras=ended), part), *ended, *kept, *self.file.drawing(part))
        self.sketch.nodes[name] = replace(node, extras=extras)
        rules = {side: values[side] for side in ("join", "split") if values.get(side) in ("and", "or", "xor")}
        if rules:
            self.sketch.rules[name] = rules
        if bpmn.find_annotation(part, "part") is not None:
            marks = bpmn.annotated_values(part, "part")
            self.sketch.parts[name] = (marks.get("of", ""), marks.get("side", ""))
            self.belongs.append((part, marks.get("of", "")))
        return name

    def _region(self, part: Element, values: dict[str, str]) -> str:
        try:
            chance = float(values["chance"]) if "chance" in values else None
        except ValueError:
            raise refuse(part, f"the chance of {part.get('id')!r} is not a number") from None
        if not set(bpmn.GUARDED) <= set(values):
            raise refuse(part, f"the sub-process {part.get('id')!r} has an incomplete region annotation")
        # Whatever is added from here on lies inside the region.
        before = list(self.sketch.nodes)
        first, last = self.fill(part)
        inside = [name for name in self.sketch.nodes if name not in before]
        for key in ("guard", "done"):
            self.file.names[values[key]] = values.get(f"{key}_id", values[key])
        self.sketch.nodes[part.get("id")] = Node(part.get("id"))
        self.sketch.regions[part.get("id")] = Region(values, chance, inside, first, last)
        return part.get("id")

    def _gateway(self, node: Node, part: Element) -> Node:
        self.sketch.gates[node.id] = bpmn.GATEWAYS[part.name]
        if part.name == "complexGateway":
            self.file.notes.append(f"{place(part)}the complex gateway {node.id!r} is treated as an inclusive gateway")
        # The choice is made by events, not by the gateway: a condition in YAWL terms.
        deferred = part.name == "eventBasedGateway" or bpmn.annotated_values(part, "node").get("kind") == "condition"
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
        # A catching timer event delays the case; one on a boundary interrupts instead.
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
                self.file.notes.append(f"{place(loop)}the sequential instances of {node.id!r} are treated as parallel")
        values = bpmn.annotated_values(part, "handling")
        noted = values or bpmn.find_annotation(part, "node") is not None
        if not noted and node.id in self.file.lanes and part.name != "subProcess":
            values = {"pool": self.file.lanes[node.id][1]}
        # Somebody moved it from one of our lanes to another.
        if "pool" in values and node.id in self.file.our_lanes:
            values["pool"] = self.file.our_lanes[node.id]
        try:
            return replace(node, calls=calls, handling=handling_of(values), copies=bpmn.copies_of(part))
        except (ConfigError, KeyError, ValueError) as error:
            said = error.message if isinstance(error, ConfigError) else f"{error} is not a number"
            raise refuse(part, f"{node.id!r}: {said}") from error

    def _self(self, node: Node, part: Element) -> tuple[Element, ...]:
        """The element without what the node already says; nothing if that is everything."""
        inner = bpmn.NODES if part.name in ("subProcess", "transaction") else ()
        skipped = (*_NOT_CARRIED, *inner, *((*bpmn.AMONG, *bpmn.ARTIFACTS, "sequenceFlow", "laneSet") if inner else ()))
        bare = bpmn.without_annotations(part)
        children = tuple(e for e in bare.children if e.name not in skipped and e.tag != COMMENT)
        if node.documentation and children and children[0].name == "documentation":
            children = children[1:]
        attributes = tuple(p for p in part.attributes if p[0] not in ("id", "name", "default", "attachedToRef"))
        if node.calls and part.name == "callActivity":
            attributes = tuple(pair for pair in attributes if pair[0] != "calledElement")
        # What the writer would write anyway is not kept, so that a document does not grow by being saved.
        early = bpmn.EARLY.get(role_of(node))
        usual = [*bpmn.written_copies(replace(node, extras=())), *(early.children if early is not None else ())]
        children = tuple(e for e in children if e not in usual)
        usual_names = (*_plain_names(node), bpmn.annotated_values(part, "node").get("typed"))
        plain = not attributes and not children and part.name in usual_names
        return () if plain else (Element(part.tag, attributes, "", tuple(map(bpmn.normal, children))),)

    def _flow(self, part: Element) -> None:
        ends = [part.get(side).rpartition(":")[2] for side in ("sourceRef", "targetRef")]
        for end in ends:
            if end not in self.sketch.nodes:
                raise refuse(part, f"the flow {part.get('id')!r} names {end!r}, which is not in its process")
        condition = part.find("conditionExpression")
        values = bpmn.annotated_values(part, "flow")
        try:
            share = float(values["probability"]) if "probability" in values else None
        except ValueError:
            raise refuse(part, f"the probability of {part.get('id')!r} is not a number") from None
        # BPMN names the default flow on its source, a graph on the flow itself.
        default = self.file.defaults.get(ends[0]) == part.get("id")
        text = "" if condition is None else condition.text.strip()
        said = "" if part.get("name") == values.get("named") else part.get("name")
        flow = Flow(ends[0], ends[1], share, text, default, said)
        if values.get("exit") == "true":
            flow = replace(flow, extras=(mark("exit"),))
        if ANSWER in values:
            own = Element(f"{{{bpmn.OWN}}}{ANSWER}", (("of", values[ANSWER]),))
            flow = replace(flow, extras=(*flow.extras, own))
        bare = bpmn.without_annotations(part)
        children = tuple(e for e in bare.parts if e.name != "conditionExpression")
        spelled = () if condition is None or not text else tuple(p for p in condition.attributes if p[0] != bpmn.TYPE)
        carried = [bpmn.el("conditionExpression", **dict(spelled))] if spelled else []
        kept = tuple(p for p in part.attributes if p[0] not in ("sourceRef", "targetRef", "name"))
        kept = tuple(p for p in kept if p != ("id", bpmn.flow_id(ends[0], ends[1])))
        if kept or children or carried:
            own = Element(part.tag, kept, "", tuple(map(bpmn.normal, (*children, *carried))))
            flow = replace(flow, extras=(*flow.extras, own))
        flow = replace(flow, extras=(*flow.extras, *self.file.drawing(part)))
        self.sketch.flows.append(flow)

    def graph(self, title: str) -> Graph:
        sketch, names = self.sketch, self.file.names
        for name in sketch.nodes:
            names.setdefault(name, name)
        renamed = {flow.id: f"{names[flow.source]}→{names[flow.target]}" for flow in sketch.flows}
        nodes = tuple(
            replace(n, id=names[n.id], cancels=tuple(renamed.get(c) or names[c] for c in n.cancels))
            for n in sketch.nodes.values()
        )
        flows = tuple(replace(f, source=names[f.source], target=names[f.target]) for f in sketch.flows)
        attributes = tuple(p for p in self.element.attributes if p[0] not in ("id", "isExecutable"))
        own = bpmn.without_annotations(self.element)
        kept = tuple(map(bpmn.normal, own.all("extensionElements")))
        extras = sorted(self.extras, key=lambda e: ORDER.index(e.name))
        whole = self.element.name == "process"
        if whole and (attributes or kept):
            extras.append(Element(f"{{{bpmn.BPMN}}}process", attributes, "", kept))
        says = bpmn.annotated_values(self.element, "graph").get("says", "")
        documentation = self.element.says("documentation") if whole else says
        with located(self.element):
            return Graph(title, nodes, flows, documentation, tuple(extras))


def _plain_names(node: Node) -> tuple[str, ...]:
    if role_of(node) in bpmn.EARLY:
        return (bpmn.EARLY[role_of(node)].name,)
    if node.calls:
        return ("callActivity",)
    if node.kind in ("start", "end"):
        return (f"{node.kind}Event",)
    if node.kind == "condition":
        return ("exclusiveGateway",)
    return ("exclusiveGateway", "parallelGateway", "inclusiveGateway") if node.silent else ("task",)


def _is_ours(lanes: Element) -> bool:
    return lanes.get("id").startswith(bpmn.LANES)


def _bare_lanes(lanes: Element) -> Element:
    children = tuple(_bare_lanes(e) for e in lanes.children if e.name != "flowNodeRef")
    return replace(lanes, children=children)


def _members(lanes: Element) -> Iterator[tuple[str, tuple[str, str]]]:
    """Every element in a set of lanes, with the id and the name of its lane."""
    for lane in lanes.walk():
        if lane.name == "lane":
            for member in lane.all("flowNodeRef"):
                yield member.text.strip(), (lane.get("id"), lane.get("name") or lane.get("id"))


def read(content: bytes) -> Document:
    root = parse(content)
    if root.name != "definitions" or root.namespace != bpmn.BPMN:
        raise refuse(root, f"the root element is <{root.name}>, but a BPMN 2.0 file has <definitions>")
    return _File(root, {} if is_our_layout(root) else drawings(root)).document()


def _only_pools(collaboration: Element, drawn: Mapping[str, Element]) -> bool:
    """Whether it is ours, and still says only that the processes are pools."""
    pools = all(part.name == "participant" and part.get("processRef") in drawn for part in collaboration.parts)
    return pools and collaboration.get("id").startswith(bpmn.COLLABORATION)


class _File:
    """A file while it is read.

    `names` maps ids in the file to ids in the graph, `titles` process ids to graph names, `defaults` element ids to
    their default flow, `flows` process ids to flows, `lanes` element ids to the id and the name of their lane, and
    `our_lanes` those in lanes that we made to their names.
    """

    def __init__(self, root: Element, drawn: Mapping[str, Element]) -> None:
        self.root, self.drawn = root, dict(drawn)
        self.notes: list[str] = []
        self.names: dict[str, str] = {}
        self.graphs: dict[str, Graph] = {}
        self.processes = {one.get("id"): one for one in root.all("process")}
        everything = [e for e in root.walk() if e.namespace == bpmn.BPMN]
        self.defaults = {e.get("id"): e.get("default") for e in everything if e.get("default")}
        self.flows = self._flows()
        sets = [e for e in everything if e.name == "laneSet"]
        self.lanes = dict(member for lanes in sets if not _is_ours(lanes) for member in _members(lanes))
        self.our_lanes = {name: lane[1] for lanes in sets if _is_ours(lanes) for name, lane in _members(lanes)}
        self._refuse_double_ids()

    def _flows(self) -> dict[str, list[Element]]:
        """The flows by process; some tools write them outside the process of the nodes they connect."""
        holders = [e for e in self.root.walk() if e.namespace == bpmn.BPMN and e.name in ("process", *bpmn.CALLS)]
        holder = {part.get("id"): one.get("id") for one in holders for part in one.parts if part.name in bpmn.NODES}
        found: dict[str, list[Element]] = {one.get("id"): [] for one in holders}
        for one in holders:
            for flow in one.all("sequenceFlow"):
                ends = {holder.get(flow.get(side).rpartition(":")[2]) for side in ("sourceRef", "targetRef")}
                # A flow belongs to the process of its ends; if they differ, to where it is written.
                (home,) = ends if len(ends) == 1 else (None,)
                found[home or one.get("id")].append(flow)
        return found

    def _refuse_double_ids(self) -> None:
        seen = set()
        for element in self.root.walk():
            # Elements of other tools, and our own annotations, may name ids.
            name = element.get("id") if element.namespace in (bpmn.BPMN, bpmn.BPMNDI) else ""
            if name and name in seen:
                raise refuse(element, f"the id {name!r} is used twice")
            seen.add(name)

    def document(self) -> Document:
        drawn = {name: one for name, one in self.processes.items() if any(p.name in bpmn.NODES for p in one.parts)}
        if not drawn:
            raise refuse(self.root, "there is no process with any content")
        # A case starts in the first executable process, or else in the first one.
        runs = [name for name, one in drawn.items() if one.get("isExecutable") == "true"]
        root = (runs or list(drawn))[0]
        # The name of a graph is the id of its process, unless an annotation gives another.
        self.titles = {id_: bpmn.annotated_values(one, "graph").get("name", id_) for id_, one in drawn.items()}
        for name in [root, *(other for other in drawn if other != root)]:
            self._process(drawn[name])
        first = self.titles[root]
        graphs = (self.graphs[first], *(graph for name, graph in self.graphs.items() if name != first))
        known, values = bpmn.find_annotation(drawn[root], "document"), dict[str, object]()
        if known is not None:
            with located(known):
                values = from_text(known.text)
        requirements, servers = document_parts(values)
        name = str(values.get("name") or self.root.get("name") or first)
        extras = (*self._extras(drawn), *rest_of_diagrams(self.root, self.drawn))
        return Document(name, graphs, requirements, servers, tuple(self.notes), extras)

    def drawing(self, part: Element) -> tuple[Element, ...]:
        """The shape or edge of an element, taken out of `drawn` so that the rest is what only diagrams have."""
        found = self.drawn.pop(part.get("id"), None)
        return () if found is None else (bpmn.normal(found.with_attributes(bpmnElement=None)),)

    def _extras(self, drawn: dict[str, Element]) -> tuple[Element, ...]:
        kept = []
        for part in self.root.parts:
            pools = part.name == "collaboration" and _only_pools(part, drawn)
            if part.namespace == bpmn.BPMN and not pools and not (part.name == "process" and part.get("id") in drawn):
                kept.append(bpmn.normal(part))
        usual = (("exporter", "Groupwise"), ("targetNamespace", bpmn.OWN))
        ours = ("id", "name", f"{{{bpmn.XSI}}}schemaLocation")
        attributes = tuple(p for p in self.root.attributes if p not in usual and p[0] not in ours)
        prefixes = tuple(pair for pair in self.root.prefixes if pair[0] and pair not in bpmn.PREFIXES)
        if attributes or prefixes:
            kept.append(Element(f"{{{bpmn.BPMN}}}definitions", attributes, prefixes=prefixes))
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
        title = bpmn.annotated_values(element, "graph").get("name", element.get("id"))
        self.titles[element.get("id")] = title
        self._process(element)
        return title
