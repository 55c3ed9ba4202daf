"""Checks on every request before it reaches a route: who is asking, from where, how much and how often.

GET  /health /ready /docs /openapi.json, the page        open
GET  /api/… /v1/… /metrics                               read
POST /api/scale                                          admin
anything else under /api and /v1                         train
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from groupwise.errors import GroupwiseError
from groupwise.service.keys import Keys, Unauthorised, Who, insist
from groupwise.service.limits import Rates, TooMany
from groupwise.service.metrics import ServiceMetrics
from groupwise.service.refusals import refusal, status_of
from groupwise.service.settings import ServiceSettings

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
        keys: Keys = parts.keys

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                _protect(scope["path"], MutableHeaders(scope=message))
            await send(message)

        try:
            if keys.is_stale:
                await asyncio.to_thread(keys.refresh)
            scope.setdefault("state", {})["who"] = self._admitted(scope, keys, parts.failures)
            limited = Limited(receive, self.settings.largest_body, self.settings.body_timeout)
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
        if length.isdigit() and int(length) > self.largest:
            raise self._too_large(int(length))

    async def __call__(self) -> Message:
        if self.whole:
            return await self.receive()
        try:
            message = await asyncio.wait_for(self.receive(), self.seconds)
        except TimeoutError:
            raise RequestTooSlow(
                f"the rest of the request body did not arrive within {self.seconds:g} s",
                hint="Send the body without pauses.",
            ) from None
        if message["type"] == "http.request":
            self.size += len(message.get("body", b""))
            self.whole = not message.get("more_body", False)
            if self.size > self.largest:
                raise self._too_large(self.size)
        return message

    def _too_large(self, size: int) -> TooLarge:
        return TooLarge(
            f"the request body has at least {size:,} bytes; the limit is {self.largest:,}",
            hint="Split it into smaller requests.",
        )


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
    if not guarded_by_key and not _is_local_name(host, settings):
        raise CrossSite(f"the host {host!r:.100} is not this machine", hint="Use 127.0.0.1 or localhost.")
    origin = headers.get("origin")
    if reading or origin is None or origin in settings.origins:
        return
    if _place_of(origin) != host.lower():
        raise CrossSite(
            f"a page from {origin!r:.100} may not do this", hint="If you trust it, allow it: groupwise serve --origin."
        )


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
        headers["content-security-policy"] = PAGE_POLICY
