"""A search as data: the tree, what was evaluated, and the file from which it can continue."""

import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field
from pathlib import Path
from typing import Any

from groupwise.errors import ConfigError, StorageError
from groupwise.files import write_atomic
from groupwise.programs.search.search_settings import Judged, SearchSettings
from groupwise.readers import data_limits, load_json, read_bytes


@dataclass(slots=True)
class VisitTally:
    """The number of evaluations that included something, and their values."""

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
class TreeEdge:
    """An action at a node: its log-probability under the prior, its results, and the number of the node it leads to.

    `waiting` counts pending evaluations below it; each counts as a visit of value 0 (a virtual loss).
    """

    action: str
    log_prior: float
    tally: VisitTally = field(default_factory=VisitTally)
    waiting: int = 0
    child: int | None = None

    @property
    def tries(self) -> int:
        return self.tally.count + self.waiting


@dataclass(slots=True)
class TreeNode:
    """A state: the actions that first led to it, and the edges to what may come next (none: it is finished).

    `closed`: everything below has been evaluated. `waiting`: it is being evaluated itself, or all that is left below it
    is. `experience`: the values of the traits of actions taken here or below.
    """

    path: tuple[str, ...]
    key: str
    edges: list[TreeEdge] = field(default_factory=list)
    tally: VisitTally = field(default_factory=VisitTally)
    closed: bool = False
    waiting: bool = False
    judged: Judged | None = None
    experience: dict[str, VisitTally] = field(default_factory=dict)

    @property
    def finished(self) -> bool:
        return not self.edges

    @property
    def tries(self) -> int:
        return self.tally.count + sum(edge.waiting for edge in self.edges)

    def learn(self, trait: str, value: float) -> None:
        self.experience.setdefault(trait, VisitTally()).add(value)


@dataclass(frozen=True, slots=True)
class TreeStep:
    """One action of a walk, with its log-probability under the distribution it was sampled from, and under the prior.

    The distribution is that of the tree at that moment over the `choices` open actions. `rule` says whether its greedy
    part was a tried action ("puct") or a new one ("new"); it is mixed with the prior by `SearchSettings.explore`.
    """

    action: str
    log_prob: float
    log_prior: float
    choices: int
    rule: str


@dataclass(frozen=True, slots=True)
class ActionDraw:
    """A walk down the tree: the nodes, the edges taken (by number), how they were sampled, and the leaf."""

    nodes: tuple[int, ...]
    edges: tuple[int, ...]
    steps: tuple[TreeStep, ...]
    leaf: int


@dataclass(frozen=True, slots=True)
class EvaluationRecord:
    """One evaluation: its number, what was evaluated, how it was sampled, and the result."""

    number: int
    actions: tuple[str, ...]
    key: str
    judged: Judged
    steps: tuple[TreeStep, ...]

    @property
    def log_prob(self) -> float:
        """The log-probability of the walk under the tree's distribution at that moment."""
        return sum(step.log_prob for step in self.steps)


@dataclass(slots=True)
class SearchTree:
    """Everything a search knows.

    `walks` counts walks from the root, `free` those that ended at something evaluated before and so cost nothing.
    `numbers` finds a node by its key. `busy` are nodes with only pending evaluations left below. `low` and `high` are
    the least and the greatest value seen.
    """

    name: str
    seed: int
    settings: SearchSettings
    nodes: list[TreeNode] = field(default_factory=list)
    records: list[EvaluationRecord] = field(default_factory=list)
    pending: deque[ActionDraw] = field(default_factory=deque)
    walks: int = 0
    free: int = 0
    numbers: dict[str, int] = field(default_factory=dict)
    busy: list[int] = field(default_factory=list)
    low: float = 0.0
    high: float = 0.0
    solved: bool = False

    @property
    def root(self) -> TreeNode:
        return self.nodes[0]

    @property
    def exhausted(self) -> bool:
        return self.root.closed

    @property
    def best(self) -> EvaluationRecord | None:
        """The best program found; of equals the first."""
        return max(self.records, key=lambda record: (record.judged.solved, record.judged.value), default=None)

    def child(self, edge: TreeEdge) -> TreeNode | None:
        return None if edge.child is None else self.nodes[edge.child]

    def open(self, edge: TreeEdge) -> bool:
        """Whether there may be something below that is neither evaluated nor pending."""
        child = self.child(edge)
        return child is None or not (child.closed or child.waiting)

    def experience(self, number: int = 0) -> list[dict[str, Any]]:
        """What was tried at a node, best first: the action, the number of tries, mean and best value."""
        tried = [edge for edge in self.nodes[number].edges if edge.tally.count]
        tried.sort(key=lambda edge: (-edge.tally.best, -edge.tally.mean))
        return [{"action": e.action, "tries": e.tally.count, "mean": e.tally.mean, "best": e.tally.best} for e in tried]


VERSION = 1
REMEDY = "Start a new search in another folder."


def save_tree(tree: SearchTree, path: Path) -> None:
    write_atomic(path, json.dumps(tree_as_dict(tree), ensure_ascii=False, allow_nan=False).encode(), durable=False)


def load_tree(path: Path) -> SearchTree:
    try:
        limits = data_limits()
        return tree_of(load_json(read_bytes(path, limits), limits))
    except ConfigError as error:
        raise StorageError(f"{path} is not a search tree: {error.message}", hint=REMEDY) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StorageError(f"{path} is not a search tree: {error}", hint=REMEDY) from error


def tree_as_dict(tree: SearchTree) -> dict[str, Any]:
    return {
        "version": VERSION,
        "name": tree.name,
        "seed": tree.seed,
        "settings": asdict(tree.settings),
        "walks": tree.walks,
        "free": tree.free,
        "busy": tree.busy,
        "low": tree.low,
        "high": tree.high,
        "solved": tree.solved,
        "nodes": [_node_as_list(node) for node in tree.nodes],
        "records": [_with_steps(record) for record in tree.records],
        "pending": [_with_steps(draw) for draw in tree.pending],
        "numbers": tree.numbers,
    }


def tree_of(data: Mapping[str, Any]) -> SearchTree:
    if data.get("version") != VERSION:
        said = f"the search tree has version {data.get('version')!r}; only version {VERSION} can be read"
        raise StorageError(said, hint=REMEDY)
    return SearchTree(
        data["name"], data["seed"], SearchSettings(**data["settings"]),
        [_node_of(node) for node in data["nodes"]],
        [EvaluationRecord(**{**_in_tuples(one), "judged": Judged(**one["judged"])}) for one in data["records"]],
        deque(ActionDraw(**_in_tuples(one)) for one in data["pending"]), data["walks"], data["free"],
        dict(data["numbers"]), list(data["busy"]), data["low"], data["high"], data["solved"],
    )  # fmt: skip


def _edge_as_list(edge: TreeEdge) -> list[Any]:
    # Most edges were never tried; of these only the action and its prior are stored.
    known = [edge.action, edge.log_prior]
    return [*known, astuple(edge.tally), edge.waiting, edge.child] if edge.tries or edge.child is not None else known


def _edge_of(action: str, log_prior: float, tally: Sequence[Any] = (), *rest: Any) -> TreeEdge:
    return TreeEdge(action, log_prior, VisitTally(*tally), *rest)


def _node_as_list(node: TreeNode) -> list[Any]:
    edges = [_edge_as_list(edge) for edge in node.edges]
    judged = None if node.judged is None else asdict(node.judged)
    experience = {trait: astuple(tally) for trait, tally in node.experience.items()}
    return [node.path, node.key, edges, astuple(node.tally), node.closed, node.waiting, judged, experience]


def _node_of(data: Sequence[Any]) -> TreeNode:
    path, key, edges, tally, closed, waiting, judged, experience = data
    return TreeNode(
        tuple(path), key, [_edge_of(*edge) for edge in edges], VisitTally(*tally), closed, waiting,
        None if judged is None else Judged(**judged), {trait: VisitTally(*one) for trait, one in experience.items()},
    )  # fmt: skip


def _with_steps(value: EvaluationRecord | ActionDraw) -> dict[str, Any]:
    return {**asdict(value), "steps": [astuple(step) for step in value.steps]}


def _in_tuples(data: Mapping[str, Any]) -> dict[str, Any]:
    # What `_with_steps` wrote; JSON has lists only.
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}
    return {**values, "steps": tuple(TreeStep(*step) for step in data["steps"])}
