"""Rotary embedding: the angles of every position, computed once by the model's own rotary module.

Hugging Face turns dimension i together with dimension i + size/2. When the engine copies weights anyway, it puts the
two next to each other, so that turning them is one complex product. Scores do not change, because queries and keys are
reordered alike.
"""

from typing import Any

import torch
from torch import Tensor

from groupwise.errors import ConfigError
from groupwise.language.engine.families import Architecture

# Scalings whose angles depend on the length of the sequence.
MOVING = ("dynamic", "longrope")
# For models without positions, such as Mamba.
UNLIMITED = 1 << 20


class RotaryTables:
    """For each layer type, the rotation of every position; grown on demand.

    Either `cos` and `sin` [length, 1, size], with rotate-half's sign in `sin`, or `paired`: complex numbers
    [length, 1, size / 2].
    """

    def __init__(self, architecture: Architecture, *, paired: bool) -> None:
        assert architecture.rotary is not None
        self.module: Any = architecture.rotary
        self.kinds = {layer.rope for layer in architecture.layers}
        self.like = next(architecture.embedding.parameters())
        self.paired = paired
        self.length = 0
        self.tables: dict[str, tuple[Tensor, ...]] = {}

    def ensure(self, length: int) -> None:
        if length > self.length:
            self.tables = {kind: self._table(kind, length) for kind in self.kinds}
            self.length = length

    def at(self, positions: Tensor | int) -> dict[str, tuple[Tensor, ...]]:
        """The rotations at these positions, or at one position that all rows share."""
        return {kind: tuple(part[positions] for part in table) for kind, table in self.tables.items()}

    def pair_order(self, head_dim: int) -> Tensor:
        """The order of a head's dimensions in which those turned together are neighbours."""
        self.ensure(1)
        half = next(iter(self.tables.values()))[0].shape[-1]
        # 0, half, 1, half + 1, …
        turned = torch.arange(2 * half).view(2, half).t().reshape(-1)
        return torch.cat((turned, torch.arange(2 * half, head_dim)))

    def _table(self, kind: str, length: int) -> tuple[Tensor, ...]:
        place = torch.arange(length, device=self.like.device)[None]
        sample = torch.empty(1, dtype=self.like.dtype, device=self.like.device)
        cos, sin = self.module(sample, place, kind) if kind else self.module(sample, place)
        cos, sin = cos[0].unsqueeze(1), sin[0].unsqueeze(1).clone()
        half = sin.shape[-1] // 2
        if self.paired:
            return (torch.complex(cos[..., :half].contiguous(), sin[..., :half].contiguous()),)
        # rotate_half is (−x2, x1): with its sign in the table, a plain roll by half does the same.
        sin[..., :half] *= -1
        return cos, sin


def turn(x: Tensor, angles: tuple[Tensor, ...]) -> None:
    """Rotary embedding of [tokens, heads, head_dim], in place. Dimensions beyond the angles' are left alone."""
    if len(angles) == 1:
        pairs = x[..., : 2 * angles[0].shape[-1]].unflatten(-1, (-1, 2))
        torch.view_as_complex(pairs).mul_(angles[0])
        return
    cos, sin = angles
    turned = x[..., : cos.shape[-1]]
    turned.copy_(torch.addcmul(turned * cos, turned.roll(cos.shape[-1] // 2, -1), sin))


def longest(config: Any, wanted: int | None) -> int:
    """The context length to use. Rotary scalings that depend on the length are limited to their original length."""
    limit, why = getattr(config, "max_position_embeddings", None) or UNLIMITED, "max_position_embeddings"
    rope = getattr(config, "rope_parameters", None) or {}
    kinds = rope.values() if rope and all(isinstance(v, dict) for v in rope.values()) else [rope]
    if any(kind.get("rope_type", "default") in MOVING for kind in kinds):
        originals = [k.get("original_max_position_embeddings") or limit for k in kinds]
        limit, why = min(limit, *originals), "original_max_position_embeddings"
    if wanted is not None and not 2 <= wanted <= limit:
        message = f"max_length is {wanted}; it must be between 2 and {limit}, the model's {why}"
        raise ConfigError(message, field="max_length")
    return wanted or limit
