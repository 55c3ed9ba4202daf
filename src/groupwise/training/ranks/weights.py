"""The weights that ranks train together: full copies whose gradients are summed (DDP), or shards of one copy (FSDP2).

Losses are divided by the denominators of the complete batch, so gradients are summed over ranks and never averaged.

`Replicas` sums gradients once per optimiser step, after its last micro-batch: ranks may have different numbers of
micro-batches, and nothing is sent for those in between. `shards.Shards` is the other; importing it takes a second, so
only runs that ask for it do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import Tensor, nn

from groupwise.config import TrainingConfig
from groupwise.training.ranks.communication import Ranks
from groupwise.types import Policy

if TYPE_CHECKING:
    from groupwise.training.ranks.shards import Shards

# Gradients travel in pieces of this size, so that the copy they are packed into stays small.
BUCKET_BYTES = 64 << 20


class Replicas:
    """Every rank has all weights, and they stay equal because all take the same steps. Also a run without ranks.

    `policy` is the one whose gradients are taken. `passes(count)` is how many micro-batches this rank must go through
    when it has rows for `count`; the surplus counts for nothing.
    """

    sharded = False

    def __init__(self, policy: Policy, ranks: Ranks) -> None:
        self.policy, self.ranks = policy, ranks

    def passes(self, count: int) -> int:
        """At least one, so that every rank has gradients to add, if only zeros."""
        return count if self.ranks.alone else max(1, count)

    def sum_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Add up the gradients of all ranks."""
        if self.ranks.alone:
            return
        self._fill_in(parameters)
        for bucket in _buckets([p.grad for p in parameters if p.grad is not None]):
            packed = self.ranks.add(torch.cat([gradient.flatten() for gradient in bucket]))
            for gradient, part in zip(bucket, packed.split([g.numel() for g in bucket]), strict=True):
                gradient.copy_(part.view_as(gradient))

    def _fill_in(self, parameters: Sequence[nn.Parameter]) -> None:
        """Zeros where only other ranks have a gradient, such as for an expert that none of this rank's tokens met."""
        there = self.ranks.largest(torch.tensor([float(p.grad is not None) for p in parameters]))
        for parameter, somewhere in zip(parameters, there.tolist(), strict=True):
            if somewhere and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)

    def fetch(self) -> None:
        """Nothing to do: the policy that learns is the one that samples."""

    def publish(self) -> None:
        """Nothing to do: the policy that samples is the one that learns."""


Weights: TypeAlias = "Replicas | Shards"


def trained_on(ranks: Ranks, policy: Policy, cfg: TrainingConfig) -> Weights:
    """The weights of a policy as the settings spread them over the ranks."""
    if ranks.alone or cfg.ranks.sharding == "ddp":
        return Replicas(policy, ranks)
    from groupwise.training.ranks.shards import Shards

    return Shards(policy, ranks, torch.device(cfg.policy.device))


def _buckets(gradients: Sequence[Tensor]) -> Iterable[list[Tensor]]:
    """Neighbouring gradients of one type and device, in pieces that travel together."""
    bucket: list[Tensor] = []
    size = 0
    for gradient in gradients:
        other = bool(bucket) and (gradient.dtype, gradient.device) != (bucket[0].dtype, bucket[0].device)
        if bucket and (other or size + gradient.nbytes > BUCKET_BYTES):
            yield bucket
            bucket, size = [], 0
        bucket.append(gradient)
        size += gradient.nbytes
    if bucket:
        yield bucket
