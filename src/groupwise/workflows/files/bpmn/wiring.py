"""How a graph is wired in BPMN: which flows exist there, and which joins and splits need gateways of their own.

A body that a guard may cancel is a sub-process with a boundary event in BPMN. A graph has a guard beside the body, as
`document` draws it:

    split → first … last → done ┐
          └→ guard ─────────────┴→ complete
                └→ abort (cancels first … last and done) → handler
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import groupwise.workflows.files.bpmn.vocabulary as bpmn
from groupwise.workflows.endings import asked_for, role_of
from groupwise.workflows.files.formats import CannotExpress
from groupwise.workflows.files.xml_tree import free_name
from groupwise.workflows.graph import Flow, Graph, Node, Rule
from groupwise.workflows.titles import asked_by
from groupwise.xml_reader import first


@dataclass(frozen=True, slots=True)
class GuardedBody:
    """The nodes of one such pattern; `inside` are the nodes of the body."""

    split: str
    guard: str
    done: str
    complete: str
    abort: str
    first: str
    last: str
    inside: frozenset[str]
    chance: float | None

    @property
    def hidden(self) -> frozenset[str]:
        """The nodes that the sub-process replaces."""
        return self.inside | {self.guard, self.done}

    @property
    def whole(self) -> frozenset[str]:
        return self.hidden | {self.split, self.complete, self.abort}


def guarded_bodies(graph: Graph) -> dict[str, GuardedBody]:
    maybe = [_guarded(graph, node) for node in graph.nodes if node.cancels]
    found = [body for body in maybe if body is not None]
    # Bodies that overlap partly cannot both be sub-processes; neither is then.
    crossing = set()
    for one, other in combinations(found, 2):
        if one.hidden & other.hidden and not (one.whole <= other.inside or other.whole <= one.inside):
            crossing |= {one.abort, other.abort}
    return {body.abort: body for body in found if body.abort not in crossing}


def _guarded(graph: Graph, abort: Node) -> GuardedBody | None:
    into = graph.into(abort.id)
    if len(into) != 1 or not abort.silent or graph.by_id[into[0].source].kind != "condition":
        return None
    guard = into[0].source
    before, after = graph.into(guard), graph.out_of(guard)
    if len(before) != 1 or len(after) != 2:
        return None
    split, complete = before[0].source, next((f.target for f in after if f.target != abort.id), "")
    done = next((f.source for f in graph.into(complete) if f.source != guard), "") if complete else ""
    first = next((f.target for f in graph.out_of(split) if f.target != guard), "")
    last = [f.source for f in graph.into(done)] if done else []
    if not first or len(last) != 1 or not _is_gate(graph, split, "split") or not _is_gate(graph, complete, "join"):
        return None
    # `cancels` names nodes and flows; only the nodes are the body.
    inside = frozenset(name for name in abort.cancels if name in graph.by_id) - {done}
    body = GuardedBody(split, guard, done, complete, abort.id, first, last[0], inside, into[0].probability)
    return body if _is_sealed(graph, body, abort) else None


def _is_gate(graph: Graph, name: str, side: str) -> bool:
    node = graph.by_id[name]
    flows = graph.out_of(name) if side == "split" else graph.into(name)
    rule = node.split if side == "split" else node.join
    return node.kind == "task" and node.silent and rule == "and" and len(flows) == 2


def _is_sealed(graph: Graph, body: GuardedBody, abort: Node) -> bool:
    """Whether the body has one way in and one way out, and is cancelled completely."""
    if body.first not in body.inside or body.last not in body.inside:
        return False
    inner = set()
    for name in body.inside:
        node = graph.by_id[name]
        if node.kind in ("start", "end"):
            return False
        for flow in graph.into(name):
            if flow.source not in body.inside and (flow.source, name) != (body.split, body.first):
                return False
            inner.add(flow.id)
        for flow in graph.out_of(name):
            if flow.target not in body.inside and (name, flow.target) != (body.last, body.done):
                return False
            inner.add(flow.id)
    return set(abort.cancels) == body.inside | {body.done} | inner


class Wiring:
    """The wiring of one graph.

    `ids` maps nodes to their ids in the file. Flows enter a node at `entry` and leave it at `exit`: the node itself, or
    the gateway that joins or splits for it. `gates` are those gateways, with their side and rule, `questions` the names
    of those that choose. `added` are nodes that the reader added and that are not written.
    """

    def __init__(self, graph: Graph, ids: dict[str, str], taken: set[str]) -> None:
        self.graph, self.ids, self.taken = graph, ids, taken
        self.bodies = guarded_bodies(graph)
        self.subs = {abort: free_name(f"{ids[abort]}_body", taken) for abort in self.bodies}
        self.places = {place for body in self.bodies.values() for place in (body.guard, body.done)}
        self.added = {node.id for node in graph.nodes if first(node.extras, "added", bpmn.OWN) is not None}
        self._refuse_other_cancels()
        # Ways out of a process come first: the last way of a choice is its default, and that goes on.
        self.flows = sorted(filter(self._is_written, graph.flows), key=lambda flow: not role_of(flow))
        self.ways: dict[str, list[Flow]] = {node.id: [] for node in graph.nodes}
        for flow in self.flows:
            self.ways[flow.source].append(flow)
        self.into, self.out = self._counts()
        self.entry, self.exit = dict(ids), dict(ids)
        self.gates: dict[str, list[tuple[str, str, Rule]]] = {node.id: [] for node in graph.nodes}
        for node in graph.nodes:
            if node.id in self.added or node.id in self.places:
                continue
            if self.into[node.id] > 1 and self._needs_join(node):
                self.entry[node.id] = self._gate(node, "join", node.join)
            if self.out[node.id] > 1 and not self.is_gateway(node):
                self.exit[node.id] = self._gate(node, "split", "xor" if node.kind == "start" else node.split)
        self.questions = {
            gate: asked_by(graph, node)
            for node in graph.nodes
            for gate, side, rule in self.gates[node.id]
            if side == "split" and rule != "and"
        }

    def _refuse_other_cancels(self) -> None:
        for node in self.graph.nodes:
            if (
                node.cancels
                and node.id not in self.bodies
                and not bpmn.has_event(bpmn.source_element(node), "terminate")
            ):
                said = f"{self.graph.name}: {node.label!r} cancels others"
                raise CannotExpress(f"{said}, but BPMN can only cancel a complete sub-process")

    def _is_written(self, flow: Flow) -> bool:
        """Whether the flow exists in BPMN: not a link, not to a boundary event, and not to or from an added node."""
        if flow.source in self.added or flow.target in self.added or self.is_boundary(flow.target):
            return False
        if role_of(self.graph.by_id[flow.source]) == "end":
            return False
        ends = [bpmn.source_element(self.graph.by_id[end]) for end in (flow.source, flow.target)]
        linked = all(bpmn.has_event(end, "link") for end in ends)
        return not linked or first(flow.extras, "sequenceFlow", bpmn.BPMN) is not None

    def _counts(self) -> tuple[dict[str, int], dict[str, int]]:
        into = {node.id: 0 for node in self.graph.nodes}
        out = {name: len(ways) for name, ways in self.ways.items()}
        for flow in self.flows:
            into[flow.target] += 1
        for body in self.bodies.values():
            # Body and guard leave the split as two flows, but enter the sub-process as one.
            out[body.split] -= 1
            into[body.complete] -= 1
        return into, out

    def _needs_join(self, node: Node) -> bool:
        if node.kind != "task":
            return False
        if self.is_gateway(node):
            # A gateway with several flows in and out has one rule; a node with two rules needs a second gateway.
            return self.out[node.id] > 1 and not (bpmn.source_element(node) is not None and node.join == node.split)
        return node.join != "xor"

    def _gate(self, node: Node, side: str, rule: Rule) -> str:
        name = free_name(f"{self.ids[node.id]}_{side}", self.taken)
        self.gates[node.id].append((name, side, rule))
        return name

    def is_boundary(self, name: str) -> bool:
        carried = bpmn.source_element(self.graph.by_id[name])
        return name in self.bodies or (carried is not None and carried.name == "boundaryEvent")

    def is_gateway(self, node: Node) -> bool:
        carried = bpmn.source_element(node)
        return node.kind == "condition" or (node.silent and (carried is None or carried.name in bpmn.GATEWAYS))

    def gate_rule(self, node: Node) -> Rule:
        """The rule of the gateway that a silent node becomes."""
        if node.kind == "condition":
            return "xor"
        if self.out[node.id] > 1:
            return node.split
        return node.join if self.into[node.id] > 1 else "xor"

    def routes(self, name: str) -> list[bpmn.BpmnRoute]:
        """The conditions of the flows; if there are none but a choice is made, conditions on a variable."""
        node, ways = self.graph.by_id[name], self.ways[name]
        given = [bpmn.BpmnRoute(flow.condition, flow.default) for flow in ways]
        carried = bpmn.source_element(node)
        waits = carried is not None and carried.name == "eventBasedGateway"
        # Conditions of the file are kept as they are, even if only some flows have one.
        if len(ways) < 2 or waits or any(route != bpmn.BpmnRoute() for route in given):
            return given
        rule: Rule = node.split if node.kind == "task" else "xor"
        targets = [self.entry[flow.target] for flow in ways]
        return bpmn.generated_routes(self.exit[name], rule, targets, asked_for(node, ways))

    def default_flow(self, name: str) -> str:
        ways = self.ways[name]
        found = [flow for flow, route in zip(ways, self.routes(name), strict=True) if route.default]
        return self.flow_id(found[0]) if found and len(ways) > 1 else ""

    def flow_id(self, flow: Flow) -> str:
        carried = first(flow.extras, "sequenceFlow", bpmn.BPMN)
        return (carried.get("id") if carried else "") or bpmn.flow_id(self.exit[flow.source], self.entry[flow.target])

    def owner(self, node: Node) -> str:
        """The id of the activity that a boundary event is attached to."""
        if node.id in self.bodies:
            return self.subs[node.id]
        into = self.graph.into(node.id)
        if not into:
            raise CannotExpress(f"{self.graph.name}: the boundary event {node.label!r} has no owner")
        return self.ids[into[0].source]

    def unusual_rules(self, node: Node) -> dict[str, str]:
        """The join and split of a node, as far as its element would be read differently."""
        join, split = "xor", "and"
        if self.is_gateway(node):
            rule = self.gate_rule(node)
            join = rule if self.into[node.id] > 1 else join
            split = rule if self.out[node.id] > 1 else split
        known = {side for _, side, _ in self.gates[node.id]}
        # Boundary events and guarded bodies imply the split when they are read.
        known |= {"split"} if any(self.is_boundary(flow.target) for flow in self.graph.out_of(node.id)) else set()
        known |= {"split"} if any(body.split == node.id for body in self.bodies.values()) else set()
        known |= {"join"} if any(body.complete == node.id for body in self.bodies.values()) else set()
        usual = {"join": (node.join, join), "split": (node.split, split)}
        return {side: value for side, (value, read) in usual.items() if value != read and side not in known}

    def bodies_among(self, names: Sequence[str]) -> list[GuardedBody]:
        here = set(names)
        found = [body for body in self.bodies.values() if body.abort in here]
        return [body for body in found if not any(body.abort in other.inside for other in found)]
