"""Where activities stand in a tree of blocks, how often cases come to them, and how two of them relate."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

import groupwise.workflows.blocks as blocks
from groupwise.workflows.partial_orders import Edges, closure

Relation: TypeAlias = Literal["before", "after", "beside", "never both"]


@dataclass(frozen=True, slots=True)
class ActivityPlace:
    """Where an activity stands: the child indexes that lead there from the root, and the share of cases that do."""

    activity: blocks.Activity
    path: tuple[int, ...]
    share: float


def relation(root: blocks.Block, one: tuple[int, ...], other: tuple[int, ...]) -> Relation:
    """How two activities relate, decided at the block where their paths separate: a body precedes redo and handler."""
    block = root
    for a, b in zip(one, other, strict=False):
        if a == b:
            block = blocks.children(block)[a]
            continue
        match block:
            case blocks.Choice():
                return "never both"
            case blocks.Parallel():
                return "beside"
            case blocks.PartialOrder(parts, edges):
                later = _later(len(parts), edges)
                return "before" if later[a] >> b & 1 else "after" if later[b] >> a & 1 else "beside"
            case _:
                return "before" if a < b else "after"
    raise AssertionError("two activities at one place")


# One order is asked about many pairs; a frozenset remembers its own hash.
@lru_cache(maxsize=4)
def _later(count: int, edges: Edges) -> list[int]:
    return closure(count, edges)


def places_of(root: blocks.Block) -> Iterator[ActivityPlace]:
    """Every activity of a tree with its place, in the order in which they are written."""
    stack: list[tuple[blocks.Block, tuple[int, ...], float]] = [(root, (), 1.0)]
    while stack:
        block, path, share = stack.pop()
        if isinstance(block, blocks.Activity):
            yield ActivityPlace(block, path, share)
        elif isinstance(block, blocks.Sequence | blocks.Parallel | blocks.PartialOrder):
            stack += [(part, (*path, number), share) for number, part in enumerate(block.parts)][::-1]
        else:
            stack += _unsure(block, path, share)[::-1]


def _unsure(
    block: blocks.Block, path: tuple[int, ...], share: float
) -> list[tuple[blocks.Block, tuple[int, ...], float]]:
    """The children of a block that not every case reaches, each with its path and share."""
    match block:
        case blocks.Choice(parts, probabilities):
            return [(part, (*path, n), share * probabilities[n]) for n, part in enumerate(parts)]
        case blocks.Loop(body, again, redo):
            return [(body, (*path, 0), share), (redo, (*path, 1), share * again)]
        case blocks.Cancellable(body, chance, handler):
            return [(body, (*path, 0), share), (handler, (*path, 1), share * chance)]
        case _:
            return [(part, (*path, n), share) for n, part in enumerate(blocks.children(block))]


def options(root: blocks.Block, place: ActivityPlace) -> frozenset[tuple[tuple[int, ...], int]]:
    """The branches of choices that a case must take to come to an activity: the path of each choice, and its part."""
    found, block = [], root
    for depth, part in enumerate(place.path):
        if isinstance(block, blocks.Choice):
            found.append((place.path[:depth], part))
        block = blocks.children(block)[part]
    return frozenset(found)


def are_neighbours(root: blocks.Block, one: ActivityPlace, other: ActivityPlace) -> bool:
    """Whether the other is the next part of the sequence that the one is a part of."""
    block = root
    for part in one.path[:-1]:
        block = blocks.children(block)[part]
    same = bool(one.path) and one.path[:-1] == other.path[:-1]
    return same and isinstance(block, blocks.Sequence) and one.path[-1] + 1 == other.path[-1]
