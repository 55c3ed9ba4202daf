"""Live events for many clients: the log of a run is the queue, and every client has a place in it.

Nothing is buffered for a client that is slow. It reads from the log at its own pace; when it falls more than `LAG`
events behind what is live, it is moved on to the newest and told which ones it missed (`dropped`), to fetch them if it
cares. One `Follower` a run looks for what is new and keeps the last lines at hand, however many follow it.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass

from groupwise.errors import RunError
from groupwise.service.runlog import RunLog

LAG = 1000  # events that a client may be behind
PAGE = 200  # events read at once for a client that catches up
LOOK = 0.05  # seconds between two looks at a log


class Follower:
    """What is new in one run's log, for all who follow it."""

    def __init__(self, run: str, log: RunLog) -> None:
        self.run, self.log = run, log
        self.count = 0  # events that clients may be sent; the log, which others read too, may have more by now
        self.changed: set[asyncio.Event] = set()
        self.rewinds: list[int] = []
        self._recent: deque[tuple[int, str]] = deque(maxlen=LAG)
        self._seen: tuple[int, int] | None = None
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        await self._look()
        self._task = asyncio.create_task(self._follow())

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def messages(self, begin: int) -> list[str]:
        """Up to `PAGE` events from number `begin` on, as messages to clients."""
        if self._recent and self._recent[0][0] <= begin:
            offset = begin - self._recent[0][0]
            return [self._recent[n][1] for n in range(offset, min(offset + PAGE, len(self._recent)))]
        lines = await asyncio.to_thread(self.log.lines, begin, min(begin + PAGE, self.count))
        return [self._message(line) for line in lines]

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(LOOK)
            with suppress(RunError):  # it cannot be read now; perhaps at the next look
                await self._look()

    async def _look(self) -> None:
        try:
            found = os.stat(self.log.path)
            seen = (found.st_size, found.st_mtime_ns)
            if seen == self._seen:
                return
            rewinds, begin, lines = await asyncio.to_thread(self.log.news, self.count, len(self.rewinds), LAG)
        except OSError:
            return
        self._seen = seen
        rewound = rewinds > len(self.rewinds)
        if not lines and not rewound:
            return
        if rewound or not self._recent or self._recent[-1][0] != begin - 1:
            self._recent.clear()
        self.rewinds = self.log.rewinds[:rewinds]
        self._recent.extend((begin + n, self._message(line)) for n, line in enumerate(lines))
        self.count = begin + len(lines)
        for event in self.changed:
            event.set()

    def _message(self, line: bytes) -> str:
        return f'{{"type":"event","run":"{self.run}","event":{line.decode()}}}'


@dataclass
class Place:
    """Where one client is in one run's log."""

    follower: Follower
    next: int
    rewinds: int
    live: bool = False

    async def news(self) -> AsyncIterator[tuple[str, dict[str, object] | str]]:
        """What the client has to be told now: rewinds, what it missed, and events."""
        follower = self.follower
        while self.rewinds < len(follower.rewinds):
            first = follower.rewinds[self.rewinds]
            self.rewinds += 1
            if first < self.next:
                self.next = first
                yield "rewind", {"type": "rewind", "run": follower.run, "from": first}
        if self.live and follower.count - self.next > LAG:
            missed, self.next = self.next, follower.count - LAG // 2
            yield "dropped", {"type": "dropped", "run": follower.run, "from": missed, "to": self.next - 1}
        if self.next < follower.count:
            rewinds = len(follower.rewinds)
            for message in await follower.messages(self.next):
                if rewinds != len(follower.rewinds):
                    return
                yield "event", message
                self.next += 1
        self.live = self.live or self.next >= follower.count

    @property
    def has_news(self) -> bool:
        return self.next < self.follower.count or self.rewinds < len(self.follower.rewinds)


class Followers:
    """One follower for every run that somebody follows."""

    def __init__(self, log_of: Callable[[str], RunLog]) -> None:
        self.log_of = log_of
        self._open: dict[str, tuple[Follower, int]] = {}
        self._lock = asyncio.Lock()

    async def join(self, run: str, begin: int, attempt: int | None, changed: asyncio.Event) -> tuple[Place, int | None]:
        """A place at event `begin` of a run, and where to rewind to if the client's events are no longer the run's."""
        async with self._lock:
            follower, users = self._open.get(run, (None, 0))
            if follower is None:
                follower = Follower(run, await asyncio.to_thread(self.log_of, run))
                await follower.open()
            self._open[run] = (follower, users + 1)
        follower.changed.add(changed)
        known = follower.count if attempt is None else min(follower.count, follower.log.known_until(attempt))
        rewind = known if known < begin else None
        return Place(follower, min(begin, known), len(follower.rewinds)), rewind

    async def leave(self, place: Place, changed: asyncio.Event) -> None:
        follower = place.follower
        follower.changed.discard(changed)
        async with self._lock:
            _, users = self._open[follower.run]
            if users > 1:
                self._open[follower.run] = (follower, users - 1)
            else:
                del self._open[follower.run]
                follower.close()

    def close(self) -> None:
        for follower, _ in self._open.values():
            follower.close()
