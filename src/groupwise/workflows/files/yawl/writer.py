"""Writes YAWL 4.0: made from the document, in the order that its schema demands, with a layout for the editor."""

from dataclasses import replace
from typing import Any

import groupwise.workflows.files.yawl.vocabulary as yawl
from groupwise.workflows.document import Document
from groupwise.workflows.endings import ANSWER, asked_for, mark_of, role_of
from groupwise.workflows.files.annotations import document_values, handling_values, to_text
from groupwise.workflows.files.formats import CannotExpress
from groupwise.workflows.files.xml_tree import free_name, serialise, xml_name, xml_names
from groupwise.workflows.files.yawl.layout import layout_of
from groupwise.workflows.graph import OWN, Flow, Graph, Node
from groupwise.workflows.pictures.scene import pool_of
from groupwise.workflows.titles import titled
from groupwise.xml_reader import Element, first, named

SCHEMA = "http://www.yawlfoundation.org/yawlschema/YAWL_Schema4.0.xsd"


def write(document: Document) -> bytes:
    graphs = tuple(_in_order(graph) for graph in document.graphs)
    return serialise(_Specification(replace(document, graphs=graphs)).root())


def _answer(flow: Flow, shown: Flow) -> list[Element]:
    """The documentation of a flow, or else its name; YAWL has no names of flows."""
    found = list(named(flow.extras, "documentation", yawl.YAWL))
    return found or ([yawl.el("documentation", text=shown.name)] if shown.name else [])


def _in_order(graph: Graph) -> Graph:
    """The same graph with nodes and flows in the schema's order, which is also the order in which they are read."""
    middle = [node for node in graph.nodes if node.kind in ("task", "condition")]
    nodes = (graph.start, *middle, graph.end)
    number = {node.id: place for place, node in enumerate(nodes)}
    return replace(graph, nodes=nodes, flows=tuple(sorted(graph.flows, key=lambda flow: number[flow.source])))


class _Specification:
    def __init__(self, document: Document) -> None:
        self.document = document
        self.gateways = {e.get("id"): e for e in named(document.extras, "decomposition", yawl.YAWL)}
        taken = set(self.gateways)
        self.nets = xml_names([graph.name for graph in document.graphs], taken)
        self.taken = taken
        # Graphs called once per item need a parameter for the item, unless the file has its own data mapping.
        self.each = {
            node.calls
            for graph in document.graphs
            for node in graph.nodes
            if node.calls and yawl.is_several(node) and first(node.extras, "miDataInput", yawl.YAWL) is None
        }
        self.uri = xml_name(document.name)

    def root(self) -> Element:
        nets = [_Net(self, graph) for graph in self.document.graphs]
        written = [net.decomposition() for net in nets]
        own = self.document.extras
        parts = [e for name in ("name", "documentation") for e in named(own, name, yawl.YAWL)]
        parts.append(first(own, "metaData", yawl.YAWL) or yawl.plain_meta_data())
        parts.append(first(own, "schema") or yawl.empty_schema())
        parts += [*written, *self.gateways.values(), *named(own, "importedNet", yawl.YAWL)]
        layout = layout_of(self.document, self.uri, list(self.nets.values()), [net.ids for net in nets])
        root = yawl.el("specificationSet", yawl.el("specification", *parts, uri=self.uri), layout, version="4.0")
        attributes = (*root.attributes, (yawl.LOCATION, f"{yawl.YAWL} {SCHEMA}"))
        return replace(root, attributes=attributes, prefixes=(("", yawl.YAWL), ("xsi", yawl.XSI)))

    def gateway(self, task: str, node: Node) -> str:
        carried = first(node.extras, "decomposesTo", yawl.YAWL)
        several = yawl.is_several(node)
        name = carried.get("id") if carried is not None else yawl.gateway_id(task, several)
        if name in self.nets.values():
            name = free_name(name, self.taken)
        self.gateways.setdefault(name, yawl.gateway(name, several))
        return name


class _Net:
    """One net while it is written. `ids` maps ids in the graph to ids in the file; `shown` has names for choices."""

    def __init__(self, specification: _Specification, graph: Graph) -> None:
        self.specification, self.graph = specification, graph
        document = specification.document
        drawn = first(graph.extras, "net", yawl.YAWL) is not None
        self.shown = graph if drawn else titled(graph, document.requirements)
        self.answers = {flow.id: flow for flow in self.shown.flows}
        # Whoever may perform a task is its pool, if the task does not name one.
        pools = {n.id: pool_of(document, n) for n in graph.nodes if n.kind == "task" and n.handling.pool is None}
        carried = {n.id for n in graph.nodes if first(n.extras, "resourcing", yawl.YAWL) is not None}
        self.pools = {name: pool for name, pool in pools.items() if pool and name not in carried}
        self.id = specification.nets[graph.name]
        self.ids = xml_names([node.id for node in graph.nodes])
        self.variables: list[Element] = []
        self.out: dict[str, list[Flow]] = {node.id: [] for node in graph.nodes}
        for flow in graph.flows:
            self.out[flow.source].append(flow)
        self.flows = {flow.id: flow for flow in graph.flows}

    def decomposition(self) -> Element:
        graph, extras = self.graph, self.graph.extras
        control = yawl.el("processControlElements", *(self._element(node) for node in graph.nodes))
        parts = [*named(extras, "name", yawl.YAWL), *_documentation(graph.documentation)]
        parts += self._parameters()
        parts += [e for name in ("outputParam", "logPredicate") for e in named(extras, name, yawl.YAWL)]
        parts += self._variables()
        parts += [control, *named(extras, "externalDataGateway", yawl.YAWL)]
        root = (("isRootNet", "true"),) if graph is self.specification.document.root else ()
        attributes = (("id", self.id), *root, (yawl.TYPE, yawl.NET))
        return Element(f"{{{yawl.YAWL}}}decomposition", attributes, "", tuple(parts))

    def _parameters(self) -> list[Element]:
        carried = list(named(self.graph.extras, "inputParam", yawl.YAWL))
        names = {e.says("name") for e in (*carried, *named(self.graph.extras, "localVariable", yawl.YAWL))}
        wanted = self.graph.name in self.specification.each and "item" not in names
        return [*carried, yawl.item_parameter()] if wanted else carried

    def _variables(self) -> list[Element]:
        carried = list(named(self.graph.extras, "localVariable", yawl.YAWL))
        several = [node for node in self.graph.nodes if yawl.is_several(node)]
        if any(first(node.extras, "miDataInput", yawl.YAWL) is None for node in several):
            self.variables.append(yawl.items_variable())
        known = self._knowledge()
        taken = {e.says("name") for e in (*carried, *self._parameters())}
        new = [one for one in self.variables if one.says("name") not in taken]
        if known:
            noted = yawl.variable("localVariable", free_name(yawl.KNOWLEDGE, taken), to_text(known))
            new.append(noted.with_attributes(**{yawl.KNOWLEDGE: "notes"}))
        return carried + new

    def _knowledge(self) -> dict[str, Any]:
        """What YAWL has no place for: probabilities, handling, and names that it does not accept."""
        known: dict[str, Any] = {"ids": {new: old for old, new in self.ids.items() if new != old}}
        if self.id != self.graph.name:
            known["name"] = self.graph.name
        known["handling"] = {self.ids[node.id]: _unsaid(node) for node in self.graph.nodes if _unsaid(node)}
        known["probabilities"] = {
            self._way(flow): flow.probability for flow in self.graph.flows if flow.probability is not None
        }
        known |= self._endings()
        known["pools"] = {self.ids[name]: pool for name, pool in self.pools.items()}
        shown = [(self.ids[n.id], n.name, self.graph.by_id[n.id].name) for n in self.shown.nodes]
        known["named"] = {name: new for name, new, old in shown if new != old}
        ways = [(self._way(flow), flow, self.answers[flow.id]) for flow in self.graph.flows]
        unsaid = [way for way in ways if not named(way[1].extras, "documentation", yawl.YAWL)]
        known["answers"] = {name: shown.name for name, _, shown in unsaid if shown.name}
        known["flows"] = {name: flow.name for name, flow, _ in ways if flow.name}
        if self.graph is self.specification.document.root:
            document = self.specification.document
            known |= document_values(document.requirements, document.servers)
            if self.specification.uri != document.name:
                known["document"] = document.name
        return {name: value for name, value in known.items() if value}

    def _way(self, flow: Flow) -> str:
        return f"{self.ids[flow.source]}→{self.ids[flow.target]}"

    def _endings(self) -> dict[str, Any]:
        """The nodes and flows by which cases end early."""
        nodes = {self.ids[node.id]: dict(found.attributes) for node in self.graph.nodes if (found := mark_of(node))}
        exits = {self._way(flow): True for flow in self.graph.flows if role_of(flow)}
        marks = {self._way(flow): first(flow.extras, ANSWER, OWN) for flow in self.graph.flows}
        results = {way: found.get("of") for way, found in marks.items() if found is not None}
        return {"endings": nodes, "exits": exits, "results": results}

    def _element(self, node: Node) -> Element:
        name = self.shown.by_id[node.id].name
        said = [*([yawl.el("name", text=name)] if name else []), *_documentation(node.documentation)]
        if node.kind == "end" and self.out[node.id]:
            raise CannotExpress(f"{self.graph.name}: a flow leaves the end {node.label!r}, which YAWL does not allow")
        if node.kind != "end" and not self.out[node.id]:
            raise CannotExpress(f"{self.graph.name}: no flow leaves {node.label!r}, but YAWL requires one")
        ways = self._ways(node)
        rest = self._task_parts(node) if node.kind == "task" else []
        several = ((yawl.TYPE, yawl.SEVERAL),) if node.kind == "task" and yawl.is_several(node) else ()
        tag, attributes = f"{{{yawl.YAWL}}}{yawl.ELEMENTS[node.kind]}", (("id", self.ids[node.id]), *several)
        return Element(tag, attributes, "", (*said, *ways, *rest))

    def _ways(self, node: Node) -> list[Element]:
        flows = self.out[node.id]
        targets = [self.ids[flow.target] for flow in flows]
        chosen = [yawl.YawlRoute(f.condition, _ordering(f) if f.condition else "", f.default) for f in flows]
        # A split without predicates gets some, so that an engine can run the net.
        if node.kind == "task" and all(route == yawl.YawlRoute() for route in chosen):
            asks = asked_for(node, flows)
            decides, chosen = yawl.generated_routes(self.id, self.ids[node.id], node.split, targets, asks)
            self.variables += [] if decides is None or decides in self.variables else [decides]
        ways = []
        for flow, target, route in zip(flows, targets, chosen, strict=True):
            ordering = {"ordering": route.ordering} if route.ordering else {}
            asked = [yawl.el("predicate", text=route.predicate, **ordering)] if route.predicate else []
            default = [yawl.el("isDefaultFlow")] if route.default else []
            said = _answer(flow, self.answers[flow.id])
            ways.append(yawl.el("flowsInto", yawl.el("nextElementRef", id=target), *asked, *default, *said))
        return ways

    def _task_parts(self, node: Node) -> list[Element]:
        def carried(*names: str) -> list[Element]:
            return [e for name in names for e in named(node.extras, name, yawl.YAWL)]

        parts = [yawl.el("join", code=node.join), yawl.el("split", code=node.split)]
        parts += carried("defaultConfiguration", "configuration")
        parts += self._cancelled(node)
        parts += carried("startingMappings", "completedMappings", "enablementMappings")
        resourcing = yawl.written_resourcing(yawl.performed(node, self.pools.get(node.id)))
        parts += [e for e in (yawl.written_timer(node), resourcing) if e is not None]
        parts += carried("customForm")
        if node.calls:
            parts.append(yawl.el("decomposesTo", id=self.specification.nets[node.calls]))
        elif not node.silent:
            parts.append(yawl.el("decomposesTo", id=self.specification.gateway(self.ids[node.id], node)))
        if yawl.is_several(node):
            parts += yawl.written_numbers(node)
            parts += carried("creationMode") or [yawl.el("creationMode", code="static")]
            parts += carried("miDataInput") or [yawl.instance_input(self.id)]
            parts += carried("miDataOutput")
        return parts

    def _cancelled(self, node: Node) -> list[Element]:
        tokens, flows = [], []
        for name in node.cancels:
            if name in self.ids:
                tokens.append(yawl.el("removesTokens", id=self.ids[name]))
            else:
                flow = self.flows[name]
                ends = {"flowSource": flow.source, "flowDestination": flow.target}
                flows.append(yawl.el("removesTokensFromFlow", *(yawl.el(e, id=self.ids[n]) for e, n in ends.items())))
        return tokens + flows


def _documentation(text: str) -> list[Element]:
    return [yawl.el("documentation", text=text)] if text else []


def _ordering(flow: Flow) -> str:
    carried = first(flow.extras, "predicate", yawl.YAWL)
    return "" if carried is None else carried.get("ordering")


def _unsaid(node: Node) -> dict[str, Any]:
    said = ("pool", "timeout") if node.kind == "task" else ()
    return {name: value for name, value in handling_values(node.handling).items() if name not in said}
