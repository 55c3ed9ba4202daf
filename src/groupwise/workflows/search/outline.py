"""The part of a tree that is worth showing: the way to the winner, and what was looked into most."""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from typing import TypeAlias

from groupwise.workflows.search.tree import Edge, Tree


@dataclass(slots=True)
class Branch:
    """An action that is shown: how often it was tried, what came of it, and what is shown below.

    `hidden` counts the actions below that were tried and are not shown.
    """

    action: str
    tries: int
    mean: float
    best: float
    winner: bool
    finished: bool
    solved: bool = False
    hidden: int = 0
    branches: list[Branch] = field(default_factory=list)


Place: TypeAlias = tuple[float, tuple[int, int], Branch, Edge, int]


def outline(tree: Tree, most: int = 30, beside: int = 6) -> Branch:
    """At most so many branches in all, and so many side by side; those of the winner are always shown."""
    winner = tree.best.actions if tree.best else ()
    tally = tree.root.tally
    top = Branch("", tally.count, tally.mean, tally.best, bool(winner), False, tree.solved)
    queue: list[Place] = []
    _line_up(tree, queue, top, 0, winner, 0)
    shown = 0
    while queue:
        _, _, above, edge, depth = heappop(queue)
        on_way = _on_way(above, edge, depth, winner)
        if not on_way and (shown >= most or len(above.branches) >= beside):
            above.hidden += 1
            continue
        shown += 1
        actions, last = _only_way(tree, edge)
        branch = _branch(tree, last, "; ".join(actions), on_way)
        above.branches.append(branch)
        if last.child is not None:
            _line_up(tree, queue, branch, last.child, winner, depth + len(actions))
    _in_order(top)
    return top


def _on_way(above: Branch, edge: Edge, depth: int, winner: tuple[str, ...]) -> bool:
    return above.winner and winner[depth : depth + 1] == (edge.action,)


def _only_way(tree: Tree, edge: Edge) -> tuple[list[str], Edge]:
    """An action with those after it, as long as only one was ever tried there and it ended the program."""
    child = tree.child(edge)
    tried = [below for below in child.edges if below.tally.count] if child else []
    end = tree.child(tried[0]) if len(tried) == 1 else None
    return ([edge.action, tried[0].action], tried[0]) if end and end.finished else ([edge.action], edge)


def _branch(tree: Tree, edge: Edge, action: str, on_way: bool) -> Branch:
    child = tree.child(edge)
    finished = child is not None and child.finished
    solved = finished and child is not None and child.judged is not None and child.judged.solved
    return Branch(action, edge.tally.count, edge.tally.mean, edge.tally.best, on_way, finished, solved)


def _line_up(
    tree: Tree, queue: list[Place], above: Branch, number: int, winner: tuple[str, ...], depth: int
) -> None:  # fmt: skip
    """Put a node's tried actions in the queue: the winner's first, then what was tried most, then what did best."""
    for place, edge in enumerate(tree.nodes[number].edges):
        if edge.tally.count:
            rank = -inf if _on_way(above, edge, depth, winner) else -(edge.tally.count + edge.tally.best)
            heappush(queue, (rank, (number, place), above, edge, depth))


def _in_order(branch: Branch) -> None:
    branch.branches.sort(key=lambda one: (not one.winner, -one.best, -one.tries, one.action))
    for one in branch.branches:
        _in_order(one)
