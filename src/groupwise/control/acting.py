"""How a network's numbers become an action, in NumPy: one choice, several choices, or real numbers.

A forward pass over a few dozen observations is mostly overhead, and NumPy has a quarter of torch's. Nothing here needs
torch but the quantiles of real-valued actions, so that workers that only act start at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from groupwise.types import ActionSpace, Array, Discrete, MultiDiscrete

# Finite, so that probability × log-probability of a forbidden action is 0 and not NaN.
FORBIDDEN = -1e8
HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)
# The quantile of 0 is −∞; random generators return multiples of 2⁻⁵³, so this only replaces the 0.
SMALLEST_UNIFORM = 2.0**-54
# Normalised observations are clipped to this many standard deviations.
FAR = 10.0
# Drawn actions and their log-probabilities; a layer's weights and biases.
Drawn: TypeAlias = tuple[Array, NDArray[np.float32]]
Layer: TypeAlias = tuple[Array, Array]


class Sampler(Protocol):
    """How the head's numbers [K, N] become actions. `mask` is true where an action is allowed."""

    def sample(self, head: Array, uniforms: Array, mask: Array | None, log_std: Array | None) -> Drawn:
        """Actions and their log-probabilities [N]; the uniforms determine the sample."""

    def best(self, head: Array, mask: Array | None) -> Array:
        """The likeliest actions."""


class CategoricalSampler:
    """One of K actions: k is taken when the uniform lies between the cumulative probabilities of k − 1 and k."""

    def sample(self, head: Array, uniforms: Array, mask: Array | None, log_std: Array | None) -> Drawn:
        # Inverse CDF without normalising: compare u · Σ exp with the running sums.
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


class MultiCategoricalSampler:
    """Several independent choices, whose logits are concatenated in the head; actions are [N, choices]."""

    def __init__(self, counts: tuple[int, ...]) -> None:
        self.counts = counts
        self.cuts = np.cumsum(counts)[:-1].tolist()
        self.one = CategoricalSampler()

    def sample(self, head: Array, uniforms: Array, mask: Array | None, log_std: Array | None) -> Drawn:
        parts = zip(np.split(head, self.cuts), uniforms.T, self._split(mask), strict=True)
        drawn = [self.one.sample(part, uniform, allowed, None) for part, uniform, allowed in parts]
        logp: NDArray[np.float32] = np.sum([logp for _, logp in drawn], axis=0)
        return np.stack([choice for choice, _ in drawn], axis=1), logp

    def best(self, head: Array, mask: Array | None) -> Array:
        parts = zip(np.split(head, self.cuts), self._split(mask), strict=True)
        return np.stack([self.one.best(part, allowed) for part, allowed in parts], axis=1)

    def _split(self, mask: Array | None) -> list[Any]:
        return [None] * len(self.counts) if mask is None else np.split(mask, self.cuts, axis=1)


class GaussianSampler:
    """Independent normal numbers [N, D] around the head, with the same spread in every state.

    Out-of-range actions are clipped by the environment, not here: the policy learns from the unclipped sample.
    """

    def sample(self, head: Array, uniforms: Array, mask: Array | None, log_std: Array | None) -> Drawn:
        assert log_std is not None
        means = head.T
        actions = (means + np.exp(log_std) * normal(uniforms)).astype(np.float32)
        z = (actions - means) * np.exp(-log_std)
        logp: NDArray[np.float32] = (-0.5 * z * z - log_std - np.float32(HALF_LOG_TAU)).sum(axis=1, dtype=np.float32)
        return actions, logp

    def best(self, head: Array, mask: Array | None) -> Array:
        return np.ascontiguousarray(head.T, np.float32)


def normal(uniforms: Array) -> NDArray[np.float64]:
    """Standard normal quantiles of `uniforms` in [0, 1)."""
    import torch  # here, because workers that choose among actions never need it

    quantiles = torch.special.ndtri(torch.from_numpy(np.maximum(uniforms, SMALLEST_UNIFORM)))
    numbers: NDArray[np.float64] = quantiles.numpy()
    return numbers


def sampler_of(space: ActionSpace) -> Sampler:
    if isinstance(space, Discrete):
        return CategoricalSampler()
    return MultiCategoricalSampler(space.counts) if isinstance(space, MultiDiscrete) else GaussianSampler()


def forward(layers: list[Layer], obs: Array) -> Array:
    """Tanh layers over observations [N, D]: outputs [K, N], so that reducing over them runs along contiguous rows."""
    *hidden, (head, head_bias) = layers
    columns = obs.T
    for weight, bias in hidden:
        columns = np.dot(weight, columns)
        columns += bias
        np.tanh(columns, columns)
    numbers: Array = np.dot(head, columns)
    numbers += head_bias
    return numbers


def normalised(obs: Array, mean: Array, scale: Array) -> Array:
    seen: Array = np.clip((obs - mean) * scale, -FAR, FAR)
    return seen


@dataclass(frozen=True, slots=True)
class LayersActor:
    """A policy's weights at one version, as far as they are needed to act: what workers are sent.

    `normalisation` is the mean and the scale of observations.
    """

    space: ActionSpace
    layers: list[Layer]
    log_std: Array | None = None
    normalisation: tuple[Array, Array] | None = None

    def act(self, obs: Array, uniforms: Array, mask: Array | None = None) -> Drawn:
        """What `MLPPolicy.act` returns, bit for bit."""
        seen = obs if self.normalisation is None else normalised(obs, *self.normalisation)
        return sampler_of(self.space).sample(forward(self.layers, seen), uniforms, mask, self.log_std)
