"""One node as an element of BPMN: its tag, its attributes, and what others and we noted in it."""

from __future__ import annotations

from collections.abc import Mapping

from groupwise.workflows.elements import Element, first
from groupwise.workflows.files.bpmn_wiring import Wiring
from groupwise.workflows.files.bpmn_words import (
    BPMN,
    GATEWAY_OF,
    GATEWAYS,
    OWN,
    el,
    formal,
    in_place,
    own,
    own_self,
    variable_name,
    written_copies,
)
from groupwise.workflows.files.knowledge import handling_values
from groupwise.workflows.graph import ONCE, Node


def element_of(wiring: Wiring, node: Node, processes: Mapping[str, str], embedded: set[str]) -> Element:
    """The element of a node; `processes` are the ids of what it may call, unless it is `embedded`."""
    carried = own_self(node)
    tag = _tag(wiring, node, carried, embedded)
    attributes = {"id": wiring.ids[node.id], **({"name": node.name} if node.name else {})}
    if tag == "boundaryEvent":
        attributes["attachedToRef"] = wiring.owner(node)
    if tag == "callActivity" and node.calls:
        attributes["calledElement"] = processes[node.calls]
    default = wiring.default_flow(node.id)
    if default and wiring.exit[node.id] == wiring.ids[node.id] and not tag.startswith(("parallel", "eventBased")):
        attributes["default"] = default
    attributes |= dict(carried.attributes if carried is not None else ())
    children = [el("documentation", text=node.documentation)] if node.documentation else []
    children += _noted(wiring, node, tag, carried)
    children += [e for e in (carried.children if carried is not None else ()) if e.name not in _WRITTEN_ANEW]
    if node.id in wiring.bodies:
        condition = formal("condition", variable_name(f"{wiring.subs[node.id]}_broken_off"))
        children.append(el("conditionalEventDefinition", condition))
    children += written_copies(node)
    children.sort(key=lambda e: in_place(e, tag))
    return Element(f"{{{BPMN}}}{tag}", tuple(attributes.items()), "", tuple(children))


_WRITTEN_ANEW = ("extensionElements", "multiInstanceLoopCharacteristics")


def gates_of(wiring: Wiring, node: Node) -> list[Element]:
    """The gateways that join and split for a node."""
    found = []
    for name, side, rule in wiring.gates[node.id]:
        noted = el("extensionElements", own("part", {"of": wiring.ids[node.id], "side": side}))
        default = wiring.default_flow(node.id) if side == "split" and rule != "and" else ""
        found.append(el(GATEWAY_OF[rule], noted, id=name, **({"default": default} if default else {})))
    return found


def _tag(wiring: Wiring, node: Node, carried: Element | None, embedded: set[str]) -> str:
    if node.id in wiring.bodies:
        return "boundaryEvent"
    if node.calls and node.calls not in embedded:
        return "callActivity"
    if wiring.is_gateway(node):
        rule = wiring.gate_rule(node)
        passing = wiring.into[node.id] < 2 and wiring.out[node.id] < 2
        if carried is not None and carried.name in GATEWAYS and (passing or GATEWAYS[carried.name] == rule):
            return carried.name
        return GATEWAY_OF[rule]
    if carried is not None:
        return carried.name
    return f"{node.kind}Event" if node.kind in ("start", "end") else "task"


def _noted(wiring: Wiring, node: Node, tag: str, carried: Element | None) -> list[Element]:
    """What BPMN has no word for, beside what others noted."""
    old = carried.find("extensionElements") if carried is not None else None
    notes = list(old.children) if old is not None else []
    values: dict[str, str] = {} if wiring.ids[node.id] == node.id else {"id": node.id}
    if node.kind == "condition" and tag != "eventBasedGateway":
        values["kind"] = "condition"
    if node.kind == "task" and not wiring.is_boundary(node.id):
        values |= wiring.unusual_rules(node)
    in_a_lane = first(node.extras, "lane", OWN) is not None
    if values or (node.kind == "task" and node.handling.pool is None and in_a_lane):
        notes.append(own("node", values))
    handling = handling_values(node.handling)
    if handling and not (node.silent and set(handling) == {"delay"}):
        notes.append(own("handling", handling))
    if node.copies != ONCE and not (carried is not None and written_copies(node)):
        copies = node.copies
        notes.append(own("copies", {"least": copies.least, "most": copies.most, "enough": copies.enough}))
    return [el("extensionElements", *notes)] if notes else []
