"""The key/value cache: one row per sequence, running rows first, then the parked caches of sessions."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from groupwise.language.engine.shared_prompts import SharedPromptCache

FIRST_LENGTH = 128
FIRST_ROWS = 8


@dataclass(frozen=True, slots=True)
class PromptSnapshot:
    """A prompt's keys and values, kept while more requests for the same prompt are waiting."""

    store: Tensor
    logits: Tensor


class Cache:
    """Keys and values of all rows, grown by doubling: `store` is [layers, 2 (keys, values), rows, kv_heads, length,
    head_dim].

    Memory starts as zeros, not uninitialised: a masked position is multiplied by 0, and 0 × NaN is NaN.
    """

    def __init__(self, layers: int, kv_heads: int, head_dim: int, *, rows: int, length: int, like: Tensor) -> None:
        self.max_rows, self.max_length = rows, length
        self._shape = (layers, kv_heads, head_dim)
        self._like = like
        # The prompts that running rows share.
        self.shared_prompts: SharedPromptCache | None = None
        self._use(self._zeros(0, 0))

    def ensure(self, rows: int, length: int) -> None:
        """Make room for this many rows of this many positions; stored keys and values stay."""
        if rows <= self.rows and length <= self.length:
            return
        rows = _grown(self.rows, rows, FIRST_ROWS, self.max_rows)
        length = _grown(self.length, length, FIRST_LENGTH, self.max_length)
        new = self._zeros(rows, length)
        new[:, :, : self.rows, :, : self.length] = self.store
        self._use(new)

    def copy(self, source: Sequence[int], target: Sequence[int], length: int) -> None:
        """Copy the first `length` positions of each `source` row to its `target` row."""
        # The right side is gathered before anything is written, so source and target rows may overlap.
        self.store[:, :, list(target), :, :length] = self.store[:, :, list(source), :, :length]

    def exchange(self, ones: Sequence[int], others: Sequence[int], length: int) -> None:
        """Swap each row of `ones` with its row of `others`."""
        self.copy([*ones, *others], [*others, *ones], length)

    def snapshot(self, row: int, length: int, logits: Tensor) -> PromptSnapshot:
        return PromptSnapshot(self.store[:, :, row, :, :length].clone(), logits.clone())

    def restore(self, snapshot: PromptSnapshot, row: int) -> None:
        self.store[:, :, row, :, : snapshot.store.shape[3]] = snapshot.store

    def wipe(self, row: int | slice = slice(None)) -> None:
        self.store[:, :, row] = 0

    def _use(self, store: Tensor) -> None:
        self.store = store
        self.rows, self.length = store.shape[2], store.shape[4]
        self.layers = list(store.unbind(0))
        self.keys = list(store[:, 0].unbind(0))
        self.values = list(store[:, 1].unbind(0))

    def _zeros(self, rows: int, length: int) -> Tensor:
        layers, kv_heads, head_dim = self._shape
        shape = (layers, 2, rows, kv_heads, length, head_dim)
        return torch.zeros(shape, dtype=self._like.dtype, device=self._like.device)


def _grown(have: int, need: int, first: int, most: int) -> int:
    size = max(have, min(first, most))
    while size < need:
        size *= 2
    return min(size, most)


@dataclass(slots=True)
class ParkedSession:
    """A session between two turns: the row of its keys and values, and the tokens they belong to."""

    row: int
    ids: NDArray[np.int64]

    def shared_with(self, ids: NDArray[np.int64]) -> int:
        """How many tokens of a new prompt are in the cache already. The last is always read again, for its logits."""
        most = min(len(self.ids), len(ids) - 1)
        differs = np.flatnonzero(self.ids[:most] != ids[:most])
        return int(differs[0]) if len(differs) else most


class CacheRows:
    """Which rows of the cache belong to parked sessions: rows above the running ones, least recently used first.

    Invariant: running requests are in rows 0 … count − 1, without gaps; every parked session is at or above `count`.
    """

    def __init__(self, cache: Cache, slots: int) -> None:
        self.cache, self.slots = cache, slots
        self.parked: dict[Hashable, ParkedSession] = {}

    def park(self, session: Hashable, row: int, ids: NDArray[np.int64]) -> None:
        self.parked.pop(session, None)
        self.parked[session] = ParkedSession(row, ids)

    def take(self, session: Hashable | None) -> ParkedSession | None:
        """A session's cache for its next turn; it is no longer parked."""
        return None if session is None else self.parked.pop(session, None)

    def forget(self) -> None:
        self.parked.clear()

    def make_room(self, first: int, count: int, resumed: list[ParkedSession]) -> None:
        """Free rows `first … first + count - 1` for new requests, and move `resumed` sessions to the first of them.

        Sessions in the way move up; the least recently used are dropped if there are not enough rows.
        """
        while len(self.parked) > self.slots - first - count:
            self.parked.pop(next(iter(self.parked)))
        self.cache.ensure(min(self.slots, first + count + len(self.parked)), 1)
        # Row → the session whose keys and values are in it; rows without an entry are free.
        owners = {p.row: p for p in (*self.parked.values(), *resumed)}
        for target, session in enumerate(resumed, start=first):
            self._exchange(session, target, owners)
        free = (row for row in range(first + count, self.slots) if row not in owners)
        for row in range(first + len(resumed), first + count):
            if row in owners:
                self._exchange(owners[row], next(free), owners)

    def _exchange(self, session: ParkedSession, target: int, owners: dict[int, ParkedSession]) -> None:
        """Move a session to row `target`; a session there takes its old row. `owners` is kept up to date."""
        source, other = session.row, owners.pop(target, None)
        if source == target:
            owners[target] = session
            return
        # The row may not exist yet: the cache grows on demand.
        self.cache.ensure(max(source, target) + 1, 1)
        if other is None:
            self.cache.copy([source], [target], len(session.ids))
        else:
            self.cache.exchange([source], [target], max(len(session.ids), len(other.ids)))
            other.row = source
        del owners[source]
        session.row = target
        owners[target] = session
        if other is not None:
            owners[source] = other
