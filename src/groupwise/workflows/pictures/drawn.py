"""What of a document is drawn: its graphs without nodes that do nothing, and a colour for each pool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from groupwise.workflows.document import Document
from groupwise.workflows.graph import Graph, Node
from groupwise.workflows.pictures.style import POOLS


def without_detours(graph: Graph) -> Graph:
    """The graph without nodes that do nothing: silent, nameless, one way in and one way out."""
    flows = {flow.id: flow for flow in graph.flows}
    if len(flows) < len(graph.flows):
        return graph
    gone: dict[str, str] = {}
    for node in graph.nodes:
        into = [flow for flow in flows.values() if flow.target == node.id]
        out = [flow for flow in flows.values() if flow.source == node.id]
        idle = node.kind == "task" and node.silent and not node.name and not node.cancels
        if not idle or len(into) != 1 or len(out) != 1:
            continue
        joined = replace(into[0], target=out[0].target)
        if joined.id not in flows and joined.source != joined.target:
            gone |= dict.fromkeys((node.id, into[0].id, out[0].id), joined.id)
            flows = {joined.id if name == into[0].id else name: flow for name, flow in flows.items()}
            flows[joined.id] = joined
            del flows[out[0].id]
    kept = tuple(replace(node, cancels=_still(node, gone)) for node in graph.nodes if node.id not in gone)
    return replace(graph, nodes=kept, flows=tuple(flows.values()))


def _still(node: Node, gone: Mapping[str, str]) -> tuple[str, ...]:
    """What a node clears away, by the names it has in the drawing."""
    names = list(node.cancels)
    while any(name in gone for name in names):
        names = [gone.get(name, name) for name in names]
    return tuple(dict.fromkeys(names))


def pool_styles(document: Document) -> dict[str, str]:
    """A colour for each pool that does something."""
    known = list(document.requirements.pools) if document.requirements else []
    known += [pool for pool, _ in document.servers]
    known += [node.handling.pool for graph in document.graphs for node in graph.nodes if node.handling.pool]
    used = {pool_of(document, node) for graph in document.graphs for node in graph.nodes}
    shown = [pool for pool in dict.fromkeys(known) if pool in used]
    return {pool: f"pool{number % len(POOLS)}" for number, pool in enumerate(shown)}


def pool_of(document: Document, node: Node) -> str:
    """Who does it: the pool it names, or else the first that may."""
    if node.handling.pool:
        return node.handling.pool
    activity = document.requirements.activities.get(node.label) if document.requirements else None
    return activity.pools[0] if activity and activity.pools and not node.silent else ""
