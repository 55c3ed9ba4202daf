"""A circuit breaker: after many failures in a row, stop asking for a while, then try once."""

from __future__ import annotations

import time
from collections.abc import Callable


class Permit:
    """Leave to make one call."""


class CircuitBreaker:
    """Closed, it lets every call through; open, none; after `cooldown` seconds, one: its outcome decides.

    Whoever got a permit gives it back to `succeeded`, `failed`, or `withdrew` (neither: cancelled, say).
    """

    def __init__(self, threshold: int, cooldown: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.threshold = threshold
        self.cooldown = cooldown
        self.clock = clock
        self.failures = 0
        self._opened: float | None = None
        self._trial: Permit | None = None

    @property
    def open(self) -> bool:
        return self._opened is not None

    @property
    def remaining(self) -> float:
        """Seconds until the next trial."""
        return 0.0 if self._opened is None else max(0.0, self._opened + self.cooldown - self.clock())

    def permit(self) -> Permit | None:
        """Leave to call now, or None."""
        permit = Permit()
        if self._opened is not None:
            if self._trial is not None or self.remaining > 0:
                return None
            self._trial = permit
        return permit

    def succeeded(self, permit: Permit) -> None:
        self.failures, self._opened, self._trial = 0, None, None

    def failed(self, permit: Permit) -> None:
        self.failures += 1
        if permit is self._trial or (self._opened is None and self.failures >= self.threshold):
            self._opened, self._trial = self.clock(), None

    def withdrew(self, permit: Permit) -> None:
        if permit is self._trial:
            self._trial = None
