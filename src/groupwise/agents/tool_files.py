"""Tools by the place they are defined in: a Python file, or a name in a module."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from groupwise.agents.tools import Tool
from groupwise.errors import ConfigError, GroupwiseError

WAYS = "Give a Python file with functions under @tool, or module:name of a list of them."


def find_tools(where: str) -> list[Tool]:
    """The tools of `FILE.py`, in the order it names them, or those of `module:name`."""
    module, split, name = where.rpartition(":")
    if where.endswith(".py") or not split:
        found = _file(Path(where))
        tools = [value for value in vars(found).values() if isinstance(value, Tool) and not value.unbound]
    else:
        tools = _made(where, _named(module, name))
    if not tools:
        raise ConfigError(f"there are no tools in {where!r}", hint="Write @tool above a function.")
    return list({id(tool): tool for tool in tools}.values())


def _file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ConfigError(f"there is no file {str(path)!r} to take tools from", hint=WAYS)
    spec = spec_from_file_location(f"tools_of_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{str(path)!r} is no Python file", hint=WAYS)
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # annotations are looked up there
    try:
        spec.loader.exec_module(module)
    except GroupwiseError:
        raise
    except Exception as error:  # a stranger's file
        raise _raised(str(path), error) from error
    return module


def _named(module: str, name: str) -> Any:
    try:
        return getattr(import_module(module), name)
    except GroupwiseError:
        raise
    except AttributeError:
        raise ConfigError(f"the module {module} has no {name!r}", hint=WAYS) from None
    except Exception as error:  # a stranger's module
        raise _raised(module, error) from error


def _made(where: str, value: Any) -> list[Tool]:
    given = list(value) if isinstance(value, list | tuple) else [value]
    if not all(isinstance(one, Tool) or callable(one) for one in given):
        raise ConfigError(f"{where!r} is {value!r:.60}, and no tools", hint=WAYS)
    return [one if isinstance(one, Tool) else Tool.from_function(one) for one in given]


def _raised(where: str, error: Exception) -> ConfigError:
    said = " ".join(str(error).split()) or "no more"
    return ConfigError(f"{where} cannot be used: it raised {type(error).__name__}: {said}", hint="Run it by itself.")
