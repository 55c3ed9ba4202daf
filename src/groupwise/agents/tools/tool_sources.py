"""Where tools come from, by name: the one syntax of the setting `tools.sources` and of `--tools`.

FILE.py                           the functions with @tool in a file
module:name                       a tool or a list of tools in a module
servers.json                      MCP servers, in the form that other MCP clients use
https://…, mcp:COMMAND            one MCP server, by its address or the command that starts it
"""

from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from groupwise.agents.tools.function_tool import Tool
from groupwise.agents.tools.mcp_server import find_servers, names_servers
from groupwise.agents.tools.mcp_tools import McpTool, tools_of_servers
from groupwise.errors import ConfigError
from groupwise.user_code import load_module

WAYS = "Name FILE.py with @tool functions, module:name of a list of tools, servers.json, https://…, or mcp:COMMAND."


def find_tools(*sources: str) -> list[Tool]:
    """Return the tools of all sources, in this order. Servers are started, and stopped again if one is refused."""
    own: list[Tool] = []
    servers = []
    for where in sources:
        if names_servers(where):
            servers += find_servers(where)
        else:
            own += _code(where)
    return [*own, *tools_of_servers(servers, {tool.name for tool in own})]


def close_tools(tools: Iterable[Tool]) -> None:
    """Stop the servers behind the tools."""
    for tool in tools:
        tool.close()


def described(tools: Iterable[Tool]) -> list[str]:
    """One line for every place that tools come from, for a person."""
    by_place: dict[str, list[str]] = {}
    for tool in tools:
        by_place.setdefault(tool.place if isinstance(tool, McpTool) else "Python", []).append(tool.name)
    return [f"{len(names)} tools from {place}: {', '.join(names)}" for place, names in by_place.items()]


def _code(where: str) -> list[Tool]:
    module, split, name = where.rpartition(":")
    if where.endswith(".py") or not split:
        if not where.endswith(".py") or not Path(where).is_file():
            raise ConfigError(f"there is no tools file {where!r:.200}", hint=WAYS)
        tools = [value for value in vars(_loaded(where)).values() if isinstance(value, Tool) and not value.unbound]
    else:
        loaded = _loaded(module)
        if not hasattr(loaded, name):
            raise ConfigError(f"the module {module} has no {name!r}", hint=WAYS)
        tools = _made(where, getattr(loaded, name))
    if not tools:
        raise ConfigError(f"there are no tools in {where!r}", hint="Write @tool above a function.")
    return list({id(tool): tool for tool in tools}.values())


def _loaded(place: str) -> ModuleType:
    return load_module(place, lambda fault: ConfigError(f"{place} {fault}", hint="Run it by itself."))


def _made(where: str, value: Any) -> list[Tool]:
    given = list(value) if isinstance(value, list | tuple) else [value]
    if not all(isinstance(one, Tool) or callable(one) for one in given):
        raise ConfigError(f"{where!r} is {value!r:.60}, not a tool or a list of tools", hint=WAYS)
    return [one if isinstance(one, Tool) else Tool.from_function(one) for one in given]
