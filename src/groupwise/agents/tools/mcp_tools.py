"""The tools of MCP servers, as tools of ours: their names, the schemas of their arguments, and whom to ask.

tools = tools_of_servers([McpServer("shop", ("python", "shop.py")), McpServer("web", url="https://…/mcp")])
"""

import json
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from groupwise.agents.tools.function_tool import NAME, BadArguments, Tool, shortened
from groupwise.agents.tools.mcp_connection import INSTALL, McpConnection
from groupwise.agents.tools.mcp_server import McpServer
from groupwise.errors import ConfigError, GroupwiseError
from groupwise.language.model_lookup import import_extra

LONGEST_NAME, LONGEST_DESCRIPTION, LONGEST_SCHEMA = 64, 2000, 50_000  # characters
# Patterns of a server could run for ever; the server checks them itself.
UNCHECKED = {"pattern": ("pattern",), "patternProperties": ("patternProperties", "additionalProperties")}


@dataclass(frozen=True, slots=True)
class McpTool(Tool):
    """A tool that a server offers."""

    connection: McpConnection | None = field(default=None, repr=False)

    @property
    def place(self) -> str:
        return self.connection.server.place if self.connection is not None else ""

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()


class JsonArguments:
    """Parameters described by any JSON schema, which a server may write as it likes."""

    def __init__(self, tool: str, schema: Mapping[str, Any]) -> None:
        library = import_extra("jsonschema", INSTALL)
        self.schema = {key: value for key, value in schema.items() if key != "$schema"}
        self.schema.setdefault("properties", {})
        try:
            size = len(json.dumps(self.schema))
            checked = _without_patterns(self.schema)
            library.Draft202012Validator.check_schema(checked)
        except (library.SchemaError, RecursionError, ValueError, AttributeError, TypeError) as error:
            said = " ".join(str(getattr(error, "message", error)).split())
            raise ConfigError(f"the schema of the tool {tool!r:.60} cannot be used: {said:.200}") from None
        if size > LONGEST_SCHEMA:
            raise ConfigError(
                f"the schema of the tool {tool!r:.60} has {size:,} characters, more than {LONGEST_SCHEMA:,}"
            )
        # An empty registry: a reference in a schema never makes this machine fetch something.
        registry = import_extra("referencing", INSTALL).Registry()
        self._validator = library.Draft202012Validator(checked, registry=registry)

    def read(self, given: Mapping[str, Any]) -> dict[str, Any]:
        arguments = dict(given)
        try:
            faults = [_fault(error) for error, _ in zip(self._validator.iter_errors(arguments), range(5), strict=False)]
        except Exception as error:  # a reference to nowhere, or one to itself
            raise BadArguments(f"the tool's schema cannot be applied: {type(error).__name__}") from None
        if faults:
            raise BadArguments("; ".join(faults))
        return arguments


def _fault(error: Any) -> str:
    place = ".".join(map(str, error.absolute_path))
    return shortened(f"{place}: {error.message}" if place else error.message, 200)


def _without_patterns(node: Any) -> Any:
    if isinstance(node, list):
        return [_without_patterns(item) for item in node]
    if not isinstance(node, Mapping):
        return node
    dropped = {name for key, names in UNCHECKED.items() if key in node for name in names}
    # In a table of properties, a property may be called "pattern".
    return {
        key: {own: _without_patterns(one) for own, one in value.items()}
        if key in ("properties", "$defs", "definitions") and isinstance(value, Mapping)
        else _without_patterns(value)
        for key, value in node.items()
        if key not in dropped
    }


def tools_of_servers(servers: Sequence[McpServer], taken: Collection[str] = ()) -> list[Tool]:
    """Start the servers and return their tools. A name that is taken gets its server's name in front."""
    connections = [McpConnection(server) for server in servers]
    try:
        listed = [(connection, tool) for connection in connections for tool in connection.list_tools()]
        counts = Counter([*taken, *(_name(tool.name) for _, tool in listed)])
        return [_tool(connection, tool, counts) for connection, tool in listed]
    except BaseException:
        for connection in connections:
            with suppress(GroupwiseError):
                connection.close()
        raise


def _tool(connection: McpConnection, offered: Any, counts: Mapping[str, int]) -> McpTool:
    name = _name(offered.name)
    if counts[name] > 1:
        name = _name(f"{connection.server.name}_{offered.name}")
    words = shortened(" ".join((offered.description or offered.title or "").split()), LONGEST_DESCRIPTION)
    arguments = JsonArguments(offered.name, offered.input_schema)
    return McpTool(name, words, arguments, partial(_ask, connection, offered.name), connection=connection)


async def _ask(connection: McpConnection, name: str, /, **arguments: Any) -> str:
    return await connection.call(name, arguments)


def _name(text: str) -> str:
    """A name that models and chat APIs accept: letters, digits, _ and -."""
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", text)[:LONGEST_NAME]
    return plain if NAME.fullmatch(plain) else f"_{plain}"[:LONGEST_NAME]
