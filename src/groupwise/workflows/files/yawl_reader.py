"""Reads YAWL specifications of every version: one graph per net, and in `extras` what graphs have no word for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from groupwise.errors import ConfigError
from groupwise.workflows.blocks import PLAIN, Handling
from groupwise.workflows.document import Document
from groupwise.workflows.elements import COMMENT, Element
from groupwise.workflows.files.formats import BadFile
from groupwise.workflows.files.knowledge import document_parts, from_text, handling_of
from groupwise.workflows.files.xml_tree import inherit, parse, place
from groupwise.workflows.files.yawl_layout import attach_layout
from groupwise.workflows.files.yawl_old import upgraded
from groupwise.workflows.files.yawl_words import (
    BETA,
    GATEWAY,
    KNOWLEDGE,
    NET,
    NET_EXTRAS,
    SEVERAL,
    SPECIFICATION_EXTRAS,
    TASK_EXTRAS,
    TYPE,
    XSI,
    YAWL,
    Route,
    el,
    empty_schema,
    gateway,
    gateway_id,
    instance_input,
    items_variable,
    numbers_of,
    plain_meta_data,
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


def read(content: bytes) -> Document:
    """The document in a YAWL file."""
    root, notes = upgraded(parse(content))
    return _Specification(root, notes).document()


def refuse(element: Element, message: str) -> BadFile:
    return BadFile(f"{place(element)}{message}")


class _Specification:
    """One specification while it is read."""

    def __init__(self, root: Element, notes: list[str]) -> None:
        found = root.all("specification")
        if len(found) != 1:
            at = found[1] if found else root
            raise refuse(at, f"a file has one specification, and this has {len(found)}")
        self.root, self.own, self.notes = root, found[0], notes
        self.nets: dict[str, Element] = {}
        self.gateways: dict[str, Element] = {}
        for part in self.own.all("decomposition"):
            self._sort(part)
        outer = {p: uri for e in (root, self.own) for p, uri in e.prefixes if uri not in (YAWL, BETA, XSI)}
        self.prefixes = outer

    def _sort(self, part: Element) -> None:
        name, kind = part.get("id"), part.get(TYPE).rpartition(":")[2]
        if not name:
            raise refuse(part, "a decomposition has no id")
        if name in self.nets or name in self.gateways:
            raise refuse(part, f"the decomposition {name!r} is there twice")
        if kind not in (NET, GATEWAY):
            raise refuse(part, f"the decomposition {name!r} is of type {kind!r}, and {NET} and {GATEWAY} are known")
        (self.nets if kind == NET else self.gateways)[name] = part

    def document(self) -> Document:
        order = self._root_first()
        nets = [_Net(self, self.nets[name]) for name in order]
        spare = self._spare_gateways(nets)
        graphs = [net.graph(spare) for net in nets]
        known = nets[0].known
        requirements, servers = self._known_parts(nets[0])
        names = {net.own.get("id"): str(net.known.get("name", net.own.get("id"))) for net in nets}
        graphs = [_renamed_calls(graph, names) for graph in graphs]
        extras = [*self._extras(), *(part for name, part in self.gateways.items() if name not in spare)]
        self._note_rest(self.own, (*SPECIFICATION_EXTRAS, "decomposition"), "the specification")
        self._note_rest(self.root, ("specification", "layout"), "the file")
        name = str(known.get("document", self.own.get("uri") or self.own.says("name") or "specification"))
        document = Document(name, tuple(graphs), requirements, servers, extras=tuple(extras))
        layout = self.root.find("layout")
        if layout is not None:
            document, more = attach_layout(document, layout, self.own.get("uri"), [net.names for net in nets])
            self.notes += more
        return replace(document, notes=tuple(self.notes))

    def _root_first(self) -> list[str]:
        marked = [name for name, net in self.nets.items() if net.get("isRootNet") in ("true", "1")]
        if not marked and len(self.nets) == 1:
            marked = list(self.nets)
        if len(marked) != 1:
            at = self.nets[marked[1]] if marked else self.own
            raise refuse(at, f"a specification has one root net, and this has {len(marked)}")
        return [*marked, *(name for name in self.nets if name not in marked)]

    def _spare_gateways(self, nets: list[_Net]) -> set[str]:
        """The gateways that would be written anyway, because all they say is that people do the task."""
        users: dict[str, list[tuple[str, bool]]] = {name: [] for name in self.gateways}
        for net in nets:
            for task, named, several in net.decompositions():
                if named.get("id") in users:
                    users[named.get("id")].append((task, several))
                elif named.get("id") not in self.nets:
                    raise refuse(named, f"task {task!r} decomposes to {named.get('id')!r}, which does not exist")
        return {
            name
            for name, found in users.items()
            if found
            and all(gateway_id(task, several) == name for task, several in found)
            and self.gateways[name] == gateway(name, found[0][1])
        }

    def _known_parts(self, net: _Net) -> Any:
        try:
            return document_parts(net.known)
        except ConfigError as error:
            raise refuse(net.own, error.message) from error

    def _extras(self) -> list[Element]:
        usual = {"metaData": plain_meta_data(), "schema": empty_schema()}
        found = [part for name in SPECIFICATION_EXTRAS for part in self.own.all(name)]
        found = [inherit(part, self.prefixes) if part.name == "schema" else part for part in found]
        return [part for part in found if part != usual.get(part.name)]

    def _note_rest(self, element: Element, known: tuple[str, ...], owner: str) -> None:
        for part in element.children:
            if part.tag == COMMENT:
                self.notes.append(f"{place(part)}a comment in {owner} is left out")
            elif part.name not in known:
                self.notes.append(f"{place(part)}<{part.name}> in {owner} is left out: YAWL 4.0 has no such element")

    def note_rest(self, element: Element, known: tuple[str, ...], owner: str) -> None:
        self._note_rest(element, known, owner)


def _renamed_calls(graph: Graph, names: dict[str, str]) -> Graph:
    nodes = tuple(replace(n, calls=names[n.calls]) if n.calls else n for n in graph.nodes)
    return replace(graph, nodes=nodes)


class _Net:
    """One net while it is read. `names` has the id in the model for every id in the file."""

    def __init__(self, specification: _Specification, own: Element) -> None:
        self.specification, self.own, self.id = specification, own, own.get("id")
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
                    return from_text(variable.says("initialValue"))
                except ConfigError as error:
                    raise refuse(variable, error.message) from error
        return {}

    def decompositions(self) -> list[tuple[str, Element, bool]]:
        """Every task that names a decomposition, the element that does, and whether it has several instances."""
        found = [(name, part, part.find("decomposesTo")) for name, part in self.elements.items()]
        return [(name, named, _several(part)) for name, part, named in found if named is not None]

    def graph(self, spare: set[str]) -> Graph:
        usual: list[Element] = []
        flows: list[Flow] = []
        for name, part in self.elements.items():
            ways, variable = self._flows(name, part)
            flows += ways
            usual += [] if variable is None else [variable]
        nodes = tuple(self._node(name, part, spare) for name, part in self.elements.items())
        if any(_several(part) and part.find("miDataInput") == instance_input(self.id) for part in self.control.parts):
            usual.append(items_variable())
        extras = [e for name in NET_EXTRAS for e in self.own.all(name) if e not in usual and not e.get(KNOWLEDGE)]
        self.specification.note_rest(
            self.own, (*NET_EXTRAS, "documentation", "processControlElements"), f"net {self.id!r}"
        )
        self.specification.note_rest(self.control, tuple(KINDS), f"net {self.id!r}")
        name = str(self.known.get("name", self.id))
        return Graph(name, nodes, tuple(flows), _text(self.own, "documentation"), tuple(extras))

    def _node(self, name: str, part: Element, spare: set[str]) -> Node:
        known = ("name", "documentation", "flowsInto")
        node = Node(self.names[name], _text(part, "name"), KINDS[part.name])
        node = replace(node, documentation=_text(part, "documentation"))
        if part.name == "task":
            known = (*known, "join", "split", "removesTokens", "removesTokensFromFlow", *TASK_EXTRAS)
            node = self._task(node, part, spare)
        elif (handling := self._handling(name, part)) != PLAIN:
            node = replace(node, handling=handling)
        self.specification.note_rest(part, known, f"{part.name} {name!r}")
        return node

    def _task(self, node: Node, part: Element, spare: set[str]) -> Node:
        named = part.find("decomposesTo")
        calls = named.get("id") if named is not None and named.get("id") in self.specification.nets else ""
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
            ends = [
                self._exists(one.find(end), part, "clears the flow at") for end in ("flowSource", "flowDestination")
            ]
            found.append(f"{self.names[ends[0]]}→{self.names[ends[1]]}")
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
