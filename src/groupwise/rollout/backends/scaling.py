"""How many workers there should be, from how long the queue was and how many places were used."""

import math
import time
from dataclasses import dataclass

# Waiting attempts per place from which more workers would help, and the share of places used below which fewer do.
CROWDED, IDLE = 0.25, 0.6
# Room left above what was used when workers are let go, so that the number does not swing.
SPARE = 1.25


@dataclass(frozen=True, slots=True)
class LoadSeen:
    """Means over the time in which there was work: attempts that waited for a place, and the share of places used."""

    waiting: float = 0.0
    busy: float = 0.0


class Load:
    """Adds up waiting and busy places over time. Time in which nothing was asked for does not count."""

    def __init__(self, places: int) -> None:
        self.places = places
        self._waiting = self._active = 0
        self._since = time.perf_counter()
        self._clear()

    def now(self, waiting: int, active: int) -> None:
        self._add()
        self._waiting, self._active = waiting, active

    def seen(self) -> LoadSeen:
        self._add()
        if not self._seconds:
            return LoadSeen()
        return LoadSeen(self._waited / self._seconds, self._used / self._seconds)

    def taken(self) -> LoadSeen:
        """What was seen since the last call."""
        seen = self.seen()
        self._clear()
        return seen

    def _add(self) -> None:
        now = time.perf_counter()
        if self._waiting or self._active:
            self._seconds += now - self._since
            self._waited += (now - self._since) * self._waiting
            self._used += (now - self._since) * self._active / max(1, self.places)
        self._since = now

    def _clear(self) -> None:
        self._seconds = self._waited = self._used = 0.0


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """The fewest and the most workers of a run that chooses their number itself."""

    least: int
    most: int

    def wanted(self, workers: int, load: LoadSeen, per_worker: int) -> int:
        """Twice as many while attempts wait; as many as were used, and a quarter more, while places are empty."""
        places = workers * per_worker
        if load.waiting > CROWDED * places:
            workers *= 2
        elif 0 < load.busy < IDLE:
            workers = min(workers, math.ceil(workers * load.busy * SPARE))
        return min(max(workers, self.least), self.most)
