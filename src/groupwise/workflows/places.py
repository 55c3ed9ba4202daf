"""Where activities stand in a tree of blocks, how often cases come to them, and how two of them relate."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

import groupwise.workflows.blocks as blocks
from groupwise.workflows.partial_orders import Edges, closure
from groupwise.workflows.requirements import Requirements

Relation: TypeAlias = Literal["before", "after", "beside", "never both"]
# How often loops may repeat, by the activities of a round; loops that are not there repeat without a limit.
Limits: TypeAlias = Mapping[frozenset[str], int | None]
NO_LIMITS: Limits = {}


def limits_of(requirements: Requirements) -> Limits:
    return {frozenset(loop.activities): loop.most for loop in requirements.loops}


@dataclass(frozen=True, slots=True)
class ActivityPlace:
    """Where an activity stands: the child indexes that lead there from the root, and the share of cases that do.

    `passed` is the part of the share that ends on the way leave: 1 if there are none.
    """

    activity: blocks.Activity
    path: tuple[int, ...]
    share: float
    passed: float = 1.0


def relation(root: blocks.Block, one: tuple[int, ...], other: tuple[int, ...]) -> Relation:
    """How two activities relate, decided at the block where their paths separate: a body precedes redo and handler.

    They never both happen if the case is always over after the first, or if an outcome has different results for them.
    """
    block = root
    for depth, (a, b) in enumerate(zip(one, other, strict=False)):
        if a == b:
            block = blocks.children(block)[a]
            continue
        early = one if a < b else other
        if _is_over(block, early[depth:]) or _differ(_results(root, one), _results(root, other)):
            return "never both"
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


def _is_over(block: blocks.Block, path: tuple[int, ...]) -> bool:
    """Whether a case that does the activity at the end of a path is over before the first block of the path is left."""
    if not isinstance(block, blocks.Sequence | blocks.Loop):
        return False
    block = blocks.children(block)[path[0]]
    for part in path[1:]:
        if isinstance(block, blocks.Sequence) and any(map(blocks.always_ends, block.parts[part + 1 :])):
            return True
        block = blocks.children(block)[part]
    return False


def _results(root: blocks.Block, path: tuple[int, ...]) -> dict[str, set[str]]:
    """The results of outcomes that lead to the end of a path."""
    found: dict[str, set[str]] = {}
    block = root
    for part in path:
        if isinstance(block, blocks.Choice) and block.outcome:
            answers = set(block.answers[part])
            found[block.outcome] = found.get(block.outcome, answers) & answers
        block = blocks.children(block)[part]
    return found


def _differ(one: dict[str, set[str]], other: dict[str, set[str]]) -> bool:
    return any(not one[name] & other[name] for name in one.keys() & other.keys())


# One order is asked about many pairs; a frozenset remembers its own hash.
@lru_cache(maxsize=4)
def _later(count: int, edges: Edges) -> list[int]:
    return closure(count, edges)


def places_of(root: blocks.Block, limits: Limits = NO_LIMITS) -> Iterator[ActivityPlace]:
    """Every activity of a tree with its place, in the order in which they are written."""
    ends = blocks.may_end(root)
    stack: list[tuple[blocks.Block, tuple[int, ...], float, float]] = [(root, (), 1.0, 1.0)]
    while stack:
        block, path, share, passed = stack.pop()
        if isinstance(block, blocks.Activity):
            yield ActivityPlace(block, path, share, passed)
            continue
        parts, on = blocks.children(block), going_on_to(block, limits) if ends else None
        chances = _chances(block)
        for n in range(len(parts) - 1, -1, -1):
            left = on[n] if on else 1.0
            stack.append((parts[n], (*path, n), share * left * (chances[n] if chances else 1.0), passed * left))


def _chances(block: blocks.Block) -> tuple[float, ...]:
    """The chance of each child of a block; empty if all happen."""
    match block:
        case blocks.Choice(probabilities=probabilities):
            return probabilities
        case blocks.Loop(again=chance) | blocks.Cancellable(chance=chance):
            return 1.0, chance
        case _:
            return ()


def going_on_to(block: blocks.Block, limits: Limits = NO_LIMITS) -> list[float] | None:
    """The share of cases that are not over when they come to each child of a block; None if that is all."""
    if isinstance(block, blocks.Sequence):
        found, left = list[float](), 1.0
        for part in block.parts:
            found.append(left)
            left *= going_on(part, limits)
        return found
    return [1.0, going_on(block.body, limits)] if isinstance(block, blocks.Loop) else None


def going_on(block: blocks.Block, limits: Limits = NO_LIMITS) -> float:
    """The share of cases that are not over after a block, of those that come to it."""
    match block:
        case blocks.Finish():
            return 0.0
        case blocks.Sequence(parts):
            return math.prod(going_on(part, limits) for part in parts)
        case blocks.Choice(parts, shares):
            return sum(share * going_on(part, limits) for part, share in zip(parts, shares, strict=True))
        case blocks.Loop(body, again, redo):
            through, between = going_on(body, limits), going_on(redo, limits)
            if through == between == 1:
                return 1.0
            most = limits.get(frozenset(one.name for one in blocks.activities(body)))
            if most is None:
                return through * (1 - again) / (1 - through * again * between)
            found = through
            for _ in range(most):
                found = through * (1 - again + again * between * found)
            return found
        case _:
            # Nothing ends beside parallel work.
            return 1.0


def options(root: blocks.Block, place: ActivityPlace) -> frozenset[tuple[object, object]]:
    """What must happen so that a case comes to an activity: parts of choices, results of outcomes, ends passed by."""
    found: list[tuple[object, object]] = []
    block = root
    for depth, part in enumerate(place.path):
        here = place.path[:depth]
        if isinstance(block, blocks.Choice):
            found.append((block.outcome, frozenset(block.answers[part])) if block.outcome else (here, part))
        elif isinstance(block, blocks.Sequence):
            found += [(here, ("passed", n)) for n, earlier in enumerate(block.parts[:part]) if blocks.may_end(earlier)]
        block = blocks.children(block)[part]
    return frozenset(found)


def comes_too(root: blocks.Block, one: ActivityPlace, other: ActivityPlace) -> bool:
    """Whether every case that does the one comes to the other, too, unless it is over before."""
    block, together, known = root, True, _results(root, one.path)
    for depth, part in enumerate(other.path):
        together = together and one.path[depth : depth + 1] == (part,)
        if not together and isinstance(block, blocks.Choice):
            for n, way in enumerate(block.parts):
                told = known.get(block.outcome) if block.outcome else None
                possible = told is None or told & set(block.answers[n])
                if n != part and possible and not blocks.always_ends(way):
                    return False
        elif not together and isinstance(block, blocks.Loop | blocks.Cancellable) and part > 0:
            return False
        block = blocks.children(block)[part]
    return True


def are_neighbours(root: blocks.Block, one: ActivityPlace, other: ActivityPlace) -> bool:
    """Whether the other is the next part of the sequence that the one is a part of."""
    block = root
    for part in one.path[:-1]:
        block = blocks.children(block)[part]
    same = bool(one.path) and one.path[:-1] == other.path[:-1]
    return same and isinstance(block, blocks.Sequence) and one.path[-1] + 1 == other.path[-1]
