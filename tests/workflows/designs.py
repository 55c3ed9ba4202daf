"""Random designs for tests: every kind of block, nested in every other."""

from __future__ import annotations

import random
from collections.abc import Iterator

from groupwise.workflows.blocks import (
    PLAIN,
    Activity,
    Block,
    Cancellable,
    Choice,
    Design,
    Handling,
    Instances,
    Loop,
    Parallel,
    PartialOrder,
    Retry,
    Sequence,
    Skip,
    activities,
    rewritten,
    with_children,
)

ALL = ("sequence", "parallel", "choice", "order", "loop", "cancellable", "instances")
FLAT = ("sequence", "parallel", "choice", "order", "loop", "cancellable")


def random_block(rng: random.Random, size: int, kinds: tuple[str, ...] = ALL) -> Block:
    """A tree of `size` activities, named a0, a1, …"""
    names = (f"a{number}" for number in range(size))
    return _grow(rng, size, kinds, names)


def random_design(rng: random.Random, size: int, kinds: tuple[str, ...] = ALL) -> Design:
    """A random block whose activities are handled in every way, with empty branches here and there."""
    root = rewritten(random_block(rng, size, kinds), lambda block: _varied(rng, block))
    return Design(f"design {size}", root, (("clerk", rng.randint(1, 4)),), "made by chance")


def _varied(rng: random.Random, block: Block) -> Block:
    if isinstance(block, Activity):
        return Activity(block.name, random_handling(rng))
    if isinstance(block, Choice | Parallel | PartialOrder) and rng.random() < 0.3:
        number = rng.randrange(len(block.parts))
        empty = rng.choice([Skip(), Loop(Skip(), 0.5), Sequence((Skip(), Skip()))])
        parts = (*block.parts[:number], empty, *block.parts[number + 1 :])
        return with_children(block, parts) if len(list(activities(block.parts[number]))) == 1 else block
    return block


def random_handling(rng: random.Random) -> Handling:
    if rng.random() < 0.3:
        return PLAIN
    return Handling(
        pool=rng.choice([None, "clerk", "desk"]),
        priority=rng.randint(0, 3),
        scheduling=rng.choice(["fifo", "priority", "shortest", "due"]),
        retry=Retry(rng.randint(0, 3), rng.choice([0.0, 2.5]), rng.choice([1.0, 2.0])),
        timeout=rng.choice([None, 60.0]),
        delay=rng.choice([0.0, 5.0]),
        due=rng.choice([None, 3600.0]),
    )


def _grow(rng: random.Random, size: int, kinds: tuple[str, ...], names: Iterator[str]) -> Block:
    if size == 1:
        activity = Activity(next(names))
        return Instances(activity, 2, 3, 1) if "instances" in kinds and rng.random() < 0.2 else activity
    kind = rng.choice(kinds)
    if kind == "loop":
        redo = Activity(next(names)) if rng.random() < 0.5 else Skip()
        return Loop(_grow(rng, size - (not isinstance(redo, Skip)), kinds, names), rng.uniform(0.1, 0.6), redo)
    if kind == "cancellable":
        handled = rng.randint(0, min(size - 1, 3))
        handler = _grow(rng, handled, kinds, names) if handled else Skip()
        return Cancellable(_grow(rng, size - handled, kinds, names), rng.uniform(0.05, 0.5), handler)
    if kind == "instances":
        least = rng.randint(1, 3)
        return Instances(_grow(rng, size, kinds, names), least, least + rng.randint(0, 2), rng.randint(1, least))
    count = min(size, rng.randint(3, 6) if kind == "order" else rng.randint(2, 4))
    cuts = sorted(rng.sample(range(1, size), count - 1))
    sizes = [b - a for a, b in zip([0, *cuts], [*cuts, size], strict=True)]
    parts = tuple(_grow(rng, part, kinds, names) for part in sizes)
    if kind == "sequence":
        return Sequence(parts)
    if kind == "parallel":
        return Parallel(parts)
    if kind == "choice":
        weights = [rng.randint(1, 5) for _ in parts]
        return Choice(parts, tuple(weight / sum(weights) for weight in weights))
    pairs = [(a, b) for a in range(count) for b in range(a + 1, count)]
    return PartialOrder(parts, frozenset(pair for pair in pairs if rng.random() < 0.4))
