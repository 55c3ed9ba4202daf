"""Who is kept and who breeds: elites, and brackets in which two by two the better goes on."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def elites(totals: npt.NDArray[np.float64], count: int) -> list[int]:
    """The best, best first; the earlier of equals."""
    return [int(number) for number in np.argsort(-totals, kind="stable")[:count]]


def tournament(totals: npt.NDArray[np.float64], count: int, size: int, rng: np.random.Generator) -> list[int]:
    """`count` winners of brackets of `size` drawn at random: pairs compete, winners compete, until one is left."""
    return [
        _bracket(totals, rng.choice(len(totals), min(size, len(totals)), replace=False).tolist()) for _ in range(count)
    ]


def _bracket(totals: npt.NDArray[np.float64], players: list[int]) -> int:
    while len(players) > 1:
        pairs = [players[n : n + 2] for n in range(0, len(players), 2)]
        players = [max(pair, key=lambda player: totals[player]) for pair in pairs]
    return players[0]
