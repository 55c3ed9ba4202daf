"""A second opinion on graphs: tokens in bags, by the words of the definition, and nothing shared with the checker.

Slow and plain on purpose. It walks the graph itself and not a net made of it, keeps every marking as a sorted tuple of
tokens, and finds every defect there is and not only the first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations

from groupwise.workflows.graph import Graph

Token = str
Marking = tuple[Token, ...]


class TooManyMarkings(Exception):
    pass


class Player:
    """Plays a graph. A token lies at a condition, on a flow between two tasks, or in a running task."""

    def __init__(self, graph: Graph, limit: int) -> None:
        self.graph, self.limit = graph, limit
        tasks = {node.id for node in graph.nodes if node.kind == "task"}
        self.holder = {
            flow: f"flow {number}" if {flow.source, flow.target} <= tasks
            else f"at {flow.target if flow.source in tasks else flow.source}"
            for number, flow in enumerate(graph.flows)
        }  # fmt: skip
        self.entries = {task: [self.holder[flow] for flow in graph.flows if flow.target == task] for task in tasks}
        self.exits = {task: [self.holder[flow] for flow in graph.flows if flow.source == task] for task in tasks}
        self.cleared = {task: self._cleared(task) for task in tasks}
        self.start, self.end = (f"at {graph.start.id}",), (f"at {graph.end.id}",)
        self.concerns: dict[Token, set[str]] = {f"in {task}": {task} for task in tasks}
        for task, entries in self.entries.items():
            for entry in entries:
                self.concerns.setdefault(entry, set()).add(task)
        self.glides = [(flow.source, flow.target) for flow in graph.flows if not {flow.source, flow.target} & tasks]
        self.waits: dict[tuple[str, Marking], bool] = {}

    def _cleared(self, task: str) -> set[Token]:
        found = set()
        for name in self.graph.by_id[task].cancels:
            found |= {f"at {name}", f"in {name}"} | {held for flow, held in self.holder.items() if flow.id == name}
        return found

    def moves(self, marking: Marking, without: str = "", patient: bool = True) -> Iterator[tuple[str, Marking]]:
        """What can happen: a task begins or ends. Looking ahead for a join, it is left out and nobody is patient."""
        for source, target in self.glides:
            if f"at {source}" in marking:
                yield "", _after(marking, [f"at {source}"], set(), [f"at {target}"])
        for task in sorted({task for token in marking for task in self.concerns.get(token, ())}):
            if task != without:
                for taken in self._beginnings(task, marking, patient):
                    yield "", _after(marking, taken, set(), [f"in {task}"])
            if f"in {task}" in marking:
                for given in _subsets(self.exits[task], self.graph.by_id[task].split):
                    yield task, _after(marking, [f"in {task}"], self.cleared[task], given)

    def _beginnings(self, task: str, marking: Marking, patient: bool) -> Iterator[list[Token]]:
        entries, join = self.entries[task], self.graph.by_id[task].join
        ready = [entry for entry in entries if entry in marking]
        if join == "and":
            if len(ready) == len(entries):
                yield ready
        elif join == "xor" or not patient:
            yield from ([entry] for entry in ready)
        elif ready and not self._should_wait(task, marking, ready):
            yield ready

    def _should_wait(self, task: str, marking: Marking, ready: list[Token]) -> bool:
        """Wynn's rule: wait while a marking can be reached with all of `ready` and one more of the entries."""
        if (task, marking) not in self.waits:
            wanted = [Counter([*ready, entry]) for entry in self.entries[task] if entry not in ready]
            reached = explore(marking, lambda m: [after for _, after in self.moves(m, task, False)], self.limit)
            self.waits[task, marking] = any(Counter(after) >= want for after in reached for want in wanted)
        return self.waits[task, marking]


def explore(start: Marking, follow, limit: int) -> dict[Marking, list[Marking]]:  # type: ignore[no-untyped-def]
    found: dict[Marking, list[Marking]] = {}
    stack = [start]
    while stack:
        here = stack.pop()
        if here not in found:
            found[here] = list(follow(here))
            stack += found[here]
            if len(found) > limit:
                raise TooManyMarkings
    return found


class Found(Exception):
    """Proof that a graph is not sound."""


def defects(graph: Graph, limit: int = 3_000) -> set[str]:
    """The rules the graph breaks; the empty set for a sound one. Its structure is not looked at.

    A marking that is wrong by itself is proof enough, and ends the search; ways without an end and dead tasks are
    known when all has been seen.
    """
    try:
        return _defects(graph, limit)
    except Found as proof:
        return {str(proof)}


def _defects(graph: Graph, limit: int) -> set[str]:
    player = Player(graph, limit)
    happened: set[str] = set()
    (end,) = player.end

    def follow(marking: Marking) -> list[Marking]:
        if len(set(marking)) < len(marking):
            raise Found("unsafe")
        if end in marking and marking != player.end:
            raise Found("improper completion")
        moves = list(player.moves(marking))
        if not moves and marking != player.end:
            raise Found("no way to complete")
        happened.update(name for name, _ in moves)
        return [after for _, after in moves]

    leads = explore(player.start, follow, limit)
    before: dict[Marking, set[Marking]] = {}
    for marking, followers in leads.items():
        for after in followers:
            before.setdefault(after, set()).add(marking)
    able = set(explore(player.end, lambda marking: before.get(marking, ()), limit)) if player.end in leads else set()
    found = {"no way to complete"} if able < leads.keys() else set()
    return found | ({"dead task"} if player.entries.keys() - happened else set())


def _after(marking: Marking, taken: list[Token], cleared: set[Token], given: list[Token]) -> Marking:
    left = list(marking)
    for token in taken:
        left.remove(token)
    return tuple(sorted([token for token in left if token not in cleared] + given))


def _subsets(entries: list[Token], rule: str) -> list[list[Token]]:
    if rule == "and":
        return [entries]
    sizes = range(1, 2 if rule == "xor" else len(entries) + 1)
    return [list(some) for size in sizes for some in combinations(entries, size)]
