"""How a network's numbers become an action: one of a few, several choices at once, or real numbers.

Each has two faces that agree: `evaluate` in torch, for learning, on heads [..., K], and `sample` and `best` in NumPy,
for acting, on heads [K, N] (numbers first, so that reducing over them runs along contiguous rows).
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from groupwise.types import ActionSpace, Array, Discrete, MultiDiscrete

# Finite, so that probability × log-probability of a forbidden action is 0 and not NaN.
FORBIDDEN = -1e8
HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)
SMALLEST_UNIFORM = 2.0**-54


class Distribution(Protocol):
    """`mask` is true where an action is allowed; `log_std` only a Gaussian looks at."""

    def evaluate(
        self, head: Tensor, actions: Tensor, mask: Tensor | None, log_std: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Log-probability and entropy [...] of `actions`."""

    def sample(
        self, head: Array, uniforms: Array, mask: Array | None, log_std: Array | None
    ) -> tuple[Array, NDArray[np.float32]]:
        """Actions and their log-probabilities [N]; whoever supplies the uniforms decides the sample."""

    def best(self, head: Array, mask: Array | None) -> Array:
        """The likeliest actions."""


class Categorical:
    """One of K actions. Action k is taken when the uniform [N] lies between the cumulative chances of k − 1 and k."""

    def evaluate(
        self, head: Tensor, actions: Tensor, mask: Tensor | None, log_std: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        logp = torch.log_softmax(head if mask is None else head.masked_fill(~mask, FORBIDDEN), dim=-1)
        chosen = logp.gather(-1, actions.unsqueeze(-1)).squeeze(-1)
        return chosen, -(logp.exp() * logp).sum(-1)

    def sample(
        self, head: Array, uniforms: Array, mask: Array | None, log_std: Array | None
    ) -> tuple[Array, NDArray[np.float32]]:
        logits = head if mask is None else np.where(mask.T, head, head.dtype.type(FORBIDDEN))
        logits -= np.maximum.reduce(logits)
        cumulative = np.exp(logits)
        np.add.accumulate(cumulative, axis=0, out=cumulative)
        total = cumulative[-1]
        actions = np.add.reduce(cumulative[:-1] <= uniforms * total, dtype=np.intp)
        return actions, logits[actions, np.arange(logits.shape[1])] - np.log(total)

    def best(self, head: Array, mask: Array | None) -> Array:
        likeliest: NDArray[np.intp] = np.argmax(head if mask is None else np.where(mask.T, head, -np.inf), axis=0)
        return likeliest


class MultiCategorical:
    """Several independent choices, their scores one after the other in the head; actions [N, choices]."""

    def __init__(self, counts: tuple[int, ...]) -> None:
        self.counts = counts
        self.cuts = np.cumsum(counts)[:-1].tolist()
        self.one = Categorical()

    def evaluate(
        self, head: Tensor, actions: Tensor, mask: Tensor | None, log_std: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        masks = [None] * len(self.counts) if mask is None else mask.split(self.counts, -1)
        parts = zip(head.split(self.counts, -1), actions.unbind(-1), masks, strict=True)
        seen = [self.one.evaluate(part, choice, allowed, None) for part, choice, allowed in parts]
        return torch.stack([logp for logp, _ in seen]).sum(0), torch.stack([entropy for _, entropy in seen]).sum(0)

    def sample(
        self, head: Array, uniforms: Array, mask: Array | None, log_std: Array | None
    ) -> tuple[Array, NDArray[np.float32]]:
        parts = zip(np.split(head, self.cuts), uniforms.T, self._split(mask), strict=True)
        drawn = [self.one.sample(part, uniform, allowed, None) for part, uniform, allowed in parts]
        logp: NDArray[np.float32] = np.sum([logp for _, logp in drawn], axis=0)
        return np.stack([choice for choice, _ in drawn], axis=1), logp

    def best(self, head: Array, mask: Array | None) -> Array:
        parts = zip(np.split(head, self.cuts), self._split(mask), strict=True)
        return np.stack([self.one.best(part, allowed) for part, allowed in parts], axis=1)

    def _split(self, mask: Array | None) -> list[Any]:
        return [None] * len(self.counts) if mask is None else np.split(mask, self.cuts, axis=1)


class Gaussian:
    """Independent normal numbers [N, D] around the head, their spread the same in every state.

    What is learned from is the number drawn: the environment, and not the policy, takes what lies beyond its limits
    for the limit.
    """

    def evaluate(
        self, head: Tensor, actions: Tensor, mask: Tensor | None, log_std: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        assert log_std is not None
        z = (actions - head) * torch.exp(-log_std)
        logp = (-0.5 * z.square() - log_std - HALF_LOG_TAU).sum(-1)
        return logp, (0.5 + HALF_LOG_TAU + log_std).sum().expand_as(logp)

    def sample(
        self, head: Array, uniforms: Array, mask: Array | None, log_std: Array | None
    ) -> tuple[Array, NDArray[np.float32]]:
        assert log_std is not None
        means = head.T
        actions = (means + np.exp(log_std) * normal(uniforms)).astype(np.float32)
        z = (actions - means) * np.exp(-log_std)
        logp: NDArray[np.float32] = (-0.5 * z * z - log_std - np.float32(HALF_LOG_TAU)).sum(axis=1, dtype=np.float32)
        return actions, logp

    def best(self, head: Array, mask: Array | None) -> Array:
        return np.ascontiguousarray(head.T, np.float32)


def normal(uniforms: Array) -> NDArray[np.float64]:
    """The normal numbers that lie as far along their distribution as `uniforms` of [0, 1) along theirs."""
    quantiles = torch.special.ndtri(torch.from_numpy(np.maximum(uniforms, SMALLEST_UNIFORM)))
    numbers: NDArray[np.float64] = quantiles.numpy()
    return numbers


def distribution_of(space: ActionSpace) -> Distribution:
    if isinstance(space, Discrete):
        return Categorical()
    return MultiCategorical(space.counts) if isinstance(space, MultiDiscrete) else Gaussian()


def head_size(space: ActionSpace) -> int:
    """How many numbers a network gives for one action."""
    if isinstance(space, Discrete):
        return space.count
    return sum(space.counts) if isinstance(space, MultiDiscrete) else len(space.low)
