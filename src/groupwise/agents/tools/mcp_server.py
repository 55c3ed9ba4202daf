"""Which MCP servers to talk to: a command, an address, or the `mcpServers` file that other MCP clients use.

    mcp:uvx some-server --flag        a command that is started here and spoken to over its standard input and output
    https://tools.example.com/mcp     an address, over streamable HTTP
    servers.json                      {"mcpServers": {"shop": {"command": "python", "args": ["shop.py"]}, …}}

In a file's `env` and `headers`, ${NAME} stands for an environment variable; its value is never shown.
"""

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from groupwise.errors import ConfigError
from groupwise.readers import load_json, read_bytes

PREFIX = "mcp:"
ADDRESSES = ("http://", "https://")
VARIABLE = re.compile(r"\$\{(\w+)\}")
KINDS = ("stdio", "http", "streamable-http", "streamableHttp", "streamable_http")
FORM = 'Write {"mcpServers": {"NAME": {"command": "…", "args": ["…"]}}}, or "url" instead of "command".'


@dataclass(frozen=True, slots=True)
class McpServer:
    """One server: either a `command` to start or a `url` to send requests to.

    A command gets a few harmless variables of this process's environment (such as PATH and HOME) and those in `env`.
    """

    name: str
    command: tuple[str, ...] = ()
    url: str = ""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    folder: str = ""

    def __post_init__(self) -> None:
        if bool(self.command) == bool(self.url):
            message = f"the MCP server {self.name!r:.60} needs a command or a url, and not both"
            raise ConfigError(message, hint=FORM)
        if self.url:
            _check_address(self.name, self.url)

    @property
    def place(self) -> str:
        """What a reader knows the server by."""
        return f"{PREFIX}{shlex.join(self.command)}" if self.command else self.url

    def filled(self, texts: Mapping[str, str]) -> dict[str, str]:
        """The texts with environment variables in the place of their names."""
        return {name: VARIABLE.sub(lambda found: self._secret(found[1]), text) for name, text in texts.items()}

    @property
    def secrets(self) -> dict[str, str]:
        """The environment variables that the server is given, which nothing may show."""
        texts = " ".join([*self.env.values(), *self.headers.values()])
        return {name: self._secret(name) for name in sorted(set(VARIABLE.findall(texts)))}

    def _secret(self, name: str) -> str:
        value = os.environ.get(name, "").strip()
        if not value or not value.isprintable():
            message = f"the MCP server {self.name!r:.60} needs the environment variable {name}, which is not set"
            raise ConfigError(message, hint=f"export {name}=…")
        return value


def names_servers(where: str) -> bool:
    """Whether the text names MCP servers."""
    return where.startswith((PREFIX, *ADDRESSES)) or where.endswith(".json")


def find_servers(where: str) -> list[McpServer]:
    """The servers that a text names: one command or address, or all of a file."""
    if where.endswith(".json") and not where.startswith((PREFIX, *ADDRESSES)):
        return read_servers(Path(where))
    bare = where.removeprefix(PREFIX)
    if bare.startswith(ADDRESSES):
        return [McpServer(urlsplit(bare).hostname or "server", url=bare)]
    try:
        words = tuple(shlex.split(bare))
    except ValueError as error:
        raise ConfigError(f"the command {bare!r:.200} cannot be read: {error}", hint="Close its quotes.") from None
    if not words:
        raise ConfigError(f"{where!r} names no command", hint="Write mcp:COMMAND ARGUMENTS.")
    # The program, or the script that an interpreter runs: what tells two servers apart.
    named = next((Path(word).stem for word in reversed(words) if not word.startswith("-")), words[0])
    return [McpServer(named, words)]


def read_servers(path: Path) -> list[McpServer]:
    """The servers of a file, without those that are disabled."""
    try:
        found = load_json(read_bytes(path))
        servers = list(_servers(found, path.parent))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}", hint=error.hint or FORM) from None
    if not servers:
        raise ConfigError(f"{path}: there are no servers in it", hint=FORM)
    return servers


def _servers(found: Any, folder: Path) -> Iterator[McpServer]:
    listed = found.get("mcpServers", found.get("servers")) if isinstance(found, dict) else None
    if not isinstance(listed, dict):
        raise ConfigError("it has no table mcpServers", hint=FORM)
    for name, given in listed.items():
        if not isinstance(given, dict):
            raise ConfigError(f"the server {name!r:.60} is {given!r:.60}, not an object", hint=FORM)
        if given.get("disabled") is not True:
            yield _server(name, given, folder)


def _server(name: str, given: Mapping[str, Any], folder: Path) -> McpServer:
    kind = given.get("type", given.get("transport", "http" if "url" in given else "stdio"))
    if kind not in KINDS:
        message = f"the server {name!r:.60} has the transport {kind!r:.40}"
        raise ConfigError(message, hint="Supported are stdio and (streamable) http.")
    command, url, args = given.get("command", ""), given.get("url", ""), given.get("args", [])
    tables = [given.get("env", {}), given.get("headers", {})]
    if not isinstance(command, str) or not isinstance(url, str) or not _texts(args):
        raise ConfigError(f"the server {name!r:.60}: command and url are text, args is a list of text", hint=FORM)
    if not all(isinstance(table, dict) and _texts(list(table.values())) for table in tables):
        raise ConfigError(f"the server {name!r:.60}: env and headers are tables of text", hint=FORM)
    inside = given.get("cwd", "")
    if not isinstance(inside, str):
        raise ConfigError(f"the server {name!r:.60} has the cwd {inside!r:.60}, not a folder", hint=FORM)
    words = (command, *args) if command else ()
    return McpServer(name, words, url, tables[0], tables[1], str(folder / inside))


def _texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) and "\0" not in value for value in values)


def _check_address(name: str, url: str) -> None:
    try:
        parts = urlsplit(url)
        sound = (
            parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc and parts.port != 0
        )
    except ValueError:
        sound = False
    if not sound:
        message = f"the MCP server {name!r:.60} has the address {url.rpartition('@')[2]!r:.120}"
        raise ConfigError(message, hint="Start with http:// or https:// and a host; put passwords into headers.")
