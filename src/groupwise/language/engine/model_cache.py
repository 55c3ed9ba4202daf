"""The cache that a model's own forward pass returns, one row per sequence.

It may hold keys and values, windows of them, convolution or recurrent states, in classes of Transformers or of the
model's own. Nothing about them is assumed but this: a cache is a tree of objects, lists and dictionaries, its tensors
have the rows first, and what differs between prompts of different length is padded on the left. `model_forward` tries
that out on every model before relying on it.
"""

import copy
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F

ModelCache: TypeAlias = Any
Combine: TypeAlias = Callable[[Sequence[Tensor]], Tensor]


def picked(cache: ModelCache, rows: Tensor) -> ModelCache:
    """A copy with these rows in this order; a row may be picked several times."""
    return _combined([cache], lambda tensors: tensors[0].index_select(0, rows))


def joined(caches: Sequence[ModelCache]) -> ModelCache:
    """One cache with the rows of all, the shorter ones padded with zeros on the left."""
    return caches[0] if len(caches) == 1 else _combined(caches, _stack)


def _stack(tensors: Sequence[Tensor]) -> Tensor:
    widest = [max(sizes) for sizes in zip(*(tensor.shape[1:] for tensor in tensors), strict=True)]
    return torch.cat([_padded(tensor, widest) for tensor in tensors])


def _padded(tensor: Tensor, sizes: Sequence[int]) -> Tensor:
    """Zeros on the left of every axis but the first, up to these sizes."""
    missing = [want - have for want, have in zip(sizes, tensor.shape[1:], strict=True)]
    if not any(missing):
        return tensor
    # `pad` takes (before, after) from the last axis to the first.
    return F.pad(tensor, [part for before in reversed(missing) for part in (before, 0)])


def _combined(parts: Sequence[Any], combine: Combine) -> Any:
    """The same tree as each of `parts`, with their tensors combined. Of counters, such as a length, the largest."""
    first = parts[0]
    if isinstance(first, Tensor):
        return combine(parts) if first.ndim and first.numel() else first
    if isinstance(first, list | tuple):
        return type(first)([_combined(same, combine) for same in zip(*parts, strict=True)])
    if isinstance(first, dict):
        return {key: _combined([part[key] for part in parts], combine) for key in first}
    if isinstance(first, int) and not isinstance(first, bool):
        return max(parts)
    if not hasattr(first, "__dict__") or isinstance(first, type | nn.Module) or hasattr(first, "model_type"):
        return first
    made = copy.copy(first)
    made.__dict__.update(_combined([vars(part) for part in parts], combine))
    return made
