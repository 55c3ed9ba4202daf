"""Limits on callers: how often they may ask, and how large and slow the head of a request may be."""

from __future__ import annotations

import asyncio
import json
import time
from collections import OrderedDict

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from groupwise.errors import GroupwiseError
from groupwise.service.refusals import shape

FAILURES_PER_SECOND = 5.0  # wrong keys from one address
CALLERS = 10_000  # callers whose rates are remembered


class TooMany(GroupwiseError):
    code = "too_many"


class Rates:
    """A token bucket per caller: `rate` tokens flow in per second, up to twice that many."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, caller: str, now: float | None = None) -> float:
        """Take a token; returns the seconds to wait if there is none."""
        now = time.monotonic() if now is None else now
        tokens, before = self._buckets.get(caller, (2 * self.rate, now))
        tokens = min(2 * self.rate, tokens + (now - before) * self.rate)
        self._buckets[caller] = (max(0.0, tokens - 1) if tokens >= 1 else tokens, now)
        self._buckets.move_to_end(caller)
        if len(self._buckets) > CALLERS:
            self._buckets.popitem(last=False)
        return 0.0 if tokens >= 1 else (1 - tokens) / self.rate

    def count(self, caller: str) -> None:
        """Take a token, or raise `TooMany`."""
        if wait := self.take(caller):
            raise TooMany(f"more than {self.rate:g} requests per second", hint=f"Try again in {max(1.0, wait):.0f} s.")


LARGEST = 64 << 10  # bytes allowed before the head of a request is complete
SECONDS = 15.0  # seconds from a head's first byte to its last; also how long a new connection may stay silent


class HeaderLimits(HttpToolsProtocol):
    """Uvicorn's protocol, with limits on the head of a request and with errors in our format."""

    _deadline: asyncio.TimerHandle | None = None
    _size = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_is_over()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._deadline is not None:
            self._size += len(data)
            if self._size > LARGEST:
                self._refuse(
                    "431 Request Header Fields Too Large", "too_large", f"more than {LARGEST:,} bytes of headers"
                )

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._await_head()

    def on_headers_complete(self) -> None:
        self._head_is_over()
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse("400 Bad Request", "bad_request", "not an HTTP/1.1 request")

    def _await_head(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(SECONDS, self._too_late)

    def _head_is_over(self) -> None:
        self._size = 0
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_late(self) -> None:
        if self._size:
            self._refuse("408 Request Timeout", "too_slow", f"the request was not complete after {SECONDS:g} s")
        else:
            self.transport.close()

    def _refuse(self, status: str, code: str, message: str) -> None:
        self._head_is_over()
        body = json.dumps(shape(code, message))
        head = (
            f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close"
        )
        self.transport.write(f"{head}\r\n\r\n{body}".encode())
        self.transport.close()
