"""Where the tokens of a batch stand: rows are closed up, so that padding costs and means nothing.

A causal model never looks ahead. With every row's tokens moved to its front, whatever follows them cannot change
them: no attention mask is needed (the attention kernels are fastest without one), positions count from 0 for any
model, and rows padded before, behind or in between give the same numbers to the last bit.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from groupwise.errors import ContractError
from groupwise.types import Tensors

INPUTS = ("input_ids", "attention_mask", "action_mask")


@dataclass(frozen=True, slots=True)
class Layout:
    """Closed-up rows and the actions in them: action n is `tokens[n]`, chosen after `ids[rows[n], before[n]]`.

    ids: [B, W] as far as the last action needs; before, tokens, rows: [N]; columns: [N], where each action stood
    in the original rows, whose shape is `shape`.
    """

    ids: Tensor
    rows: Tensor
    before: Tensor
    tokens: Tensor
    columns: Tensor
    shape: tuple[int, int]

    def spread(self, values: Tensor) -> Tensor:
        """One number per action [N], put where the actions stand: [B, T], 0 elsewhere."""
        return values.new_zeros(self.shape).index_put((self.rows, self.columns), values)


def lay_out(inputs: Tensors) -> Layout:
    """Close up the rows of `input_ids` and find the tokens of `action_mask`, all [B, T]."""
    missing = [name for name in INPUTS if name not in inputs]
    if missing:
        raise ContractError(f"a language policy needs the inputs {', '.join(INPUTS)}; {missing[0]} is missing")
    ids, attention, action = inputs["input_ids"], inputs["attention_mask"].bool(), inputs["action_mask"].bool()
    order, closed = _close_up(ids, attention)
    rows, columns = action.gather(1, order).nonzero(as_tuple=True)
    if bool((action & ~attention).any()):
        raise ContractError("action_mask marks padding: every action must also be in attention_mask")
    if len(columns) and int(columns.min()) == 0:
        row = int(rows[columns.argmin()])
        raise ContractError(f"row {row} begins with an action: nothing precedes it that could have predicted it")
    width = int(columns.max()) if len(columns) else 1
    return Layout(
        closed[:, :width], rows, columns - 1, closed[rows, columns], order[rows, columns], (ids.shape[0], ids.shape[1])
    )  # fmt: skip


def close_up(ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
    """Rows with their tokens in front, cut to the longest, and the column each place came from: both [B, W]."""
    attention = attention_mask.bool()
    order, closed = _close_up(ids, attention)
    width = max(1, int(attention.sum(1).max()))
    return closed[:, :width], order[:, :width]


def _close_up(ids: Tensor, attention: Tensor) -> tuple[Tensor, Tensor]:
    order = torch.argsort((~attention).to(torch.uint8), dim=1, stable=True)
    closed = ids.masked_fill(~attention, 0).gather(1, order)  # padding may hold any number; 0 is a token of any model
    return order, closed
