"""Metrics of the shape of a workflow: its size, branching, nesting, and how well it separates.

`structure_of` measures a graph; `design_metrics.anatomy` measures a block design without drawing it, with the same
results. docs/workflows.md has the formulas.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from groupwise.workflows.graph import Graph, Node
from groupwise.workflows.scoring.graph_regions import TOP, Edge, Regions, find_regions


class Metrics(NamedTuple):
    """Counts of a graph, and the measures derived from them; a tuple, because one is made for every design.

    A connector is a node with several flows in or out; `ands`, `xors` and `ors` count splits and joins by their rule.
    `interface` is Σ (fan-in · fan-out)², `cyclic` counts nodes on cycles, `cuts` cut vertices other than start and end.
    `decisions` counts the ways beyond the first of every split that chooses.
    """

    nodes: int
    flows: int
    tasks: int
    control_flow: int
    interface: int
    ands: int
    xors: int
    ors: int
    connectors: int
    degrees: int
    widest_in: int
    widest_out: int
    depth: int
    cyclic: int
    cuts: int
    unstructured: int
    decisions: int

    @property
    def paths(self) -> int:
        """Independent paths of a reader or tester: one more than decisions (McCabe 1976).

        Parallel branches are one path: all of them are taken in every case.
        """
        return self.decisions + 1

    @property
    def cyclomatic(self) -> int:
        """A − N + 2 for A flows and N nodes, which counts parallel branches like decisions."""
        return self.flows - self.nodes + 2

    @property
    def connectivity(self) -> float:
        """Flows per node, A / N (coefficient of network connectivity)."""
        return self.flows / self.nodes

    @property
    def density(self) -> float:
        """The share of all possible flows that exist, A / (N (N − 1))."""
        return self.flows / (self.nodes * (self.nodes - 1))

    @property
    def mean_degree(self) -> float:
        """Flows in and out of a connector on average; 0 without connectors."""
        return self.degrees / self.connectors if self.connectors else 0.0

    @property
    def cyclicity(self) -> float:
        """The share of nodes that lie on a cycle."""
        return self.cyclic / self.nodes

    @property
    def heterogeneity(self) -> float:
        """The entropy of the connectors' rules, −Σ p log₃ p over and, xor and or: 0 all alike, 1 evenly mixed."""
        total = self.ands + self.xors + self.ors
        shares = [count / total for count in (self.ands, self.xors, self.ors) if count]
        return -sum(share * math.log(share, 3) for share in shares) + 0.0

    @property
    def separability(self) -> float:
        """The share of nodes (without start and end) that are cut vertices: removing one splits the graph in two."""
        return self.cuts / (self.nodes - 2) if self.nodes > 2 else 1.0

    @property
    def structuredness(self) -> float:
        """The share of nodes that lie in blocks: chains, matching splits and joins, loops, acyclic and-gates."""
        return 1 - self.unstructured / self.nodes

    def as_dict(self) -> dict[str, float]:
        """Every count and every measure by its name."""
        names = [*self._fields, "paths", "cyclomatic", "connectivity", "density", "mean_degree", "cyclicity"]
        names += ["heterogeneity", "separability", "structuredness"]
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True)
class MeasuredGraph:
    """A graph's metrics, its regions and its cut vertices."""

    metrics: Metrics
    regions: Regions
    cuts: set[int]


def structure_of(graph: Graph) -> Metrics:
    """The metrics of a graph."""
    number = {node.id: place for place, node in enumerate(graph.nodes)}
    edges = [(number[flow.source], number[flow.target]) for flow in graph.flows]
    splits = [_rule(node, node.split) for node in graph.nodes]
    joins = [_rule(node, node.join) for node in graph.nodes]
    tasks = sum(node.kind == "task" and not node.silent for node in graph.nodes)
    return measure(edges, joins, splits, (number[graph.start.id], number[graph.end.id]), tasks).metrics


def measure(
    edges: Sequence[Edge],
    joins: Sequence[str],
    splits: Sequence[str],
    ends: tuple[int, int],
    tasks: int,
    is_order: bool = False,
) -> MeasuredGraph:
    """Measure a graph whose nodes are numbers, each with the rules by which it joins and splits.

    `is_order` promises and-gates without a cycle, so cycles and structure need not be looked for.
    """
    count, (start, end) = len(joins), ends
    ways_in, ways_out = [0] * count, [0] * count
    for source, target in edges:
        ways_out[source] += 1
        ways_in[target] += 1
    degrees = list(zip(ways_in, ways_out, strict=True))
    roles = [splits[n] for n in range(count) if ways_out[n] > 1]
    control_flow = sum(_control_flow(splits[n], ways_out[n]) for n in range(count) if ways_out[n] > 1)
    roles += [joins[n] for n in range(count) if ways_in[n] > 1]
    connectors = [into + out for into, out in degrees if into > 1 or out > 1]
    regions = find_regions(count, edges, start, end)
    cuts = cut_vertices(count, edges, start) - {start, end}
    metrics = Metrics(
        nodes=count,
        flows=len(edges),
        tasks=tasks,
        control_flow=control_flow,
        interface=sum((into * out) ** 2 for into, out in degrees),
        ands=roles.count("and"),
        xors=roles.count("xor"),
        ors=roles.count("or"),
        connectors=len(connectors),
        degrees=sum(connectors),
        widest_in=max(ways_in),
        widest_out=max(ways_out),
        depth=max(regions.depth(node) for node in range(count)),
        cyclic=0 if is_order else _on_cycles(count, edges),
        cuts=len(cuts),
        unstructured=0 if is_order else _unstructured(regions, edges, degrees, joins, splits),
        decisions=sum(out - 1 for rule, out in zip(splits, ways_out, strict=True) if out > 1 and rule != "and"),
    )
    return MeasuredGraph(metrics, regions, cuts)


def _rule(node: Node, rule: str) -> str:
    return rule if node.kind == "task" else "xor"


def _control_flow(rule: str, branches: int) -> int:
    """A split's control-flow complexity, the states after it: one per branch, one per set of branches, or one."""
    return {"xor": branches, "or": (1 << min(branches, 60)) - 1, "and": 1}[rule]  # capped at 2^60 − 1


def cut_vertices(count: int, edges: Sequence[Edge], root: int) -> set[int]:
    """The cut vertices of the graph, ignoring the direction of edges (Hopcroft and Tarjan 1973).

    `high` numbers nodes in depth-first order from 1; `low` is the smallest number that a node's subtree reaches by one
    edge back. A node is a cut vertex if some child's subtree reaches nothing above it; the root, if it has two.
    """
    near: list[list[int]] = [[] for _ in range(count)]
    for a, b in edges:
        near[a].append(b)
        near[b].append(a)
    found, low, high = set(), [0] * count, [0] * count
    clock, ways = 1, 0
    high[root] = low[root] = clock
    stack = [(root, -1, iter(near[root]))]
    while stack:
        here, parent, rest = stack[-1]
        for there in rest:
            if high[there] == 0:
                clock += 1
                high[there] = low[there] = clock
                stack.append((there, here, iter(near[there])))
                break
            if there != parent:
                low[here] = min(low[here], high[there])
        else:
            stack.pop()
            if parent == root:
                ways += 1
            elif parent >= 0 and low[here] >= high[parent]:
                found.add(parent)
            if parent >= 0:
                low[parent] = min(low[parent], low[here])
    return found | {root} if ways > 1 else found


def _on_cycles(count: int, edges: Sequence[Edge]) -> int:
    """How many nodes lie on a cycle: in a strongly connected component (Kosaraju), or with a flow to themselves."""
    after: list[list[int]] = [[] for _ in range(count)]
    before: list[list[int]] = [[] for _ in range(count)]
    for a, b in edges:
        after[a].append(b)
        before[b].append(a)
    order: list[int] = []
    seen = [False] * count
    for root in range(count):
        stack = [(root, iter(after[root]))] if not seen[root] else []
        seen[root] = True
        while stack:
            here, rest = stack[-1]
            nearby = next((node for node in rest if not seen[node]), None)
            if nearby is None:
                order.append(stack.pop()[0])
            else:
                seen[nearby] = True
                stack.append((nearby, iter(after[nearby])))
    # Second pass, on reversed edges, in reverse order of completion: each search covers one component.
    component = [-1] * count
    for root in reversed(order):
        pile = [root] if component[root] < 0 else []
        while pile:
            here = pile.pop()
            if component[here] < 0:
                component[here] = root
                pile += before[here]
    sizes = [0] * count
    for root in component:
        sizes[root] += 1
    alone = {a for a, b in edges if a == b}
    return sum(sizes[component[node]] > 1 or node in alone for node in range(count))


def _unstructured(
    regions: Regions, edges: Sequence[Edge], degrees: Sequence[Edge], joins: Sequence[str], splits: Sequence[str]
) -> int:
    """How many nodes lie directly in a region that is not a block."""
    members: dict[int, list[int]] = {}
    for node, region in enumerate(regions.of):
        members.setdefault(region, []).append(node)
    arrows = _arrows_by_region(regions, edges)
    total = 0
    for region, nodes in members.items():
        roles = [(node, "join", joins[node]) for node in nodes if degrees[node][0] > 1]
        roles += [(node, "split", splits[node]) for node in nodes if degrees[node][1] > 1]
        if not _is_block(roles, regions.first.get(region, TOP), arrows.get(region, [])):
            total += len(nodes)
    return total


def _is_block(roles: list[tuple[int, str, str]], first: int, arrows: list[Edge]) -> bool:
    """Whether a region is a chain, a split with a join of the same rule, a loop of xor gates, or acyclic and-gates."""
    rules = {rule for _, _, rule in roles}
    if not roles:
        return True
    if len(rules) == 1 and sorted(kind for _, kind, _ in roles) == ["join", "split"]:
        # A region that is entered at its join goes back from the split to the join.
        is_loop = any(node == first and kind == "join" for node, kind, _ in roles)
        return not is_loop or rules == {"xor"}
    names = {node: number for number, node in enumerate(dict.fromkeys(end for arrow in arrows for end in arrow))}
    return rules == {"and"} and not _on_cycles(len(names), [(names[a], names[b]) for a, b in arrows])


def _arrows_by_region(regions: Regions, edges: Sequence[Edge]) -> dict[int, list[Edge]]:
    """Each region's arrows, with every region inside it contracted to one node (number −2 − its name)."""
    chains = [_around(regions, node) for node in range(len(regions.of))]
    found: dict[int, list[Edge]] = {}
    for a, b in edges:
        up_a, up_b = chains[a], chains[b]
        # The arrow belongs to the innermost region around both ends.
        shared = next(region for region in up_a if region in up_b)
        place_a, place_b = up_a.index(shared), up_b.index(shared)
        ends = (a if place_a == 0 else -2 - up_a[place_a - 1], b if place_b == 0 else -2 - up_b[place_b - 1])
        found.setdefault(shared, []).append(ends)
    return found


def _around(regions: Regions, node: int) -> list[int]:
    chain, region = [], regions.of[node]
    while region != TOP:
        chain.append(region)
        region = regions.parent[region]
    return [*chain, TOP]
