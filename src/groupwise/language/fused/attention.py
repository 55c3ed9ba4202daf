"""Causal attention of packed sequences, forwards and backwards, by the kernel that fits device and precision.

Sequence s has queries `first_query[s] : first_query[s + 1]` and keys `first_key[s] : first_key[s + 1]`; its last
query sees all its keys, the one before all but the last, and so on. Half precision on a GPU takes flash attention,
float32 the kernel called memory-efficient, and a CPU, where this is only tested, one plain product after the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

FROM_BOTTOM_RIGHT = 2


@dataclass(frozen=True, slots=True)
class Sequences:
    """The bounds of packed sequences: [S + 1] each, int32, and the longest of each."""

    first_query: Tensor
    first_key: Tensor
    longest_query: int
    longest_key: int

    @property
    def bounds(self) -> tuple[Tensor, Tensor, int, int]:
        return self.first_query, self.first_key, self.longest_query, self.longest_key


def attend(q: Tensor, k: Tensor, v: Tensor, rows: Sequences, scaling: float) -> tuple[Tensor, ...]:
    """Queries [Tq, heads, head_dim], keys and values [Tk, kv_heads, head_dim] → [Tq, heads, head_dim], and what else
    `attend_backward` needs."""
    if not q.is_cuda:
        return (_plain(q, k, v, rows, scaling),)
    if q.dtype == torch.float32:
        k, v = _expand(k, q), _expand(v, q)
        out, *kept = torch.ops.aten._efficient_attention_forward(
            q[None], k[None], v[None], None, *rows.bounds, 0.0, FROM_BOTTOM_RIGHT, True, scale=scaling
        )
        return out[0], *kept[:3]
    out, *kept = torch.ops.aten._flash_attention_forward(q, k, v, *rows.bounds, 0.0, True, False, scale=scaling)
    return out, *kept[:3]


def attend_backward(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, kept: tuple[Tensor, ...], rows: Sequences, scaling: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v, all with as many heads; `kept` is all that `attend` returned."""
    if not q.is_cuda:
        with torch.enable_grad():
            leaves = [t.detach().requires_grad_() for t in (q, k, v)]
            mixed = _plain(leaves[0], leaves[1], leaves[2], rows, scaling)
        dq, dk, dv = torch.autograd.grad(mixed, leaves, gradient)
        return dq, dk, dv
    found: Any
    out, normaliser, seed, offset = kept
    if q.dtype == torch.float32:
        found = torch.ops.aten._efficient_attention_backward(
            gradient[None], q[None], k[None], v[None], None, out[None], *rows.bounds, normaliser, 0.0, seed, offset,
            FROM_BOTTOM_RIGHT, False, scale=scaling,
        )  # fmt: skip
        return found[0][0], found[1][0], found[2][0]
    found = torch.ops.aten._flash_attention_backward(
        gradient, q, k, v, out, normaliser, *rows.bounds, 0.0, True, seed, offset, scale=scaling
    )
    return found[0], found[1], found[2]


def _expand(k: Tensor, q: Tensor) -> Tensor:
    """Keys or values once per head of q."""
    return k.repeat_interleave(q.shape[1] // k.shape[1], 1)


def _plain(q: Tensor, k: Tensor, v: Tensor, rows: Sequences, scaling: float) -> Tensor:
    parts = []
    k, v = _expand(k, q), _expand(v, q)
    sizes = [bounds.diff().tolist() for bounds in (rows.first_query, rows.first_key)]
    for qs, ks, vs in zip(q.split(sizes[0]), k.split(sizes[1]), v.split(sizes[1]), strict=True):
        scores = torch.einsum("qhd,khd->hqk", qs, ks) * scaling
        seen = torch.ones_like(scores[0], dtype=torch.bool).tril(len(ks) - len(qs))
        parts.append(torch.einsum("hqk,khd->qhd", scores.masked_fill(~seen, float("-inf")).softmax(-1), vs))
    return torch.cat(parts)
