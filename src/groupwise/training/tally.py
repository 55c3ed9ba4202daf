"""What an update reports: sums over its optimiser steps, turned into means at the end."""

from __future__ import annotations

import torch
from torch import Tensor

from groupwise.training.batches import OptimiserStep


class Tally:
    """Sums of what the optimiser steps report, turned into means at the end."""

    PER_TOKEN = ("policy/entropy", "policy/kl", "policy/clip_low", "policy/clip_high", "policy/reference_kl")

    def __init__(self) -> None:
        self.steps: list[dict[str, float]] = []
        self.tokens: list[float] = []
        self.epochs = 0
        self.kl_at_start: float | None = None
        self.kl_seen: float | None = None

    @property
    def applied(self) -> bool:
        """Whether the weights were changed at all."""
        return any(step["optim/skipped"] == 0 for step in self.steps)

    def add(self, step: OptimiserStep, terms: list[dict[str, Tensor]], norms: dict[str, float]) -> None:
        row = dict(norms)
        self.tokens.append(step.tokens)
        for name in terms[0]:
            values = torch.stack([t[name].double() for t in terms])
            if name == "policy/ratio_max":
                row[name] = float(values.max())
            else:
                row[name] = float(values.sum()) / (step.tokens if name in self.PER_TOKEN else 1.0)
        self.steps.append(row)

    def means(self) -> dict[str, float]:
        """Means over the steps; the skipped steps are counted, the largest ratio is the largest of all."""
        if self.kl_seen is not None and not self.steps:
            return {"policy/kl": self.kl_seen, "optim/steps": 0.0, "optim/epochs": 0.0}
        names = self.steps[0].keys() if self.steps else ()
        means = {name: self._mean(name) for name in names}
        if self.steps:
            means["optim/skipped"] = sum(s["optim/skipped"] for s in self.steps)
            means["policy/ratio_max"] = max(s["policy/ratio_max"] for s in self.steps)
        return {**means, "optim/steps": float(len(self.steps)), "optim/epochs": float(self.epochs)}

    def _mean(self, name: str) -> float:
        """Over tokens for what is said of tokens, over optimiser steps for the rest."""
        weights = self.tokens if name in self.PER_TOKEN else [1.0] * len(self.steps)
        return sum(w * s[name] for w, s in zip(weights, self.steps, strict=True)) / sum(weights)
