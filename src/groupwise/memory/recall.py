"""What was recalled for a task: made once, and the same for every attempt of its group."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from groupwise.memory.pattern import Pattern


@dataclass(frozen=True, slots=True)
class Recall:
    """Patterns with what they had at generation `seq`, best first: the highest similarity × weight.

    Later successes, decay and evictions change the memory, never a recall.
    """

    seq: int
    patterns: tuple[Pattern, ...] = ()
    similarities: tuple[float, ...] = ()
    weights: tuple[float, ...] = ()

    def __len__(self) -> int:
        return len(self.patterns)

    def __iter__(self) -> Iterator[Pattern]:
        return iter(self.patterns)

    def draw(self, rng: np.random.Generator) -> tuple[Pattern, ...]:
        """Each pattern with the probability of its success rate, independently; best first."""
        chances = rng.random(len(self.patterns))
        return tuple(p for p, chance in zip(self.patterns, chances, strict=True) if chance < p.success_rate)
