"""Tools by the place they are defined in: a Python file, or a name in a module."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

from groupwise.agents.tools import Tool
from groupwise.errors import ConfigError
from groupwise.user_code import load_module

WAYS = "Give a Python file with functions under @tool, or module:name of a list of them."


def find_tools(where: str) -> list[Tool]:
    """The tools of `FILE.py`, in the order it names them, or those of `module:name`."""
    module, split, name = where.rpartition(":")
    if where.endswith(".py") or not split:
        if not where.endswith(".py") or not Path(where).is_file():
            raise ConfigError(f"there is no file {where!r} to take tools from", hint=WAYS)
        found = _loaded(where)
        tools = [value for value in vars(found).values() if isinstance(value, Tool) and not value.unbound]
    else:
        tools = _made(where, _named(module, name))
    if not tools:
        raise ConfigError(f"there are no tools in {where!r}", hint="Write @tool above a function.")
    return list({id(tool): tool for tool in tools}.values())


def _named(module: str, name: str) -> Any:
    try:
        return getattr(_loaded(module), name)
    except AttributeError:
        raise ConfigError(f"the module {module} has no {name!r}", hint=WAYS) from None


def _loaded(place: str) -> ModuleType:
    return load_module(place, lambda fault: ConfigError(f"{place} {fault}", hint="Run it by itself."))


def _made(where: str, value: Any) -> list[Tool]:
    given = list(value) if isinstance(value, list | tuple) else [value]
    if not all(isinstance(one, Tool) or callable(one) for one in given):
        raise ConfigError(f"{where!r} is {value!r:.60}, and no tools", hint=WAYS)
    return [one if isinstance(one, Tool) else Tool.from_function(one) for one in given]
