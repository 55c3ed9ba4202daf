"""A node as a BPMN element: its tag, attributes and annotations; and the lanes of a process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from groupwise.workflows.files.annotations import handling_values
from groupwise.workflows.files.bpmn import vocabulary as bpmn
from groupwise.workflows.files.bpmn.wiring import Wiring
from groupwise.workflows.files.xml_tree import free_name
from groupwise.workflows.graph import ONCE, Graph, Node
from groupwise.xml_reader import Element, first


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
