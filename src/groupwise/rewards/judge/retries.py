"""How to keep asking a server that may be busy, ill or gone: concurrency, retries with pauses, a circuit breaker."""

import asyncio
import random
import time
import weakref
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from groupwise.rewards.judge.endpoint import EndpointError


class Permit:
    """Permission to make one call."""


class CircuitBreaker:
    """After `threshold` failures in a row, allows no call for `cooldown` seconds, then one, whose outcome decides.

    Every permit must be returned to `succeeded`, `failed` or `withdrew` (neither, for example if cancelled).
    """

    def __init__(self, threshold: int, cooldown: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.threshold, self.cooldown, self.clock = threshold, cooldown, clock
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
        """Permission to call now, or None."""
        permit = Permit()
        if self._opened is not None:
            if self._trial is not None or self.remaining > 0:
                return None
            # After the cooldown one call goes through; others are refused until its outcome is known.
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


T = TypeVar("T")


@dataclass
class RetryPolicy:
    """How often and how long to keep asking.

    The pause before try n + 1 is drawn uniformly from [0, `pause` · 2ⁿ] seconds, at most `longest_pause` (full jitter,
    so that clients that failed together do not return together), and never shorter than the server asked for. If the
    server asks for more than `longest_pause`, it is not asked again.
    """

    at_once: int
    retries: int
    breaker: CircuitBreaker
    pause: float = 1.0
    longest_pause: float = 60.0
    _last_error: str = field(default="", init=False, repr=False)
    _slots: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = field(
        default_factory=weakref.WeakKeyDictionary, init=False, repr=False
    )

    async def persist(self, attempt: Callable[[int], Awaitable[T]]) -> T:
        """The first answer of `attempt(0)`, `attempt(1)` …; the last error if none succeeds."""
        for number in range(self.retries + 1):
            try:
                return await self._once(attempt, number)
            except EndpointError as error:
                if not error.again or number == self.retries or (error.after or 0) > self.longest_pause:
                    raise
                drawn = random.uniform(0, min(self.longest_pause, self.pause * 2**number))
                await asyncio.sleep(max(drawn, error.after or 0.0))
        raise AssertionError("the last try returns or raises")

    async def _once(self, attempt: Callable[[int], Awaitable[T]], number: int) -> T:
        # One per event loop, because a semaphore belongs to its loop.
        async with self._slots.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(self.at_once)):
            permit = self.breaker.permit()
            if permit is None:
                wait = f"will not be asked for another {self.breaker.remaining:.0f} s"
                message = f"the judge failed {self.breaker.failures} times in a row and {wait}"
                raise EndpointError("unavailable", f"{message}; last error: {self._last_error}", again=False)
            try:
                answer = await attempt(number)
            except EndpointError as error:
                self._last_error = error.message
                # A refusal of this one question says nothing about the server's health.
                (self.breaker.failed if error.ill else self.breaker.withdrew)(permit)
                raise
            except BaseException:
                self.breaker.withdrew(permit)
                raise
            self.breaker.succeeded(permit)
            return answer
