"""The elements of nodes: which kind of task, event or gateway each becomes, its name, and what is noted on it."""

from collections.abc import Mapping
from dataclasses import replace

import groupwise.workflows.files.bpmn.vocabulary as bpmn
from groupwise.workflows.document import Document
from groupwise.workflows.endings import MARK, mark_of
from groupwise.workflows.files.annotations import handling_values
from groupwise.workflows.files.bpmn.wiring import Wiring
from groupwise.workflows.graph import ONCE, Graph, Node
from groupwise.workflows.pictures.scene import pool_of
from groupwise.workflows.titles import titled
from groupwise.xml_reader import Element, first


def named_graph(document: Document, graph: Graph) -> Graph:
    """The graph with a name for everything that BPMN editors want named, unless somebody else drew it."""
    if any(first(node.extras, "BPMNShape", bpmn.BPMNDI) is not None for node in graph.nodes):
        return graph
    ends = {"start": f"{graph.name} started", "end": f"{graph.name} completed"}
    found = titled(graph, document.requirements)

    def name(node: Node) -> str:
        if node.name or node.kind == "condition":
            return node.name
        if node.kind != "task":
            return ends[node.kind]
        if node.cancels and bpmn.source_element(node) is None:
            return "cancelled"
        return "" if node.silent else node.label

    return replace(found, nodes=tuple(replace(node, name=name(node)) for node in found.nodes))


def element_of(
    wiring: Wiring, node: Node, document: Document, given: Node, processes: Mapping[str, str], embedded: set[str]
) -> Element:
    """The element of a node, `given` before we named it.

    `processes` has the ids of the graphs it may call, unless they are `embedded`.
    """
    carried = bpmn.source_element(node)
    tag = _tag(wiring, node, document, carried, embedded)
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
    inner = next((graph for graph in document.graphs if graph.name == node.calls), None)
    children += _noted(wiring, node, given, tag, carried, inner if tag == "subProcess" else None)
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
        attributes = {"id": name, **({"default": default} if default else {})}
        attributes |= {"name": wiring.questions[name]} if wiring.questions.get(name) else {}
        found.append(bpmn.el(bpmn.GATEWAY_OF[rule], noted, **attributes))
    return found


def _tag(wiring: Wiring, node: Node, document: Document, carried: Element | None, embedded: set[str]) -> str:
    if node.id in wiring.bodies:
        return "boundaryEvent"
    if node.calls and node.calls not in embedded:
        return "callActivity"
    if node.calls and carried is None:
        return "subProcess"
    if wiring.is_gateway(node):
        rule = wiring.gate_rule(node)
        # A gateway with one flow in and one out keeps whatever kind it had.
        passing = wiring.into[node.id] < 2 and wiring.out[node.id] < 2
        if carried is not None and carried.name in bpmn.GATEWAYS and (passing or bpmn.GATEWAYS[carried.name] == rule):
            return carried.name
        return bpmn.GATEWAY_OF[rule]
    if carried is not None:
        return carried.name
    return f"{node.kind}Event" if node.kind in ("start", "end") else _task_type(document, node)


def _task_type(document: Document, node: Node) -> str:
    """The kind of task: what the requirements say it is, or else people or machines, whoever performs it."""
    asked = document.requirements.activities.get(node.label) if document.requirements is not None else None
    pool = document.requirements.pools.get(pool_of(document, node)) if document.requirements is not None else None
    by = {"person": "userTask", "machine": "serviceTask"}.get(pool.kind if pool is not None else "", "task")
    kind = asked.kind if asked is not None else None
    if kind == "decision":
        # Not a business rule task: engines want a decision table for that.
        return "serviceTask" if by == "serviceTask" else "userTask"
    told = {"human": "userTask", "service": "serviceTask", "send": "sendTask", "receive": "receiveTask"}
    return told.get(kind or "", by)


def _noted(
    wiring: Wiring, node: Node, given: Node, tag: str, carried: Element | None, inner: Graph | None
) -> list[Element]:
    """Annotations for what BPMN has no place for, after those of other tools; names and types that we chose, too.

    `inner` is the graph that is embedded in the node.
    """
    old = carried.find("extensionElements") if carried is not None else None
    notes = list(old.children) if old is not None else []
    values: dict[str, str] = {} if wiring.ids[node.id] == node.id else {"node": node.id}
    if node.kind == "condition" and tag != "eventBasedGateway":
        values["kind"] = "condition"
    if node.kind == "task" and not wiring.is_boundary(node.id):
        values |= wiring.unusual_rules(node)
    if node.name != given.name:
        values["named"] = node.name
    if carried is None and tag in (*bpmn.TASKS[1:], "subProcess"):
        values["typed"] = tag
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
    if inner is not None and (inner.name != wiring.ids[node.id] or inner.documentation):
        says = {"says": inner.documentation} if inner.documentation else {}
        notes.append(bpmn.annotation("graph", {"name": inner.name, **says}))
    ending = mark_of(node)
    notes += [] if ending is None else [bpmn.annotation(MARK, dict(ending.attributes))]
    return [bpmn.el("extensionElements", *notes)] if notes else []
