"""The scale of every task's returns, so that one critic serves tasks whose rewards differ ten-thousandfold.

The critic speaks in units of σ_k, a running root mean square of task k's returns: V = σ_k · output. Its targets are
divided by σ_k, so that no task's value error drowns another's. "Multi-task Deep Reinforcement Learning with PopArt"
(arXiv 1809.04474). Departures: no mean is subtracted, since a critic that sees which task it is in learns that itself;
and outputs are not preserved when σ moves, since one output serves all tasks: σ moves slowly instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

KEEP = 0.9


class ValueScales:
    """σ of every task seen so far; at the first sight of a task, the root mean square of what it returned."""

    def __init__(self) -> None:
        self.squares: dict[str, float] = {}

    def before(self, kinds: Sequence[str], returns: Tensor, mask: Tensor) -> Tensor:
        """σ [B] of every attempt's task; `returns` [B, T] serve for tasks not seen before."""
        for kind, square in _mean_squares(kinds, returns, mask).items():
            self.squares.setdefault(kind, square)
        return self._of(kinds)

    def after(self, kinds: Sequence[str], returns: Tensor, mask: Tensor) -> Tensor:
        """σ [B] once these returns [B, T] have been taken in."""
        for kind, square in _mean_squares(kinds, returns, mask).items():
            self.squares[kind] = KEEP * self.squares[kind] + (1 - KEEP) * square
        return self._of(kinds)

    def _of(self, kinds: Sequence[str]) -> Tensor:
        squares = torch.tensor([self.squares[kind] for kind in kinds], dtype=torch.float64)
        return torch.where(squares > 0, squares.sqrt(), 1.0)

    def state_dict(self) -> dict[str, Any]:
        return {"squares": dict(self.squares)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.squares = dict(state["squares"])


def _mean_squares(kinds: Sequence[str], returns: Tensor, mask: Tensor) -> dict[str, float]:
    squares, counts = (returns.square() * mask).sum(1).tolist(), mask.sum(1).tolist()
    totals: dict[str, tuple[float, int]] = {}
    for kind, square, count in zip(kinds, squares, counts, strict=True):
        total, number = totals.get(kind, (0.0, 0))
        totals[kind] = total + square, number + count
    return {kind: total / max(number, 1) for kind, (total, number) in totals.items()}
