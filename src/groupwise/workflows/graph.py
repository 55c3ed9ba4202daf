"""A workflow as a free graph, the form that files have: tasks and conditions with flows between them.

Nothing is assumed about it; `soundness.check.check_graph` checks it. The vocabulary is YAWL's, the richest of the
formats: a task joins and splits by and, xor or or, and may cancel others when it completes. A BPMN gateway is a task
without work of its own (`silent`). What a file says and a graph has no field for is kept as `Element`s.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from groupwise.workflows.blocks import PLAIN, DesignError, Handling
from groupwise.workflows.partial_orders import in_order
from groupwise.xml_reader import Element

OWN = "urn:groupwise:workflow"  # the namespace of what we add to files
Rule: TypeAlias = Literal["and", "xor", "or"]
Kind: TypeAlias = Literal["task", "condition", "start", "end"]


@dataclass(frozen=True, slots=True)
class TaskCopies:
    """How many instances of a task run at once, and how many must complete."""

    least: int = 1
    most: int = 1
    enough: int = 1


ONCE = TaskCopies()


@dataclass(frozen=True, slots=True)
class Node:
    """A task, a condition, the start or the end.

    `cancels` lists the nodes and flows whose tokens it removes when it completes. `calls` names the graph of the same
    document that carries it out, `copies` times at once. `extras` keep what else its file says, here and on flows,
    graphs and documents; only writers of that format use them.
    """

    id: str
    name: str = ""
    kind: Kind = "task"
    join: Rule = "xor"
    split: Rule = "and"
    silent: bool = False
    cancels: tuple[str, ...] = ()
    handling: Handling = PLAIN
    copies: TaskCopies = ONCE
    calls: str = ""
    documentation: str = ""
    extras: tuple[Element, ...] = ()

    @property
    def label(self) -> str:
        return self.name or self.id


@dataclass(frozen=True, slots=True)
class Flow:
    """An arrow. `probability` is set if somebody measured or estimated it; `condition` is copied from the file.

    `name` is what the file calls it: the answer to the question of its gateway.
    """

    source: str
    target: str
    probability: float | None = None
    condition: str = ""
    default: bool = False
    name: str = ""
    extras: tuple[Element, ...] = ()

    @property
    def id(self) -> str:
        # Also the name under which `Node.cancels` refers to the flow.
        return f"{self.source}→{self.target}"


@dataclass(frozen=True)
class Graph:
    """Nodes and flows with one start and one end."""

    name: str
    nodes: tuple[Node, ...]
    flows: tuple[Flow, ...]
    documentation: str = ""
    extras: tuple[Element, ...] = ()
    # Indexes over nodes and flows, built once: `into` and `out_of` are asked for everywhere.
    by_id: Mapping[str, Node] = field(init=False, repr=False, compare=False)
    _into: Mapping[str, list[Flow]] = field(init=False, repr=False, compare=False)
    _out_of: Mapping[str, list[Flow]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_id", {node.id: node for node in self.nodes})
        object.__setattr__(self, "_into", {node.id: [] for node in self.nodes})
        object.__setattr__(self, "_out_of", {node.id: [] for node in self.nodes})
        if len(self.by_id) < len(self.nodes):
            ids = [node.id for node in self.nodes]
            raise DesignError(f"{self.name}: the id {next(i for i in ids if ids.count(i) > 1)!r} is used twice")
        for flow in self.flows:
            for end in (flow.source, flow.target):
                if end not in self.by_id:
                    raise DesignError(f"{self.name}: a flow names {end!r}, which does not exist")
            self._out_of[flow.source].append(flow)
            self._into[flow.target].append(flow)
        # Soundness is defined for exactly one start and one end; readers add them where a format allows several.
        for kind in ("start", "end"):
            found = [node.id for node in self.nodes if node.kind == kind]
            if len(found) != 1:
                raise DesignError(f"{self.name}: there must be one {kind}, not {len(found)}")

    @property
    def start(self) -> Node:
        return next(node for node in self.nodes if node.kind == "start")

    @property
    def end(self) -> Node:
        return next(node for node in self.nodes if node.kind == "end")

    @property
    def tasks(self) -> list[Node]:
        return [node for node in self.nodes if node.kind == "task"]

    def into(self, node: str) -> list[Flow]:
        return list(self._into[node])

    def out_of(self, node: str) -> list[Flow]:
        return list(self._out_of[node])


def only_order(graph: Graph) -> bool:
    """Whether a graph is nothing but an order of tasks: everything happens, once, as soon as all before it is done.

    It has no cycle, every node is between the start and the end, and nothing chooses or cancels.
    """
    number = {node.id: place for place, node in enumerate(graph.nodes)}
    for node in graph.nodes:
        into, out = len(graph.into(node.id)), len(graph.out_of(node.id))
        # Conditions, the start and the end pass on one token, as xor does.
        joins, splits = (node.join, node.split) if node.kind == "task" else ("xor", "xor")
        if (into, out) == (0, 0) or node.cancels or (into > 1 and joins != "and") or (out > 1 and splits != "and"):
            return False
        if (into == 0) != (node.kind == "start") or (out == 0) != (node.kind == "end"):
            return False
    edges = frozenset((number[flow.source], number[flow.target]) for flow in graph.flows)
    return len(in_order(len(number), edges)) == len(number)
