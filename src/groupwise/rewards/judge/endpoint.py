"""The server behind `provider/model`, and one question to it over HTTP: a reply, or an `EndpointError`.

openai/gpt-4                    api.openai.com, key in OPENAI_API_KEY; OPENAI_BASE_URL overrides the address
local/qwen                      your own server at 127.0.0.1:8000, no key needed
my-model, base_url="http://…"   any other server with OpenAI's API
"""

import asyncio
import importlib
import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from functools import cache
from ipaddress import ip_address
from typing import Any, Literal, Self, TypeAlias
from urllib.parse import urlsplit

from groupwise.errors import ConfigError, GroupwiseError, MissingExtra

REDACTED = "[key]"
SHORTEST_SECRET = 8
KEY_PATTERN = re.compile(r"[^\s\"'\\]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider's address, and the environment variables that override it and contain its key."""

    url: str
    url_variable: str
    key_variable: str
    needs_key: bool = True


PROVIDERS = {
    "openai": Provider("https://api.openai.com/v1", "OPENAI_BASE_URL", "OPENAI_API_KEY"),
    "openrouter": Provider("https://openrouter.ai/api/v1", "OPENROUTER_BASE_URL", "OPENROUTER_API_KEY"),
    "together": Provider("https://api.together.xyz/v1", "TOGETHER_BASE_URL", "TOGETHER_API_KEY"),
    "groq": Provider("https://api.groq.com/openai/v1", "GROQ_BASE_URL", "GROQ_API_KEY"),
    "mistral": Provider("https://api.mistral.ai/v1", "MISTRAL_BASE_URL", "MISTRAL_API_KEY"),
    "ollama": Provider("http://127.0.0.1:11434/v1", "OLLAMA_BASE_URL", "OLLAMA_API_KEY", needs_key=False),
    "local": Provider("http://127.0.0.1:8000/v1", "LOCAL_BASE_URL", "LOCAL_API_KEY", needs_key=False),
}


@dataclass(frozen=True, slots=True)
class Address:
    """A model on a server. `missing` names the variable that should contain a key but does not."""

    url: str
    model: str
    key: str = field(default="", repr=False)
    missing: str = ""

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}

    @property
    def on_this_machine(self) -> bool:
        host = urlsplit(self.url).hostname or ""
        try:
            return ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"

    def redacted(self, text: str) -> str:
        """The text without the key, which a server may have echoed. A very short key is a placeholder and stays."""
        return text.replace(self.key, REDACTED) if len(self.key) >= SHORTEST_SECRET else text


def resolve(
    model: str, base_url: str | None = None, api_key: str | None = None, environment: Mapping[str, str] | None = None
) -> Address:
    """The address of a model by its name.

    With a `base_url`, the prefix of a known provider only says where the key is; any other name is sent unchanged.
    """
    known = os.environ if environment is None else environment
    prefix, slash, rest = model.partition("/")
    provider = PROVIDERS.get(prefix) if slash else None
    name = rest if provider else model
    if not name.strip():
        raise ConfigError(f"{model!r} does not name a model", hint="Write provider/model, for example openai/gpt-4.")
    if provider is None and base_url is None:
        message = f"{model!r} does not name a provider"
        raise ConfigError(message, hint=f"Prefix it with one of {', '.join(PROVIDERS)} and a slash, or set base_url.")
    url = base_url or (known.get(provider.url_variable) if provider else None) or (provider.url if provider else "")
    key = api_key if api_key is not None else known.get(provider.key_variable, "") if provider else ""
    address = Address(_checked_url(url), name, _checked_key(key))
    # Only the provider's own server is known to need a key; one at another URL may not.
    if provider and provider.needs_key and address.url == provider.url and not address.key:
        return replace(address, missing=provider.key_variable)
    return address


def _checked_url(url: str) -> str:
    """The address without a trailing slash. Errors do not quote it, because it may contain a password."""
    try:
        parts = urlsplit(url.strip())
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        sound = False
    if not sound:
        hint = "Write it as https://host/v1, or http://host:port/v1."
        raise ConfigError("the judge's base_url is not a valid address", hint=hint)
    if parts.username or parts.password or parts.query or parts.fragment:
        message = "the judge's base_url contains more than an address (a user name, a password or a query)"
        raise ConfigError(message, hint="Pass the key as api_key or in the provider's environment variable.")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def _checked_key(key: str) -> str:
    key = key.strip()
    if not (KEY_PATTERN.fullmatch(key) and key.isascii() and key.isprintable()):
        message = "the judge's API key contains spaces, quotes or other invalid characters"
        raise ConfigError(message, hint="Copy it again, on one line.")
    return key


LARGEST = 8 << 20  # bytes of a reply
QUOTED = 300  # characters of a server's words in a message
BAD_REQUEST = (400, 413, 422)  # the fault of the question, not of the server
BUSY = 429
TEMPORARY = (408, 409, 425, BUSY)

Format: TypeAlias = Literal["json_schema", "json_object", "text"]
SIMPLER: dict[Format, Format] = {"json_schema": "json_object", "json_object": "text"}


class EndpointError(GroupwiseError):
    """There is no usable answer.

    `again` says whether asking again may help, `after` how many seconds the server wants us to wait, and `ill` whether
    the error is about the server's health and not about this one question.
    """

    def __init__(
        self, code: str, message: str, *, hint: str = "", again: bool, after: float | None = None, ill: bool = True,
        status: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(message, hint=hint)
        self.code = code
        self.again, self.after, self.ill, self.status = again, after, ill, status


@dataclass(frozen=True, slots=True)
class JudgeReply:
    """The model's text, whether it was cut off, and the tokens it took (None if the server does not say)."""

    text: str
    cut: bool
    prompt_tokens: int | None
    completion_tokens: int | None

    @property
    def tokens(self) -> int | None:
        counts = self.prompt_tokens, self.completion_tokens
        return None if None in counts else sum(count for count in counts if count is not None)


@dataclass(frozen=True, slots=True)
class Dialect:
    """The part of OpenAI's API that this server supports, learned from what it refuses."""

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

    def without(self, complaint: str) -> Self | None:
        """What to try after a refusal; None if there is nothing left to omit."""
        options = dict(self.options)
        if "max_completion_tokens" in complaint and "max_tokens" in options:
            options["max_completion_tokens"] = options.pop("max_tokens")
            return replace(self, options=options)
        if "temperature" in complaint and "temperature" in options:
            del options["temperature"]
            return replace(self, options=options)
        # Too long a question stays too long in any format.
        if "context" in complaint or self.format not in SIMPLER:
            return None
        return replace(self, format=SIMPLER[self.format])


@dataclass
class JudgeEndpoint:
    """A model at an address, and its role in messages. `timeout` limits a call as a whole, however slow its bytes."""

    address: Address
    timeout: float
    options: Mapping[str, Any] = field(default_factory=dict)
    role: str = "judge"

    def __post_init__(self) -> None:
        self.dialect = Dialect("json_schema", dict(self.options))

    async def ask(self, messages: Sequence[Mapping[str, Any]], schema: Mapping[str, Any]) -> JudgeReply:
        """The reply. Options that the server refuses are omitted, and not tried again once that has worked."""
        dialect, refusal = self.dialect, None
        while True:
            try:
                reply = await self._post(dialect.body(self.address.model, messages, schema))
            except EndpointError as error:
                simpler = dialect.without(error.message) if error.status in (400, 422) else None
                if simpler is None:
                    raise refusal or error from None
                # If nothing simpler works either, the first refusal says best what is wrong.
                dialect, refusal = simpler, refusal or error
            else:
                self.dialect = dialect
                return reply

    async def _post(self, body: Mapping[str, Any]) -> JudgeReply:
        self.insist_on_key()
        httpx = http_client()
        # A proxy from the environment is not for servers on this machine.
        client = httpx.AsyncClient(verify=_tls(), timeout=self.timeout, trust_env=not self.address.on_this_machine)
        try:
            # httpx's own timeout starts again with every read.
            async with asyncio.timeout(self.timeout), client:
                content = json.dumps(body, ensure_ascii=False).encode("utf8", "replace")
                headers = {"Content-Type": "application/json", **self.address.headers}
                url = f"{self.address.url}/chat/completions"
                async with client.stream("POST", url, content=content, headers=headers) as response:
                    text = self.address.redacted(await _read(response))
        except TimeoutError:
            raise self._error("timeout", f"no answer within {self.timeout:g} s", again=True) from None
        except _TooLarge:
            raise self._error("malformed", f"the answer is larger than {LARGEST >> 20} MB", again=False) from None
        except httpx.HTTPError as error:
            said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise self._error("connection", said, again=True) from None
        if response.status_code != 200:
            raise self._refused(response.status_code, response.headers, text)
        return self._reply(text)

    def insist_on_key(self) -> None:
        missing, url = self.address.missing, self.address.url
        if missing:
            message = f"{missing} is not set, so {url} would reject the {self.role} {self.address.model}"
            hint = f"Set {missing}, or choose a {self.role} that needs no key: local/…, or base_url."
            raise EndpointError("no_key", message, hint=hint, again=False, ill=False)

    def _refused(self, status: int, headers: Mapping[str, str], text: str) -> EndpointError:
        said, code = _complaint(text)
        # No money left is a 429 too, but waiting does not help.
        again = (status in TEMPORARY or status >= 500) and code != "insufficient_quota"
        ill = status not in BAD_REQUEST and not (again and status == BUSY)
        return self._error(
            "refused", f"HTTP {status}{': ' + said if said else ''}", again=again, after=_retry_after(headers), ill=ill,
            status=status, hint=HINTS.get(status, ""),
        )  # fmt: skip

    def _reply(self, text: str) -> JudgeReply:
        try:
            answer = json.loads(text)
            choice, usage = answer["choices"][0], answer.get("usage") or {}
            content, finish = choice["message"]["content"], choice.get("finish_reason")
        except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
            said = f"the answer is not a chat completion: {text[:QUOTED]!r}"
            raise self._error("malformed", said, again=True) from None
        if not isinstance(content, str):
            raise self._error("malformed", "the answer has no text", again=True)
        counts = [_count(usage, name) for name in ("prompt_tokens", "completion_tokens")]
        return JudgeReply(self.address.redacted(content), finish == "length", *counts)

    def _error(self, code: str, said: str, *, again: bool, **rest: Any) -> EndpointError:
        message = f"the {self.role} {self.address.model} at {self.address.url}: {said}"
        return EndpointError(code, self.address.redacted(message), again=again, **rest)


HINTS = {
    401: "Check the API key: is it complete, and from this provider?",
    403: "Check that this key may use this model.",
    404: "Check the model's name and base_url, which usually ends in /v1.",
    413: "Use smaller groups or shorter attempts.",
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
    """The server's reason for a refusal, on one line, and its code."""
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
    """The HTTP library, or `MissingExtra` with the command that installs it."""
    try:
        return importlib.import_module("httpx2")
    except ImportError as error:
        message = "a judge needs httpx2, which is not installed"
        raise MissingExtra(message, hint="pip install 'groupwise[judge]'") from error
