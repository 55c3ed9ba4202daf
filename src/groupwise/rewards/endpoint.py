"""One question to an OpenAI-compatible server, over HTTP: a reply, or an `EndpointError` that says what to make of it.

A client is made for every call: it works in any event loop, leaves nothing to close, and its handshake is short beside
a judge's answer. Redirects are not followed, because the key would follow them.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any, Literal, TypeAlias

from groupwise.errors import GroupwiseError, MissingExtra
from groupwise.rewards.providers import Address

LARGEST = 8 << 20
QUOTED = 300
UNSOUND_QUESTION = (400, 413, 422)
BUSY = 429
PASSING = (408, 409, 425, BUSY)

Format: TypeAlias = Literal["json_schema", "json_object", "text"]
SIMPLER: dict[Format, Format] = {"json_schema": "json_object", "json_object": "text"}


class EndpointError(GroupwiseError):
    """No usable answer.

    `again` says whether asking again may help, `after` how many seconds the server wants to be left alone, and `ill`
    whether it tells of the server's health rather than of this one question.
    """

    def __init__(
        self, code: str, message: str, *, hint: str = "", again: bool, after: float | None = None, ill: bool = True,
        status: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(message, hint=hint)
        self.code = code
        self.again, self.after, self.ill, self.status = again, after, ill, status


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model said, whether it was cut off, and the tokens it took (None: the server does not say)."""

    text: str
    cut: bool
    prompt_tokens: int | None
    completion_tokens: int | None


@dataclass(frozen=True, slots=True)
class Dialect:
    """What of the language this server understands: learned from what it refuses."""

    format: Format
    options: Mapping[str, Any]

    def body(self, model: str, messages: Sequence[Mapping[str, Any]], schema: Mapping[str, Any]) -> dict[str, Any]:
        described = {"name": schema.get("title", "scores"), "strict": True, "schema": schema}
        formats: dict[Format, dict[str, Any]] = {
            "json_schema": {"response_format": {"type": "json_schema", "json_schema": described}},
            "json_object": {"response_format": {"type": "json_object"}},
            "text": {},
        }
        return {"model": model, "messages": list(messages), **self.options, **formats[self.format]}

    def without(self, complaint: str) -> Dialect | None:
        """What to try after a refusal; None if nothing is left to leave out."""
        options = dict(self.options)
        if "max_completion_tokens" in complaint and "max_tokens" in options:
            options["max_completion_tokens"] = options.pop("max_tokens")
            return replace(self, options=options)
        if "temperature" in complaint and "temperature" in options:
            del options["temperature"]
            return replace(self, options=options)
        if "context" in complaint or self.format not in SIMPLER:
            return None
        return replace(self, format=SIMPLER[self.format])


@dataclass
class Endpoint:
    """A model behind an address, and what it is asked to be. `timeout` bounds a whole call, however slow its bytes."""

    address: Address
    timeout: float
    options: Mapping[str, Any] = field(default_factory=dict)
    role: str = "judge"

    def __post_init__(self) -> None:
        self.dialect = Dialect("json_schema", dict(self.options))

    async def ask(self, messages: Sequence[Mapping[str, Any]], schema: Mapping[str, Any]) -> Reply:
        """The reply; what the server refuses of the request is left out and, once that worked, not tried again."""
        dialect, refusal = self.dialect, None
        while True:
            try:
                reply = await self._post(dialect.body(self.address.model, messages, schema))
            except EndpointError as error:
                simpler = dialect.without(error.message) if error.status in (400, 422) else None
                if simpler is None:
                    raise refusal or error from None
                dialect, refusal = simpler, refusal or error
            else:
                self.dialect = dialect
                return reply

    async def _post(self, body: Mapping[str, Any]) -> Reply:
        self._insist_on_key()
        httpx = http_client()
        client = httpx.AsyncClient(verify=_tls(), timeout=self.timeout, trust_env=not self.address.on_this_machine)
        try:
            async with asyncio.timeout(self.timeout), client:
                content = json.dumps(body, ensure_ascii=False).encode("utf8", "replace")
                headers = {"Content-Type": "application/json", **self.address.headers}
                url = f"{self.address.url}/chat/completions"
                async with client.stream("POST", url, content=content, headers=headers) as response:
                    text = self.address.redacted(await _read(response))
        except TimeoutError:
            raise self._error("timeout", f"no answer within {self.timeout:g} s", again=True) from None
        except _TooLarge:
            raise self._error("malformed", f"an answer of more than {LARGEST >> 20} MB", again=False) from None
        except httpx.HTTPError as error:
            said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise self._error("connection", said, again=True) from None
        if response.status_code != 200:
            raise self._refused(response.status_code, response.headers, text)
        return self._reply(text)

    def _insist_on_key(self) -> None:
        missing, url = self.address.missing, self.address.url
        if missing:
            raise EndpointError(
                "no_key",
                f"{missing} is not set, so {url} would refuse the {self.role} {self.address.model}",
                hint=f"Set {missing}, or choose a {self.role} that needs no key: local/…, or base_url.",
                again=False,
                ill=False,
            )

    def _refused(self, status: int, headers: Mapping[str, str], text: str) -> EndpointError:
        said, code = _complaint(text)
        again = (status in PASSING or status >= 500) and code != "insufficient_quota"
        ill = status not in UNSOUND_QUESTION and not (again and status == BUSY)
        return self._error(
            "refused", f"HTTP {status}{': ' + said if said else ''}", again=again, after=_retry_after(headers), ill=ill,
            status=status, hint=HINTS.get(status, ""),
        )  # fmt: skip

    def _reply(self, text: str) -> Reply:
        try:
            answer = json.loads(text)
            choice, usage = answer["choices"][0], answer.get("usage") or {}
            content, finish = choice["message"]["content"], choice.get("finish_reason")
        except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
            raise self._error(
                "malformed", f"an answer that is no chat completion: {text[:QUOTED]!r}", again=True
            ) from None
        if not isinstance(content, str):
            raise self._error("malformed", "an answer without text", again=True)
        counts = [_count(usage, name) for name in ("prompt_tokens", "completion_tokens")]
        return Reply(self.address.redacted(content), finish == "length", *counts)

    def _error(self, code: str, said: str, *, again: bool, **rest: Any) -> EndpointError:
        message = f"the {self.role} {self.address.model} at {self.address.url}: {said}"
        return EndpointError(code, self.address.redacted(message), again=again, **rest)


HINTS = {
    401: "Is the API key right, and of this provider?",
    403: "May this key use this model?",
    404: "Are the model's name and base_url right? It usually ends in /v1.",
    413: "Make groups smaller or attempts shorter.",
}


class _TooLarge(Exception):
    pass


async def _read(response: Any) -> str:
    parts, size = [], 0
    async for part in response.aiter_bytes():
        parts.append(part)
        size += len(part)
        if size > LARGEST:
            raise _TooLarge
    return b"".join(parts).decode("utf8", "replace")


def _complaint(text: str) -> tuple[str, str]:
    """What a server says about a refusal, in one line, and its code."""
    try:
        error = json.loads(text)["error"]
        said, code = (error.get("message"), error.get("code")) if isinstance(error, dict) else (error, "")
    except (ValueError, KeyError, TypeError, RecursionError):
        said, code = text, ""
    words = " ".join(str(said or "").split())
    if code == "context_length_exceeded" and "context" not in words:
        words = f"context length exceeded: {words}"
    return words[:QUOTED], str(code or "")


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds, from a number or a date."""
    given = headers.get("retry-after", "").strip()
    with suppress(ValueError):
        return max(0.0, float(given)) if float(given) < float("inf") else None
    with suppress(ValueError, TypeError, OverflowError):
        return max(0.0, parsedate_to_datetime(given).timestamp() - time.time())
    return None


def _count(usage: Any, name: str) -> int | None:
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


@cache
def _tls() -> Any:
    return http_client().create_ssl_context()


def http_client() -> Any:
    """The library that speaks HTTP, or `MissingExtra` with the command that installs it."""
    try:
        return importlib.import_module("httpx2")
    except ImportError as error:
        raise MissingExtra(
            "a judge needs httpx2, which is not installed", hint="pip install 'groupwise[judge]'"
        ) from error
