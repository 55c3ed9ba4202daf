"""What each row needs on the device, so that a step reads nothing from the host and tells it nothing.

Everything is kept by slot, where a request stays until it ends. `order` lists the slots of the running rows, so taking
rows out moves nothing. The last slot belongs to nobody: it fills a graph's spare rows and is never alive.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from groupwise.language.engine.request import GenerationRequest
from groupwise.language.engine.sampling import stream_key

# Tokens of a row that stay on the device until the host has read them; more than two bursts.
RING = 64
WHOLE = ("token", "position", "made", "limit", "stop_set", "alive", "greedy", "top_k")
REAL = ("sharpness", "top_p", "log_min_p")


class RowState:
    """The arrays of up to `most` rows."""

    token: Tensor
    position: Tensor
    made: Tensor
    limit: Tensor
    stop_set: Tensor
    alive: Tensor
    greedy: Tensor
    top_k: Tensor
    sharpness: Tensor
    top_p: Tensor
    log_min_p: Tensor

    def __init__(self, most: int, table_width: int, vocabulary: int, device: torch.device) -> None:
        self.most, self.vocabulary, self.device = most, vocabulary, device
        self.slots = most + 1
        self.whole = torch.zeros(len(WHOLE), self.slots, dtype=torch.int32, device=device)
        self.real = torch.zeros(len(REAL), self.slots, dtype=torch.float32, device=device)
        for name, row in zip(WHOLE, self.whole, strict=True):
            setattr(self, name, row)
        for name, row in zip(REAL, self.real, strict=True):
            setattr(self, name, row)
        self.stream = torch.zeros(self.slots, dtype=torch.int64, device=device)
        self.tables = torch.zeros(self.slots, table_width, dtype=torch.int32, device=device)
        # [RING, 2, slots]: tokens, and the bits of their log-probabilities.
        self.ring = torch.zeros(2, RING, self.slots, dtype=torch.int32, device=device)
        self.order = torch.full((most,), most, dtype=torch.int32, device=device)
        # Groups of rows that share pages, by row: how many tokens; and for each group: first row, rows, tokens.
        self.shared = torch.zeros(most, dtype=torch.int32, device=device)
        self.groups = torch.zeros(3, most, dtype=torch.int32, device=device)
        self.set_stop_table(np.zeros((1, vocabulary), np.bool_))

    def place(self, slots: Sequence[int], requests: Sequence[GenerationRequest], stop_sets: Sequence[int],
              made: Sequence[int], newest: Sequence[int]) -> None:  # fmt: skip
        """Put requests that have `made` tokens so far into these slots; `newest` is the last of them."""
        whole = np.zeros((len(WHOLE), len(slots)), np.int32)
        whole[0] = newest
        whole[1] = [len(r.ids) - 1 + m for r, m in zip(requests, made, strict=True)]
        whole[2], whole[3], whole[4], whole[5] = made, [r.limit for r in requests], stop_sets, 1
        params = [r.params for r in requests]
        whole[6] = [p.temperature == 0 for p in params]
        whole[7] = [p.top_k if 0 < p.top_k < self.vocabulary else self.vocabulary for p in params]
        real = np.zeros((len(REAL), len(slots)), np.float32)
        real[0] = [1 / p.temperature if p.temperature else 1.0 for p in params]
        real[1] = [p.top_p for p in params]
        real[2] = [np.log(p.min_p) if p.min_p > 0 else -np.inf for p in params]
        stream = np.array([stream_key(r.seed) for r in requests], np.uint64).view(np.int64)
        at = self.to_device(np.asarray(slots, np.int64))
        self.whole.index_copy_(1, at, self.to_device(whole))
        self.real.index_copy_(1, at, self.to_device(real))
        self.stream.index_copy_(0, at, self.to_device(stream))

    def set_tables(self, slots: NDArray[np.int32], tables: NDArray[np.int32]) -> None:
        self.tables.index_copy_(0, self.to_device(slots.astype(np.int64)), self.to_device(tables))

    def set_stop_table(self, table: NDArray[np.bool_]) -> None:
        """Which tokens end a row, [stop sets, vocabulary]."""
        self.stop_table, self.stop_sets = self.to_device(table), len(table)

    def set_order(self, slots: NDArray[np.int32], rows: int) -> None:
        """The slots of the running rows, filled up with the dead one to `rows`."""
        padded = np.full(rows, self.most, np.int32)
        padded[: len(slots)] = slots
        self.order[:rows].copy_(self.to_device(padded), non_blocking=True)

    def set_groups(self, shared: NDArray[np.int32], groups: NDArray[np.int32]) -> None:
        """Tokens that each row shares, and the groups [3, groups] with first row, rows and tokens."""
        filled = np.zeros((3, len(shared)), np.int32)
        filled[:, : groups.shape[1]] = groups
        self.shared[: len(shared)].copy_(self.to_device(shared), non_blocking=True)
        self.groups[:, : len(shared)].copy_(self.to_device(filled), non_blocking=True)

    def to_device(self, array: NDArray[np.generic]) -> Tensor:
        tensor = torch.from_numpy(np.ascontiguousarray(array))
        if self.device.type != "cuda":
            return tensor
        return tensor.pin_memory().to(self.device, non_blocking=True)
