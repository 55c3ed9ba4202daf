"""Batches as the learner takes them: checked, in order of length, and cut into optimiser steps."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from groupwise.errors import ContractError
from groupwise.types import Batch


@dataclass(frozen=True)
class OptimiserStep:
    """The rows of one optimiser step, and what its sums are divided by."""

    batch: Batch
    denominator: float
    tokens: float
    entropy_denominator: float


def row_ends(mask: Tensor) -> Tensor:
    """How far each row [B] reaches: one more than the column of its last action, 0 where it has none."""
    return (mask * torch.arange(1, mask.shape[1] + 1, device=mask.device)).amax(1)


def acting_rows(batch: Batch) -> Tensor:
    """The rows [B] whose advantages the policy's loss acts on."""
    acting = batch.advantages.ne(0) & batch.mask
    return (acting if batch.keep is None else acting & batch.keep).any(1)


def check_batch(batch: Batch) -> None:
    """Insist on what every source promises: boolean masks, one shape [B, T], a positive denominator."""
    shape = tuple(batch.mask.shape)
    for name in ("mask", "keep"):
        tensor = getattr(batch, name)
        if tensor is not None and tensor.dtype != torch.bool:
            raise ContractError(f"a batch's {name} is {tensor.dtype}; it must be torch.bool")
    for name in ("behavior_logp", "advantages", "reference_logp", "returns", "values"):
        tensor = getattr(batch, name)
        if tensor is not None and tuple(tensor.shape) != shape:
            raise ContractError(f"a batch's {name} has shape {tuple(tensor.shape)}; the mask's is {shape}")
    if batch.rows and not batch.denominator > 0:
        raise ContractError(f"a batch's denominator is {batch.denominator}; it must be above 0")
