"""A small network that acts, and how its numbers become an action: one choice, several choices, or real numbers.

Learning goes through torch (`MLPPolicy.evaluate`), acting through NumPy on the same weights (`acting`). A network
supplied by the user acts through torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from groupwise.control.acting import (
    FAR,
    FORBIDDEN,
    HALF_LOG_TAU,
    CategoricalSampler,
    Drawn,
    GaussianSampler,
    Layer,
    LayersActor,
    MultiCategoricalSampler,
    Sampler,
    forward,
    normalised,
)
from groupwise.control.image_network import ImageNetwork
from groupwise.control.spaces import Interface
from groupwise.errors import ContractError
from groupwise.types import ActionSpace, Array, Box, Discrete, Evaluation, MultiDiscrete, Tensors

# Log-probabilities and entropies of given actions.
Judged: TypeAlias = tuple[Tensor, Tensor]


class Distribution(Sampler, Protocol):
    """The same for learning: `evaluate` has the head last, [..., K]; only a Gaussian uses `log_std`."""

    def evaluate(self, head: Tensor, actions: Tensor, mask: Tensor | None, log_std: Tensor | None) -> Judged:
        """Log-probability and entropy [...] of `actions`."""


class Categorical(CategoricalSampler):
    """One of K actions."""

    def evaluate(self, head: Tensor, actions: Tensor, mask: Tensor | None, log_std: Tensor | None) -> Judged:
        logp = torch.log_softmax(head if mask is None else head.masked_fill(~mask, FORBIDDEN), dim=-1)
        chosen = logp.gather(-1, actions.unsqueeze(-1)).squeeze(-1)
        return chosen, -(logp.exp() * logp).sum(-1)


class MultiCategorical(MultiCategoricalSampler):
    """Several independent choices."""

    def __init__(self, counts: tuple[int, ...]) -> None:
        super().__init__(counts)
        self.choice = Categorical()

    def evaluate(self, head: Tensor, actions: Tensor, mask: Tensor | None, log_std: Tensor | None) -> Judged:
        masks = [None] * len(self.counts) if mask is None else mask.split(self.counts, -1)
        parts = zip(head.split(self.counts, -1), actions.unbind(-1), masks, strict=True)
        seen = [self.choice.evaluate(part, choice, allowed, None) for part, choice, allowed in parts]
        return torch.stack([logp for logp, _ in seen]).sum(0), torch.stack([entropy for _, entropy in seen]).sum(0)


class Gaussian(GaussianSampler):
    """Independent normal numbers."""

    def evaluate(self, head: Tensor, actions: Tensor, mask: Tensor | None, log_std: Tensor | None) -> Judged:
        assert log_std is not None
        # log N(a; μ, σ) = −½ z² − log σ − ½ log 2π with z = (a − μ) / σ; the entropy is ½ + ½ log 2π + log σ.
        z = (actions - head) * torch.exp(-log_std)
        logp = (-0.5 * z.square() - log_std - HALF_LOG_TAU).sum(-1)
        return logp, (0.5 + HALF_LOG_TAU + log_std).sum().expand_as(logp)


def distribution_of(space: ActionSpace) -> tuple[Distribution, int]:
    """How actions are drawn, and how many numbers a network gives for one."""
    if isinstance(space, Discrete):
        return Categorical(), space.count
    if isinstance(space, MultiDiscrete):
        return MultiCategorical(space.counts), sum(space.counts)
    return Gaussian(), len(space.low)


Network: TypeAlias = Callable[[int, int], nn.Module]


class MLPPolicy(nn.Module):
    """Tanh layers over an observation, or convolutions where it has images, then an action: a `Policy`.

    `actions` is the number of actions, or an action space: one choice, several, or real numbers (drawn around the
    network's output with a learned spread, 1 at first, that is the same in every state).

    Weights are orthogonal (gain √2, the last layer 0.01 so that it starts near the uniform policy, the
    critic's 1) and depend on `seed` alone: the global random state is neither read nor changed. The critic
    is a separate network, so that its gradients never reach the actor.

    `network(inputs, outputs)` makes a custom network for the actor and, with `critic`, another for the critic: a module
    from [..., inputs] to [..., outputs]. With `normalise`, observations are first shifted and scaled by the values that
    `set_normalisation` set last; those are part of the weights. So is the `interface`: the spaces of the environment
    that the policy was made for, so that whoever loads the weights knows what it sees and does.
    """

    log_std: nn.Parameter | None
    obs_mean: Tensor
    obs_scale: Tensor
    spaces: Tensor

    def __init__(
        self,
        observation_size: int,
        actions: int | ActionSpace,
        *,
        hidden_sizes: Sequence[int] = (64, 64),
        critic: bool = False,
        seed: int = 0,
        network: Network | None = None,
        normalise: bool = False,
        interface: Interface | None = None,
    ) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.version = 0
        self.action_space = Discrete(actions) if isinstance(actions, int | np.integer) else actions
        self._distribution, outputs = distribution_of(self.action_space)
        self.actor: nn.Module
        self.critic: nn.Module | None
        seen = () if interface is None or network is not None else interface.parts
        if any(part.is_image for part in seen):
            self.actor = ImageNetwork(seen, hidden_sizes, outputs, 0.01, generator)
            self.critic = ImageNetwork(seen, hidden_sizes, 1, 1.0, generator) if critic else None
        elif network is None:
            self.actor = _network([observation_size, *hidden_sizes, outputs], 0.01, generator)
            self.critic = _network([observation_size, *hidden_sizes, 1], 1.0, generator) if critic else None
        else:
            self.actor = _own_network(network, observation_size, outputs)
            self.critic = _own_network(network, observation_size, 1) if critic else None
        self.log_std = nn.Parameter(torch.zeros(outputs)) if isinstance(self.action_space, Box) else None
        self.normalise = normalise
        if normalise:
            self.register_buffer("obs_mean", torch.zeros(observation_size))
            self.register_buffer("obs_scale", torch.ones(observation_size))
        if interface is not None:
            spaces = np.frombuffer(interface.to_bytes(), np.uint8).copy()
            self.register_buffer("spaces", torch.from_numpy(spaces))
        # Tanh layers act in NumPy; other networks through torch.
        tanh = isinstance(self.actor, nn.Sequential) and network is None
        self._linear = [layer for layer in self.actor.children() if isinstance(layer, nn.Linear)] if tanh else []
        self._views: tuple[list[int], list[Layer]] = [], []

    def evaluate(self, inputs: Tensors) -> Evaluation:
        """Log-probability, entropy and value of `actions` [B, T, ...] taken at `obs` [B, T, D], given `action_mask`."""
        head = self.actor(self._seen(inputs["obs"]))
        logp, entropy = self._distribution.evaluate(head, inputs["actions"], inputs.get("action_mask"), self.log_std)
        return Evaluation(logp, entropy, None if self.critic is None else self.value(inputs["obs"]))

    def value(self, obs: Tensor) -> Tensor:
        """The critic's estimate for observations [..., D]."""
        if self.critic is None:
            raise ContractError("This policy has no critic.", hint="Make it with MLPPolicy(..., critic=True).")
        values: Tensor = self.critic(self._seen(obs)).squeeze(-1)
        return values

    def act(self, obs: Array, uniforms: Array, mask: Array | None = None) -> Drawn:
        """Sample an allowed action for each of `obs` [N, D], and its log-probability.

        The uniforms in [0, 1), one per row and decision, determine the sample.
        """
        log_std = None if self.log_std is None else self.log_std.detach().numpy()
        return self._distribution.sample(self._head(obs), uniforms, mask, log_std)

    def greedy(self, obs: Array, mask: Array | None = None) -> Array:
        """The likeliest action for each of `obs` [N, D]."""
        return self._distribution.best(self._head(obs), mask)

    def actor_alone(self) -> LayersActor | MLPPolicy:
        """What acts as this policy does now; a network of the user's own acts as it is."""
        if not self._linear:
            return self
        copies = [(weight.copy(), bias.copy()) for weight, bias in self._layers()]
        log_std = None if self.log_std is None else self.log_std.detach().numpy().copy()
        seen = (self.obs_mean.numpy().copy(), self.obs_scale.numpy().copy()) if self.normalise else None
        return LayersActor(self.action_space, copies, log_std, seen)

    def set_normalisation(self, mean: Array, std: Array) -> None:
        """From now on, see observations as (obs − mean) / std; a number that never changed is not scaled."""
        with torch.no_grad():
            self.obs_mean.copy_(torch.from_numpy(np.asarray(mean, np.float32)))
            self.obs_scale.copy_(torch.from_numpy(np.where(std > 1e-8, 1.0 / np.maximum(std, 1e-8), 1.0)).float())

    @property
    def interface(self) -> Interface | None:
        spaces = getattr(self, "spaces", None)
        return None if spaces is None else Interface.from_bytes(bytes(spaces.tolist()))

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        # Spaces are those of the environment that this policy was made for, also where weights were saved without.
        own = {"spaces": self.spaces} if self.interface is not None else {}
        return super().load_state_dict({**state_dict, **own}, strict, assign)

    def actor_parameters(self) -> list[nn.Parameter]:
        return [*self.actor.parameters(), *([] if self.log_std is None else [self.log_std])]

    def critic_parameters(self) -> list[nn.Parameter]:
        return [] if self.critic is None else list(self.critic.parameters())

    def __getstate__(self) -> dict[str, Any]:
        # The views point into this object's own weights, so a copy must make new ones.
        return {**self.__dict__, "_views": ([], [])}

    def _seen(self, obs: Tensor) -> Tensor:
        if not self.normalise:
            return obs
        return ((obs - self.obs_mean) * self.obs_scale).clamp(-FAR, FAR)

    def _head(self, obs: Array) -> Array:
        """The actor's outputs [K, N]: outputs first, so that reducing over them runs along contiguous rows."""
        if self.normalise:
            obs = normalised(obs, self.obs_mean.numpy(), self.obs_scale.numpy())
        if not self._linear:
            with torch.no_grad():
                answers: Array = self.actor(torch.from_numpy(np.ascontiguousarray(obs, np.float32))).T.numpy()
            return answers.copy()
        return forward(self._layers(), obs)

    def _layers(self) -> list[Layer]:
        """The actor's weights as NumPy views, made again only when a tensor was replaced rather than updated."""
        # `layer.weight` searches three dictionaries; the weight is in this one.
        pointers = [p.data_ptr() for layer in self._linear for p in layer._parameters.values() if p is not None]
        if self._views[0] != pointers:
            self._views = pointers, [_view(layer) for layer in self._linear]
        return self._views[1]


def _own_network(network: Network, inputs: int, outputs: int) -> nn.Module:
    """The user's module, tried out once."""
    module = network(inputs, outputs)
    with torch.no_grad():
        answer = module(torch.zeros(2, inputs))
    if not isinstance(answer, Tensor) or tuple(answer.shape) != (2, outputs):
        shape = tuple(answer.shape) if isinstance(answer, Tensor) else type(answer).__name__
        raise ContractError(
            f"The network turned zeros of shape (2, {inputs}) into {shape}, not (2, {outputs}).",
            hint="network(inputs, outputs) must return a module from [..., inputs] to [..., outputs].",
        )
    return module


def _network(sizes: Sequence[int], head_gain: float, generator: torch.Generator) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes[:-1]):
        layers += [_linear(inputs, outputs, math.sqrt(2.0), generator), nn.Tanh()]
    return nn.Sequential(*layers, _linear(sizes[-2], sizes[-1], head_gain, generator))


def _linear(inputs: int, outputs: int, gain: float, generator: torch.Generator) -> nn.Linear:
    # A layer on "meta" is not initialised, which would move the global random state.
    layer = nn.Linear(inputs, outputs, device="meta").to_empty(device="cpu")
    nn.init.orthogonal_(layer.weight, gain, generator)
    nn.init.zeros_(layer.bias)
    return layer


def _view(layer: nn.Linear) -> Layer:
    if layer.weight.device.type != "cpu":
        hint = "Move it back with policy.cpu(): a network this small is slower on an accelerator."
        raise ContractError(f"An MLPPolicy acts on the CPU, but its weights are on {layer.weight.device}.", hint=hint)
    return layer.weight.detach().numpy(), layer.bias.detach().numpy()[:, np.newaxis]
