"""A short-lived cache for callers that poll: one lookup serves everyone who asks while it runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

FRESH = 0.1  # seconds a result stays valid
MOST = 1000


class StatusCache:
    """The last result for each name. Only `forget` may be called outside the event loop."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, bytes]] = {}
        self._looks: dict[str, asyncio.Task[bytes]] = {}

    async def of(self, name: str, look: Callable[[], bytes]) -> bytes:
        """The result of `look`, at most a tenth of a second old.

        `look` runs in a thread; if it raises, every waiting caller gets the error.
        """
        seen = self._seen.get(name)
        if seen is not None and time.monotonic() - seen[0] <= FRESH:
            return seen[1]
        under_way = self._looks.get(name)
        if under_way is None:
            under_way = self._looks[name] = asyncio.create_task(self._look(name, look))
        return await asyncio.shield(under_way)  # one caller may disconnect while others still wait

    async def _look(self, name: str, look: Callable[[], bytes]) -> bytes:
        try:
            found = await asyncio.to_thread(look)
            if self._looks.get(name) is asyncio.current_task():  # it was not invalidated in the meantime
                self._seen[name] = (time.monotonic(), found)
                while len(self._seen) > MOST:
                    self._seen.pop(next(iter(self._seen)))
            return found
        finally:
            if self._looks.get(name) is asyncio.current_task():
                self._looks.pop(name, None)

    def forget(self, name: str) -> None:
        """Invalidate a name: later callers get a fresh result."""
        self._looks.pop(name, None)
        self._seen.pop(name, None)
