"""The vocabulary of BPMN 2.0, and the annotations that keep what BPMN has no place for."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from groupwise.workflows.endings import role_of
from groupwise.workflows.graph import ONCE, Node, Rule, TaskCopies
from groupwise.workflows.graph import OWN as OWN
from groupwise.xml_reader import Element, first

BPMN = "http://www.omg.org/spec/BPMN/20100524/MODEL"
BPMNDI = "http://www.omg.org/spec/BPMN/20100524/DI"
DC = "http://www.omg.org/spec/DD/20100524/DC"
DI = "http://www.omg.org/spec/DD/20100524/DI"
XSI = "http://www.w3.org/2001/XMLSchema-instance"
TYPE = f"{{{XSI}}}type"
PREFIXES = (("bpmn", BPMN), ("bpmndi", BPMNDI), ("dc", DC), ("di", DI), ("xsi", XSI), ("groupwise", OWN))
# The ids of the collaboration and lanes that we make for pools; the reader drops them.
LANES, COLLABORATION = "groupwise_lanes", "groupwise_collaboration"

TASKS = ("task", "userTask", "serviceTask", "scriptTask", "manualTask", "businessRuleTask", "sendTask", "receiveTask")
CALLS = ("callActivity", "subProcess", "transaction")
# A complex gateway is closest to an inclusive one; an event-based one takes exactly one branch.
GATEWAYS: dict[str, Rule] = {
    "exclusiveGateway": "xor",
    "parallelGateway": "and",
    "inclusiveGateway": "or",
    "complexGateway": "or",
    "eventBasedGateway": "xor",
}
GATEWAY_OF: dict[Rule, str] = {"xor": "exclusiveGateway", "and": "parallelGateway", "or": "inclusiveGateway"}
EVENTS = ("startEvent", "endEvent", "intermediateThrowEvent", "intermediateCatchEvent", "boundaryEvent")
# The nodes around a guarded body that its sub-process is annotated with.
GUARDED = ("split", "guard", "done", "complete", "abort")
NODES = (*TASKS, *CALLS, *GATEWAYS, *EVENTS)
# What else a process may contain, in the order of the schema: before, among and after its nodes.
BEFORE = ("ioSpecification", "ioBinding", "auditing", "monitoring", "property")
AMONG = ("dataObject", "dataObjectReference", "dataStoreReference")
ARTIFACTS = ("association", "group", "textAnnotation")
ROLES = ("resourceRole", "performer", "humanPerformer", "potentialOwner", "correlationSubscription", "supports")
# The order of an activity's parts in the schema; parts that only some activities have come last.
PARTS = (
    "documentation", "extensionElements", "auditing", "monitoring", "categoryValueRef", "incoming", "outgoing",
    "ioSpecification", "property", "dataInputAssociation", "dataOutputAssociation", *ROLES[:4],
    "multiInstanceLoopCharacteristics",
)  # fmt: skip


def in_place(element: Element, whole: str) -> int:
    """The position of a part in an activity or event; the special parts of events keep their order."""
    known = PARTS[:7] if whole.endswith("Event") else PARTS
    return known.index(element.name) if element.name in known else len(known)


def el(name: str, /, *children: Element, text: str = "", **attributes: str) -> Element:
    return Element(f"{{{BPMN}}}{name}", tuple(attributes.items()), text, children)


def annotation(name: str, values: Mapping[str, Any], text: str = "") -> Element:
    """An element in our namespace; numbers keep every digit, and numpy's are written as plain ones."""
    written = ((key, repr(float(value)) if isinstance(value, float) else str(value)) for key, value in values.items())
    return Element(f"{{{OWN}}}{name}", tuple(written), text)


def annotated_values(element: Element, name: str) -> dict[str, str]:
    """The attributes of the annotation of that name on an element; empty if there is none."""
    found = find_annotation(element, name)
    return {} if found is None else dict(found.attributes)


def find_annotation(element: Element, name: str) -> Element | None:
    extension = element.find("extensionElements")
    return None if extension is None else first(extension.children, name, OWN)


def source_element(node: Node) -> Element | None:
    """The BPMN element that a node was read from, without what the node itself says; for early endings their event."""
    found = next((e for e in node.extras if e.namespace == BPMN and e.name in NODES), None)
    return EARLY.get(role_of(node)) if found is None else found


# What is written for nodes by which cases end early.
EARLY = {"end": el("endEvent"), "event": el("boundaryEvent", el("errorEventDefinition"))}


def has_event(element: Element | None, kind: str) -> bool:
    return element is not None and element.find(f"{kind}EventDefinition") is not None


def copies_of(task: Element) -> TaskCopies:
    """The copies of a multi-instance activity. A number that depends on data counts as one to two."""
    several = task.find("multiInstanceLoopCharacteristics")
    # Our annotation is exact; BPMN itself has only a number or an expression.
    values = annotated_values(task, "copies")
    if values:
        return TaskCopies(int(values["least"]), int(values["most"]), int(values["enough"]))
    if several is None:
        return ONCE
    number = several.says("loopCardinality")
    fixed = number.isascii() and number.isdigit()
    return TaskCopies(int(number), int(number), int(number)) if fixed else TaskCopies(1, 2, 1)


def written_copies(node: Node) -> list[Element]:
    """The element as it was read, if it still means the same number of copies; otherwise a new one."""
    carried = source_element(node)
    if carried is not None and copies_of(carried) == node.copies:
        return [e for e in carried.children if e.name == "multiInstanceLoopCharacteristics"]
    if node.copies == ONCE:
        return []
    number = formal("loopCardinality", str(node.copies.least))
    enough = node.copies.enough
    done = (formal("completionCondition", f"numberOfCompletedInstances >= {enough}"),)
    return [el("multiInstanceLoopCharacteristics", number, *(done if enough < node.copies.least else ()))]


def formal(name: str, text: str) -> Element:
    return Element(f"{{{BPMN}}}{name}", ((TYPE, "bpmn:tFormalExpression"),), text)


def quoted(text: str) -> str:
    """A text that can stand between single quotes."""
    return text.replace("'", "’")


@dataclass(frozen=True, slots=True)
class BpmnRoute:
    condition: str = ""
    default: bool = False


def variable_name(text: str) -> str:
    return re.sub(r"\W", "_", text, flags=re.ASCII)


def generated_routes(
    gateway: str, rule: Rule, targets: Sequence[str], asks: tuple[str, list[tuple[str, ...]]] | None = None
) -> list[BpmnRoute]:
    """Conditions for a gateway without any: its variable names the target to go to; the last flow is the default.

    Gateways that ask for the same outcome have one variable, which names the result.
    """
    if rule == "and" or len(targets) < 2:
        return [BpmnRoute() for _ in targets]
    if asks is not None:
        about = variable_name(asks[0])
        named = [" or ".join(f"{about} == '{quoted(answer)}'" for answer in some) for some in asks[1]]
        return [*(BpmnRoute(question) for question in named[:-1]), BpmnRoute(default=True)]
    name = variable_name(f"{gateway}_goes_to")
    # An xor gateway compares, an or gateway looks into a list; engines evaluate both.
    asked = [f"{name} == '{t}'" if rule == "xor" else f"'{t}' in {name}" for t in targets]
    return [*(BpmnRoute(question) for question in asked[:-1]), BpmnRoute(default=True)]


def connected(nodes: Sequence[Element], flows: Sequence[Element]) -> list[Element]:
    """The nodes of a process with the flows into and out of them."""
    found: dict[str, list[Element]] = {node.get("id"): [] for node in nodes}
    for side, name in (("targetRef", "incoming"), ("sourceRef", "outgoing")):
        for flow in flows:
            if flow.get(side) in found:
                found[flow.get(side)].append(el(name, text=flow.get("id")))
    return [replace(node, children=_inserted(node.children, found[node.get("id")])) for node in nodes]


def _inserted(children: tuple[Element, ...], flows: list[Element]) -> tuple[Element, ...]:
    children = tuple(child for child in children if child.name not in ("incoming", "outgoing"))
    before = PARTS[: PARTS.index("incoming")]
    at = next((place for place, child in enumerate(children) if child.name not in before), len(children))
    return (*children[:at], *flows, *children[at:])


def without_annotations(element: Element) -> Element:
    kept = []
    for child in element.children:
        if child.name == "extensionElements" and child.namespace == BPMN:
            others = tuple(e for e in child.children if e.namespace != OWN)
            if others:
                kept.append(replace(child, children=others))
        else:
            kept.append(child)
    return replace(element, children=tuple(kept))


def flow_id(source: str, target: str) -> str:
    return f"{source}_to_{target}"


def normal(element: Element) -> Element:
    """The element with the prefix that we write in its types; diagrams need no types."""
    kept = [(n, value) for n, value in element.attributes if n != TYPE or element.namespace not in (BPMNDI, DI)]
    attributes = tuple((n, f"bpmn:{value.rpartition(':')[2]}") if n == TYPE else (n, value) for n, value in kept)
    return replace(element, attributes=attributes, children=tuple(normal(child) for child in element.children))
