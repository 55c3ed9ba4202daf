"""Reads one net of a YAWL specification: its elements become nodes and flows, and the rest extras."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from groupwise.errors import ConfigError
from groupwise.workflows.blocks import PLAIN, Handling
from groupwise.workflows.elements import COMMENT, Element
from groupwise.workflows.files.formats import BadFile
from groupwise.workflows.files.knowledge import checked, from_text, handling_of
from groupwise.workflows.files.xml_tree import place
from groupwise.workflows.files.yawl_words import (
    KNOWLEDGE,
    NET_EXTRAS,
    SEVERAL,
    TASK_EXTRAS,
    TYPE,
    Route,
    el,
    instance_input,
    item_parameter,
    items_variable,
    numbers_of,
    pool_of,
    routes,
    timeout_of,
    written_numbers,
    written_resourcing,
    written_timer,
)
from groupwise.workflows.graph import ONCE, Flow, Graph, Kind, Node, Rule

KINDS: dict[str, Kind] = {"inputCondition": "start", "outputCondition": "end", "condition": "condition", "task": "task"}
_RULES: dict[str, Rule] = {"and": "and", "xor": "xor", "or": "or"}


def refuse(element: Element, message: str) -> BadFile:
    return BadFile(f"{place(element)}{message}")


def left_out(element: Element, known: tuple[str, ...], owner: str) -> list[str]:
    """What to note of the children that are not `known`."""
    notes = []
    for part in element.children:
        if part.tag == COMMENT:
            notes.append(f"{place(part)}a comment in {owner} is left out")
        elif part.name not in known:
            notes.append(f"{place(part)}<{part.name}> in {owner} is left out: YAWL 4.0 has no such element")
    return notes


class Net:
    """One net while it is read. `names` has the id in the model for every id in the file."""

    def __init__(self, own: Element, nets: Collection[str], notes: list[str]) -> None:
        self.own, self.nets, self.notes, self.id = own, nets, notes, own.get("id")
        control = own.find("processControlElements")
        if control is None:
            raise refuse(own, f"the net {self.id!r} has no processControlElements")
        self.control = control
        self.elements: dict[str, Element] = {}
        for part in control.parts:
            self._add(part)
        for kind in ("inputCondition", "outputCondition"):
            if len(control.all(kind)) != 1:
                raise refuse(control, f"the net {self.id!r} has {len(control.all(kind))} {kind}s, and needs one")
        self.known = self._knowledge()
        ids = self.known.get("ids", {})
        self.names = {name: str(ids.get(name, name)) for name in self.elements}
        self.flows: set[str] = set()

    def _add(self, part: Element) -> None:
        if part.name not in KINDS:
            raise refuse(part, f"<{part.name}> is no element of a net")
        name = part.get("id")
        if not name:
            raise refuse(part, f"a {part.name} of the net {self.id!r} has no id")
        if name in self.elements:
            raise refuse(part, f"the id {name!r} is used twice in the net {self.id!r}")
        self.elements[name] = part

    def _knowledge(self) -> dict[str, Any]:
        """What Groupwise noted in a variable of its own."""
        for variable in self.own.all("localVariable"):
            if variable.get(KNOWLEDGE):
                try:
                    return checked(from_text(variable.says("initialValue")))
                except ConfigError as error:
                    raise refuse(variable, error.message) from error
        return {}

    def decompositions(self) -> list[tuple[str, Element, bool]]:
        """Every task that names a decomposition, the element that does, and whether it has several instances."""
        found = [(name, part, part.find("decomposesTo")) for name, part in self.elements.items()]
        return [(name, named, _several(part)) for name, part, named in found if named is not None]

    def called_for_each(self) -> set[str]:
        """The decompositions that tasks of this net carry out once for every item."""
        tasks = [part for part in self.control.parts if part.find("miDataInput") == instance_input(self.id)]
        return {named.get("id") for part in tasks if (named := part.find("decomposesTo")) is not None}

    def graph(self, spare: set[str], each: set[str]) -> Graph:
        """The graph of the net; `spare` gateways are not kept, and nets of `each` are carried out for every item."""
        usual: list[Element] = [item_parameter()] if self.id in each else []
        flows: list[Flow] = []
        for name, part in self.elements.items():
            ways, variable = self._flows(name, part)
            flows += ways
            usual += [] if variable is None else [variable]
        self.flows = {flow.id for flow in flows}
        nodes = tuple(self._node(name, part, spare) for name, part in self.elements.items())
        if any(_several(part) and part.find("miDataInput") == instance_input(self.id) for part in self.control.parts):
            usual.append(items_variable())
        extras = [e for name in NET_EXTRAS for e in self.own.all(name) if e not in usual and not e.get(KNOWLEDGE)]
        known = (*NET_EXTRAS, "documentation", "processControlElements")
        self.notes += left_out(self.own, known, f"net {self.id!r}")
        self.notes += left_out(self.control, tuple(KINDS), f"net {self.id!r}")
        name = str(self.known.get("name", self.id))
        return Graph(name, nodes, tuple(flows), _text(self.own, "documentation"), tuple(extras))

    def _node(self, name: str, part: Element, spare: set[str]) -> Node:
        known: tuple[str, ...] = ("name", "documentation", "flowsInto")
        node = Node(self.names[name], _text(part, "name"), KINDS[part.name])
        node = replace(node, documentation=_text(part, "documentation"))
        if part.name == "task":
            known = (*known, "join", "split", "removesTokens", "removesTokensFromFlow", *TASK_EXTRAS)
            node = self._task(node, part, spare)
        elif (handling := self._handling(name, part)) != PLAIN:
            node = replace(node, handling=handling)
        self.notes += left_out(part, known, f"{part.name} {name!r}")
        return node

    def _task(self, node: Node, part: Element, spare: set[str]) -> Node:
        named = part.find("decomposesTo")
        calls = named.get("id") if named is not None and named.get("id") in self.nets else ""
        node = replace(
            node,
            join=self._rule(part, "join"),
            split=self._rule(part, "split"),
            silent=named is None,
            cancels=self._cancels(part),
            handling=self._handling(part.get("id"), part),
            copies=numbers_of(part) if _several(part) else ONCE,
            calls=calls,
        )
        usual = self._usual(node, part)
        if named is not None and (calls or named.get("id") in spare):
            usual.append(named)
        return replace(node, extras=tuple(e for kind in TASK_EXTRAS for e in part.all(kind) if e not in usual))

    def _usual(self, node: Node, part: Element) -> list[Element]:
        """What of the task would be written anyway."""
        found = [e for e in (written_timer(node), written_resourcing(node)) if e is not None]
        if node.copies != ONCE:
            numbers = written_numbers(node)
            found += numbers if all(e in part.children for e in numbers) else []
            found += [el("creationMode", code="static"), instance_input(self.id)]
        return found

    def _handling(self, name: str, part: Element) -> Handling:
        values = dict(self.known.get("handling", {}).get(name, {}))
        values |= {"pool": pool_of(part.find("resourcing")), "timeout": timeout_of(part.find("timer"))}
        try:
            return handling_of({key: value for key, value in values.items() if value is not None})
        except ConfigError as error:
            raise refuse(part, f"task {name!r}: {error.message}") from error

    def _rule(self, part: Element, side: str) -> Rule:
        found = part.find(side)
        code = "" if found is None else found.get("code").lower()
        if code not in _RULES:
            raise refuse(part, f"the {side} of task {part.get('id')!r} is {code or 'missing'}, not and, or or xor")
        return _RULES[code]

    def _exists(self, element: Element | None, part: Element, what: str) -> str:
        name = "" if element is None else element.get("id")
        if name not in self.elements:
            at = part if element is None else element
            raise refuse(at, f"{part.get('id')!r} {what} {name!r}, which does not exist in the net {self.id!r}")
        return name

    def _cancels(self, part: Element) -> tuple[str, ...]:
        found = [self.names[self._exists(one, part, "removes tokens from")] for one in part.all("removesTokens")]
        for one in part.all("removesTokensFromFlow"):
            sides = ("flowSource", "flowDestination")
            ends = [self._exists(one.find(side), part, "clears the flow at") for side in sides]
            flow = f"{self.names[ends[0]]}→{self.names[ends[1]]}"
            if flow not in self.flows:
                raise refuse(one, f"{part.get('id')!r} clears the flow {flow!r}, which does not exist")
            found.append(flow)
        return tuple(found)

    def _flows(self, name: str, part: Element) -> tuple[list[Flow], Element | None]:
        """The flows out of an element, and the variable that decides between them where it is ours."""
        ways = part.all("flowsInto")
        if ways and part.name == "outputCondition":
            raise refuse(ways[0], f"the output condition {name!r} flows on, and must not")
        targets = [self._exists(way.find("nextElementRef"), part, "flows into") for way in ways]
        rule = self._rule(part, "split") if part.name == "task" else "and"
        variable, usual = routes(self.id, name, rule, targets)
        ours = variable in self.own.children and usual == [_route(way) for way in ways]
        shares = self.known.get("probabilities", {})
        flows = []
        for way, target in zip(ways, targets, strict=True):
            share = shares.get(f"{name}→{target}")
            flow = Flow(self.names[name], self.names[target], None if share is None else float(share))
            flows.append(flow if ours else _with_route(flow, way))
            documentation = way.find("documentation")
            if documentation is not None:
                flows[-1] = replace(flows[-1], extras=(*flows[-1].extras, documentation))
        return flows, variable if ours else None


def _several(part: Element) -> bool:
    return part.get(TYPE).rpartition(":")[2] == SEVERAL


def _text(element: Element, name: str) -> str:
    found = element.find(name)
    return "" if found is None else found.text


def _route(way: Element) -> Route:
    predicate = way.find("predicate")
    default = way.find("isDefaultFlow") is not None
    return Route(default=default) if predicate is None else Route(predicate.text, predicate.get("ordering"), default)


def _with_route(flow: Flow, way: Element) -> Flow:
    route = _route(way)
    ordering = (el("predicate", ordering=route.ordering),) if route.ordering else ()
    return replace(flow, condition=route.predicate, default=route.default, extras=ordering)
