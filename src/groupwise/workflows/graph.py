"""A workflow as a free graph, the form that files have: tasks and conditions with flows between them.

Nothing is assumed about it; `soundness.check.check_graph` checks it. The vocabulary is YAWL's, the richest of the
formats: a task joins and splits by and, xor or or, and may cancel others when it completes. A BPMN gateway is a task
without work of its own (`silent`). What a file says and a graph has no field for is kept as `Element`s.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from groupwise.workflows.blocks import PLAIN, DesignError, Handling

COMMENT = "#comment"


@dataclass(frozen=True, slots=True)
class Element:
    """One element. `tail` is text behind it, inside its parent; `prefixes` are those that texts inside it may use.

    Two elements are equal whatever the `line` they were read from, their prefixes and the order of their attributes.
    """

    tag: str
    attributes: tuple[tuple[str, str], ...] = ()
    text: str = ""
    children: tuple[Element, ...] = ()
    tail: str = ""
    prefixes: tuple[tuple[str, str], ...] = field(default=(), compare=False)
    line: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "attributes", tuple(sorted(self.attributes)))

    @property
    def name(self) -> str:
        """The tag without its namespace."""
        return self.tag.rpartition("}")[2]

    @property
    def namespace(self) -> str:
        return self.tag[1:].partition("}")[0] if self.tag.startswith("{") else ""

    @property
    def parts(self) -> tuple[Element, ...]:
        """The children that are elements."""
        return tuple(child for child in self.children if child.tag != COMMENT)

    def get(self, attribute: str, default: str = "") -> str:
        return next((value for name, value in self.attributes if name == attribute), default)

    def all(self, name: str) -> tuple[Element, ...]:
        """The children of that name, in any namespace."""
        return tuple(child for child in self.children if child.name == name)

    def find(self, name: str) -> Element | None:
        return next((child for child in self.children if child.name == name), None)

    def says(self, name: str) -> str:
        """The text of the child of that name; empty if there is none."""
        child = self.find(name)
        return "" if child is None else child.text.strip()

    def with_attributes(self, **changes: str | None) -> Element:
        """The same with attributes set, or removed where they are None."""
        kept = tuple((name, value) for name, value in self.attributes if name not in changes)
        return replace(self, attributes=kept + tuple((n, v) for n, v in changes.items() if v is not None))

    def walk(self) -> Iterator[Element]:
        """The element and everything inside it, in the order of the file."""
        stack = [self]
        while stack:
            top = stack.pop()
            yield top
            stack.extend(reversed(top.children))


def named(elements: Iterable[Element], name: str, namespace: str | None = None) -> tuple[Element, ...]:
    """Those of that name (and of that namespace)."""
    return tuple(e for e in elements if e.name == name and namespace in (None, e.namespace))


def first(elements: Iterable[Element], name: str, namespace: str | None = None) -> Element | None:
    return next(iter(named(elements, name, namespace)), None)


Rule: TypeAlias = Literal["and", "xor", "or"]
Kind: TypeAlias = Literal["task", "condition", "start", "end"]


@dataclass(frozen=True, slots=True)
class TaskCopies:
    """How many instances of a task there are at once, and how many must complete."""

    least: int = 1
    most: int = 1
    enough: int = 1


ONCE = TaskCopies()


@dataclass(frozen=True, slots=True)
class Node:
    """A task, a condition, or one of the two ends.

    `cancels` are the nodes and flows it clears when it completes; `calls` names the graph of the same document that
    carries it out, as often at once as `copies` says. `extras` are what its file says beyond that, here and on flows,
    graphs and documents: only writers of that format look at them.
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
    """An arrow. `probability` is known where someone measured or estimated it; `condition` is as the file writes it."""

    source: str
    target: str
    probability: float | None = None
    condition: str = ""
    default: bool = False
    extras: tuple[Element, ...] = ()

    @property
    def id(self) -> str:
        return f"{self.source}→{self.target}"


@dataclass(frozen=True)
class Graph:
    """Nodes and flows with one start and one end."""

    name: str
    nodes: tuple[Node, ...]
    flows: tuple[Flow, ...]
    documentation: str = ""
    extras: tuple[Element, ...] = ()
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
        for kind in ("start", "end"):
            found = [node.id for node in self.nodes if node.kind == kind]
            if len(found) != 1:
                raise DesignError(f"{self.name}: there must be one {kind}, and there are {len(found)}")

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
