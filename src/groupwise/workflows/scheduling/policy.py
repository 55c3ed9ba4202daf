"""Who corrects HEFT's order: for every task a Gaussian over the logarithm of what its upward rank is multiplied by.

A fresh policy corrects nothing on average and everything by 20 %: HEFT with noise. What it learns is where HEFT's order
is wrong, and where trying something else is worth it.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from groupwise.types import Evaluation, Tensors
from groupwise.workflows.evaluation.encoding import Floats
from groupwise.workflows.scheduling.features import NAMES, Case

FIRST_SPREAD, LEAST_SPREAD, MOST_SPREAD = 0.2, 0.02, 1.0
MEAN_SCALE = 0.3


class RankPolicy(nn.Module):
    """A `Policy` whose attempt is one correction per task; its log-probability is the sum over the tasks."""

    def __init__(self, hidden: int = 32, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.version = 0
        self.layers = nn.Sequential(
            _linear(len(NAMES), hidden, generator), nn.ReLU(), _linear(hidden, hidden, generator), nn.ReLU()
        )
        self.head = nn.Linear(hidden, 2, device="meta").to_empty(device="cpu")
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and logarithm of the standard deviation of every task's correction, for features [..., F]."""
        mean, log_spread = self.head(self.layers(features)).unbind(-1)
        log_spread = (log_spread + math.log(FIRST_SPREAD)).clamp(math.log(LEAST_SPREAD), math.log(MOST_SPREAD))
        return mean * MEAN_SCALE, log_spread

    def evaluate(self, inputs: Tensors) -> Evaluation:
        """What it thinks of corrections `actions` [B, T] to tasks with features `obs` [B, T, F]."""
        mean, log_spread = self(inputs["obs"])
        away = (inputs["actions"] - mean) * torch.exp(-log_spread)
        logp = -0.5 * away.square() - log_spread - 0.5 * math.log(2 * math.pi)
        return Evaluation(logp, log_spread + 0.5 * math.log(2 * math.pi * math.e))

    def see(self, case: Case) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the correction of every task."""
        with torch.no_grad():
            mean, log_spread = self(torch.from_numpy(case.features))
        return mean.double().numpy(), log_spread.double().exp().numpy()

    def sample(self, case: Case, count: int, rng: np.random.Generator) -> tuple[NDArray[np.float32], Floats]:
        """So many vectors of corrections [count, tasks], and the log-probability of each number."""
        mean, spread = self.see(case)
        noise = rng.standard_normal((count, len(mean)))
        actions = (mean + spread * noise).astype(np.float32)
        away = (actions - mean) / spread
        return actions, -0.5 * away**2 - np.log(spread) - 0.5 * math.log(2 * math.pi)

    def actor_parameters(self) -> list[nn.Parameter]:
        return list(self.parameters())

    def critic_parameters(self) -> list[nn.Parameter]:
        return []


def _linear(inputs: int, outputs: int, generator: torch.Generator) -> nn.Linear:
    layer = nn.Linear(inputs, outputs, device="meta").to_empty(device="cpu")
    nn.init.orthogonal_(layer.weight, math.sqrt(2.0), generator)
    nn.init.zeros_(layer.bias)
    return layer
