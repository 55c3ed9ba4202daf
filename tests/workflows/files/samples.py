"""The files and schemas beside the repository, where they are, and what several tests do with them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from groupwise.workflows.blocks import Handling
from groupwise.workflows.document import Document
from groupwise.workflows.graph import Flow, Graph, Node

SHARED = next((p for parent in Path(__file__).parents if (p := parent / "shared/data").is_dir()), None)
YAWL = sorted(SHARED.glob("yawl/**/*.yawl")) + sorted(SHARED.glob("yawl/verification_cases/*.xml")) if SHARED else []
SCHEMAS = {"yawl": "yawl/schema/YAWL_Schema4.0.xsd", "bpmn": "schemas/bpmn20/BPMN20.xsd"}
needs_data = pytest.mark.skipif(SHARED is None, reason="shared/data is not beside the repository")


@cache
def schema(name: str) -> Any:
    from lxml import etree

    assert SHARED is not None
    return etree.XMLSchema(etree.parse(str(SHARED / SCHEMAS[name])))


def mistakes(name: str, content: bytes) -> list[str]:
    """What the published schema finds wrong with a file."""
    from lxml import etree

    found = schema(name)
    return [] if found.validate(etree.fromstring(content)) else [str(error) for error in found.error_log]


def edited(graph: Graph) -> Graph:
    """Renames a task, changes a join, adds one task behind the start, takes one out, and adds a cancellation."""
    tasks = [node for node in graph.nodes if node.kind == "task"]
    first = replace(tasks[0], name="renamed & <new>", join="or", handling=replace(tasks[0].handling, pool="Ärzte"))
    nodes = [first if node.id == first.id else node for node in graph.nodes]
    way = graph.out_of(graph.start.id)[0]
    new = Node("a new task", "new", handling=Handling(timeout=90.5, priority=2), cancels=(first.id, way.target))
    flows = [flow for flow in graph.flows if flow != way]
    flows += [replace(way, target=new.id), Flow(new.id, way.target)]
    out = next((node for node in tasks[1:] if len(graph.into(node.id)) == len(graph.out_of(node.id)) == 1), None)
    if out is not None and graph.into(out.id)[0].source != graph.start.id:
        source, target = graph.into(out.id)[0].source, graph.out_of(out.id)[0].target
        flows = [flow for flow in flows if out.id not in (flow.source, flow.target)]
        flows.append(Flow(source, target))
        gone = (out.id, f"{source}→{out.id}", f"{out.id}→{target}")
        nodes = [replace(n, cancels=tuple(c for c in n.cancels if c not in gone)) for n in nodes if n.id != out.id]
    return replace(graph, nodes=(*nodes[:-1], new, nodes[-1]), flows=tuple(flows))


def in_order(document: Document) -> Document:
    """The document with nodes and flows sorted, as files may have them in another order."""
    graphs = [
        replace(g, nodes=tuple(sorted(g.nodes, key=lambda n: n.id)), flows=tuple(sorted(g.flows, key=lambda f: f.id)))
        for g in document.graphs
    ]
    return replace(document, graphs=tuple(graphs))
