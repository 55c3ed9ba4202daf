"""A small network that picks one of a few actions, with or without a critic beside it.

Learning goes through torch (`evaluate`), acting through NumPy on the very same weights: a forward pass
over a few dozen observations is mostly overhead, and NumPy has a quarter of torch's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from groupwise.errors import ContractError
from groupwise.types import Array, Evaluation, Tensors

Layer: TypeAlias = tuple[Array, Array]


class MLPPolicy(nn.Module):
    """Tanh layers over an observation, then a categorical choice of action: a `Policy`.

    Weights are orthogonal (gain √2, the last layer 0.01 so that it starts near the uniform policy, the
    critic's 1) and depend on `seed` alone: the global random state is neither read nor moved. The critic
    is a network of its own, so that its gradients never reach the actor.
    """

    def __init__(
        self,
        observation_size: int,
        action_count: int,
        *,
        hidden_sizes: Sequence[int] = (64, 64),
        critic: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.version = 0
        self.actor = _network([observation_size, *hidden_sizes, action_count], 0.01, generator)
        self.critic = _network([observation_size, *hidden_sizes, 1], 1.0, generator) if critic else None
        self._linear = [layer for layer in self.actor if isinstance(layer, nn.Linear)]
        self._views: tuple[list[int], list[Layer]] = [], []

    def evaluate(self, inputs: Tensors) -> Evaluation:
        """What the policy thinks of `actions` [B, T] taken at `obs` [B, T, D]."""
        logp = torch.log_softmax(self.actor(inputs["obs"]), dim=-1)
        chosen = logp.gather(-1, inputs["actions"].unsqueeze(-1)).squeeze(-1)
        entropy = -(logp.exp() * logp).sum(-1)
        return Evaluation(chosen, entropy, None if self.critic is None else self.value(inputs["obs"]))

    def value(self, obs: Tensor) -> Tensor:
        """The critic's estimate for observations [..., D]."""
        if self.critic is None:
            raise ContractError("This policy has no critic.", hint="Make it with MLPPolicy(..., critic=True).")
        values: Tensor = self.critic(obs).squeeze(-1)
        return values

    def act(self, obs: Array, uniforms: Array) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
        """Sample an action for each of `obs` [N, D]; also its log-probability.

        Action k is taken when `uniforms` (one of [0, 1) per row) falls between the cumulative
        probabilities of k − 1 and k: whoever supplies the uniforms decides the sample.
        """
        logits = self._logits(obs)
        logits -= np.maximum.reduce(logits)
        cumulative = np.exp(logits)
        np.add.accumulate(cumulative, axis=0, out=cumulative)
        total = cumulative[-1]
        actions = np.add.reduce(cumulative[:-1] <= uniforms * total, dtype=np.intp)
        return actions, logits[actions, np.arange(len(obs))] - np.log(total)

    def greedy(self, obs: Array) -> NDArray[np.intp]:
        """The likeliest action for each of `obs` [N, D]."""
        likeliest: NDArray[np.intp] = np.argmax(self._logits(obs), axis=0)
        return likeliest

    def actor_parameters(self) -> list[nn.Parameter]:
        return list(self.actor.parameters())

    def critic_parameters(self) -> list[nn.Parameter]:
        return [] if self.critic is None else list(self.critic.parameters())

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_views": ([], [])}

    def _logits(self, obs: Array) -> Array:
        """Logits [A, N]: actions first, so that reducing over them runs along contiguous rows."""
        *hidden, (head, head_bias) = self._layers()
        columns = obs.T
        for weight, bias in hidden:
            columns = np.dot(weight, columns)
            columns += bias
            np.tanh(columns, columns)
        logits: Array = np.dot(head, columns)
        logits += head_bias
        return logits

    def _layers(self) -> list[Layer]:
        """The actor's weights as NumPy views, made anew when a tensor was replaced and not just updated."""
        # `layer.weight` is a search in three dictionaries; this is the one that holds it.
        pointers = [p.data_ptr() for layer in self._linear for p in layer._parameters.values() if p is not None]
        if self._views[0] != pointers:
            self._views = pointers, [_view(layer) for layer in self._linear]
        return self._views[1]


def _network(sizes: Sequence[int], head_gain: float, generator: torch.Generator) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes[:-1]):
        layers += [_linear(inputs, outputs, math.sqrt(2.0), generator), nn.Tanh()]
    return nn.Sequential(*layers, _linear(sizes[-2], sizes[-1], head_gain, generator))


def _linear(inputs: int, outputs: int, gain: float, generator: torch.Generator) -> nn.Linear:
    layer = nn.Linear(inputs, outputs, device="meta").to_empty(device="cpu")
    nn.init.orthogonal_(layer.weight, gain, generator)
    nn.init.zeros_(layer.bias)
    return layer


def _view(layer: nn.Linear) -> Layer:
    if layer.weight.device.type != "cpu":
        raise ContractError(
            f"An MLPPolicy acts on the CPU, and its weights are on {layer.weight.device}.",
            hint="Move it back with policy.cpu(): networks this small are slower on an accelerator.",
        )
    return layer.weight.detach().numpy(), layer.bias.detach().numpy()[:, np.newaxis]
