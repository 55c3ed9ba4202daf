"""Which server answers to `provider/model`, and with which key.

openai/gpt-4                    api.openai.com, key in OPENAI_API_KEY; OPENAI_BASE_URL points elsewhere
local/qwen                      a server of your own at 127.0.0.1:8000, no key needed
my-model, base_url="http://…"   any other server that speaks the same language
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from urllib.parse import urlsplit

from groupwise.errors import ConfigError

REDACTED = "[key]"
SHORTEST_SECRET = 8
KEY = re.compile(r"[^\s\"'\\]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Provider:
    """Where a provider is, and which environment variables say otherwise and hold its key."""

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
    """A model on a server. `missing` says which variable should hold a key and does not."""

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
        """A text in which the key, should a server have echoed it, cannot be read; a short key is a placeholder."""
        return text.replace(self.key, REDACTED) if len(self.key) >= SHORTEST_SECRET else text


def resolve(
    model: str,
    base_url: str | None = None,
    api_key: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> Address:
    """The address of a model by its name.

    With a `base_url` the server is given: a known provider's prefix then only says where the key is, and any other name
    is sent as it is.
    """
    known = os.environ if environment is None else environment
    prefix, slash, rest = model.partition("/")
    provider = PROVIDERS.get(prefix) if slash else None
    name = rest if provider else model
    if not name.strip():
        raise ConfigError(f"{model!r} names no model", hint="Write provider/model, for example openai/gpt-4.")
    if provider is None and base_url is None:
        raise ConfigError(
            f"{model!r} does not say who serves it",
            hint=f"Write one of {', '.join(PROVIDERS)} and a slash before it, or give base_url.",
        )
    url = base_url or (known.get(provider.url_variable) if provider else None) or (provider.url if provider else "")
    key = api_key if api_key is not None else known.get(provider.key_variable, "") if provider else ""
    address = Address(_checked_url(url), name, _checked_key(key))
    if provider and provider.needs_key and address.url == provider.url and not address.key:
        return replace(address, missing=provider.key_variable)
    return address


def _checked_url(url: str) -> str:
    """The address without its last slash. One that carries a name, password or query is refused, and not repeated."""
    try:
        parts = urlsplit(url.strip())
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        sound = False
    if not sound:
        raise ConfigError(
            "the judge's base_url is no address of a server",
            hint="Write it as https://host/v1, or http://host:port/v1.",
        )
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ConfigError(
            "the judge's base_url holds more than an address (a name, a password, a query)",
            hint="Give the key as api_key or in the provider's environment variable.",
        )
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def _checked_key(key: str) -> str:
    key = key.strip()
    if not (KEY.fullmatch(key) and key.isascii() and key.isprintable()):
        raise ConfigError(
            "the judge's API key holds characters that no key has (spaces, quotes)", hint="Copy it again, on one line."
        )
    return key
