"""Attention over the paged cache: one query per row (decoding), or a stretch of one sequence (prompts).

Keys and values are read once for all query heads that share them: these heads are the rows of one small matrix
product. Long rows are cut into `splits`, so that few rows still fill the GPU; a last kernel joins the parts. What a
group of rows shares is read once for the group, as one more part.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

import triton
import triton.language as tl

# Positions of a page, and of one step over keys and values.
PAGE = 64


@triton.jit
def _attend_to_pages(
    q, keys, values, table, first, stop, places, head, scale,
    KV_HEADS: tl.constexpr, SIZE: tl.constexpr, PAGE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    CAUSAL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Online softmax of queries [ROWS, BLOCK] over positions `first` (at the start of a page) to `stop`.

    `places` are the positions of the queries, for causal attention. Returns maximum, sum and weighted values.
    """
    column = tl.arange(0, BLOCK)
    offset = tl.arange(0, PAGE)
    most = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    mixed = tl.zeros((ROWS, BLOCK), tl.float32)
    for at in range(first, stop, PAGE):
        page = tl.load(table + at // PAGE).to(tl.int64)
        inside = at + offset < stop
        here = ((page * KV_HEADS + head) * PAGE + offset)[:, None] * SIZE + column[None, :]
        exists = inside[:, None] & (column[None, :] < SIZE)
        key = tl.load(keys + here, mask=exists, other=0.0)
        scores = tl.dot(q, tl.trans(key), input_precision=PRECISION) * scale
        seen = inside[None, :]
        if CAUSAL:
            seen = seen & (at + offset[None, :] <= places[:, None])
        scores = tl.where(seen, scores, float("-inf"))
        new = tl.maximum(most, tl.max(scores, 1))
        # A query that has seen nothing yet keeps −inf, and −inf − −inf is not a number.
        safe = tl.where(new == float("-inf"), 0.0, new)
        weights = tl.exp(scores - safe[:, None])
        fading = tl.exp(most - safe)
        value = tl.load(values + here, mask=exists, other=0.0)
        total = total * fading + tl.sum(weights, 1)
        mixed = mixed * fading[:, None]
        mixed += tl.dot(weights.to(value.dtype), value, input_precision=PRECISION)
        most = new
    return most, total, mixed


@triton.jit
def decode_rows(
    q, keys, values, out, part_mixed, part_most, part_total, order, position, alive, tables, shared, scale, table_width,
    rows, KV_HEADS: tl.constexpr, GROUP: tl.constexpr, SIZE: tl.constexpr, PAGE: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr, SPLITS: tl.constexpr, WHOLE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One (row, key head, split): everything a row sees after the tokens it shares with its group.

    With WHOLE there is only this one part, and the result goes to `out`; otherwise to part number `split`.
    """
    row, head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    slot = tl.load(order + row)
    if tl.load(alive + slot) == 0:
        return
    stop = tl.load(position + slot) + 1
    first = 0 if WHOLE else tl.load(shared + row)
    length = tl.cdiv(tl.cdiv(stop - first, SPLITS), PAGE) * PAGE
    first = first + split * length
    stop = tl.minimum(first + length, stop)
    member = tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    heads = KV_HEADS * GROUP
    place = row.to(tl.int64) * heads + head * GROUP + member
    mine = (member[:, None] < GROUP) & (column[None, :] < SIZE)
    query = tl.load(q + place[:, None] * SIZE + column[None, :], mask=mine, other=0.0)
    most, total, mixed = _attend_to_pages(
        query, keys, values, tables + slot.to(tl.int64) * table_width, first, stop, member, head, scale,
        KV_HEADS, SIZE, PAGE, ROWS, BLOCK, False, PRECISION,
    )  # fmt: skip
    if WHOLE:
        mixed = mixed / total[:, None]
        tl.store(out + place[:, None] * SIZE + column[None, :], mixed.to(out.dtype.element_ty), mask=mine)
    else:
        place = place + split.to(tl.int64) * rows * heads
        tl.store(part_most + place, most, mask=member < GROUP)
        tl.store(part_total + place, total, mask=member < GROUP)
        tl.store(part_mixed + place[:, None] * SIZE + column[None, :], mixed, mask=mine)


@triton.jit
def decode_shared(
    q, keys, values, part_mixed, part_most, part_total, order, tables, group_first, group_rows, group_length, scale,
    table_width, rows, part, KV_HEADS: tl.constexpr, GROUP: tl.constexpr, SIZE: tl.constexpr, PAGE: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One (group, key head): the tokens that the rows of a group share, for all of them. Written as part `part`."""
    group, head = tl.program_id(0), tl.program_id(1)
    members = tl.load(group_rows + group)
    if members == 0:
        return
    row = tl.load(group_first + group)
    member = tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    heads = KV_HEADS * GROUP
    place = (row + member // GROUP).to(tl.int64) * heads + head * GROUP + member % GROUP
    here = member < members * GROUP
    mine = here[:, None] & (column[None, :] < SIZE)
    query = tl.load(q + place[:, None] * SIZE + column[None, :], mask=mine, other=0.0)
    slot = tl.load(order + row).to(tl.int64)
    most, total, mixed = _attend_to_pages(
        query, keys, values, tables + slot * table_width, 0, tl.load(group_length + group), member, head, scale,
        KV_HEADS, SIZE, PAGE, ROWS, BLOCK, False, PRECISION,
    )  # fmt: skip
    place = place + tl.cast(part, tl.int64) * rows * heads
    tl.store(part_most + place, most, mask=here)
    tl.store(part_total + place, total, mask=here)
    tl.store(part_mixed + place[:, None] * SIZE + column[None, :], mixed, mask=mine)


@triton.jit
def join_parts(
    part_mixed, part_most, part_total, out, order, alive, shared, rows, heads, SIZE: tl.constexpr, BLOCK: tl.constexpr,
    PARTS: tl.constexpr, SPLITS: tl.constexpr, SLOTS: tl.constexpr,
):  # fmt: skip
    """One (row, head): the parts of its attention by their share of the softmax. Part SPLITS is the group's."""
    row, head = tl.program_id(0), tl.program_id(1)
    if tl.load(alive + tl.load(order + row)) == 0:
        return
    part = tl.arange(0, SLOTS)
    column = tl.arange(0, BLOCK)
    place = (part.to(tl.int64) * rows + row) * heads + head
    # A row that shares nothing has no part of a group.
    here = (part < SPLITS) | ((part < PARTS) & (tl.load(shared + row) > 0))
    most = tl.load(part_most + place, mask=here, other=float("-inf"))
    share = tl.exp(most - tl.max(most, 0))
    total = tl.load(part_total + place, mask=here, other=0.0) * share
    mine = here[:, None] & (column[None, :] < SIZE)
    mixed = tl.load(part_mixed + place[:, None] * SIZE + column[None, :], mask=mine, other=0.0)
    result = tl.sum(mixed * share[:, None], 0) / tl.sum(total, 0)
    target = (row.to(tl.int64) * heads + head) * SIZE + column
    tl.store(out + target, result.to(out.dtype.element_ty), mask=column < SIZE)


@triton.jit
def read_prompts(
    q, keys, values, out, tables, tile_token, tile_slot, tile_position, tile_length, scale, table_width,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, SIZE: tl.constexpr, PAGE: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One (tile, head): up to ROWS tokens of one sequence over all of it that is in the cache before them."""
    tile, query_head = tl.program_id(0), tl.program_id(1)
    length = tl.load(tile_length + tile)
    position = tl.load(tile_position + tile)
    member = tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    token = tl.load(tile_token + tile) + member
    place = token.to(tl.int64) * (KV_HEADS * GROUP) + query_head
    mine = (member[:, None] < length) & (column[None, :] < SIZE)
    query = tl.load(q + place[:, None] * SIZE + column[None, :], mask=mine, other=0.0)
    table = tables + tl.load(tile_slot + tile).to(tl.int64) * table_width
    _, total, mixed = _attend_to_pages(
        query, keys, values, table, 0, position + length, position + member, query_head // GROUP, scale,
        KV_HEADS, SIZE, PAGE, ROWS, BLOCK, True, PRECISION,
    )  # fmt: skip
    mixed = mixed / total[:, None]
    tl.store(out + place[:, None] * SIZE + column[None, :], mixed.to(out.dtype.element_ty), mask=mine)
