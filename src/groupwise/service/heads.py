"""How a request begins on the wire: its first line and headers are of bounded size, and come in bounded time.

uvicorn waits for them for as long as it takes and keeps however much comes, before any of our code is asked.
"""

from __future__ import annotations

import asyncio
import json

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from groupwise.service.refusals import shape

LARGEST = 64 << 10  # bytes that may come before a head is whole
SECONDS = 15.0  # from the first byte to the last; also how long a connection may be open before its first


class Heads(HttpToolsProtocol):
    """uvicorn's protocol with limits for the head of a request, and with refusals in our shape."""

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
        self._refuse("400 Bad Request", "bad_request", "this is no request of HTTP/1.1")

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
            self._refuse("408 Request Timeout", "too_slow", f"no whole request within {SECONDS:g} s")
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
