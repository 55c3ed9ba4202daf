"""Reads YAWL specifications of every version: one graph per net, and in `extras` what graphs have no place for.

Older files are first brought into the form of 4.0 (`upgraded`); then `_Specification` reads the file and `YawlNet` each
of its nets.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import groupwise.workflows.files.yawl.vocabulary as yawl
from groupwise.workflows.blocks import PLAIN, Handling
from groupwise.workflows.document import Document
from groupwise.workflows.endings import ANSWER, MARK, asked_for, mark
from groupwise.workflows.files.annotations import checked, document_parts, from_text, handling_of
from groupwise.workflows.files.xml_tree import inherit, located, parse, place, refuse, xml_name
from groupwise.workflows.files.yawl.layout import attach_layout
from groupwise.workflows.graph import ONCE, OWN, Flow, Graph, Kind, Node, Rule
from groupwise.xml_reader import COMMENT, Element

VERSIONS = ("Beta 3", "Beta 4", "Beta 6", "Beta 7", "Beta 7.1", "2.0", "2.1", "2.2", "3.0", "4.0")
_VARIABLES = ("inputParam", "outputParam", "localVariable", "enablementParam")


def upgraded(root: Element) -> tuple[Element, list[str]]:
    """The file in the form of 4.0, and notes on what 4.0 has no place for."""
    if root.name != "specificationSet" or root.namespace not in (yawl.YAWL, yawl.BETA):
        raise refuse(root, f"the root element is <{root.name}>, but a YAWL file has <specificationSet>")
    version = root.get("version")
    if version and version not in VERSIONS:
        known = f"{', '.join(VERSIONS[:-1])} and {VERSIONS[-1]}"
        raise refuse(root, f"YAWL version {version!r} is unknown; supported are {known}")
    if root.namespace == yawl.YAWL and version in ("3.0", "4.0"):
        return root, []
    old = _Upgrade(root)
    return old.element(root), old.notes


class _Upgrade:
    def __init__(self, root: Element) -> None:
        self.beta = root.namespace == yawl.BETA
        self.prefixes = dict(root.prefixes)
        self.notes: list[str] = []
        decompositions = [e for part in root.all("specification") for e in part.all("decomposition")]
        self.gateways = {e.get("id") for e in decompositions if e.get(yawl.TYPE).endswith(yawl.GATEWAY)}

    def element(self, element: Element) -> Element:
        if element.tag == COMMENT or element.namespace not in (yawl.YAWL, yawl.BETA):
            return element
        # Beta wrote the name of a variable as an attribute, later versions as an element.
        if self.beta and element.name in _VARIABLES and element.get("name"):
            return self.variable(element)
        children = tuple(self.element(child) for child in element.children if not self.left_out(child, element))
        attributes = element.attributes
        if element.name == "rootNet":
            attributes = (*attributes, ("isRootNet", "true"), (yawl.TYPE, yawl.NET))
        if element.name == "creationMode" and element.text.strip() == "restict":
            return replace(element, text="restrict")  # a typo in the schema of 2.1
        if element.name in ("join", "split") and element.get("value"):
            attributes = tuple(pair for pair in attributes if pair[0] != "value")
            self.note(element, f"the value of a configured {element.name} ({element.get('value')})")
        if element.name in ("decomposition", "decomposesTo") and element.get("id") in self.gateways:
            attributes = self.renamed(element)
        name = "decomposition" if element.name == "rootNet" else element.name
        return replace(element, tag=f"{{{yawl.YAWL}}}{name}", attributes=attributes, children=children)

    def renamed(self, element: Element) -> tuple[tuple[str, str], ...]:
        """The attributes with an id that is a valid name, which older versions did not require."""
        old = element.get("id")
        new = xml_name(old)
        if new != old and element.name == "decomposition":
            said = f"the decomposition {old!r} is now {new!r}, because YAWL 4.0 requires a valid name"
            self.notes.append(f"{place(element)}{said}")
        return tuple((name, new if name == "id" else value) for name, value in element.attributes)

    def left_out(self, child: Element, parent: Element) -> bool:
        if child.name == "outputExpression" and parent.name in ("decomposition", "rootNet"):
            self.note(child, f"the output expression {child.get('query')!r} of {parent.get('id')!r}")
            return True
        return False

    def variable(self, element: Element) -> Element:
        """A variable such as `<inputParam name="a"><type>xs:string</type>`, with name, type and index as elements."""
        prefix, colon, kind = element.says("type").rpartition(":")
        space = self.prefixes.get(prefix) or (yawl.XS if prefix in ("xs", "xsd") else "")
        if colon and not space:
            said = f"the type of {element.get('name')!r} has a prefix {prefix!r} that is not declared"
            self.notes.append(f"{place(element)}{said}; it is left out")
        parts = [
            yawl.el("index", text="0"),
            yawl.el("name", text=element.get("name")),
            yawl.el("type", text=kind or "string"),
        ]
        if space:
            parts.append(yawl.el("namespace", text=space))
        value = element.find("initialValue")
        if value is not None and value.text:
            parts.append(yawl.el("initialValue", text=value.text))
        elif element.find("mandatory") is not None and element.name != "localVariable":
            parts.append(yawl.el("mandatory"))
        known = ("type", "initialValue", "mandatory")
        for child in element.children:
            if child.name not in known:
                what = "a comment" if child.tag == COMMENT else f"<{child.name}>"
                self.note(child, f"{what} in the variable {element.get('name')!r}")
        return replace(yawl.el(element.name, *parts), line=element.line)

    def note(self, element: Element, what: str) -> None:
        self.notes.append(f"{place(element)}{what} is left out: YAWL 4.0 has no place for it")


KINDS: dict[str, Kind] = {name: kind for kind, name in yawl.ELEMENTS.items()}
_RULES: dict[str, Rule] = {"and": "and", "xor": "xor", "or": "or"}


def left_out(element: Element, known: tuple[str, ...], owner: str) -> list[str]:
    notes = []
    for part in element.children:
        if part.tag == COMMENT:
            notes.append(f"{place(part)}a comment in {owner} is left out")
        elif part.name not in known:
            notes.append(f"{place(part)}<{part.name}> in {owner} is left out: YAWL 4.0 has no such element")
    return notes


class YawlNet:
    """One net while it is read. `names` maps ids in the file to ids in the graph."""

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
                raise refuse(control, f"the net {self.id!r} has {len(control.all(kind))} {kind}s, but needs one")
        self.known = self._knowledge()
        ids = self.known.get("ids", {})
        self.names = {name: str(ids.get(name, name)) for name in self.elements}
        self.flows: set[str] = set()

    def _add(self, part: Element) -> None:
        if part.name not in KINDS:
            raise refuse(part, f"<{part.name}> is not allowed in a net")
        name = part.get("id")
        if not name:
            raise refuse(part, f"a {part.name} of the net {self.id!r} has no id")
        if name in self.elements:
            raise refuse(part, f"the id {name!r} is used twice in the net {self.id!r}")
        self.elements[name] = part

    def _knowledge(self) -> dict[str, Any]:
        for variable in self.own.all("localVariable"):
            if variable.get(yawl.KNOWLEDGE):
                with located(variable):
                    return checked(from_text(variable.says("initialValue")))
        return {}

    def decompositions(self) -> list[tuple[str, Element, bool]]:
        """Every task with a decomposition, the element that names it, and whether the task has several instances."""
        found = [(name, part, part.find("decomposesTo")) for name, part in self.elements.items()]
        return [(name, named, _several(part)) for name, part, named in found if named is not None]

    def called_for_each(self) -> set[str]:
        tasks = [part for part in self.control.parts if part.find("miDataInput") == yawl.instance_input(self.id)]
        return {named.get("id") for part in tasks if (named := part.find("decomposesTo")) is not None}

    def graph(self, spare: set[str], each: set[str]) -> Graph:
        """The graph of the net. `spare` gateways are not kept; nets in `each` run once per item."""
        usual: list[Element] = [yawl.item_parameter()] if self.id in each else []
        flows: list[Flow] = []
        for name, part in self.elements.items():
            ways, variable = self._flows(name, part)
            flows += ways
            usual += [] if variable is None else [variable]
        # Needed by _node, which checks that cancelled flows exist.
        self.flows = {flow.id for flow in flows}
        nodes = tuple(self._node(name, part, spare) for name, part in self.elements.items())
        usual_input = yawl.instance_input(self.id)
        if any(_several(part) and part.find("miDataInput") == usual_input for part in self.control.parts):
            usual.append(yawl.items_variable())
        extras = [e for n in yawl.NET_EXTRAS for e in self.own.all(n) if e not in usual and not e.get(yawl.KNOWLEDGE)]
        known = (*yawl.NET_EXTRAS, "documentation", "processControlElements")
        self.notes += left_out(self.own, known, f"net {self.id!r}")
        self.notes += left_out(self.control, tuple(KINDS), f"net {self.id!r}")
        name = str(self.known.get("name", self.id))
        return Graph(name, nodes, tuple(flows), _text(self.own, "documentation"), tuple(extras))

    def _node(self, name: str, part: Element, spare: set[str]) -> Node:
        known: tuple[str, ...] = ("name", "documentation", "flowsInto")
        # A name that we made up is not kept, unless somebody changed it.
        said = _text(part, "name")
        said = "" if said == self.known.get("named", {}).get(name) else said
        node = Node(self.names[name], said, KINDS[part.name])
        node = replace(node, documentation=_text(part, "documentation"))
        if part.name == "task":
            known = (*known, "join", "split", "removesTokens", "removesTokensFromFlow", *yawl.TASK_EXTRAS)
            node = self._task(node, part, spare)
        # Conditions have no resourcing, but annotations may give them a handling.
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
            copies=yawl.numbers_of(part) if _several(part) else ONCE,
            calls=calls,
        )
        usual = self._usual(node, part)
        if named is not None and (calls or named.get("id") in spare):
            usual.append(named)
        extras = tuple(e for kind in yawl.TASK_EXTRAS for e in part.all(kind) if e not in usual)
        ending = self.known.get("endings", {}).get(part.get("id"))
        marks = () if ending is None else (Element(f"{{{OWN}}}{MARK}", tuple((k, str(v)) for k, v in ending.items())),)
        return replace(node, extras=(*extras, *marks))

    def _usual(self, node: Node, part: Element) -> list[Element]:
        shown = yawl.performed(node, self._implied(part)) if node.handling.pool is None else node
        found = [e for e in (yawl.written_timer(node), yawl.written_resourcing(shown)) if e is not None]
        if node.copies != ONCE:
            numbers = yawl.written_numbers(node)
            found += numbers if all(e in part.children for e in numbers) else []
            found += [yawl.el("creationMode", code="static"), yawl.instance_input(self.id)]
        return found

    def _handling(self, name: str, part: Element) -> Handling:
        values = dict(self.known.get("handling", {}).get(name, {}))
        pool = yawl.pool_of(part.find("resourcing"))
        pool = None if pool == self._implied(part) else pool
        values |= {"pool": pool, "timeout": yawl.timeout_of(part.find("timer"))}
        with located(part, f"task {name!r}: "):
            return handling_of({key: value for key, value in values.items() if value is not None})

    def _implied(self, part: Element) -> str | None:
        """The pool that we wrote because it may perform the task, which itself names none."""
        found = self.known.get("pools", {}).get(part.get("id"))
        return None if found is None else str(found)

    def _rule(self, part: Element, side: str) -> Rule:
        found = part.find(side)
        code = "" if found is None else found.get("code").lower()
        if code not in _RULES:
            raise refuse(part, f"the {side} of {part.get('id')!r} is {code or 'missing'}; it must be and, or, or xor")
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
            ends = [self._exists(one.find(side), part, "removes tokens from the flow at") for side in sides]
            flow = f"{self.names[ends[0]]}→{self.names[ends[1]]}"
            if flow not in self.flows:
                raise refuse(one, f"{part.get('id')!r} removes tokens from the flow {flow!r}, which does not exist")
            found.append(flow)
        return tuple(found)

    def _asks(self, name: str, targets: list[str]) -> tuple[str, list[tuple[str, ...]]] | None:
        """The outcome that a task asks for, and the answers that lead to each target."""
        ending, results = self.known.get("endings", {}).get(name, {}), self.known.get("results", {})
        ways = [Flow(name, target) for target in targets]
        marks = [results.get(way.id) for way in ways]
        node = Node(name, extras=(Element(f"{{{OWN}}}{MARK}", tuple((k, str(v)) for k, v in ending.items())),))
        flows = [
            replace(way, extras=(Element(f"{{{OWN}}}{ANSWER}", (("of", str(said)),)),)) if said else way
            for way, said in zip(ways, marks, strict=True)
        ]
        return asked_for(node, flows)

    def _flows(self, name: str, part: Element) -> tuple[list[Flow], Element | None]:
        """The flows out of an element, and the variable that decides between them if we added it."""
        ways = part.all("flowsInto")
        if ways and part.name == "outputCondition":
            raise refuse(ways[0], f"a flow leaves the output condition {name!r}, which is not allowed")
        targets = [self._exists(way.find("nextElementRef"), part, "flows into") for way in ways]
        rule = self._rule(part, "split") if part.name == "task" else "and"
        asks = self._asks(name, targets)
        variable, usual = yawl.generated_routes(self.id, name, rule, targets, asks)
        # If the writer would make exactly these predicates, they are not kept.
        ours = variable in self.own.children and usual == [_route(way) for way in ways]
        shares = self.known.get("probabilities", {})
        flows = []
        for way, target in zip(ways, targets, strict=True):
            share = shares.get(f"{name}→{target}")
            way_name = f"{name}→{target}"
            flow = Flow(self.names[name], self.names[target], None if share is None else float(share))
            flow = replace(flow, name=str(self.known.get("flows", {}).get(way_name, "")))
            if not ours:
                route = _route(way)
                ordering = (yawl.el("predicate", ordering=route.ordering),) if route.ordering else ()
                flow = replace(flow, condition=route.predicate, default=route.default, extras=ordering)
            said = [e for e in way.all("documentation")[:1] if e.text != self.known.get("answers", {}).get(way_name)]
            marks: tuple[Element, ...] = (mark("exit"),) if self.known.get("exits", {}).get(way_name) else ()
            said_of = self.known.get("results", {}).get(way_name)
            marks += (Element(f"{{{OWN}}}{ANSWER}", (("of", str(said_of)),)),) if said_of else ()
            flows.append(replace(flow, extras=(*flow.extras, *said, *marks)))
        return flows, variable if ours else None


def _several(part: Element) -> bool:
    return part.get(yawl.TYPE).rpartition(":")[2] == yawl.SEVERAL


def _text(element: Element, name: str) -> str:
    found = element.find(name)
    return "" if found is None else found.text


def _route(way: Element) -> yawl.YawlRoute:
    predicate = way.find("predicate")
    text, ordering = ("", "") if predicate is None else (predicate.text, predicate.get("ordering"))
    return yawl.YawlRoute(text, ordering, way.find("isDefaultFlow") is not None)


def read(content: bytes) -> Document:
    root, notes = upgraded(parse(content))
    return _Specification(root, notes).document()


class _Specification:
    def __init__(self, root: Element, notes: list[str]) -> None:
        found = root.all("specification")
        if len(found) != 1:
            at = found[1] if found else root
            raise refuse(at, f"a file must have one specification, not {len(found)}")
        self.root, self.own, self.notes = root, found[0], notes
        self.nets: dict[str, Element] = {}
        self.gateways: dict[str, Element] = {}
        for part in self.own.all("decomposition"):
            self._sort(part)
        usual = (yawl.YAWL, yawl.BETA, yawl.XSI)
        self.prefixes = {p: uri for e in (root, self.own) for p, uri in e.prefixes if uri not in usual}

    def _sort(self, part: Element) -> None:
        name, kind = part.get("id"), part.get(yawl.TYPE).rpartition(":")[2]
        if not name:
            raise refuse(part, "a decomposition has no id")
        if name in self.nets or name in self.gateways:
            raise refuse(part, f"the decomposition {name!r} is defined twice")
        if kind not in (yawl.NET, yawl.GATEWAY):
            raise refuse(part, f"the decomposition {name!r} is of type {kind!r}, not {yawl.NET} or {yawl.GATEWAY}")
        (self.nets if kind == yawl.NET else self.gateways)[name] = part

    def document(self) -> Document:
        order = self._root_first()
        nets = [YawlNet(self.nets[name], self.nets, self.notes) for name in order]
        spare = self._spare_gateways(nets)
        each = {name for net in nets for name in net.called_for_each()}
        graphs = [net.graph(spare, each) for net in nets]
        known = nets[0].known
        with located(nets[0].own):
            requirements, servers = document_parts(known)
        names = {net.own.get("id"): str(net.known.get("name", net.own.get("id"))) for net in nets}
        for number, graph in enumerate(graphs):
            nodes = tuple(replace(n, calls=names[n.calls]) if n.calls else n for n in graph.nodes)
            graphs[number] = replace(graph, nodes=nodes)
        extras = [*self._extras(), *(part for name, part in self.gateways.items() if name not in spare)]
        self.notes += left_out(self.own, (*yawl.SPECIFICATION_EXTRAS, "decomposition"), "the specification")
        self.notes += left_out(self.root, ("specification", "layout"), "the file")
        name = str(known.get("document", self.own.get("uri") or self.own.says("name") or "specification"))
        document = Document(name, tuple(graphs), requirements, servers, extras=tuple(extras))
        layout = self.root.find("layout")
        if layout is not None:
            ids = [net.names for net in nets]
            document, more = attach_layout(document, layout, self.own.get("uri"), order, ids)
            self.notes += more
        return replace(document, notes=tuple(self.notes))

    def _root_first(self) -> list[str]:
        # A single net need not be marked as the root.
        marked = [name for name, net in self.nets.items() if net.get("isRootNet") in ("true", "1")]
        if not marked and len(self.nets) == 1:
            marked = list(self.nets)
        if len(marked) != 1:
            at = self.nets[marked[1]] if marked else self.own
            raise refuse(at, f"a specification must have one root net, not {len(marked)}")
        return [*marked, *(name for name in self.nets if name not in marked)]

    def _spare_gateways(self, nets: list[YawlNet]) -> set[str]:
        """The gateways that would be written by default anyway: they only say that the task is manual."""
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
            and all(yawl.gateway_id(task, several) == name for task, several in found)
            and self.gateways[name] == yawl.gateway(name, found[0][1])
        }

    def _extras(self) -> list[Element]:
        usual = {"metaData": yawl.plain_meta_data(), "schema": yawl.empty_schema()}
        found = [part for name in yawl.SPECIFICATION_EXTRAS for part in self.own.all(name)]
        found = [inherit(part, self.prefixes) if part.name == "schema" else part for part in found]
        return [part for part in found if part != usual.get(part.name)]
