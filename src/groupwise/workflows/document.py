"""A document: what a workflow file contains, whatever its format. `document_of` turns a block design into one.

To draw a block design as graphs, gateways become silent tasks named after what they do. Adjacent gateways are kept
apart: every block has a split and a join of its own, so that `block_form.lift` finds it again. Several instances of
more than one activity become a task that calls a separate graph.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import groupwise.workflows.blocks as blocks
from groupwise.workflows.graph import ONCE, Flow, Graph, Node, Rule, TaskCopies
from groupwise.workflows.partial_orders import find_ring, in_order
from groupwise.workflows.requirements import Requirements
from groupwise.xml_reader import Element


@dataclass(slots=True)
class _Drawing:
    """The nodes and flows drawn so far, and the graphs they call, which are complete."""

    name: str
    taken: set[str]
    called: list[Graph] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    flows: list[Flow] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def node(self, node: Node) -> str:
        self.nodes.append(node)
        return node.id

    def gateway(self, what: str, join: Rule = "xor", split: Rule = "and", cancels: tuple[str, ...] = ()) -> str:
        return self.node(Node(self.numbered(what), join=join, split=split, silent=True, cancels=cancels))

    def numbered(self, what: str) -> str:
        self.counts[what] = number = self.counts.get(what, 0) + 1
        return self.free(f"{what}_{number}")

    def free(self, name: str) -> str:
        """The name, with underscores added if an activity already has it."""
        # Activities keep their names; gateways give way.
        while name in self.taken:
            name += "_"
        return name

    def flow(self, source: str, target: str, probability: float | None = None) -> None:
        self.flows.append(Flow(source, target, probability))


Ends = tuple[str, str]


def to_graphs(design: blocks.Design) -> tuple[Graph, ...]:
    """The graphs of a design. A case starts in the first, which calls the others."""
    called: list[Graph] = []  # filled while drawing: inner graphs before the outer ones that call them
    return (_drawn(design.name, design.root, called, design.documentation), *called)


def to_graph(design: blocks.Design) -> Graph:
    """The graph of a design that needs only one; `to_graphs` handles every design."""
    whole, *called = to_graphs(design)
    if called:
        raise blocks.DesignError(f"{design.name}: instances of more than one activity need a second graph")
    return whole


def _drawn(name: str, block: blocks.Block, called: list[Graph], documentation: str = "") -> Graph:
    drawing = _Drawing(name, {activity.name for activity in blocks.activities(block)}, called)
    start = drawing.node(Node(drawing.free("start"), kind="start"))
    first, last = _draw(drawing, block)
    end = drawing.node(Node(drawing.free("end"), kind="end"))
    drawing.flow(start, first)
    drawing.flow(last, end)
    return Graph(name, tuple(drawing.nodes), tuple(drawing.flows), documentation)


def _draw(drawing: _Drawing, block: blocks.Block) -> Ends:
    """Draw the block, and return its first and last node."""
    match block:
        case blocks.Activity():
            return (drawing.node(_task(block)),) * 2
        case blocks.Skip():
            return (drawing.gateway("skip"),) * 2
        case blocks.Instances(blocks.Activity() as body, least, most, enough):
            return (drawing.node(_task(body, TaskCopies(least, most, enough))),) * 2
        case blocks.Instances(body, least, most, enough):
            task = drawing.numbered("instances")
            name = f"{drawing.name}_{task}"
            drawing.called.append(_drawn(name, body, drawing.called))
            return (drawing.node(Node(task, calls=name, copies=TaskCopies(least, most, enough))),) * 2
        case blocks.Sequence(parts):
            ends = [_draw(drawing, part) for part in parts]
            for (_, before), (after, _) in pairwise(ends):
                drawing.flow(before, after)
            return ends[0][0], ends[-1][1]
        case blocks.Parallel(parts):
            return _between(drawing, "and", parts, lambda _: None)
        case blocks.Choice(parts, probabilities):
            return _between(drawing, "xor", parts, lambda number: probabilities[number])
        case blocks.PartialOrder(parts, edges):
            return _order(drawing, parts, edges)
        case blocks.Loop(body, again, redo):
            return _loop(drawing, body, again, redo)
        case blocks.Cancellable():
            return _cancellable(drawing, block)


def _task(activity: blocks.Activity, copies: TaskCopies = ONCE) -> Node:
    return Node(activity.name, activity.name, handling=activity.handling, copies=copies)


def _between(
    drawing: _Drawing, rule: Rule, parts: tuple[blocks.Block, ...], probability: Callable[[int], float | None]
) -> Ends:
    split = drawing.gateway(f"{rule}_split", split=rule)
    ends = [_draw(drawing, part) for part in parts]
    join = drawing.gateway(f"{rule}_join", join=rule)
    for number, (first, last) in enumerate(ends):
        drawing.flow(split, first, probability(number))
        drawing.flow(last, join)
    return split, join


def _order(drawing: _Drawing, parts: tuple[blocks.Block, ...], edges: frozenset[tuple[int, int]]) -> Ends:
    """A part with several predecessors gets a join before it; one with several successors gets a split after it."""
    split = drawing.gateway("and_split", split="and")
    ends = [_draw(drawing, part) for part in parts]
    join = drawing.gateway("and_join", join="and")
    # Where arrows enter and leave each part: the part itself, or its own join or split.
    opened, closed = [], []
    for number, (first, last) in enumerate(ends):
        several_before = sum(b == number for _, b in edges) > 1
        several_after = sum(a == number for a, _ in edges) > 1
        opened.append(drawing.gateway("and_join", join="and") if several_before else first)
        closed.append(drawing.gateway("and_split", split="and") if several_after else last)
        if several_before:
            drawing.flow(opened[-1], first)
        if several_after:
            drawing.flow(last, closed[-1])
    for number in range(len(parts)):
        if not any(b == number for _, b in edges):
            drawing.flow(split, opened[number])
        if not any(a == number for a, _ in edges):
            drawing.flow(closed[number], join)
    for a, b in sorted(edges):
        drawing.flow(closed[a], opened[b])
    return split, join


def _loop(drawing: _Drawing, body: blocks.Block, again: float, redo: blocks.Block) -> Ends:
    entry = drawing.gateway("loop_start")
    first, last = _draw(drawing, body)
    exit_ = drawing.gateway("loop_end", split="xor")
    drawing.flow(entry, first)
    drawing.flow(last, exit_)
    if isinstance(redo, blocks.Skip):
        drawing.flow(exit_, entry, again)
    else:
        back, forth = _draw(drawing, redo)
        drawing.flow(exit_, back, again)
        drawing.flow(forth, entry)
    # A node after the split, so that the flow out of the block has a place for its probability.
    done = drawing.gateway("loop_done")
    drawing.flow(exit_, done, 1 - again)
    return entry, done


def _cancellable(drawing: _Drawing, block: blocks.Cancellable) -> Ends:
    """A guard runs beside the body: either both end together, or the guard cancels the body and the handler follows.

    split → body → guarded ──┐
          └→ guard ──────────┴→ guard_end ──────→ xor_join
                  └→ break_off → handler ─────────┘
    """
    split = drawing.gateway("guard_split", split="and")
    before_nodes, before_flows = len(drawing.nodes), len(drawing.flows)
    first, last = _draw(drawing, block.body)
    inside = [node.id for node in drawing.nodes[before_nodes:]] + [flow.id for flow in drawing.flows[before_flows:]]
    guard = drawing.node(Node(drawing.numbered("guard"), kind="condition"))
    # The body's token waits here for the guard; cancelling clears it as well.
    done = drawing.node(Node(drawing.numbered("guarded"), kind="condition"))
    drawing.flow(split, first)
    drawing.flow(split, guard)
    drawing.flow(last, done)
    complete = drawing.gateway("guard_end", join="and")
    drawing.flow(guard, complete, 1 - block.chance)
    drawing.flow(done, complete)
    # Everything inside, and the places before and after it, so that no token is left behind.
    cancels = (*inside, done, f"{split}→{first}", f"{last}→{done}")
    abort = drawing.gateway("break_off", cancels=cancels)
    drawing.flow(guard, abort, block.chance)
    handle_first, handle_last = _draw(drawing, block.handler)
    drawing.flow(abort, handle_first)
    join = drawing.gateway("xor_join")
    drawing.flow(complete, join)
    drawing.flow(handle_last, join)
    return split, join


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
    """A design as a document, ready to be written in any format."""
    return Document(design.name, to_graphs(design), requirements, design.servers)
