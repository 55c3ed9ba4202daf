"""Attention over shared prompts as a CPU learns it: who looks at whom, and the gradient of that.

Prompts attend to themselves, the rest of a row to its prompt and itself. Short rows attend by plain products and keep
their probabilities, which is faster than a fused kernel that makes them twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from groupwise.language.sharing import SharedPrompts

SHORT = 4  # rows up to this many times a head's dimension attend by plain products


class Mixing:
    """Who attends to whom: prompts to themselves, the rest of a row to its prompt and itself."""

    def __init__(self, rows: SharedPrompts, head_dim: int, dtype: torch.dtype) -> None:
        self.shapes = rows.prompts.shape, rows.rests.shape
        self.sizes = [rows.prompts.numel(), rows.rests.numel()]
        self.head_dim = head_dim
        self.members = F.one_hot(rows.group, len(rows.prompts)).to(dtype)
        place, following = rows.place(), torch.arange(rows.rests.shape[1], device=rows.rests.device)
        behind = rows.start[:, None] + following
        self.positions = torch.cat((place.clamp(min=0).reshape(-1), behind.reshape(-1)))
        there, own = place >= 0, following <= following[:, None]
        if bool(there.all()):  # one mask for all
            there, group = there[:1], rows.group[:1] * 0
        else:
            group = rows.group
        column = torch.arange(place.shape[1], device=place.device)
        among = (column <= column[:, None]) & (there[:, None] | (column == column[:, None]))  # padding sees itself
        across = there[group][:, None].expand(-1, len(own), -1)
        self.bias_of_prompts = _bias(among, dtype)
        self.bias = _bias(torch.cat((across, own.expand(len(across), -1, -1)), 2), dtype)

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """The attention of all tokens, or of the rests' alone if q has no others; scores are plain products.

        From [tokens, heads, head_dim] to [tokens, heads · head_dim]; several heads of q may share one of k and v.
        """
        if self.bias.shape[3] <= SHORT * self.head_dim:
            mixed: Tensor = _ShortAttention.apply(q, k, v, self)  # type: ignore[no-untyped-call]
            return mixed
        parts = [
            F.scaled_dot_product_attention(*qkv, bias, scale=1.0, enable_gqa=q.shape[1] != k.shape[1])
            for qkv, bias in self.parts(q, k, v)
        ]
        return torch.cat([part.transpose(1, 2).reshape(-1, q.shape[1] * self.head_dim) for part in parts])

    def parts(self, q: Tensor, k: Tensor, v: Tensor) -> Iterator[tuple[tuple[Tensor, Tensor, Tensor], Tensor]]:
        """Queries, keys and values [rows, heads, length, head_dim] that meet, and their bias: prompts, then rests."""
        (kp, kr), (vp, vr) = self.cut(k), self.cut(v)
        *qp, qr = self.cut(q)
        if qp:
            yield (qp[0], kp, vp), self.bias_of_prompts
        yield (qr, torch.cat((self._hand_out(kp), kr), 2), torch.cat((self._hand_out(vp), vr), 2)), self.bias

    def cut(self, t: Tensor) -> list[Tensor]:
        """Prompts, if there, and rests apart, [rows, heads, length, head_dim] each."""
        first = 0 if len(t) > self.sizes[1] else 1
        parts = zip(t.split(self.sizes[first:]), self.shapes[first:], strict=True)
        return [part.view(*shape, -1, self.head_dim).transpose(1, 2) for part, shape in parts]

    def _hand_out(self, of_prompts: Tensor) -> Tensor:
        """To every row what is its prompt's. As a product, because a CPU is slow at the gradient of an index."""
        return (self.members @ of_prompts.flatten(1)).view(-1, *of_prompts.shape[1:])

    def collect(self, of_rows: Tensor) -> Tensor:
        """For every prompt the sum over its rows."""
        return (self.members.t() @ of_rows.flatten(1)).view(-1, *of_rows.shape[1:])


def _bias(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where a query may look and -inf elsewhere, [rows, 1, queries, keys]."""
    zeros = torch.zeros(seen.shape, dtype=dtype, device=seen.device)
    return zeros.masked_fill_(~seen, float("-inf")).unsqueeze(1)


class _ShortAttention(torch.autograd.Function):
    """softmax(q kᵀ + bias) v of prompts and rests, with the probabilities kept."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, mixing: Mixing) -> Tensor:
        mixed, kept = torch.empty_like(q, memory_format=torch.contiguous_format), list[Tensor]()
        for (qkv, bias), out in zip(mixing.parts(q, k, v), mixing.cut(mixed), strict=True):
            found, *more = _attend(*qkv, bias)
            out.copy_(found)
            kept += more
        ctx.save_for_backward(*kept)
        ctx.mixing = mixing
        return mixed.view(len(q), -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        mixing: Mixing = ctx.mixing
        *of_prompts, of_rests = [ctx.saved_tensors[i : i + 4] for i in range(0, len(ctx.saved_tensors), 4)]
        heads = of_rests[1].shape[1]
        dq = gradient.new_empty(len(gradient), gradient.shape[1] // mixing.head_dim, mixing.head_dim)
        dk, dv = (gradient.new_empty(sum(mixing.sizes), heads, mixing.head_dim) for _ in range(2))
        *g_prompts, g_rests = mixing.cut(gradient.view(dq.shape))
        *dq_prompts, dq_rests = mixing.cut(dq)
        length = mixing.shapes[0][1]
        dq_rests[...], *both = _attend_backward(g_rests, *of_rests)
        for whole, found in zip((dk, dv), both, strict=True):
            prompts, rests = mixing.cut(whole)
            prompts[...] = mixing.collect(found[:, :, :length])
            rests[...] = found[:, :, length:]
        if of_prompts:
            dq_prompts[0][...], *both = _attend_backward(g_prompts[0], *of_prompts[0])
            for whole, found in zip((dk, dv), both, strict=True):
                mixing.cut(whole)[0].add_(found)
        return dq, dk, dv, None


def _attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
    """softmax(q kᵀ + bias) v of [rows, heads, length, head_dim], and what its gradient needs."""
    rows, heads, length, size = q.shape
    grouped = q.reshape(rows, k.shape[1], -1, size)
    scores = product(grouped, k.mT)
    scores.view(rows, heads, length, -1).add_(bias)
    probabilities = scores.softmax(-1)
    return product(probabilities, v).view(q.shape), grouped, k, v, probabilities


def _attend_backward(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, probabilities: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    shape = gradient.shape
    gradient = gradient.reshape(q.shape)
    d_scores = torch._softmax_backward_data(product(gradient, v.mT), probabilities, -1, v.dtype)
    return product(d_scores, k).view(shape), product(d_scores.mT, q), product(probabilities.mT, gradient)


def product(left: Tensor, right: Tensor) -> Tensor:
    """left @ right. On one thread NumPy's BLAS is up to twice as fast for stacks of small matrices, and a few percent
    for large ones, unless both are long and thin, as for the gradient of a weight."""
    if torch.get_num_threads() > 1:
        return left @ right
    return torch.from_numpy(np.matmul(left.detach().numpy(), right.detach().numpy()))
