"""Weights in shards (FSDP2): each rank keeps a part of the weights, gradients and optimiser state.

A second policy is cut up and learns. The first, with full weights, goes on to sample, to be evaluated and to be saved,
and gets the new weights once per update: an engine needs all of them anyway.
"""

import copy
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import distribute_tensor

from groupwise.errors import ConfigError
from groupwise.training.ranks.communication import Ranks
from groupwise.types import Evaluation, Policy, Tensors


class Shards:
    """A second policy in shards: each rank keeps a part of its weights, gradients and optimiser state."""

    sharded = True

    def __init__(self, policy: Policy, ranks: Ranks, device: torch.device) -> None:
        self.full, self.ranks = policy, ranks
        self.policy = ShardedPolicy(policy, init_device_mesh(device.type, (ranks.size,)))

    def passes(self, count: int) -> int:
        """As many as the rank with most: every pass collects weights from all ranks."""
        return max(1, self.ranks.most(count))

    def sum_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Nothing to do: the backward pass has summed them already."""

    def fetch(self) -> None:
        """Take over the weights, and what else is in buffers, of the full policy."""
        for shard, full in self._pairs():
            own = distribute_tensor(full.detach(), shard.device_mesh, shard.placements, src_data_rank=None)
            shard.to_local().detach().copy_(own.to_local())
        self.policy.copy_buffers()

    def publish(self) -> None:
        """Give the full policy the new weights."""
        with torch.no_grad():
            for shard, full in self._pairs():
                full.copy_(shard.full_tensor())

    def _pairs(self) -> Iterable[tuple[Any, nn.Parameter]]:
        for parts in ("actor_parameters", "critic_parameters"):
            yield from zip(getattr(self.policy, parts)(), getattr(self.full, parts)(), strict=True)


class ShardedPolicy:
    """A policy like the given one, its weights in shards. `evaluate` collects them layer by layer."""

    def __init__(self, policy: Policy, mesh: DeviceMesh) -> None:
        self.original, self.twin = policy, _twin(policy)
        networks = networks_of(self.twin)
        self.whole = Whole(self.twin, networks)
        for layer in _layers(networks):
            _shard(layer, mesh)
        self.root = _shard(self.whole, mesh)

    @property
    def version(self) -> int:
        return self.original.version

    def evaluate(self, inputs: Tensors) -> Evaluation:
        seen = Evaluation(*self.whole(inputs))
        # The outermost weights stay collected for the backward pass. Without one they would outlive the next step.
        if not torch.is_grad_enabled():
            self.root.reshard()
        return seen

    def actor_parameters(self) -> Sequence[nn.Parameter]:
        return self.twin.actor_parameters()

    def critic_parameters(self) -> Sequence[nn.Parameter]:
        return self.twin.critic_parameters()

    @torch.no_grad()
    def copy_buffers(self) -> None:
        for own, theirs in zip(networks_of(self.twin), networks_of(self.original), strict=True):
            for buffer, source in zip(own.buffers(), theirs.buffers(), strict=True):
                buffer.copy_(source)


class Whole(nn.Module):
    """A policy's networks under one module, whose call is the policy's `evaluate`.

    Shards are collected when a module is called. A policy reads its networks in ways of its own, so what is called is
    this module; and the tensors that it returns are where the backward pass begins to collect them again.
    """

    def __init__(self, policy: Policy, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)
        # In a list, so that a policy that is a module itself is not registered twice.
        self._policy = [policy]

    def forward(self, inputs: Tensors) -> tuple[Tensor | None, ...]:
        seen = self._policy[0].evaluate(inputs)
        # Copies: hooks on a view are lost when something writes to what it is a view of.
        return seen.logp.clone(), seen.entropy.clone(), None if seen.value is None else seen.value.clone()


def networks_of(policy: Any) -> list[nn.Module]:
    """The modules that hold a policy's weights."""
    if isinstance(policy, nn.Module):
        return [policy]
    if not hasattr(policy, "networks"):
        raise ConfigError(
            f"ranks.sharding = 'fsdp' cannot shard a {type(policy).__name__}, which is not a torch module",
            hint="Use ranks.sharding = 'ddp'.",
            field="ranks.sharding",
        )
    return list(policy.networks)


def _layers(networks: Sequence[nn.Module]) -> list[nn.Module]:
    """The layers to collect one at a time: those that Transformers never splits over devices."""
    kinds = {
        kind for network in networks for m in network.modules() for kind in getattr(m, "_no_split_modules", ()) or ()
    }
    return [module for network in networks for module in network.modules() if type(module).__name__ in kinds]


def _shard(module: nn.Module, mesh: DeviceMesh) -> FSDPModule:
    sharded: FSDPModule = fully_shard(module, mesh=mesh)  # type: ignore[assignment]
    # Summed, not averaged, and with the one kind of reduction that every backend has.
    sharded.set_gradient_divide_factor(1.0)
    sharded.set_force_sum_reduction_for_comms(True)
    return sharded


def _twin(policy: Any) -> Any:
    """A copy of the policy to cut up. Its weights are copied to memory, so that a GPU never has all of them twice."""
    known: dict[int, Any] = {}
    for network in networks_of(policy):
        for p in network.parameters():
            known[id(p)] = nn.Parameter(p.detach().to("cpu", copy=True), requires_grad=p.requires_grad)
    return policy.twin(known) if hasattr(policy, "twin") else copy.deepcopy(policy, known)
