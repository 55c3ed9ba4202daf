"""Where everything lies in the cache: running rows first, then the kept caches of sessions, then free rows."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from groupwise.language.engine.cache import Cache


@dataclass(slots=True)
class Parked:
    """A session between two turns: which row holds its keys and values, and for which tokens."""

    row: int
    ids: NDArray[np.int64]

    def shared_with(self, ids: NDArray[np.int64]) -> int:
        """How many tokens of a new prompt need not be read again. The last always is: its logits are needed."""
        most = min(len(self.ids), len(ids) - 1)
        differs = np.flatnonzero(self.ids[:most] != ids[:most])
        return int(differs[0]) if len(differs) else most


class Sessions:
    """Parked sessions, least recently used first, in rows at and above the running ones."""

    def __init__(self, cache: Cache, slots: int) -> None:
        self.cache = cache
        self.slots = slots
        self.parked: dict[Hashable, Parked] = {}

    def park(self, session: Hashable, row: int, ids: NDArray[np.int64]) -> None:
        self.parked.pop(session, None)
        self.parked[session] = Parked(row, ids)

    def take(self, session: Hashable | None) -> Parked | None:
        """A session's cache for its next turn; it is the caller's from now on."""
        return None if session is None else self.parked.pop(session, None)

    def forget(self) -> None:
        self.parked.clear()

    def make_room(self, first: int, count: int, resumed: list[Parked]) -> None:
        """Frees rows `first … first + count - 1`, with `resumed` sessions moved to the start of them.

        Sessions in the way move up; the least recently used are dropped when there are not enough rows.
        """
        while len(self.parked) > self.slots - first - count:
            self.parked.pop(next(iter(self.parked)))
        self.cache.ensure(min(self.slots, first + count + len(self.parked)), 1)
        owners = {p.row: p for p in (*self.parked.values(), *resumed)}
        for target, session in enumerate(resumed, start=first):
            self._exchange(session, target, owners)
        free = (row for row in range(first + count, self.slots) if row not in owners)
        for row in range(first + len(resumed), first + count):
            if row in owners:
                self._exchange(owners[row], next(free), owners)

    def _exchange(self, session: Parked, target: int, owners: dict[int, Parked]) -> None:
        source, other = session.row, owners.pop(target, None)
        if source == target:
            owners[target] = session
            return
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
