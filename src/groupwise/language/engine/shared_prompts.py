"""Running rows that begin with the same prompt: its keys and values are read once per step for all of them.

Every row keeps its full prompt in the cache, so that rows come, go and move as if nothing were shared. This module
keeps one extra, compact copy of the prompts that several rows share: the queries of a group are multiplied by it as
one matrix, and each row reads only the rest of its own keys and values. Both parts of the scores go through one
softmax, so only rounding changes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Floats: TypeAlias = NDArray[np.float32]
# Bytes of a token in a request's key.
BYTES = 8
# Bytes of memory reads to save per layer; below this, the overhead costs more.
LEAST_BYTES = 1 << 19
# The most places per row: smaller groups are padded to the size of the largest.
MOST_PADDING = 2.0
# Multiplications up to which OpenBLAS does not first repack a matrix, which would take longer.
SMALL = 1 << 15


@dataclass(frozen=True, slots=True)
class SharedPromptCache:
    """The first `length` tokens of the prompts `keys`, one for each group of rows.

    store: [layers, 2 (keys, values), groups, kv_heads, length, head_dim].
    taking: [groups, kv_heads, members], the number row · kv_heads + head of the head at each place. A group smaller
      than the largest repeats a row.
    giving: [rows, kv_heads], the place of each head among these: the inverse of `taking`.
    in_turn: whether groups are equally large and their rows follow each other, as they do at the start; no index is
      needed then.
    """

    keys: tuple[bytes, ...]
    store: Floats
    taking: NDArray[np.int64]
    giving: NDArray[np.int64]
    in_turn: bool

    @property
    def length(self) -> int:
        return int(self.store.shape[4])

    def scores(self, layer: int, q: Floats, keys: Floats) -> Floats:
        """Queries [rows, kv_heads, n, head_dim] times the cache's keys [rows, kv_heads, span, head_dim]."""
        out = np.empty((*q.shape[:3], keys.shape[2]), np.float32)
        self._by_group(q, self.store[layer, 0].swapaxes(2, 3), out[..., : self.length])
        return scores_of(q, keys, out, first=self.length)

    def mixed(self, layer: int, weights: Floats, values: Floats) -> Floats:
        """Weights [rows, kv_heads, n, span] times the cache's values [rows, kv_heads, span, head_dim]."""
        shared: Floats = np.empty((*weights.shape[:3], values.shape[3]), np.float32)
        self._by_group(weights[..., : self.length], self.store[layer, 1], shared)
        shared += weights[..., self.length :] @ values[:, :, self.length :]
        return shared

    def _by_group(self, rows: Floats, matrices: Floats, out: Floats) -> None:
        """`rows` [rows, kv_heads, n, k] times `matrices` [groups, kv_heads, k, m] of their groups, written to `out`.

        All members of a group are one matrix [members · n, k].
        """
        groups, heads, members = self.taking.shape
        n = rows.shape[2]
        if self.in_turn:
            taken, to = (t.reshape(groups, members, *t.shape[1:]).swapaxes(1, 2) for t in (rows, out))
            made = taken.reshape(groups, heads, members * n, -1) @ matrices
            to[...] = made.reshape(to.shape)
        else:
            taken = rows.reshape(-1, n, rows.shape[3])[self.taking]
            made = taken.reshape(groups, heads, members * n, -1) @ matrices
            out[...] = made.reshape(-1, n, made.shape[3])[self.giving]


def scores_of(q: Floats, keys: Floats, out: Floats | None = None, first: int = 0) -> Floats:
    """Queries [rows, kv_heads, n, head_dim] times keys [rows, kv_heads, span, head_dim] from position `first` on."""
    rows, heads, n, size = q.shape
    span = keys.shape[2]
    if out is None:
        out = np.empty((rows, heads, n, span), np.float32)
    # A single query is a matrix-vector product, which is never repacked; otherwise in steps small enough.
    step = span if n == 1 else max(SMALL // (n * size), 1)
    for start in range(first, span, step):
        part = slice(start, start + step)
        np.matmul(q, keys[:, :, part].swapaxes(2, 3), out=out[..., part])
    return out


def find_shared_prompts(
    prompts: Sequence[bytes], cache: Tensor, known: SharedPromptCache | None
) -> SharedPromptCache | None:
    """What the rows with these prompts share, if reading it once pays; `known` saves copying it again."""
    groups: dict[bytes, list[int]] = {}
    for row, prompt in enumerate(prompts):
        groups.setdefault(prompt, []).append(row)
    if known is not None and groups.keys() != set(known.keys):
        known = None
    # Only as much as the shortest prompt has: the copy is one rectangular array.
    keys = tuple(groups) if known is None else known.keys
    length = min(len(key) for key in keys) // BYTES
    members = max(len(rows) for rows in groups.values())
    _, _, _, heads, _, size = cache.shape
    spared = (len(prompts) - len(keys)) * length * heads * size * 2 * cache.element_size()
    if spared < LEAST_BYTES or members * len(keys) > MOST_PADDING * len(prompts):
        return None
    first = torch.tensor([groups[key][0] for key in keys])
    store = cache[:, :, first, :, :length].numpy() if known is None else known.store
    rows = np.array([[*groups[key], *[groups[key][0]] * (members - len(groups[key]))] for key in keys])
    taking = rows[:, None] * heads + np.arange(heads)[:, None]
    giving = np.empty(len(prompts) * heads, np.int64)
    giving[taking.reshape(-1)] = np.arange(taking.size)
    in_turn = np.array_equal(rows.reshape(-1), np.arange(len(prompts)))
    return SharedPromptCache(keys, store, taking, giving.reshape(-1, heads), in_turn)
