"""A block design measured in one walk over its tree: what `metrics.structure_of` finds in its graph, without the graph.

Every kind of block adds what `document.to_graph` would draw for it: a parallel block or choice two gateways, a loop
three nodes, a cancellable block six. Only partial orders are drawn, each shape once.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import groupwise.workflows.blocks as blocks
from groupwise.workflows.blocks import Activity, Choice, Finish, Instances, Loop, Parallel, PartialOrder, Sequence, Skip
from groupwise.workflows.partial_orders import Edges
from groupwise.workflows.places import NO_LIMITS, Limits, going_on
from groupwise.workflows.scoring.graph_regions import TOP, Edge
from groupwise.workflows.scoring.metrics import Metrics, measure

FEW_PARTS = 7


class Anatomy(NamedTuple):
    """The metrics of a design; every activity with the probability that a case reaches it; and counts of blocks.

    The first probability ignores cancellation, the second counts cancelled work as not done. `wide` blocks have more
    than seven parts.
    """

    metrics: Metrics
    runs: list[tuple[Activity, float, float]]
    blocks: int
    wide: int


def anatomy(design: blocks.Design, limits: Limits = NO_LIMITS) -> Anatomy:
    """Measure a design; `limits` are those of its loops. An end is measured as an empty branch."""
    walk = _Walk(limits)
    root = design.root
    _ADD[type(root)](walk, root, 0, 1.0, 1.0, True, False)
    return Anatomy(walk.metrics(), walk.runs, walk.blocks, walk.wide)


class _Walk:
    """The counts so far: blocks by kind, and sums over what would be drawn for them."""

    __slots__ = (
        "blocks", "branches", "cancellables", "choices", "cuts", "cyclic", "deepest", "ended", "gates", "limits",
        "loops", "orders", "parallels", "redos", "runs", "skips", "splits", "squares", "steps", "unstructured",
        "wide", "widest",
    )  # fmt: skip

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.blocks = self.branches = self.cancellables = self.choices = self.cuts = self.cyclic = self.deepest = 0
        self.ended = 0
        self.gates = self.loops = self.parallels = self.redos = self.skips = self.splits = self.squares = 0
        self.steps = self.unstructured = self.wide = 0
        self.widest = 1
        self.runs: list[tuple[Activity, float, float]] = []
        self.orders: list[Metrics] = []

    @property
    def drawn(self) -> int:
        """How many nodes are drawn so far, not counting the third node of each loop."""
        gates = 2 * (self.parallels + self.choices + self.loops) + 6 * self.cancellables + self.gates
        return len(self.runs) + self.skips + gates

    def metrics(self) -> Metrics:
        """What `structure_of` would find: `branches` sums the branches of all splits, `squares` their squares."""
        loops, cancellables, branches = self.loops, self.cancellables, self.branches
        pairs = self.parallels + self.choices
        # Per block, from its drawing: a split and join of n branches have 2n flows; a loop 4, or 5 with a redo part;
        # a cancellable block 9. Start and end add one flow each.
        flows = self.steps + 2 * branches + 4 * loops + self.redos + 9 * cancellables + 2
        nodes = self.drawn + loops + 2
        interface = len(self.runs) + self.skips + 2 * self.squares + 9 * loops + 18 * cancellables
        control_flow = self.parallels + self.splits + 2 * loops + 3 * cancellables
        ands = 2 * (self.parallels + cancellables)
        connectors = 2 * (pairs + loops) + 4 * cancellables
        degrees = 2 * (branches + pairs) + 6 * loops + 12 * cancellables
        widest_in = widest_out = max(self.widest, 2) if loops or cancellables else self.widest
        for order in self.orders:
            flows += order.flows
            interface += order.interface
            control_flow += order.control_flow
            ands += order.ands
            connectors += order.connectors
            degrees += order.degrees
            widest_in, widest_out = max(widest_in, order.widest_in), max(widest_out, order.widest_out)
        return Metrics(
            nodes, flows, len(self.runs), control_flow, interface, ands, 2 * (self.choices + loops + cancellables), 0,
            connectors, degrees, widest_in, widest_out, self.deepest, self.cyclic, self.cuts, self.unstructured,
            self.splits - self.choices + loops + cancellables,
        )  # fmt: skip


# Each function adds its block, which lies `depth` deep, is reached with probability `share` and not cancelled with
# probability `alive`; `alone`: no other branch runs beside it; `looped`: it may be repeated. It returns how many of its
# nodes lie directly in the surrounding region, as the nodes of a chain do.
Adding: TypeAlias = Callable[[_Walk, Any, int, float, float, bool, bool], int]


def _activity(walk: _Walk, block: Activity, depth: int, share: float, alive: float, alone: bool, looped: bool) -> int:
    walk.runs.append((block, share, share * alive))
    if alone:
        walk.cuts += 1
    return 1


def _end(walk: _Walk, block: Finish, depth: int, share: float, alive: float, alone: bool, looped: bool) -> int:
    walk.ended += 1
    return _skip(walk, Skip(), depth, share, alive, alone, looped)


def _skip(walk: _Walk, block: Skip, depth: int, share: float, alive: float, alone: bool, looped: bool) -> int:
    walk.skips += 1
    if alone:
        walk.cuts += 1
    return 1


def _instances(walk: _Walk, block: Instances, depth: int, share: float, alive: float, alone: bool, looped: bool) -> int:
    walk.blocks += 1
    return _ADD[type(block.body)](walk, block.body, depth, share, alive, alone, looped)


def _sequence(walk: _Walk, block: Sequence, depth: int, share: float, alive: float, alone: bool, looped: bool) -> int:
    parts = block.parts
    walk.steps += len(parts) - 1
    walk.blocks += 1
    if len(parts) > FEW_PARTS:
        walk.wide += 1
    chain = 0
    for part in parts:
        ended = walk.ended
        chain += _ADD[type(part)](walk, part, depth, share, alive, alone, looped)
        if walk.ended > ended:
            share *= going_on(part, walk.limits)
    return chain


def _parallel(walk: _Walk, block: Parallel, depth: int, share: float, alive: float, alone: bool, looped: bool) -> int:
    parts = block.parts
    walk.parallels += 1
    _between(walk, len(parts), depth, alone)
    for part in parts:
        _ADD[type(part)](walk, part, depth + 1, share, alive, False, looped)
    return 0


def _choice(walk: _Walk, block: Choice, depth: int, share: float, alive: float, alone: bool, looped: bool) -> int:
    parts = block.parts
    walk.choices += 1
    walk.splits += len(parts)
    _between(walk, len(parts), depth, alone)
    for part, probability in zip(parts, block.probabilities, strict=True):
        _ADD[type(part)](walk, part, depth + 1, share * probability, alive, False, looped)
    return 0


def _between(walk: _Walk, count: int, depth: int, alone: bool) -> None:
    """Add a split and a join with `count` branches."""
    walk.branches += count
    walk.squares += count * count
    walk.blocks += 1
    if count > walk.widest:
        walk.widest = count
    if count > FEW_PARTS:
        walk.wide += 1
    if alone:
        walk.cuts += 2
    if depth >= walk.deepest:
        walk.deepest = depth + 1


def _loop(walk: _Walk, block: Loop, depth: int, share: float, alive: float, alone: bool, looped: bool) -> int:
    before = walk.drawn + walk.loops
    walk.loops += 1
    walk.blocks += 1
    if depth >= walk.deepest:
        walk.deepest = depth + 1
    ended = walk.ended
    _ADD[type(block.body)](walk, block.body, depth + 1, share, alive, False, True)
    if walk.ended > ended:
        share *= going_on(block.body, walk.limits)
    if type(block.redo) is not Skip:
        walk.redos += 1
        _ADD[type(block.redo)](walk, block.redo, depth + 1, share * block.again, alive, False, True)
    if not looped:
        walk.cyclic += walk.drawn + walk.loops - 1 - before
    if alone:
        walk.cuts += 3
    return 1


def _cancellable(
    walk: _Walk, block: blocks.Cancellable, depth: int, share: float, alive: float, alone: bool, looped: bool
) -> int:
    walk.cancellables += 1
    walk.blocks += 1
    if depth >= walk.deepest:
        walk.deepest = depth + 1
    if alone:
        walk.cuts += 2
    body, handler, chance = block.body, block.handler, block.chance
    chain = _ADD[type(body)](walk, body, depth + 1, share, alive * (1 - chance), False, looped)
    chain += _ADD[type(handler)](walk, handler, depth + 1, share * chance, alive, False, looped)
    walk.unstructured += 6 + chain
    return 0


def _order(walk: _Walk, block: PartialOrder, depth: int, share: float, alive: float, alone: bool, looped: bool) -> int:
    shape = _shape(len(block.parts), block.edges)
    walk.orders.append(shape.gates)
    walk.gates += shape.gates.nodes
    walk.blocks += 1
    if len(block.parts) > FEW_PARTS:
        walk.wide += 1
    if alone:
        walk.cuts += shape.gates.cuts
    walk.deepest = max(walk.deepest, depth + shape.gates.depth)
    chain = shape.on_top
    for part, (deeper, free) in zip(block.parts, shape.parts, strict=True):
        passed = _ADD[type(part)](walk, part, depth + deeper, share, alive, alone and free, looped)
        if deeper == 0:
            chain += passed
    return chain


@dataclass(frozen=True, slots=True)
class _Shape:
    """The drawing of an order apart from its parts: metrics of its gates, how many of them lie directly in the
    surrounding region, and for each part how much deeper it lies and whether it is a cut vertex."""

    gates: Metrics
    on_top: int
    parts: tuple[tuple[int, bool], ...]


@lru_cache(maxsize=65_536)
def _shape(count: int, edges: Edges) -> _Shape:
    arrows, nodes = _drawn(count, edges)
    rules = ["and"] * nodes
    found = measure(arrows, rules, rules, (START, END), count, is_order=True)
    gates = range(count + 2, nodes)
    whole, regions, cuts = found.metrics, found.regions, found.cuts
    own = whole._replace(
        nodes=len(gates),
        flows=whole.flows - 2,
        interface=whole.interface - count,
        cuts=sum(gate in cuts for gate in gates),
    )
    parts = tuple((regions.depth(part), part in cuts) for part in range(2, count + 2))
    return _Shape(own, sum(regions.of[gate] == TOP for gate in gates), parts)


START, END = 0, 1


def _drawn(count: int, edges: Edges) -> tuple[list[Edge], int]:
    """The arrows that would be drawn for an order, and how many nodes: two ends, its parts from number 2 on, gates."""
    before, after = [0] * count, [0] * count
    for a, b in edges:
        after[a] += 1
        before[b] += 1
    split, join, nodes = count + 2, count + 3, count + 4
    arrows = [(START, split), (join, END)]
    opened, closed = list(range(2, count + 2)), list(range(2, count + 2))
    # A part with several predecessors gets a join in front of it, one with several successors a split behind it.
    for part in range(count):
        if before[part] > 1:
            arrows.append((nodes, part + 2))
            opened[part], nodes = nodes, nodes + 1
        if after[part] > 1:
            arrows.append((part + 2, nodes))
            closed[part], nodes = nodes, nodes + 1
    arrows += [(split, opened[part]) for part in range(count) if not before[part]]
    arrows += [(closed[part], join) for part in range(count) if not after[part]]
    arrows += [(closed[a], opened[b]) for a, b in edges]
    return arrows, nodes


_ADD: dict[type, Adding] = {
    Activity: _activity,
    Skip: _skip,
    Finish: _end,
    Instances: _instances,
    Sequence: _sequence,
    Parallel: _parallel,
    Choice: _choice,
    Loop: _loop,
    blocks.Cancellable: _cancellable,
    PartialOrder: _order,
}
