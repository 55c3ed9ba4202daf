"""Triton kernels over the logits of a chunk of tokens: log-probability, entropy and normaliser in one pass over them,
and their gradient in another, which reads each number once and writes it once.

`logprobs` says what is computed and keeps the plain version. Logits come as the matrix product left them; temperature,
scale and soft cap are applied here, so that no pass is made for them.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096


@triton.jit
def _ruled(raw, scale, cap, temperature, CAPPED: tl.constexpr):
    """The logits at this temperature, and their derivative with respect to what the matrix product left."""
    if CAPPED:
        # tanh(u) = 2 σ(2u) − 1
        bent = 2 * tl.sigmoid(raw * (2 * scale / cap)) - 1
        return bent * (cap / temperature), (1 - bent * bent) * (scale / temperature)
    return raw * (scale / temperature), scale / temperature + 0.0 * raw


@triton.jit
def _measure(
    logits, bias, tokens, out, rows, vocabulary, scale, cap, temperature,
    CAPPED: tl.constexpr, BIASED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    # Each lane has a maximum, a mass and a mean of its own until the end.
    top = tl.full([BLOCK], -1e30, tl.float32)
    mass, first = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
    for start in range(0, vocabulary, BLOCK):
        inside = start + column < vocabulary
        raw = tl.load(logits + row * vocabulary + start + column, mask=inside, other=0.0).to(tl.float32)
        if BIASED:
            raw += tl.load(bias + start + column, mask=inside, other=0.0).to(tl.float32)
        z, _ = _ruled(raw, scale, cap, temperature, CAPPED)
        z = tl.where(inside, z, -1e30)
        higher = tl.maximum(top, z)
        shrunk, weight = tl.exp(top - higher), tl.exp(z - higher)
        # Σ e^(z − top) (z − top): differences, so that nothing large cancels.
        first = shrunk * (first + mass * (top - higher)) + weight * (z - higher)
        mass = shrunk * mass + weight
        top = higher
    peak = tl.max(top, 0)
    # Lanes beyond a small vocabulary have seen nothing.
    seen = top > -1e29
    away = tl.where(seen, top - peak, 0.0)
    factor = tl.where(seen, tl.exp(away), 0.0)
    total = tl.sum(mass * factor, 0)
    mean = tl.sum(factor * (first + mass * away), 0) / total
    chosen = tl.load(tokens + row)
    raw = tl.load(logits + row * vocabulary + chosen).to(tl.float32)
    if BIASED:
        raw += tl.load(bias + chosen).to(tl.float32)
    z, _ = _ruled(raw, scale, cap, temperature, CAPPED)
    tl.store(out + row, z - peak - tl.log(total))
    tl.store(out + rows + row, tl.log(total) - mean)
    tl.store(out + 2 * rows + row, tl.log(total) + peak)


@triton.jit
def _gradient(
    logits, bias, tokens, entropy, normaliser, g_logp, g_entropy, out, vocabulary, scale, cap, temperature,
    CAPPED: tl.constexpr, BIASED: tl.constexpr, ENTROPIC: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < vocabulary
    raw = tl.load(logits + row * vocabulary + column, mask=inside, other=0.0).to(tl.float32)
    if BIASED:
        raw += tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)
    z, slope = _ruled(raw, scale, cap, temperature, CAPPED)
    g = tl.load(g_logp + row)
    logp = z - tl.load(normaliser + row)
    # dz = −p (g_logp + g_entropy (log p + entropy)), plus g_logp at the sampled token.
    pull = g
    if ENTROPIC:
        pull = g + tl.load(g_entropy + row) * (logp + tl.load(entropy + row))
    found = -tl.exp(logp) * pull + tl.where(column == tl.load(tokens + row), g, 0.0)
    tl.store(out + row * vocabulary + column, found * slope, mask=inside)


def measure(
    logits: Tensor, bias: Tensor | None, tokens: Tensor, out: Tensor, rule: tuple[float, float | None, float]
) -> None:
    """Write log-probabilities, entropies and log Σ exp z to `out` [3, n]; rule: scale, soft cap, temperature."""
    scale, cap, temperature = rule
    rows, vocabulary = logits.shape
    found = out if out.is_contiguous() else torch.empty(out.shape, dtype=out.dtype, device=out.device)
    _measure[(rows,)](
        logits, bias, tokens, found, rows, vocabulary, scale, cap or 1.0, temperature,
        cap is not None, bias is not None, min(BLOCK, triton.next_power_of_2(vocabulary)), num_warps=8,
    )  # fmt: skip
    if found is not out:
        out.copy_(found)


def gradient(
    logits: Tensor, bias: Tensor | None, tokens: Tensor, entropy: Tensor, normaliser: Tensor, g_logp: Tensor,
    g_entropy: Tensor | None, rule: tuple[float, float | None, float], dtype: torch.dtype,
) -> Tensor:  # fmt: skip
    """The gradient with respect to the logits as the matrix product left them, in `dtype`."""
    scale, cap, temperature = rule
    rows, vocabulary = logits.shape
    out, block = torch.empty_like(logits, dtype=dtype), min(BLOCK, triton.next_power_of_2(vocabulary))
    _gradient[(rows, triton.cdiv(vocabulary, block))](
        logits, bias, tokens, entropy, normaliser, g_logp, g_entropy, out, vocabulary, scale, cap or 1.0, temperature,
        cap is not None, bias is not None, g_entropy is not None, block, num_warps=8,
    )  # fmt: skip
    return out
