"""How things stood a moment ago, for many who ask often: one look serves all who ask while it is made."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

FRESH = 0.1  # seconds for which a look is good
MOST = 1000


class StatusCache:
    """The last look at each thing, by its name. All but `forget` is for the event loop alone."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, bytes]] = {}
        self._looks: dict[str, asyncio.Task[bytes]] = {}

    async def of(self, name: str, look: Callable[[], bytes]) -> bytes:
        """What `look` found, at most a tenth of a second ago. It runs in a thread; what it raises, everybody gets."""
        seen = self._seen.get(name)
        if seen is not None and time.monotonic() - seen[0] <= FRESH:
            return seen[1]
        under_way = self._looks.get(name)
        if under_way is None:
            under_way = self._looks[name] = asyncio.create_task(self._look(name, look))
        return await asyncio.shield(under_way)  # one who asked may go away, the others want it still

    async def _look(self, name: str, look: Callable[[], bytes]) -> bytes:
        try:
            found = await asyncio.to_thread(look)
            if self._looks.get(name) is asyncio.current_task():  # nothing was done to it meanwhile
                self._seen[name] = (time.monotonic(), found)
                while len(self._seen) > MOST:
                    self._seen.pop(next(iter(self._seen)))
            return found
        finally:
            if self._looks.get(name) is asyncio.current_task():
                self._looks.pop(name, None)

    def forget(self, name: str) -> None:
        """It was changed: whoever asks from now on is told what is new."""
        self._looks.pop(name, None)
        self._seen.pop(name, None)
