"""How often somebody may ask."""

from __future__ import annotations

import time
from collections import OrderedDict

from groupwise.errors import GroupwiseError

FAILURES_PER_SECOND = 5.0  # wrong keys from one address
CALLERS = 10_000  # whose rates are remembered


class TooMany(GroupwiseError):
    code = "too_many"


class Rates:
    """A bucket of tokens for every caller: `rate` a second flow in, up to twice that."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, caller: str, now: float | None = None) -> float:
        """Take a token; how many seconds to wait if there is none."""
        now = time.monotonic() if now is None else now
        tokens, before = self._buckets.get(caller, (2 * self.rate, now))
        tokens = min(2 * self.rate, tokens + (now - before) * self.rate)
        self._buckets[caller] = (max(0.0, tokens - 1) if tokens >= 1 else tokens, now)
        self._buckets.move_to_end(caller)
        if len(self._buckets) > CALLERS:
            self._buckets.popitem(last=False)
        return 0.0 if tokens >= 1 else (1 - tokens) / self.rate

    def count(self, caller: str) -> None:
        """Take a token, or refuse."""
        if wait := self.take(caller):
            raise TooMany(f"more than {self.rate:g} requests a second", hint=f"Ask again in {max(1.0, wait):.0f} s.")
