"""Preferences met before, drawn again by how badly they are still predicted.

P(i) = pᵢ^α / Σ p^α with pᵢ the last loss of i, and weights wᵢ = (N · P(i))^−β over their maximum, which take back the
bias of the draw (Schaul et al. 2015, arXiv:1511.05952). With β = 1 it is taken back in full: a preference that is wrong
(somebody erred) keeps its high loss, is drawn often, and still counts no more than any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from groupwise.rewards.preferences import Preference

LEAST = 1e-3


class PrioritisedReplay:
    """The newest `capacity` preferences. One that was never drawn is as urgent as the most urgent."""

    def __init__(self, capacity: int = 4096, alpha: float = 0.3, beta: float = 1.0) -> None:
        self.capacity, self.alpha, self.beta = capacity, alpha, beta
        self.kept: list[Preference] = []
        self.priorities = np.zeros(0)
        self.next = 0

    def __len__(self) -> int:
        return len(self.kept)

    def add(self, preference: Preference) -> None:
        urgent = self.priorities.max(initial=LEAST) if len(self.priorities) else 1.0
        if len(self.kept) < self.capacity:
            self.kept.append(preference)
            self.priorities = np.append(self.priorities, urgent)
        else:
            self.kept[self.next], self.priorities[self.next] = preference, urgent
        self.next = (self.next + 1) % self.capacity

    def draw(self, count: int, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Numbers of preferences, different ones, and the weight of each."""
        chances = self.priorities**self.alpha
        chances /= chances.sum()
        numbers = rng.choice(len(self.kept), min(count, len(self.kept)), replace=False, p=chances)
        weights = (len(self.kept) * chances[numbers]) ** -self.beta
        return numbers, weights / weights.max()

    def settle(self, numbers: NDArray[np.int64], losses: Sequence[float]) -> None:
        """What the drawn ones lose now."""
        self.priorities[numbers] = np.maximum(losses, LEAST)

    def state_dict(self) -> dict[str, Any]:
        return {
            "kept": [preference.packed() for preference in self.kept],
            "priorities": torch.from_numpy(self.priorities.copy()),
            "next": self.next,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.kept = [Preference.unpacked(preference) for preference in state["kept"]]
        self.priorities = state["priorities"].numpy().copy()
        self.next = state["next"]
