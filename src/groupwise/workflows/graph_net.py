"""The net of a free graph: conditions are places, a flow between two tasks is a place, a task begins and ends.

An or-join waits for whatever can still come, which depends on the whole marking: its steps are marked as such, and
`soundness.check_graph` looks ahead before it takes one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations

from groupwise.workflows.graph import Flow, Graph, Node
from groupwise.workflows.net import Net, NetBuilder, mask_of

WIDEST_OR = 8


@dataclass(frozen=True, slots=True)
class OrJoin:
    """A join that waits: the places it may take from, and the number of its first of 2^n − 1 transitions."""

    task: str
    places: int
    transitions: frozenset[int]


@dataclass(frozen=True, slots=True)
class GraphNet:
    """A graph as a net; `too_wide` names tasks with more or-branches than are unfolded."""

    net: Net
    or_joins: tuple[OrJoin, ...] = ()
    too_wide: tuple[str, ...] = ()


class _Unfolding:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.builder = NetBuilder(places=[graph.start.label, graph.end.label])
        self.places: dict[str, int] = {graph.start.id: 0, graph.end.id: 1}
        self.busy: dict[str, int] = {}
        self.or_joins: list[OrJoin] = []
        self.too_wide: list[str] = []
        for node in graph.nodes:
            if node.kind == "condition":
                self.places[node.id] = self.builder.place(node.label)
            elif node.kind == "task":
                self.busy[node.id] = self.builder.place(f"{node.label} running")

    def place_of(self, flow: Flow) -> int:
        """Where a token lies that goes along the flow: in the condition at one of its ends, or between two tasks."""
        for end in (flow.source, flow.target):
            if end in self.places:
                return self.places[end]
        if flow.id not in self.places:
            self.places[flow.id] = self.builder.place(flow.id)
        return self.places[flow.id]

    def add_silent_flow(self, flow: Flow) -> None:
        """A flow from one condition to another moves the token by itself."""
        self.builder.transition([self.places[flow.source]], [self.places[flow.target]])

    def add(self, task: Node) -> None:
        inputs = [self.place_of(flow) for flow in self.graph.into(task.id)]
        outputs = [self.place_of(flow) for flow in self.graph.out_of(task.id)]
        before = len(self.builder.transitions)
        for chosen in self._choices(task, task.join, inputs):
            self.builder.transition(chosen, [self.busy[task.id]], name=f"{task.label} begins")
        if task.join == "or" and len(inputs) > 1:
            numbers = frozenset(range(before, len(self.builder.transitions)))
            self.or_joins.append(OrJoin(task.id, mask_of(inputs), numbers))
        clears = self._cleared(task)
        for chosen in self._choices(task, task.split, outputs):
            label = "" if task.silent else task.label
            self.builder.transition([self.busy[task.id]], chosen, label=label, clears=clears, name=task.label)

    def _choices(self, task: Node, rule: str, places: list[int]) -> Iterable[list[int]]:
        if rule == "and":
            return [places]
        if rule == "xor":
            return [[place] for place in places]
        if len(places) > WIDEST_OR:
            self.too_wide.append(task.id)
            return [[place] for place in places]
        return [list(some) for size in range(1, len(places) + 1) for some in combinations(places, size)]

    def _cleared(self, task: Node) -> int:
        mask = 0
        for name in task.cancels:
            if name in self.busy:
                mask |= 1 << self.busy[name]
            elif name in self.places:
                mask |= 1 << self.places[name]
            else:
                mask |= sum(1 << self.place_of(flow) for flow in self.graph.flows if flow.id == name)
        return mask


def graph_net(graph: Graph) -> GraphNet:
    """The net of a graph, its transitions named after their tasks."""
    unfolding = _Unfolding(graph)
    ends = set(unfolding.places)
    for flow in graph.flows:
        if flow.source in ends and flow.target in ends:
            unfolding.add_silent_flow(flow)
        else:
            unfolding.place_of(flow)
    for task in graph.tasks:
        unfolding.add(task)
    return GraphNet(unfolding.builder.net(), tuple(unfolding.or_joins), tuple(unfolding.too_wide))
