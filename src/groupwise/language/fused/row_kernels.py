"""Triton kernels that read each row of a matrix once: norms, heads, the MLP's gate, and what to call them by.

Everything is computed in float32, whatever the tensors are, and rounded once. In formulas, x̂ = x / rms(x).

A kernel whose weights learn is run by a fixed number of programs, each of which takes every n-th row and adds up its
part of the weights' gradient; the parts are added afterwards. So the result does not depend on which program was first.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

# Programs that take turns over rows: some for each of a GPU's multiprocessors.
PROGRAMS_PER_PROCESSOR = 8
GATE_BLOCK = 1024


@triton.jit
def _norm(x, change, weight, total, normed, size, width, eps, ADDS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < width
    at = row * width + column
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    if ADDS:
        value += tl.load(change + at, mask=inside, other=0.0).to(tl.float32)
        value = value.to(total.dtype.element_ty)
        tl.store(total + at, value, mask=inside)
        value = value.to(tl.float32)
    inverse = tl.rsqrt(tl.sum(value * value, 0) / width + eps)
    scale = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(normed + at, value * inverse * scale, mask=inside)
    tl.store(size + row, inverse)


@triton.jit
def _norm_backward(
    gradient, x, weight, size, residual, dx, normed, parts, rows, width, ADDS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    column = tl.arange(0, BLOCK)
    inside = column < width
    scale = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    d_scale = tl.zeros([BLOCK], tl.float32)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        at = tl.cast(row, tl.int64) * width + column
        g = tl.load(gradient + at, mask=inside, other=0.0).to(tl.float32)
        inverse = tl.load(size + row)
        hat = tl.load(x + at, mask=inside, other=0.0).to(tl.float32) * inverse
        d_scale += g * hat
        tl.store(normed + at, hat * scale, mask=inside)
        # ∂x = (∂x̂ − x̂ mean(∂x̂ · x̂)) / rms(x)
        g *= scale
        found = (g - hat * (tl.sum(g * hat, 0) / width)) * inverse
        if ADDS:
            found += tl.load(residual + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(dx + at, found, mask=inside)
    tl.store(parts + tl.program_id(0).to(tl.int64) * width + column, d_scale, mask=inside)


@triton.jit
def _heads(
    x, stride, weight, cos, sin, source, out, eps,
    HEADS: tl.constexpr, DIM: tl.constexpr, NORMED: tl.constexpr, TURNED: tl.constexpr, GATHERED: tl.constexpr,
    REPEAT: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    token = row
    if GATHERED:
        token = tl.load(source + row).to(tl.int64)
    HALF: tl.constexpr = DIM // 2
    head, lane = tl.arange(0, ROWS)[:, None], tl.arange(0, LANES)[None, :]
    inside = (head < HEADS) & (lane < HALF)
    at = head * DIM + lane
    first = tl.load(x + token * stride + at, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(x + token * stride + at + HALF, mask=inside, other=0.0).to(tl.float32)
    if NORMED:
        inverse = tl.rsqrt(tl.sum(first * first + second * second, 1) / DIM + eps)[:, None]
        first *= inverse * tl.load(weight + lane, mask=lane < HALF, other=0.0).to(tl.float32)
        second *= inverse * tl.load(weight + lane + HALF, mask=lane < HALF, other=0.0).to(tl.float32)
    if TURNED:
        c = tl.load(cos + token * HALF + lane, mask=lane < HALF, other=0.0).to(tl.float32)
        s = tl.load(sin + token * HALF + lane, mask=lane < HALF, other=0.0).to(tl.float32)
        turned = first * c - second * s
        second = second * c + first * s
        first = turned
    for copy in tl.static_range(REPEAT):
        there = out + ((row * HEADS + head) * REPEAT + copy) * DIM + lane
        tl.store(there, first, mask=inside)
        tl.store(there + HALF, second, mask=inside)


@triton.jit
def _heads_backward(
    gradient, first_copy, copies, x, stride, weight, cos, sin, dx, parts, tokens, eps,
    HEADS: tl.constexpr, DIM: tl.constexpr, NORMED: tl.constexpr, TURNED: tl.constexpr, GATHERED: tl.constexpr,
    REPEAT: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    HALF: tl.constexpr = DIM // 2
    head, lane = tl.arange(0, ROWS)[:, None], tl.arange(0, LANES)[None, :]
    inside = (head < HEADS) & (lane < HALF)
    at = head * DIM + lane
    flat = tl.arange(0, LANES)
    d_first, d_second = tl.zeros([LANES], tl.float32), tl.zeros([LANES], tl.float32)
    if NORMED:
        scale_1 = tl.load(weight + lane, mask=lane < HALF, other=0.0).to(tl.float32)
        scale_2 = tl.load(weight + lane + HALF, mask=lane < HALF, other=0.0).to(tl.float32)
    for number in range(tl.program_id(0), tokens, tl.num_programs(0)):
        token = tl.cast(number, tl.int64)
        g_1, g_2 = tl.zeros([ROWS, LANES], tl.float32), tl.zeros([ROWS, LANES], tl.float32)
        if GATHERED:
            # A prompt's token gets a gradient from every row that continues the prompt.
            for place in range(tl.load(first_copy + token), tl.load(first_copy + token + 1)):
                row = tl.load(copies + place).to(tl.int64)
                for copy in tl.static_range(REPEAT):
                    there = gradient + ((row * HEADS + head) * REPEAT + copy) * DIM + lane
                    g_1 += tl.load(there, mask=inside, other=0.0).to(tl.float32)
                    g_2 += tl.load(there + HALF, mask=inside, other=0.0).to(tl.float32)
        else:
            for copy in tl.static_range(REPEAT):
                there = gradient + ((token * HEADS + head) * REPEAT + copy) * DIM + lane
                g_1 += tl.load(there, mask=inside, other=0.0).to(tl.float32)
                g_2 += tl.load(there + HALF, mask=inside, other=0.0).to(tl.float32)
        if TURNED:
            c = tl.load(cos + token * HALF + lane, mask=lane < HALF, other=0.0).to(tl.float32)
            s = tl.load(sin + token * HALF + lane, mask=lane < HALF, other=0.0).to(tl.float32)
            turned = g_1 * c + g_2 * s
            g_2 = g_2 * c - g_1 * s
            g_1 = turned
        if NORMED:
            hat_1 = tl.load(x + token * stride + at, mask=inside, other=0.0).to(tl.float32)
            hat_2 = tl.load(x + token * stride + at + HALF, mask=inside, other=0.0).to(tl.float32)
            inverse = tl.rsqrt(tl.sum(hat_1 * hat_1 + hat_2 * hat_2, 1) / DIM + eps)[:, None]
            hat_1 *= inverse
            hat_2 *= inverse
            d_first += tl.sum(g_1 * hat_1, 0)
            d_second += tl.sum(g_2 * hat_2, 0)
            g_1 *= scale_1
            g_2 *= scale_2
            mean = tl.sum(g_1 * hat_1 + g_2 * hat_2, 1)[:, None] / DIM
            g_1 = (g_1 - hat_1 * mean) * inverse
            g_2 = (g_2 - hat_2 * mean) * inverse
        tl.store(dx + token * stride + at, g_1, mask=inside)
        tl.store(dx + token * stride + at + HALF, g_2, mask=inside)
    if NORMED:
        here = parts + tl.program_id(0).to(tl.int64) * DIM + flat
        tl.store(here, d_first, mask=flat < HALF)
        tl.store(here + HALF, d_second, mask=flat < HALF)


@triton.jit
def _gate(joined, out, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    gate = tl.load(joined + row * 2 * width + column, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(joined + row * 2 * width + width + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * width + column, gate * tl.sigmoid(gate) * up, mask=inside)


@triton.jit
def _gate_backward(gradient, joined, d_joined, out, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    at = row * 2 * width + column
    gate = tl.load(joined + at, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(joined + at + width, mask=inside, other=0.0).to(tl.float32)
    g = tl.load(gradient + row * width + column, mask=inside, other=0.0).to(tl.float32)
    open_ = tl.sigmoid(gate)
    tl.store(out + row * width + column, gate * open_ * up, mask=inside)
    tl.store(d_joined + at, g * up * open_ * (1 + gate * (1 - open_)), mask=inside)
    tl.store(d_joined + at + width, g * gate * open_, mask=inside)


def add_and_norm(
    x: Tensor, change: Tensor | None, weight: Tensor, eps: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """(x + change, its RMSNorm in `dtype`, 1 / rms [rows]) of [rows, width]; without a change, x itself comes back."""
    rows, width = x.shape
    total = x if change is None else torch.empty_like(x)
    normed, size = x.new_empty(x.shape, dtype=dtype), x.new_empty(rows, dtype=torch.float32)
    block = triton.next_power_of_2(width)
    _norm[(rows,)](
        x, change, weight, total, normed, size, width, eps, change is not None, block, num_warps=_warps(block)
    )  # fmt: skip
    return total, normed, size


def norm_backward(
    gradient: Tensor, x: Tensor, weight: Tensor, size: Tensor, residual: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """(∂x, with `residual` added, the norm's output again, ∂weight in float32)."""
    rows, width = x.shape
    dx, normed, programs = torch.empty_like(x), torch.empty_like(gradient), _programs(x, rows)
    parts, block = x.new_empty((programs, width), dtype=torch.float32), triton.next_power_of_2(width)
    _norm_backward[(programs,)](
        gradient, x, weight, size, residual, dx, normed, parts, rows, width, residual is not None, block,
        num_warps=_warps(block),
    )  # fmt: skip
    return dx, normed, parts.sum(0)


@dataclass(frozen=True, slots=True)
class Turns:
    """Rotary embedding of packed tokens: cos and sin [tokens, head_dim / 2]. And who reads whose keys and values.

    Row n of a gathered result is of token `source[n]`; token t went to the rows `copies[first_copy[t] :
    first_copy[t + 1]]`. None of the three if every token is read once, in its place.
    """

    cos: Tensor
    sin: Tensor
    source: Tensor | None
    first_copy: Tensor | None
    copies: Tensor | None


def heads(
    x: Tensor, count: int, turns: Turns, weight: Tensor | None, eps: float,
    *, turned: bool = True, gathered: bool = True, repeat: int = 1,
) -> Tensor:  # fmt: skip
    """[tokens, count · head_dim], columns of a wider matrix perhaps, → [rows, count · repeat, head_dim]: norm, then
    rotary. Each head stands there `repeat` times, one copy behind the other."""
    dim = x.shape[1] // count
    gathered = gathered and turns.source is not None
    rows = len(turns.source) if gathered and turns.source is not None else len(x)
    out = x.new_empty((rows, count * repeat, dim))
    _heads[(rows,)](
        x, x.stride(0), weight, turns.cos, turns.sin, turns.source, out, eps,
        count, dim, weight is not None, turned, gathered, repeat, *_blocks(count, dim), num_warps=4,
    )  # fmt: skip
    return out


def heads_backward(
    gradient: Tensor, x: Tensor, dx: Tensor, turns: Turns, weight: Tensor | None, eps: float,
    *, turned: bool = True, gathered: bool = True, repeat: int = 1,
) -> Tensor | None:  # fmt: skip
    """Write ∂x to `dx`, columns like those of `x`; return ∂weight in float32."""
    count, dim = gradient.shape[1] // repeat, gradient.shape[2]
    programs = _programs(x, len(x))
    parts = None if weight is None else x.new_empty((programs, dim), dtype=torch.float32)
    assert dx.stride() == x.stride()
    _heads_backward[(programs,)](
        gradient, turns.first_copy, turns.copies, x, x.stride(0), weight, turns.cos, turns.sin, dx, parts, len(x), eps,
        count, dim, weight is not None, turned, gathered and turns.source is not None, repeat,
        *_blocks(count, dim), num_warps=4,
    )  # fmt: skip
    return None if parts is None else parts.sum(0)


def gate(joined: Tensor) -> Tensor:
    """silu(gate) · up, from [rows, 2 · width] with the gates in front."""
    rows, width = joined.shape[0], joined.shape[1] // 2
    out = joined.new_empty((rows, width))
    _gate[(rows, triton.cdiv(width, GATE_BLOCK))](joined, out, width, GATE_BLOCK, num_warps=4)
    return out


def gate_backward(gradient: Tensor, joined: Tensor) -> tuple[Tensor, Tensor]:
    """(∂joined, silu(gate) · up again)."""
    rows, width = gradient.shape
    d_joined, out = torch.empty_like(joined), torch.empty_like(gradient)
    _gate_backward[(rows, triton.cdiv(width, GATE_BLOCK))](
        gradient, joined, d_joined, out, width, GATE_BLOCK, num_warps=4
    )
    return d_joined, out


def _blocks(count: int, dim: int) -> tuple[int, int]:
    return triton.next_power_of_2(count), triton.next_power_of_2(dim // 2)


def _warps(block: int) -> int:
    return min(16, max(1, block // 256))


def _programs(like: Tensor, rows: int) -> int:
    if not like.is_cuda:
        return min(rows, 3)
    return min(rows, PROGRAMS_PER_PROCESSOR * torch.cuda.get_device_properties(like.device).multi_processor_count)
