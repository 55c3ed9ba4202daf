"""What a workflow file holds, whatever its format: graphs that may call each other, and what is known of the work."""

from __future__ import annotations

from dataclasses import dataclass

from groupwise.workflows.blocks import Design, DesignError
from groupwise.workflows.elements import Element
from groupwise.workflows.graph import Graph
from groupwise.workflows.orders import find_ring, in_order
from groupwise.workflows.requirements import Requirements
from groupwise.workflows.unfolding import to_graphs


@dataclass(frozen=True, slots=True)
class Document:
    """Graphs, the first of which is where a case begins; a node's `calls` names another of them.

    `requirements` are there where the file knows durations, pools or arrivals. `notes` say in words what the file had
    and a document cannot hold: nothing is dropped in silence. `extras` hold what only its own format has words for.
    """

    name: str
    graphs: tuple[Graph, ...]
    requirements: Requirements | None = None
    servers: tuple[tuple[str, int], ...] = ()
    notes: tuple[str, ...] = ()
    extras: tuple[Element, ...] = ()

    def __post_init__(self) -> None:
        names = [graph.name for graph in self.graphs]
        if not names:
            raise DesignError(f"{self.name}: a document without a graph")
        if len(set(names)) < len(names):
            raise DesignError(f"{self.name}: the graph {next(n for n in names if names.count(n) > 1)!r} is there twice")
        for graph in self.graphs:
            for node in graph.nodes:
                if node.calls and node.calls not in names:
                    raise DesignError(f"{graph.name}: {node.label!r} calls {node.calls!r}, which does not exist")

    @property
    def root(self) -> Graph:
        return self.graphs[0]


def calling_order(graphs: tuple[Graph, ...]) -> tuple[list[str], list[str]]:
    """The graphs that a case of the first may come to, each after those it calls; and a ring of calls, if any."""
    number = {graph.name: place for place, graph in enumerate(graphs)}
    calls = {
        (place, number[node.calls])
        for place, graph in enumerate(graphs)
        for node in graph.nodes
        if node.calls in number
    }
    reached, stack = {0}, [0]
    while stack:
        here = stack.pop()
        new = {b for a, b in calls if a == here} - reached
        reached |= new
        stack += new
    edges = frozenset((a, b) for a, b in calls if a in reached)
    ring = find_ring(len(graphs), edges)
    order = [] if ring else [place for place in reversed(in_order(len(graphs), edges)) if place in reached]
    return [graphs[place].name for place in order], [graphs[place].name for place in ring]


def document_of(design: Design, requirements: Requirements | None = None) -> Document:
    """A design as a document, ready to be written in any format."""
    return Document(design.name, to_graphs(design), requirements, design.servers)
