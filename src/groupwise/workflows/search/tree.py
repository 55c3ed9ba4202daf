"""A search tree as data: nodes, the edges between them, what was evaluated and how it was drawn.

Equal states share a node, so the tree is really a graph without rings. `saving` writes it down.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from groupwise.workflows.search.domain import Judged
from groupwise.workflows.search.settings import Settings


@dataclass(slots=True)
class Tally:
    """How often something was part of what was evaluated, and what it was worth."""

    count: int = 0
    total: float = 0.0
    best: float = 0.0

    def add(self, value: float) -> None:
        self.count += 1
        self.total += value
        self.best = max(self.best, value)

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0


@dataclass(slots=True)
class Edge:
    """An action at a node: its log-probability under the prior, what came of it, and where it leads (a node's number).

    `waiting` counts the evaluations below it that are under way: until they come back, each counts as a visit that
    found nothing (a virtual loss).
    """

    action: str
    log_prior: float
    tally: Tally = field(default_factory=Tally)
    waiting: int = 0
    child: int | None = None

    @property
    def tries(self) -> int:
        return self.tally.count + self.waiting


@dataclass(slots=True)
class Node:
    """A state: the actions that first led to it, and what may come next (nothing: it is finished).

    `closed` where everything below has been evaluated; `waiting` while it is being evaluated itself, or all that is
    left below it. `experience` has what the traits of actions taken here or below were worth.
    """

    path: tuple[str, ...]
    key: str
    edges: list[Edge] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    closed: bool = False
    waiting: bool = False
    judged: Judged | None = None
    experience: dict[str, Tally] = field(default_factory=dict)

    @property
    def finished(self) -> bool:
        return not self.edges

    @property
    def tries(self) -> int:
        return self.tally.count + sum(edge.waiting for edge in self.edges)


@dataclass(frozen=True, slots=True)
class Step:
    """One action of a draw, with its log-probability under the distribution it was drawn from, and under the prior.

    The distribution is that of the tree at that moment over the `choices` actions that were open: `rule` says whether
    PUCT chose among known children ("puct") or a new one was asked for ("new"), each mixed with the prior as
    `Settings.explore` says.
    """

    action: str
    log_prob: float
    log_prior: float
    choices: int
    rule: str


@dataclass(frozen=True, slots=True)
class Draw:
    """A way down the tree: the nodes passed, the edges taken there (by number), how they were drawn, and the leaf."""

    nodes: tuple[int, ...]
    edges: tuple[int, ...]
    steps: tuple[Step, ...]
    leaf: int

    @property
    def log_prob(self) -> float:
        return sum(step.log_prob for step in self.steps)


@dataclass(frozen=True, slots=True)
class Record:
    """One evaluation: which it was, what was evaluated, how it was drawn and what it was worth."""

    number: int
    actions: tuple[str, ...]
    key: str
    judged: Judged
    steps: tuple[Step, ...]

    @property
    def log_prob(self) -> float:
        """The log-probability of the draw, under the distribution that the tree had at that moment."""
        return sum(step.log_prob for step in self.steps)


@dataclass(slots=True)
class Tree:
    """Everything a search knows.

    `walks` counts ways down from the root, `free` those that ended at something evaluated before and so cost nothing;
    `numbers` finds a node by its key; `busy` are nodes with everything left below under
    way; `low` and `high` are the least and the greatest value seen.
    """

    name: str
    seed: int
    settings: Settings
    nodes: list[Node] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    pending: deque[Draw] = field(default_factory=deque)
    walks: int = 0
    free: int = 0
    numbers: dict[str, int] = field(default_factory=dict)
    busy: list[int] = field(default_factory=list)
    low: float = 0.0
    high: float = 0.0
    solved: bool = False

    @property
    def root(self) -> Node:
        return self.nodes[0]

    @property
    def exhausted(self) -> bool:
        return self.root.closed

    @property
    def best(self) -> Record | None:
        """The best program found; the first of several."""
        return max(self.records, key=lambda record: (record.judged.solved, record.judged.value), default=None)

    def child(self, edge: Edge) -> Node | None:
        return None if edge.child is None else self.nodes[edge.child]

    def open(self, edge: Edge) -> bool:
        """Whether there may be something below that is neither evaluated nor being evaluated."""
        child = self.child(edge)
        return child is None or not (child.closed or child.waiting)

    def experience(self, number: int = 0) -> list[dict[str, Any]]:
        """What was tried at a node, best first: the action, how often, its mean and best value."""
        tried = [edge for edge in self.nodes[number].edges if edge.tally.count]
        tried.sort(key=lambda edge: (-edge.tally.best, -edge.tally.mean))
        return [{"action": e.action, "tries": e.tally.count, "mean": e.tally.mean, "best": e.tally.best} for e in tried]
