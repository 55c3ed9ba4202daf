"""Reads YAWL specifications of every version: one graph per net, and in `extras` what graphs have no word for."""

from __future__ import annotations

from dataclasses import replace

from groupwise.errors import ConfigError
from groupwise.workflows.document import Document
from groupwise.workflows.elements import Element
from groupwise.workflows.files.knowledge import document_parts
from groupwise.workflows.files.xml_tree import inherit, parse
from groupwise.workflows.files.yawl_layout import attach_layout
from groupwise.workflows.files.yawl_net import Net, left_out, refuse
from groupwise.workflows.files.yawl_old import upgraded
from groupwise.workflows.files.yawl_words import (
    BETA,
    GATEWAY,
    NET,
    SPECIFICATION_EXTRAS,
    TYPE,
    XSI,
    YAWL,
    empty_schema,
    gateway,
    gateway_id,
    plain_meta_data,
)
from groupwise.workflows.graph import Graph
from groupwise.workflows.requirements import Requirements


def read(content: bytes) -> Document:
    """The document in a YAWL file."""
    root, notes = upgraded(parse(content))
    return _Specification(root, notes).document()


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
        self.prefixes = {p: uri for e in (root, self.own) for p, uri in e.prefixes if uri not in (YAWL, BETA, XSI)}

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
        nets = [Net(self.nets[name], self.nets, self.notes) for name in order]
        spare = self._spare_gateways(nets)
        each = {name for net in nets for name in net.called_for_each()}
        graphs = [net.graph(spare, each) for net in nets]
        known = nets[0].known
        requirements, servers = self._known_parts(nets[0])
        names = {net.own.get("id"): str(net.known.get("name", net.own.get("id"))) for net in nets}
        graphs = [_renamed_calls(graph, names) for graph in graphs]
        extras = [*self._extras(), *(part for name, part in self.gateways.items() if name not in spare)]
        self.notes += left_out(self.own, (*SPECIFICATION_EXTRAS, "decomposition"), "the specification")
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
        marked = [name for name, net in self.nets.items() if net.get("isRootNet") in ("true", "1")]
        if not marked and len(self.nets) == 1:
            marked = list(self.nets)
        if len(marked) != 1:
            at = self.nets[marked[1]] if marked else self.own
            raise refuse(at, f"a specification has one root net, and this has {len(marked)}")
        return [*marked, *(name for name in self.nets if name not in marked)]

    def _spare_gateways(self, nets: list[Net]) -> set[str]:
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

    def _known_parts(self, net: Net) -> tuple[Requirements | None, tuple[tuple[str, int], ...]]:
        try:
            return document_parts(net.known)
        except ConfigError as error:
            raise refuse(net.own, error.message) from error

    def _extras(self) -> list[Element]:
        usual = {"metaData": plain_meta_data(), "schema": empty_schema()}
        found = [part for name in SPECIFICATION_EXTRAS for part in self.own.all(name)]
        found = [inherit(part, self.prefixes) if part.name == "schema" else part for part in found]
        return [part for part in found if part != usual.get(part.name)]


def _renamed_calls(graph: Graph, names: dict[str, str]) -> Graph:
    nodes = tuple(replace(n, calls=names[n.calls]) if n.calls else n for n in graph.nodes)
    return replace(graph, nodes=nodes)
