"""Rows as one line of tokens without padding, in which every beginning that several rows share stands once.

    beginning of all rows ── prompt of a group ── rest of a row
                          │                    └─ rest of a row
                          └─ a row that shares no more

Each of these pieces is one sequence of queries. Its keys are those of the pieces on the way to it, and its own. So a
group's prompt is read once, and every token of it gets its gradient from all members.

All of this is worked out on the CPU, from rows that are there already, and sent to the device in one copy that nobody
waits for.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from groupwise.language.batch_layout import BatchLayout
from groupwise.language.fused.attention import Sequences

# A shorter beginning is read with each row: handing out its keys and values would cost more.
LEAST_SHARED = 16
Numbers = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class PackedRows:
    """T tokens; ids and positions: [T]. wanted: [N], the token before each action; tokens: [N], the actions.

    source: [K], the token of each key in the order of the sequences. Token t's keys are `copies[first_copy[t] :
    first_copy[t + 1]]`. None of the three if nothing is shared. spread: [N], where each action stood in the rows
    [B · W] that were packed.
    """

    ids: Tensor
    positions: Tensor
    wanted: Tensor
    tokens: Tensor
    spread: Tensor
    sequences: Sequences
    source: Tensor | None
    first_copy: Tensor | None
    copies: Tensor | None
    shape: tuple[int, int]

    def spread_out(self, values: Tensor) -> Tensor:
        """One number per action [N] → the rows [B, W], 0 elsewhere."""
        flat = values.new_zeros(self.shape[0] * self.shape[1])
        return flat.index_put((self.spread,), values).view(self.shape)


@dataclass(frozen=True, slots=True)
class Piece:
    """`ids` at positions from `start`, behind the piece of number `after` (−1: behind nothing)."""

    ids: Numbers
    start: int
    after: int


def pack(layout: BatchLayout, device: torch.device) -> PackedRows:
    """The rows of a layout on the CPU, packed on `device`."""
    ids = layout.ids.numpy().astype(np.int32)
    rows, before = layout.rows.numpy(), layout.before.numpy()
    pieces, row_piece = cut(ids, *_extents(len(ids), rows, before))
    sizes = np.array([len(piece.ids) for piece in pieces])
    first = np.concatenate(([0], np.cumsum(sizes)))
    keys: list[Numbers] = []
    for number, piece in enumerate(pieces):
        own = np.arange(first[number], first[number + 1], dtype=np.int32)
        keys.append(own if piece.after < 0 else np.concatenate((keys[piece.after], own)))
    lengths = np.array([len(k) for k in keys])
    source = np.concatenate(keys)
    starts = np.array([piece.start for piece in pieces])
    at = row_piece[rows]
    parts = {
        "ids": np.concatenate([piece.ids for piece in pieces]),
        "positions": np.concatenate([np.arange(s, s + n) for s, n in zip(starts, sizes, strict=True)]),
        "wanted": first[at] + before - starts[at],
        "tokens": layout.tokens.numpy(),
        "spread": rows * layout.shape[1] + layout.columns.numpy(),
        "first_query": first,
        "first_key": np.concatenate(([0], np.cumsum(lengths))),
    }
    shared = len(source) > first[-1]
    if shared:
        parts["source"] = source
        parts["copies"] = np.argsort(source, kind="stable")
        parts["first_copy"] = np.concatenate(([0], np.cumsum(np.bincount(source, minlength=first[-1]))))
    there = _send(parts, device)
    return PackedRows(
        ids=there["ids"],
        positions=there["positions"],
        wanted=there["wanted"].long(),
        tokens=there["tokens"].long(),
        spread=there["spread"].long(),
        sequences=Sequences(there["first_query"], there["first_key"], int(sizes.max()), int(lengths.max())),
        source=there.get("source"),
        first_copy=there.get("first_copy"),
        copies=there.get("copies"),
        shape=layout.shape,
    )


def _extents(
    count: int, rows: NDArray[np.int64], before: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Of each row the column before its first action and the number of columns that are read; 0 without actions."""
    start, length = np.full(count, np.iinfo(np.int64).max), np.zeros(count, np.int64)
    np.minimum.at(start, rows, before)
    np.maximum.at(length, rows, before + 1)
    return np.where(length > 0, start, 0), length


def cut(
    ids: Numbers, start: NDArray[np.int64], length: NDArray[np.int64]
) -> tuple[list[Piece], NDArray[np.int64]]:  # fmt: skip
    """The pieces of rows, parents first, and the number of the piece with each row's actions (rows without any: 0)."""
    acting = np.flatnonzero(length > 0)
    # If nothing is wanted, one token is read all the same: a pass over nothing would need exceptions everywhere.
    if len(acting) == 0:
        return [Piece(ids[0, :1], 0, -1)], np.zeros(len(ids), np.int64)
    common = _common(ids[acting], int(start[acting].min()))
    groups: dict[bytes, list[int]] = defaultdict(list)
    for number in acting:
        groups[ids[number, : start[number]].tobytes()].append(int(number))
    pieces: list[Piece] = []
    row_piece = np.zeros(len(ids), np.int64)
    # With one group, the beginning of all is that group's prompt.
    if len(groups) > 1 and common >= LEAST_SHARED:
        pieces.append(Piece(ids[acting[0], :common], 0, -1))
    else:
        common = 0
    for members in groups.values():
        after, begin = (0 if common else -1), int(common)
        prompt = int(start[members[0]])
        if len(members) > 1 and prompt - begin >= LEAST_SHARED:
            pieces.append(Piece(ids[members[0], begin:prompt], begin, after))
            after, begin = len(pieces) - 1, prompt
        for row in members:
            row_piece[row] = len(pieces)
            pieces.append(Piece(ids[row, begin : int(length[row])], begin, after))
    return pieces, row_piece


def _common(ids: Numbers, longest: int) -> int:
    """How many columns, of the first `longest`, are the same in all rows."""
    if len(ids) < 2 or longest == 0:
        return 0
    same = (ids[:, :longest] == ids[:1, :longest]).all(0)
    return longest if same.all() else int(same.argmin())


def _send(parts: dict[str, NDArray[np.int64] | Numbers], device: torch.device) -> dict[str, Tensor]:
    """All of them on the device by one copy of pinned memory, which the CPU does not wait for."""
    flat = torch.from_numpy(np.concatenate([part.astype(np.int32, copy=False) for part in parts.values()]))
    if device.type == "cuda":
        flat = flat.pin_memory().to(device, non_blocking=True)
    pieces = flat.split([len(part) for part in parts.values()])
    # Kernels like tensors that begin at an address of their own.
    return {name: piece.clone() for name, piece in zip(parts, pieces, strict=True)}
