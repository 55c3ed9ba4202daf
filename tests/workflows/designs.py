"""Random designs for tests: every kind of block, nested in every other."""

from __future__ import annotations

import random
from collections.abc import Iterator

from groupwise.workflows.blocks import (
    Activity,
    Block,
    Cancellable,
    Choice,
    Instances,
    Loop,
    Parallel,
    PartialOrder,
    Sequence,
    Skip,
)

ALL = ("sequence", "parallel", "choice", "order", "loop", "cancellable", "instances")
LIFTED = ("sequence", "parallel", "choice", "order", "loop")


def random_block(rng: random.Random, size: int, kinds: tuple[str, ...] = ALL) -> Block:
    """A tree of `size` activities, named a0, a1, …"""
    names = (f"a{number}" for number in range(size))
    return _grow(rng, size, kinds, names)


def _grow(rng: random.Random, size: int, kinds: tuple[str, ...], names: Iterator[str]) -> Block:
    if size == 1:
        activity = Activity(next(names))
        return Instances(activity, 2, 3, 1) if "instances" in kinds and rng.random() < 0.2 else activity
    kind = rng.choice(kinds)
    if kind == "loop":
        redo = Activity(next(names)) if rng.random() < 0.5 else Skip()
        return Loop(_grow(rng, size - (not isinstance(redo, Skip)), kinds, names), rng.uniform(0.1, 0.6), redo)
    if kind == "cancellable":
        handler = Activity(next(names))
        return Cancellable(_grow(rng, size - 1, kinds, names), rng.uniform(0.05, 0.5), handler)
    if kind == "instances":
        return _grow(rng, size, tuple(k for k in kinds if k != "instances"), names)
    count = min(size, rng.randint(2, 4))
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
    return PartialOrder(parts, frozenset(pair for pair in pairs if rng.random() < 0.5))
