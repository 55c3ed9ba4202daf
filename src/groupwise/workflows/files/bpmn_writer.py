"""Writes BPMN 2.0 with a diagram: made from the model, in the order of the schema, and ready to run.

A gateway that has no conditions gets some: a variable named after it says where the case goes, so that data decide.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from groupwise.workflows.document import Document
from groupwise.workflows.elements import Element, first
from groupwise.workflows.files.bpmn_diagram import Sheet
from groupwise.workflows.files.bpmn_process import Process
from groupwise.workflows.files.bpmn_words import BPMN, BPMNDI, OWN, PREFIXES, el, own, own_self
from groupwise.workflows.files.knowledge import document_values, to_text
from groupwise.workflows.files.names import free_name
from groupwise.workflows.files.xml_tree import serialise
from groupwise.workflows.graph import Graph


def write(document: Document) -> bytes:
    """The document as a BPMN 2.0 file."""
    return serialise(_File(document).root())


def diagrams_of(document: Document) -> tuple[Element, ...]:
    """The diagrams that are written for a document."""
    return _File(document).root().all("BPMNDiagram")


class _File:
    """A file while it is written. `ids` has the id in the file for every graph and every node of it."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.taken = {name for carried in self._carried() for e in carried.walk() if (name := e.get("id"))}
        callers = Counter(node.calls for graph in document.graphs for node in graph.nodes if node.calls)
        self.embedded = {
            node.calls
            for graph in document.graphs
            for node in graph.nodes
            if node.calls
            and callers[node.calls] == 1
            and _is_embedded(own_self(node))
            and node.calls != document.root.name
        }
        self.graphs = {graph.name: graph for graph in document.graphs}
        self.processes = {
            graph.name: free_name(graph.name, self.taken)
            for graph in document.graphs
            if graph.name not in self.embedded
        }
        self.ids = {
            graph.name: {node.id: free_name(node.id, self.taken) for node in graph.nodes} for graph in document.graphs
        }

    def _carried(self) -> list[Element]:
        found = list(self.document.extras)
        for graph in self.document.graphs:
            found += graph.extras
            found += [e for node in graph.nodes for e in node.extras]
            found += [e for flow in graph.flows for e in flow.extras]
        return found

    def root(self) -> Element:
        sheets: list[Sheet] = []
        processes = []
        shared = first(self.document.extras, "collaboration", BPMN)
        for name, identity in self.processes.items():
            if shared is None or not sheets:
                sheets.append(Sheet(identity if shared is None else shared.get("id"), self.taken))
            processes.append(self._process(self.graphs[name], identity, sheets[-1]))
        rest = first(self.document.extras, "BPMNDiagram", BPMNDI)
        drawn = rest.parts[0].parts if rest is not None else ()
        diagrams = [sheet.element(number, drawn if number == 0 else ()) for number, sheet in enumerate(sheets)]
        if rest is not None:
            diagrams[0] = replace(diagrams[0], children=(*diagrams[0].children, *rest.parts[1:]))
        carried = [e for e in self.document.extras if e.namespace == BPMN and e.name not in ("definitions", "import")]
        before = [e for e in carried if e.name == "extension"]
        roots = [e for e in carried if e.name not in ("extension", "relationship")]
        after = [e for e in carried if e.name == "relationship"]
        imports = [e for e in self.document.extras if e.namespace == BPMN and e.name == "import"]
        children = (*imports, *before, *roots, *processes, *diagrams, *after)
        old = first(self.document.extras, "definitions", BPMN) or el("definitions")
        attributes = {"id": free_name("definitions", self.taken), "name": self.document.name, "targetNamespace": OWN}
        attributes |= {"exporter": "Groupwise", **dict(old.attributes)}
        used = {prefix for prefix, _ in PREFIXES}
        prefixes = (*PREFIXES, *(pair for pair in old.prefixes if pair[0] not in used))
        return Element(f"{{{BPMN}}}definitions", tuple(attributes.items()), "", children, prefixes=prefixes)

    def _process(self, graph: Graph, identity: str, sheet: Sheet) -> Element:
        old = first(graph.extras, "process", BPMN) or el("process")
        whole = graph is self.document.root
        notes = list(old.parts[0].parts) if old.parts else []
        if graph.name != identity:
            notes.append(own("graph", {"name": graph.name}))
        known = document_values(self.document.requirements, self.document.servers) if whole else {}
        if known:
            notes.append(own("document", {}, to_text(known)))
        attributes = {"id": identity, "isExecutable": "true", **dict(old.attributes)}
        content = Process(self, graph, sheet).content()
        said = [el("documentation", text=graph.documentation)] if graph.documentation else []
        noted = [el("extensionElements", *notes)] if notes else []
        return Element(f"{{{BPMN}}}process", tuple(attributes.items()), "", (*said, *noted, *content))

    def sub_process(self, name: str, sheet: Sheet, at: str) -> list[Element]:
        """The content of an embedded graph, drawn where its node stands."""
        return Process(self, self.graphs[name], sheet, around=at).content()


def _is_embedded(element: Element | None) -> bool:
    return element is not None and element.name in ("subProcess", "transaction")
