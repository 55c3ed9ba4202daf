"""Reads BPMN 2.0: a graph for every process and sub-process, and in `extras` what graphs have no word for."""

from __future__ import annotations

from collections.abc import Mapping

from groupwise.errors import ConfigError
from groupwise.workflows.document import Document
from groupwise.workflows.elements import COMMENT, Element
from groupwise.workflows.files.bpmn_diagram import drawings, is_ours, rest_of_diagrams
from groupwise.workflows.files.bpmn_scope import Scope, refuse
from groupwise.workflows.files.bpmn_words import (
    BPMN,
    BPMNDI,
    CALLS,
    NODES,
    OWN,
    PREFIXES,
    XSI,
    normal,
    noted,
    values_of,
)
from groupwise.workflows.files.bpmn_writer import diagrams_of
from groupwise.workflows.files.formats import BadFile
from groupwise.workflows.files.knowledge import document_parts, from_text
from groupwise.workflows.files.xml_tree import parse, place
from groupwise.workflows.graph import Graph


def read(content: bytes) -> Document:
    """The document in a BPMN file."""
    root = parse(content)
    if root.name != "definitions" or root.namespace != BPMN:
        raise BadFile(f"{place(root)}the root element is <{root.name}>, and a BPMN 2.0 file has <definitions>")
    drawn = drawings(root)
    if is_ours(root):
        document = _File(root, {}).document()
        if diagrams_of(document) == root.all("BPMNDiagram"):
            return document
    return _File(root, drawn).document()


class _File:
    """A file while it is read. `names` has the id in the model for every id in the file."""

    def __init__(self, root: Element, drawn: Mapping[str, Element]) -> None:
        self.root, self.drawn = root, dict(drawn)
        self.notes: list[str] = []
        self.names: dict[str, str] = {}
        self.graphs: dict[str, Graph] = {}
        self.processes = {one.get("id"): one for one in root.all("process")}
        self.defaults = {e.get("id"): e.get("default") for e in root.walk() if e.namespace == BPMN and e.get("default")}
        self.flows = self._flows()
        self.lanes = {
            member.text.strip(): (lane.get("id"), lane.get("name") or lane.get("id"))
            for lane in root.walk()
            if lane.name == "lane" and lane.namespace == BPMN
            for member in lane.all("flowNodeRef")
        }
        self._refuse_double_ids()

    def _flows(self) -> dict[str, list[Element]]:
        """The flows of every process and sub-process: some tools write them elsewhere than the nodes they connect."""
        holders = [e for e in self.root.walk() if e.namespace == BPMN and e.name in ("process", *CALLS)]
        holder = {part.get("id"): one.get("id") for one in holders for part in one.parts if part.name in NODES}
        found: dict[str, list[Element]] = {one.get("id"): [] for one in holders}
        for one in holders:
            for flow in one.all("sequenceFlow"):
                ends = {holder.get(flow.get(side).rpartition(":")[2]) for side in ("sourceRef", "targetRef")}
                (home,) = ends if len(ends) == 1 else (None,)
                found[home or one.get("id")].append(flow)
        return found

    def _refuse_double_ids(self) -> None:
        seen = set()
        for element in self.root.walk():
            name = element.get("id")
            if name and element.namespace in (BPMN, BPMNDI) and name in seen:
                raise refuse(element, f"the id {name!r} is used twice")
            seen.add(name)

    def document(self) -> Document:
        drawn = {name: one for name, one in self.processes.items() if any(p.name in NODES for p in one.parts)}
        if not drawn:
            raise refuse(self.root, "there is no process with anything in it")
        runs = [name for name, one in drawn.items() if one.get("isExecutable") == "true"]
        root = (runs or list(drawn))[0]
        self.titles = self._titles(drawn)
        for name in [root, *(other for other in drawn if other != root)]:
            self._process(drawn[name])
        first = self.titles[root]
        graphs = (self.graphs[first], *(graph for name, graph in self.graphs.items() if name != first))
        known = noted(drawn[root], "document")
        values = {} if known is None else self._values(known)
        requirements, servers = document_parts(values)
        name = str(values.get("name") or self.root.get("name") or first)
        extras = (*self._extras(drawn), *rest_of_diagrams(self.root, self.drawn))
        return Document(name, graphs, requirements, servers, tuple(self.notes), extras)

    def drawing(self, part: Element) -> tuple[Element, ...]:
        """How the diagram draws an element; nothing else will be drawn so."""
        found = self.drawn.pop(part.get("id"), None)
        return () if found is None else (normal(found.with_attributes(bpmnElement=None)),)

    def _titles(self, drawn: dict[str, Element]) -> dict[str, str]:
        """The name of a process is its id, unless Groupwise noted another."""
        return {name: values_of(one, "graph").get("name", name) for name, one in drawn.items()}

    def _values(self, known: Element) -> dict[str, object]:
        try:
            return from_text(known.text)
        except ConfigError as error:
            raise refuse(known, error.message) from error

    def _extras(self, drawn: dict[str, Element]) -> tuple[Element, ...]:
        kept = []
        for part in self.root.parts:
            if part.namespace == BPMN and not (part.name == "process" and part.get("id") in drawn):
                kept.append(normal(part))
        usual = (("exporter", "Groupwise"), ("targetNamespace", OWN))
        ours = ("id", "name", f"{{{XSI}}}schemaLocation")
        attributes = tuple(p for p in self.root.attributes if p not in usual and p[0] not in ours)
        prefixes = tuple(pair for pair in self.root.prefixes if pair[0] and pair not in PREFIXES)
        if attributes or prefixes:
            kept.append(Element(f"{{{BPMN}}}definitions", attributes, prefixes=prefixes))
        for part in self.root.children:
            if part.tag == COMMENT:
                self.notes.append(f"{place(part)}a comment is left out")
        return tuple(kept)

    def _process(self, element: Element) -> None:
        title = self.titles.get(element.get("id"), element.get("id"))
        scope = Scope(self, element)
        scope.fill(element)
        scope.check()
        scope.sketch.shaped()
        self.notes += scope.sketch.notes
        self.graphs[title] = scope.graph(title)

    def sub_process(self, element: Element) -> str:
        """Read a sub-process; the name of its graph."""
        title = values_of(element, "graph").get("name", element.get("id"))
        self.titles[element.get("id")] = title
        self._process(element)
        return title
