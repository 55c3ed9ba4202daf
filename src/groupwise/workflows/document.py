"""A document: what a workflow file contains, whatever its format. `document_of` turns a block design into one."""

from dataclasses import dataclass, replace

import groupwise.workflows.blocks as blocks
from groupwise.workflows.drawing import drawn
from groupwise.workflows.endings import Endings
from groupwise.workflows.graph import Graph
from groupwise.workflows.partial_orders import find_ring, in_order
from groupwise.workflows.requirements import Requirements
from groupwise.xml_reader import Element


@dataclass(frozen=True, slots=True)
class Document:
    """Graphs that may call each other through `Node.calls`. A case starts in the first.

    `requirements` are set if the file knows durations, pools or arrivals. `notes` list in words what the file had and a
    document has no place for, so that nothing is dropped silently. `extras` keep what only the file's own format can
    say.
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
            raise blocks.DesignError(f"{self.name}: a document needs at least one graph")
        if len(set(names)) < len(names):
            raise blocks.DesignError(f"{self.name}: the graph {max(names, key=names.count)!r} occurs twice")
        for graph in self.graphs:
            for node in graph.nodes:
                if node.calls and node.calls not in names:
                    raise blocks.DesignError(f"{graph.name}: {node.label!r} calls {node.calls!r}, which does not exist")

    @property
    def root(self) -> Graph:
        return self.graphs[0]

    def all_extras(self) -> list[Element]:
        """The extras of the document, and of its graphs, nodes and flows."""
        found = list(self.extras)
        for graph in self.graphs:
            found += [*graph.extras, *(e for node in graph.nodes for e in node.extras)]
            found += [e for flow in graph.flows for e in flow.extras]
        return found


def calling_order(graphs: tuple[Graph, ...]) -> tuple[list[str], list[str]]:
    """The graphs that a case can reach, each after those it calls; or, if calls form a cycle, that cycle."""
    number = {graph.name: place for place, graph in enumerate(graphs)}
    nodes = [(place, node) for place, graph in enumerate(graphs) for node in graph.nodes]
    calls = {(place, number[node.calls]) for place, node in nodes if node.calls in number}
    # Graphs that nobody calls may be broken without harm.
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


def document_of(design: blocks.Design, requirements: Requirements | None = None) -> Document:
    """A design as a document, ready to be written in any format; requirements add the ways in which cases end early."""
    endings = Endings(requirements) if requirements is not None else None
    return Document(design.name, drawn(design, compact=True, endings=endings), requirements, design.servers)


def to_graphs(design: blocks.Design) -> tuple[Graph, ...]:
    """The graphs of a design as scores measure them: every block in full, and no case ends early."""
    plain = blocks.rewritten(design.root, lambda block: blocks.Skip() if isinstance(block, blocks.Finish) else block)
    return drawn(replace(design, root=plain))


def to_graph(design: blocks.Design) -> Graph:
    """The graph of a design that needs only one; `to_graphs` handles every design."""
    whole, *called = to_graphs(design)
    if called:
        raise blocks.DesignError(f"{design.name}: instances of more than one activity need a second graph")
    return whole
