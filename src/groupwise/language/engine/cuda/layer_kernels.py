"""What lies between the matrix products of a layer, each as one pass over memory.

Roundings follow Transformers' modules, so that the sampled log-probabilities are close to the learner's.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

import triton
import triton.language as tl


@triton.jit
def add_and_norm(x, y, weight, out, width, eps, ADD: tl.constexpr, BLOCK: tl.constexpr):
    """One row: x += y (with ADD), out = RMSNorm(x)."""
    place = tl.program_id(0).to(tl.int64) * width
    column = tl.arange(0, BLOCK)
    inside = column < width
    values = tl.load(x + place + column, mask=inside, other=0.0)
    if ADD:
        added = values.to(tl.float32) + tl.load(y + place + column, mask=inside, other=0.0).to(tl.float32)
        values = added.to(values.dtype)
        tl.store(x + place + column, values, mask=inside)
    full = values.to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(full * full, 0) / width + eps)
    normed = (full * scale).to(values.dtype).to(tl.float32)
    normed = normed * tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + place + column, normed.to(values.dtype), mask=inside)


@triton.jit
def rotate_and_store(
    qkv, q_out, keys, values, slots, position, alive, tables, cos, sin, q_weight, k_weight, q_eps, k_eps, table_width,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, SIZE: tl.constexpr, TURNED: tl.constexpr, PAGE: tl.constexpr,
    BLOCK: tl.constexpr, NORM: tl.constexpr, DECODING: tl.constexpr,
):  # fmt: skip
    """One (token, head): norm and rotary embedding of queries and keys; keys and values into their page.

    While decoding, tokens are rows: `position` and `alive` are indexed by slot, and rows that ended write nothing.
    """
    token, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    slot = tl.load(slots + token).to(tl.int64)
    if DECODING:
        if tl.load(alive + slot) == 0:
            return
        at = tl.load(position + slot)
    else:
        at = tl.load(position + token)
    column = tl.arange(0, BLOCK)
    inside = column < SIZE
    start = qkv + (token * (HEADS + 2 * KV_HEADS) + head) * SIZE
    turned = column < TURNED
    # Rotary embedding turns dimension i together with i + TURNED / 2.
    other = tl.where(turned, (column + TURNED // 2) % TURNED, column)
    x = tl.load(start + column, mask=inside, other=0.0)
    kind = x.dtype
    x = x.to(tl.float32)
    partner = tl.load(start + other, mask=inside, other=0.0).to(tl.float32)
    if NORM:
        eps = tl.where(head < HEADS, q_eps, k_eps)
        scale = 1.0 / tl.sqrt(tl.sum(x * x, 0) / SIZE + eps)
        weight = q_weight if head < HEADS else k_weight
        x = (x * scale).to(kind).to(tl.float32) * tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
        partner = (partner * scale).to(kind).to(tl.float32)
        partner = partner * tl.load(weight + other, mask=inside, other=0.0).to(tl.float32)
        x, partner = x.to(kind).to(tl.float32), partner.to(kind).to(tl.float32)
    angle = at.to(tl.int64) * TURNED + column
    c = tl.load(cos + angle, mask=turned, other=1.0).to(tl.float32)
    # The sign of rotate-half is in the table.
    s = tl.load(sin + angle, mask=turned, other=0.0).to(tl.float32)
    result = (x * c + partner * s).to(kind)
    if head < HEADS:
        tl.store(q_out + (token * HEADS + head) * SIZE + column, result, mask=inside)
    else:
        page = tl.load(tables + slot * table_width + at // PAGE).to(tl.int64)
        place = ((page * KV_HEADS + head - HEADS) * PAGE + at % PAGE) * SIZE + column
        tl.store(keys + place, result, mask=inside)
        tl.store(values + place, tl.load(start + KV_HEADS * SIZE + column, mask=inside, other=0.0), mask=inside)


@triton.jit
def silu_and_multiply(gate_up, out, width, BLOCK: tl.constexpr):
    """One stretch of a row: silu(gate) · up, where gate and up stand side by side."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    gate = tl.load(gate_up + row * 2 * width + column, mask=inside, other=0.0)
    up = tl.load(gate_up + row * 2 * width + width + column, mask=inside, other=0.0)
    full = gate.to(tl.float32)
    active = (full / (1.0 + tl.exp(-full))).to(gate.dtype).to(tl.float32)
    tl.store(out + row * width + column, (active * up.to(tl.float32)).to(gate.dtype), mask=inside)
