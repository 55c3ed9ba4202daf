"""Scenarios by name: `task.environment` of a run of the agent product.

`python:FILE.py:NAME` or `python:package.module:NAME` is an object of the user's own, or a function or class that
makes one.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from groupwise.agents.environment import Scenarios
from groupwise.config import TaskSettings
from groupwise.errors import ConfigError

PYTHON = "python:"
SCENARIOS: dict[str, Callable[..., Scenarios]] = {}
NEEDED = ("name", "training", "held_out", "make")


def find_scenarios(task: TaskSettings) -> Scenarios:
    """The scenarios that `task.environment` names, made with `task.options`."""
    name, options = task.environment, dict(task.options)
    if name.startswith(PYTHON):
        return _own(name, options)
    if name not in SCENARIOS:
        near = difflib.get_close_matches(name, SCENARIOS, 1)
        known = ", ".join((*SCENARIOS, "python:FILE:NAME"))
        hint = f"Did you mean {near[0]!r}? " if near else ""
        raise ConfigError(
            f"task.environment = {name!r} is no conversation",
            hint=f"{hint}There are {known}.",
            field="task.environment",
        )
    return _made(name, SCENARIOS[name], options)


def _made(name: str, make: Callable[..., Any], options: dict[str, Any]) -> Scenarios:
    try:
        scenarios: Scenarios = make(**options)
    except TypeError as error:
        raise ConfigError(f"task.options = {options} do not fit {name!r}: {error}", field="task.options") from error
    missing = [needed for needed in NEEDED if not hasattr(scenarios, needed)]
    if missing:
        raise ConfigError(
            f"{name!r} gives no scenarios: it has no {', '.join(missing)}",
            hint="See groupwise.agents.environment.Scenarios for what is needed.",
            field="task.environment",
        )
    return scenarios


def _own(name: str, options: dict[str, Any]) -> Scenarios:
    place, _, attribute = name.removeprefix(PYTHON).rpartition(":")
    if not place or not attribute:
        raise ConfigError(
            f"task.environment = {name!r} does not say where to look",
            hint="Write python:FILE.py:NAME or python:package.module:NAME.",
            field="task.environment",
        )
    found = getattr(load_module(place), attribute, None)
    if found is None:
        raise ConfigError(f"there is no {attribute!r} in {place}", field="task.environment")
    return _made(name, found if callable(found) else lambda: found, options)


def load_module(place: str) -> Any:
    """A module by its name or its file. Its code runs: it is the user's own."""
    path = Path(place)
    if path.suffix != ".py":
        try:
            return importlib.import_module(place)
        except ImportError as error:
            raise ConfigError(f"the module {place!r} cannot be imported: {error}", field="task.environment") from error
    if not path.is_file():
        raise ConfigError(f"there is no file {place}", field="task.environment")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ConfigError(f"{place} raised {type(error).__name__}: {error}", field="task.environment") from error
    return module
