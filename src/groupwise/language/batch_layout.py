"""How a batch of token rows is laid out for the model: rows without padding, and a shared prompt only once.

A causal model never looks ahead. With every row's tokens moved to its front, nothing that follows them can change
them: no attention mask is needed (attention kernels are fastest without one), positions count from 0 for any model,
and rows padded before, behind or in between give the same numbers to the last bit.

The members of a group differ only in their answers. Their common prompt is read as one row; its keys and values,
with their gradients, go to every member, and the rest of each row is read on top of them. Log-probabilities and
gradients equal those of complete rows up to rounding.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from groupwise.errors import ContractError
from groupwise.types import Tensors

INPUTS = ("input_ids", "attention_mask", "action_mask")


@dataclass(frozen=True, slots=True)
class BatchLayout:
    """Rows without gaps and the actions in them: action n is `tokens[n]`, chosen after `ids[rows[n], before[n]]`.

    ids: [B, W], W being as wide as the last action needs; rows, before, tokens: [N]; columns: [N], where each action
    stood in the original rows, whose shape is `shape`.
    """

    ids: Tensor
    rows: Tensor
    before: Tensor
    tokens: Tensor
    columns: Tensor
    shape: tuple[int, int]

    def on(self, device: torch.device) -> BatchLayout:
        """The same layout on a device."""
        ids, rows, before, tokens, columns = (
            tensor.to(device) for tensor in (self.ids, self.rows, self.before, self.tokens, self.columns)
        )
        return BatchLayout(ids, rows, before, tokens, columns, self.shape)

    def spread(self, values: Tensor) -> Tensor:
        """One number per action [N] → [B, T], at the actions' original places and 0 elsewhere."""
        return values.new_zeros(self.shape).index_put((self.rows, self.columns), values)


def lay_out(inputs: Tensors) -> BatchLayout:
    """Close the gaps in the rows of `input_ids` and find the tokens of `action_mask`, all [B, T]."""
    missing = [name for name in INPUTS if name not in inputs]
    if missing:
        raise ContractError(f"a language policy needs the inputs {', '.join(INPUTS)}; {missing[0]} is missing")
    ids, attention, action = inputs["input_ids"], inputs["attention_mask"].bool(), inputs["action_mask"].bool()
    order, closed = _moved_to_front(ids, attention)
    rows, columns = action.gather(1, order).nonzero(as_tuple=True)
    if bool((action & ~attention).any()):
        raise ContractError("action_mask marks padding; every action must also be in attention_mask")
    if len(columns) and int(columns.min()) == 0:
        row = int(rows[columns.argmin()])
        raise ContractError(f"row {row} begins with an action; at least one token must come before it to predict it")
    # The last action itself is only predicted, never read: columns.max() tokens are enough.
    width = int(columns.max()) if len(columns) else 1
    return BatchLayout(
        closed[:, :width], rows, columns - 1, closed[rows, columns], order[rows, columns], (ids.shape[0], ids.shape[1])
    )  # fmt: skip


def close_up(ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
    """Rows with their tokens in front, cut to the longest, and the column each token came from: both [B, W]."""
    attention = attention_mask.bool()
    order, closed = _moved_to_front(ids, attention)
    width = max(1, int(attention.sum(1).max()))
    return closed[:, :width], order[:, :width]


def _moved_to_front(ids: Tensor, attention: Tensor) -> tuple[Tensor, Tensor]:
    # A stable sort of "is padding" moves the tokens to the front and keeps their order.
    order = torch.argsort((~attention).to(torch.uint8), dim=1, stable=True)
    # Padding may be any number, even outside the vocabulary; every model has a token 0.
    closed = ids.masked_fill(~attention, 0).gather(1, order)
    return order, closed


# The share of all tokens to save: below this, masked attention costs more than sharing saves.
LEAST_SAVED = 0.15
# The number of tokens to save on a GPU: below this, launching a second pass of small kernels costs more.
LEAST_TOKENS_ON_GPU = 8192
NEEDED = ("past_key_values", "position_ids", "attention_mask", "use_cache")


@dataclass(frozen=True, slots=True)
class SharedPrompts:
    """Rows cut in two. Each distinct prompt stands once in `prompts` [G, P], padded in front; row b of `rests` [B, R]
    continues prompt `group[b]`, whose length is `start[b]`."""

    prompts: Tensor
    rests: Tensor
    group: Tensor
    start: Tensor

    @property
    def tokens(self) -> int:
        """How many tokens go through the model."""
        return self.prompts.numel() + self.rests.numel()

    def place(self) -> Tensor:
        """The position of every token of the prompts, [G, P]; below 0 on padding."""
        longest = self.prompts.shape[1]
        lengths = self.start.new_zeros(len(self.prompts)).scatter(0, self.group, self.start)
        return torch.arange(longest, device=self.start.device) - (longest - lengths)[:, None]

    def hidden(self, decoder: Any) -> Tensor:
        """The hidden states of the rests, [B, R, H]."""
        place, device = self.place(), self.start.device
        there = place >= 0
        # Prompts of equal length need no mask, and kernels are faster without one.
        ragged = not bool(there.all())
        mask = there.long() if ragged else None
        positions = place.clamp(min=0)
        read = decoder(input_ids=self.prompts, attention_mask=mask, position_ids=positions, use_cache=True)
        cache = read.past_key_values
        # Each row gets its prompt's keys and values: reorder_cache selects rows, and a row may be selected often.
        cache.reorder_cache(self.group)
        seen = torch.cat((there[self.group], torch.ones_like(self.rests, dtype=torch.bool)), 1)
        mask = seen.long() if ragged else None
        positions = self.start[:, None] + torch.arange(self.rests.shape[1], device=device)
        states: Tensor = decoder(
            input_ids=self.rests, attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True
        ).last_hidden_state
        return states


def share_prompts(layout: BatchLayout, most: float | None = None) -> SharedPrompts | None:
    """The rows of a layout with common prompts, or beginnings, read once; None if that leaves more than `most` tokens.

    A row's prompt is everything before its first action except the last token, whose prediction is wanted. By default
    `most` is the number of tokens at which sharing begins to pay.
    """
    rows, width = layout.ids.shape
    if most is None:
        tokens = layout.ids.numel()
        least = 0 if layout.ids.device.type == "cpu" else LEAST_TOKENS_ON_GPU
        most = tokens - max(LEAST_SAVED * tokens, least)
    # start: the column of the token before each row's first action; last: before its last one.
    start = layout.before.new_full((rows,), width).scatter_reduce(0, layout.rows, layout.before, "amin")
    # A row without actions is all prompt, and nothing of it is wanted.
    start = start.masked_fill(start == width, 0)
    last = start.scatter_reduce(0, layout.rows, layout.before, "amax")
    longest, rest = int(start.max()), int((last - start).max()) + 1
    beginning = share_beginning(layout, int(start.min()), most)
    if longest == 0 or longest + rows * rest > most:
        return beginning
    # Prompts padded in front with −1, which no token equals, so that unique() finds equal prompts of equal length.
    place = torch.arange(longest, device=start.device) - (longest - start)[:, None]
    table = layout.ids.gather(1, place.clamp(min=0)).masked_fill(place < 0, -1)
    prompts, group = torch.unique(table, dim=0, return_inverse=True)
    if prompts.numel() + rows * rest > min(most, beginning.tokens if beginning is not None else most):
        return beginning
    columns = (start[:, None] + torch.arange(rest, device=start.device)).clamp(max=width - 1)
    return SharedPrompts(prompts.clamp(min=0), layout.ids.gather(1, columns), group, start)


def share_beginning(layout: BatchLayout, longest: int, most: float) -> SharedPrompts | None:
    """Rows whose prompts differ may still begin alike, say with a list of tools: that beginning read once."""
    same = (layout.ids[:, :longest] == layout.ids[:1, :longest]).all(0)
    # The cumulative product is 1 up to the first column that differs.
    common = int(same.long().cumprod(0).sum())
    rests = layout.ids[:, common:]
    if common == 0 or common + rests.numel() > most:
        return None
    group = layout.rows.new_zeros(len(rests))
    return SharedPrompts(layout.ids[:1, :common], rests, group, torch.full_like(group, common))


def can_share(decoder: Any) -> bool:
    """Whether the model's own modules can read prompts first."""
    known = all(name in inspect.signature(decoder.forward).parameters for name in NEEDED)
    return known and reads_rightly(decoder, lambda shared: shared.hidden(decoder))


def reads_rightly(decoder: Any, read: Callable[[SharedPrompts], Tensor]) -> bool:
    """Whether `read`, which reads prompts first, gives the model's own hidden states: tried on three rows."""

    def hidden(layout: BatchLayout) -> Tensor:
        shared = share_prompts(layout, most=math.inf)
        assert shared is not None
        return read(shared)[layout.rows, layout.before - shared.start[layout.rows]]

    try:
        return gives_own_states(decoder, hidden)
    except (AttributeError, TypeError, ValueError, RuntimeError):  # another kind of cache
        return False


@torch.no_grad()
def gives_own_states(decoder: Any, hidden: Callable[[BatchLayout], Tensor], prompt: int = 4) -> bool:
    """Whether `hidden` gives the model's own states [N, H] before the actions of a layout: tried on three rows, of
    which two have a prompt in common."""
    device = next(decoder.parameters()).device
    ids = torch.arange(3 * prompt + 3, device=device).view(3, prompt + 1) % 7
    ids[2, :prompt] = ids[1, :prompt]
    layout = BatchLayout(
        ids=ids,
        rows=torch.tensor([0, 0, 1, 2], device=device),
        before=torch.tensor([prompt - 2, prompt, prompt - 1, prompt - 1], device=device),
        tokens=torch.zeros(4, dtype=torch.long, device=device),
        columns=torch.zeros(4, dtype=torch.long, device=device),
        shape=(3, prompt + 2),
    )
    wanted = decoder(input_ids=ids, use_cache=False).last_hidden_state[layout.rows, layout.before]
    found = hidden(layout)
    tolerance = 1e-3 if wanted.dtype in (torch.float32, torch.float64) else 5e-2
    return bool((found - wanted).abs().max() <= tolerance * wanted.abs().max())
