"""Choices of one outcome as a single choice, made where the result is first needed: the same cases, other blocks.

    order → [courier 30% | –] → pack → [ship express 30% | ship standard 70%]
    order → [courier → pack → ship express 30% | pack → ship standard 70%]

What comes between two choices of an outcome is repeated for each of its results, so activities occur several times.
Only evaluation sees such trees: formulas and simulation are then exact without knowing about outcomes.
"""

from collections.abc import Iterator

import groupwise.workflows.blocks as blocks
from groupwise.workflows.blocks import Block, Choice, DesignError, Sequence

Results = list[tuple[frozenset[str], float]]
# How many blocks an unfolded design may have; outcomes that overlap multiply.
MOST = 20_000


def unfolded(root: Block) -> Block:
    """The tree without outcomes."""
    if next(_forks(root), None) is None:
        return root
    return _unfolded(root)


def _unfolded(block: Block) -> Block:
    while (name := _meets_in(block)) is not None:
        block = _hoisted(block, name)
        if sum(1 for _ in blocks.walk(block)) > MOST:
            raise DesignError("too many outcomes are asked about again while others are still open")
    parts = tuple(_unfolded(part) for part in blocks.children(block))
    block = blocks.with_children(block, parts) if parts else block
    if isinstance(block, Choice) and block.outcome:
        return Choice(block.parts, block.probabilities)
    return block


def _forks(block: Block) -> Iterator[Choice]:
    return (one for one in blocks.walk(block) if isinstance(one, Choice) and one.outcome)


def _meets_in(block: Block) -> str | None:
    """An outcome that several parts of a block ask about; parts of a choice never meet."""
    if isinstance(block, Choice):
        return None
    seen: set[str] = set()
    for part in blocks.children(block):
        here = {fork.outcome for fork in _forks(part)}
        if seen & here:
            return min(seen & here)
        seen |= here
    return None


def _hoisted(block: Block, name: str) -> Block:
    if not isinstance(block, Sequence):
        return _chosen(block, name)
    asking = [n for n, part in enumerate(block.parts) if any(fork.outcome == name for fork in _forks(part))]
    first, last = asking[0], asking[-1] + 1
    inside = block.parts[first:last]
    chosen = _chosen(inside[0] if len(inside) == 1 else Sequence(inside), name)
    return _in_turn((*block.parts[:first], chosen, *block.parts[last:]))


def _chosen(block: Block, name: str) -> Block:
    results = _results(block, name)
    total = sum(share for _, share in results)
    parts = tuple(_given(block, name, result) for result, _ in results)
    return Choice(parts, tuple(share / total for _, share in results)) if len(parts) > 1 else parts[0]


def _results(block: Block, name: str) -> Results:
    """The results that choices in a block tell apart, with their probabilities; later choices refine the first."""
    found: Results = []
    for fork in _forks(block):
        if fork.outcome != name:
            continue
        ways = [(frozenset(some), share) for some, share in zip(fork.answers, fork.probabilities, strict=True)]
        found = [piece for result in found for piece in _split(result, ways)] if found else ways
        known = frozenset().union(*(result for result, _ in found))
        unknown = sorted(frozenset().union(*(some for some, _ in ways)) - known)
        if unknown:
            raise DesignError(f"the outcome {name!r} is asked about {unknown[0]!r}, which it was not decided between")
    return found


def _split(result: tuple[frozenset[str], float], ways: Results) -> Results:
    answers, share = result
    pieces = [(answers & some, part) for some, part in ways if answers & some]
    if len(pieces) < 2:
        return [result]
    total = sum(part for _, part in pieces)
    return [(some, share * part / total) for some, part in pieces]


def _given(block: Block, name: str, result: frozenset[str]) -> Block:
    """A block if an outcome has that result."""
    if isinstance(block, Choice) and block.outcome == name:
        for part, some in zip(block.parts, block.answers, strict=True):
            if result <= set(some):
                return _given(part, name, result)
        raise DesignError(f"a choice of the outcome {name!r} has no way for {' or '.join(sorted(result))!r}")
    if isinstance(block, Sequence):
        parts: list[Block] = []
        for part in block.parts:
            # Behind an end, nobody asks.
            if parts and blocks.always_ends(parts[-1]):
                break
            parts.append(_given(part, name, result))
        return _in_turn(tuple(parts))
    inner = tuple(_given(part, name, result) for part in blocks.children(block))
    return blocks.with_children(block, inner) if inner else block


def _in_turn(parts: tuple[Block, ...]) -> Block:
    return parts[0] if len(parts) == 1 else Sequence(parts)
