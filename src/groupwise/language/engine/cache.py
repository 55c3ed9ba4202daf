"""Keys and values of many sequences: one slot (row) per sequence, allocated ahead and grown by doubling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from groupwise.language.engine.beginnings import Beginnings

FIRST_LENGTH = 128
FIRST_ROWS = 8


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A prompt's keys and values, kept while more requests for the same prompt are waiting."""

    store: Tensor
    logits: Tensor


class Cache:
    """`store` is [layers, 2 (keys, values), rows, kv_heads, length, head_dim].

    Memory starts as zeros, never as whatever lay there: a masked position is multiplied by 0, and 0 × NaN is NaN.
    """

    def __init__(self, layers: int, kv_heads: int, head_dim: int, *, rows: int, length: int, like: Tensor) -> None:
        self.max_rows, self.max_length = rows, length
        self._shape = (layers, kv_heads, head_dim)
        self._like = like
        self.beginnings: Beginnings | None = None  # what the running rows share
        self._use(self._zeros(0, 0))

    def ensure(self, rows: int, length: int) -> None:
        """Room for this many rows of this many positions; what is stored stays."""
        if rows <= self.rows and length <= self.length:
            return
        old = self.store
        new = self._zeros(
            _grown(self.rows, rows, FIRST_ROWS, self.max_rows),
            _grown(self.length, length, FIRST_LENGTH, self.max_length),
        )
        new[:, :, : self.rows, :, : self.length] = old
        self._use(new)

    def copy(self, source: Sequence[int], target: Sequence[int], length: int) -> None:
        """Row by row, the first `length` positions of `source` to `target`."""
        self.store[:, :, list(target), :, :length] = self.store[:, :, list(source), :, :length]

    def exchange(self, ones: Sequence[int], others: Sequence[int], length: int) -> None:
        """Row by row, `ones` and `others` change places."""
        self.copy([*ones, *others], [*others, *ones], length)

    def snapshot(self, row: int, length: int, logits: Tensor) -> Snapshot:
        return Snapshot(self.store[:, :, row, :, :length].clone(), logits.clone())

    def restore(self, snapshot: Snapshot, row: int) -> None:
        self.store[:, :, row, :, : snapshot.store.shape[3]] = snapshot.store

    def wipe(self, row: int | slice = slice(None)) -> None:
        self.store[:, :, row] = 0

    def _use(self, store: Tensor) -> None:
        self.store = store
        self.rows, self.length = store.shape[2], store.shape[4]
        self.layers = list(store.unbind(0))
        self.keys = list(store[:, 0].unbind(0))
        self.values = list(store[:, 1].unbind(0))

    def _zeros(self, rows: int, length: int) -> Tensor:
        layers, kv_heads, head_dim = self._shape
        shape = (layers, 2, rows, kv_heads, length, head_dim)
        return torch.zeros(shape, dtype=self._like.dtype, device=self._like.device)


def _grown(have: int, need: int, first: int, most: int) -> int:
    size = max(have, min(first, most))
    while size < need:
        size *= 2
    return min(size, most)
