"""Checks on every request before it reaches a route: who is asking, from where, how much and how often.

GET  /health /ready /docs /openapi.json, the page        open
GET  /api/… /v1/… /metrics                               read
POST /api/scale                                          admin
anything else under /api and /v1                         train

Which jobs and runs a caller sees is decided behind the routes, by their owners (ownership.py).
"""

import asyncio
import ipaddress
import json
import time
from collections import OrderedDict
from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from groupwise.errors import GroupwiseError
from groupwise.service.keys import Keys, Unauthorised, Who, insist
from groupwise.service.metrics import ServiceMetrics
from groupwise.service.refusals import refusal, shape, status_of
from groupwise.service.settings import ServiceSettings

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
        # A new caller starts with a full bucket, so that a page may load everything at once.
        tokens, before = self._buckets.get(caller, (2 * self.rate, now))
        tokens = min(2 * self.rate, tokens + (now - before) * self.rate)
        self._buckets[caller] = (max(0.0, tokens - 1) if tokens >= 1 else tokens, now)
        self._buckets.move_to_end(caller)
        # The caller silent for longest goes first; it would have a full bucket again anyway.
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
                status = "431 Request Header Fields Too Large"
                self._refuse(status, "too_large", f"more than {LARGEST:,} bytes of headers")

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


GUARDED = ("/api/", "/v1/", "/metrics")
ADMIN = ("/api/scale",)
READING = ("GET", "HEAD", "OPTIONS")
PAGE_POLICY = (
    "default-src 'self'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; connect-src 'self' ws: wss:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
SAFE = {"x-content-type-options": "nosniff", "referrer-policy": "no-referrer", "x-frame-options": "DENY"}


class CrossSite(GroupwiseError):
    code = "cross_site"


class TooLarge(GroupwiseError):
    code = "too_large"


class RequestTooSlow(GroupwiseError):
    code = "too_slow"


class Guard:
    """The outermost layer of the application."""

    def __init__(self, app: ASGIApp, settings: ServiceSettings, counting: ServiceMetrics) -> None:
        self.app, self.settings, self.counting = app, settings, counting
        self.reads, self.writes = Rates(settings.reads_per_second), Rates(settings.writes_per_second)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500
        parts = scope["app"].state.parts
        # Keys are cached for `FRESH` seconds: one database read serves all requests in between.
        keys: Keys = parts.keys

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                _protect(scope["path"], MutableHeaders(scope=message))
            await send(message)

        try:
            # In a thread: a slow database must not stop the event loop.
            if keys.is_stale:
                await asyncio.to_thread(keys.refresh)
            scope.setdefault("state", {})["who"] = self._admitted(scope, keys, parts.failures)
            limited = Limited(receive, self.settings.largest_body, self.settings.body_timeout)
            # Refused by its announced size, before a byte of the body is read.
            limited.refuse_announced(Headers(scope=scope))
            await self.app(scope, limited, sending)
        except GroupwiseError as error:
            headers = {"www-authenticate": "Bearer"} if isinstance(error, Unauthorised) else {}
            if isinstance(error, TooMany):
                headers["retry-after"] = "1"
            await refusal(status_of(error), error.as_dict(), headers)(scope, receive, sending)
        finally:
            self.counting.request(scope, status, time.perf_counter() - began)

    def _admitted(self, scope: Scope, keys: Keys, failures: Rates) -> Who | None:
        headers, path, method = Headers(scope=scope), scope["path"], scope["method"]
        refuse_foreign(headers, self.settings, guarded_by_key=keys.required, reading=method in READING)
        if not path.startswith(GUARDED):
            return None
        address = str((scope.get("client") or ("",))[0])
        try:
            who = keys.who(bearer(headers.get("authorization")))
        except Unauthorised:
            failures.count(address)
            raise
        # Per key and address: one client cannot use up the allowance of another with the same key.
        (self.reads if method in READING else self.writes).count(f"{who.id} {address}")
        insist(who, needed_scope(method, path))
        return who


class Limited:
    """A request's body, limited in size and time."""

    def __init__(self, receive: Receive, largest: int, seconds: float) -> None:
        self.receive, self.largest, self.seconds = receive, largest, seconds
        self.size, self.whole = 0, False

    def refuse_announced(self, headers: Headers) -> None:
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length[:20]) > self.largest:
            raise self._too_large(int(length))

    async def __call__(self) -> Message:
        if self.whole:
            return await self.receive()
        try:
            message = await asyncio.wait_for(self.receive(), self.seconds)
        except TimeoutError:
            late = f"the rest of the request body did not arrive within {self.seconds:g} s"
            raise RequestTooSlow(late, hint="Send the body without pauses.") from None
        if message["type"] == "http.request":
            self.size += len(message.get("body", b""))
            self.whole = not message.get("more_body", False)
            if self.size > self.largest:
                raise self._too_large(self.size)
        return message

    def _too_large(self, size: int) -> TooLarge:
        message = f"the request body has at least {size:,} bytes; the limit is {self.largest:,}"
        return TooLarge(message, hint="Split it into smaller requests.")


def needed_scope(method: str, path: str) -> str:
    if path in ADMIN and method not in READING:
        return "admin"
    return "read" if method in READING else "train"


def bearer(header: str | None) -> str | None:
    """The key in an Authorization header; None if there is no header."""
    if header is None:
        return None
    kind, _, text = header.partition(" ")
    return text.strip() if kind.lower() == "bearer" else ""


def refuse_foreign(
    headers: Mapping[str, str], settings: ServiceSettings, *, guarded_by_key: bool, reading: bool
) -> None:
    """Refuse requests from other sites' pages, even through a host name that points to this machine (DNS rebinding)."""
    host = headers.get("host", "")
    # DNS rebinding: a page of another site may point its own host name at 127.0.0.1. Without keys only names of this
    # machine are served; with keys the page does not have one.
    if not guarded_by_key and not _is_local_name(host, settings):
        raise CrossSite(f"the host {host!r:.100} is not this machine", hint="Use 127.0.0.1 or localhost.")
    origin = headers.get("origin")
    if reading or origin is None or origin in settings.origins:
        return
    # Browsers send Origin with every request that changes something, so a page of ours has our own host there.
    if _place_of(origin) != host.lower():
        hint = "If you trust it, allow it: groupwise serve --origin."
        raise CrossSite(f"a page from {origin!r:.100} may not do this", hint=hint)


def _place_of(origin: str) -> str | None:
    """The host and port of an origin; None if it has none."""
    try:
        return urlsplit(origin).netloc.lower() or None
    except ValueError:
        return None


def _is_local_name(host: str, settings: ServiceSettings) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    if name in ("localhost", settings.host):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _protect(path: str, headers: MutableHeaders) -> None:
    for name, value in SAFE.items():
        headers[name] = value
    if path.startswith(GUARDED):
        headers.setdefault("cache-control", "no-store")
    else:
        # No script runs that did not ship with the page, whatever a run's names or texts contain.
        headers["content-security-policy"] = PAGE_POLICY
