"""Workflow nets: safe Petri nets whose markings are bit masks, and the net of a graph.

A transition takes a token from every place in `takes`, clears `clears` (a cancellation region), and puts a token on
every place in `puts`. Silent transitions have no label.

In the net of a graph, conditions are places and a flow between two tasks is a place; a task has one place, marked while
it runs, with transitions that begin and end it. An or-join waits for whatever can still arrive, which depends on the
marking everywhere: its transitions are listed, and `or_joins` decides when they may fire.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import combinations
from typing import NamedTuple

from groupwise.workflows.blocks import DesignError
from groupwise.workflows.graph import Flow, Graph, Node


class NetTransition(NamedTuple):
    """One step of a net, as bit masks over its places; `label` is empty for a silent one.

    Steps with the same `name` are different ways to do the same thing, which is dead only if none of them can happen.
    A step without a name is part of another and is left out of traces.
    """

    name: str
    label: str
    takes: int
    puts: int
    clears: int = 0


@dataclass(frozen=True, slots=True)
class Net:
    """Places by number, the transitions between them, and where the single token starts and should end."""

    places: tuple[str, ...]
    transitions: tuple[NetTransition, ...]
    source: int = 0
    sink: int = 1

    @property
    def start(self) -> int:
        return 1 << self.source

    @property
    def goal(self) -> int:
        return 1 << self.sink

    def marking(self, mask: int) -> list[str]:
        return [name for place, name in enumerate(self.places) if mask >> place & 1]


@dataclass(slots=True)
class NetBuilder:
    """Collects places and transitions; places 0 and 1 are source and sink."""

    places: list[str] = field(default_factory=lambda: ["start", "end"])
    transitions: list[NetTransition] = field(default_factory=list)

    def place(self, name: str = "") -> int:
        self.places.append(name or f"p{len(self.places)}")
        return len(self.places) - 1

    def transition(
        self, takes: Iterable[int], puts: Iterable[int], label: str = "", clears: int = 0, name: str = ""
    ) -> None:
        name = name or label or f"t{len(self.transitions)}"
        self.transitions.append(NetTransition(name, label, mask_of(takes), mask_of(puts), clears))

    def net(self) -> Net:
        return Net(tuple(self.places), tuple(self.transitions))


def mask_of(places: Iterable[int]) -> int:
    mask = 0
    for place in places:
        mask |= 1 << place
    return mask


# An or-join or or-split over n flows has 2^n − 1 transitions; wider ones are reported as too large.
WIDEST_OR = 8


@dataclass(frozen=True, slots=True)
class OrJoin:
    """A join that waits: the places it may take tokens from, and the numbers of its 2^n − 1 transitions."""

    task: str
    places: int
    transitions: frozenset[int]


@dataclass(frozen=True, slots=True)
class GraphNet:
    """A graph as a net; `too_wide` names tasks with more than `WIDEST_OR` or-branches."""

    net: Net
    or_joins: tuple[OrJoin, ...] = ()
    too_wide: tuple[str, ...] = ()


class _Unfolding:
    def __init__(self, graph: Graph) -> None:
        self.builder = NetBuilder(places=[graph.start.label, graph.end.label])
        self.titles = titles(graph)
        self.places: dict[str, int] = {graph.start.id: 0, graph.end.id: 1}
        # One place per task, marked while it runs: cancelling a running task clears it.
        self.busy: dict[str, int] = {}
        self.on_flow: dict[str, int] = {}
        self.inputs: dict[str, list[int]] = {node.id: [] for node in graph.nodes}
        self.outputs: dict[str, list[int]] = {node.id: [] for node in graph.nodes}
        self.or_joins: list[OrJoin] = []
        self.too_wide: list[str] = []
        for node in graph.nodes:
            if node.kind == "condition":
                self.places[node.id] = self.builder.place(node.label)
            elif node.kind == "task":
                self.busy[node.id] = self.builder.place(f"{self.titles[node.id]} running")
        for flow in graph.flows:
            self._add_flow(flow)
        for task in graph.tasks:
            self._add_task(task)

    def _add_flow(self, flow: Flow) -> None:
        """The token of a flow lies in the condition at one of its ends, or in a place of its own between two tasks."""
        before, after = self.places.get(flow.source), self.places.get(flow.target)
        if before is not None and after is not None:
            self.builder.transition([before], [after])
        place = before if before is not None else after
        if place is None:
            place = self.builder.place(flow.id)
        self.outputs[flow.source].append(place)
        self.inputs[flow.target].append(place)
        self.on_flow[flow.id] = self.on_flow.get(flow.id, 0) | 1 << place

    def _add_task(self, task: Node) -> None:
        title, before = self.titles[task.id], len(self.builder.transitions)
        inputs, busy = self.inputs[task.id], self.busy[task.id]
        # Beginning a task takes its inputs; these steps have no name, so traces name each task once.
        for chosen in self._choices(task, task.join, inputs):
            self.builder.transitions.append(NetTransition("", "", mask_of(chosen), 1 << busy))
        if task.join == "or" and len(inputs) > 1:
            numbers = frozenset(range(before, len(self.builder.transitions)))
            self.or_joins.append(OrJoin(task.id, mask_of(inputs), numbers))
        # Ending it clears what it cancels and marks its outputs.
        clears = self._cleared(task)
        for chosen in self._choices(task, task.split, self.outputs[task.id]):
            label = "" if task.silent else task.label
            self.builder.transition([busy], chosen, label=label, clears=clears, name=title)

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
            elif name in self.on_flow:
                mask |= self.on_flow[name]
            else:
                raise DesignError(f"{task.label!r} cancels {name!r}, which does not exist")
        return mask


def titles(graph: Graph) -> dict[str, str]:
    """The name of each task's steps: its label, followed by its id if several nodes share that label."""
    count = Counter(node.label for node in graph.nodes)
    return {node.id: node.label if count[node.label] == 1 else f"{node.label} ({node.id})" for node in graph.nodes}


def graph_net(graph: Graph) -> GraphNet:
    """The net of a graph. Transitions are named after their tasks; those that begin a task have no name."""
    unfolding = _Unfolding(graph)
    return GraphNet(unfolding.builder.net(), tuple(unfolding.or_joins), tuple(unfolding.too_wide))
