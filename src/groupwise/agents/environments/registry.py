"""Scenarios by name: what `task.environment` may be in an agent run.

orders                      questions about orders, with tools on an SQLite database
conversation:FILE.jsonl     your own scenarios, one JSON object per line
reasoning_gym:NAME          a reasoning-gym dataset, one turn each
textarena:NAME              a single-player game of TextArena
python:FILE.py:NAME         your own object, or a function or class that makes one, or
python:package.module:NAME  an `async def rollout(client, task)` with a list TASKS beside it
"""

import difflib
import inspect
from collections.abc import Callable
from typing import Any

from groupwise.agents.conversation.custom_rollout import RolloutScenarios
from groupwise.agents.data.reasoning_gym import PREFIX as GYM
from groupwise.agents.data.reasoning_gym import GymProblems
from groupwise.agents.environments.contract import Scenarios
from groupwise.agents.environments.conversation import ConversationEnvironment
from groupwise.agents.environments.orders import Orders
from groupwise.agents.environments.task import OneTurnScenarios
from groupwise.agents.environments.textarena import PREFIX as TEXTARENA
from groupwise.agents.environments.textarena import TextArena
from groupwise.config import TaskSettings
from groupwise.errors import ConfigError
from groupwise.user_code import load_module

PYTHON = "python:"
SCENARIOS: dict[str, Callable[..., Scenarios]] = {"orders": Orders}
CONVERSATION = "conversation:"
PREFIXES = (PYTHON, CONVERSATION, TEXTARENA)
NEEDED = ("name", "training", "held_out", "make")


def find_scenarios(task: TaskSettings) -> Scenarios:
    """Return the scenarios that `task.environment` names, made with `task.options`."""
    name, options = task.environment, dict(task.options)
    if name.startswith(PYTHON):
        return _own(name, options)
    if name.startswith(GYM):
        return OneTurnScenarios(GymProblems(name.removeprefix(GYM), options))
    if name.startswith(CONVERSATION):
        file = name.removeprefix(CONVERSATION)
        return _made(name, lambda **given: ConversationEnvironment.from_file(file, **given), options)
    if name.startswith(TEXTARENA):
        return _made(name, lambda **given: TextArena(name.removeprefix(TEXTARENA), **given), options)
    if name not in SCENARIOS:
        near = difflib.get_close_matches(name, SCENARIOS, 1)
        known = ", ".join((*SCENARIOS, "conversation:FILE", "reasoning_gym:NAME", "textarena:NAME", "python:FILE:NAME"))
        hint = f"Did you mean {near[0]!r}? " if near else ""
        message = f"task.environment = {name!r} does not name a conversation"
        raise ConfigError(message, hint=f"{hint}It may be {known}.", field="task.environment")
    return _made(name, SCENARIOS[name], options)


def names_scenarios(task: TaskSettings) -> bool:
    """Return whether `task.environment` names a conversation, not problems with one answer."""
    return task.environment in SCENARIOS or task.environment.startswith(PREFIXES)


def _made(name: str, make: Callable[..., Any], options: dict[str, Any]) -> Scenarios:
    try:
        scenarios: Scenarios = make(**options)
    except TypeError as error:
        raise ConfigError(f"task.options = {options} do not fit {name!r}: {error}", field="task.options") from error
    missing = [needed for needed in NEEDED if not hasattr(scenarios, needed)]
    if missing:
        raise ConfigError(
            f"{name!r} is not a source of scenarios: it has no {', '.join(missing)}",
            hint="groupwise.agents.environments.Scenarios lists what it must have.",
            field="task.environment",
        )
    return scenarios


def _own(name: str, options: dict[str, Any]) -> Scenarios:
    place, _, attribute = name.removeprefix(PYTHON).rpartition(":")
    if not place or not attribute:
        raise ConfigError(
            f"task.environment = {name!r} must name a file or module and an object in it",
            hint="Write python:FILE.py:NAME or python:package.module:NAME.",
            field="task.environment",
        )
    module = load_module(place, lambda fault: ConfigError(f"{place} {fault}", field="task.environment"))
    found = getattr(module, attribute, None)
    if found is None:
        raise ConfigError(f"there is no {attribute!r} in {place}", field="task.environment")
    # A rollout function rather than an environment.
    if inspect.iscoroutinefunction(found):
        tasks = getattr(module, "TASKS", None)
        if not tasks:
            message = f"{name!r} is a rollout function, but {place} has no list TASKS to call it with"
            raise ConfigError(message, hint="Write TASKS = […] beside it.", field="task.environment")
        return RolloutScenarios(found, tasks)
    return _made(name, found if callable(found) else lambda: found, options)
