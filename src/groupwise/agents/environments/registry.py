"""Scenarios by name: what `task.environment` may be in an agent run.

orders                      questions about orders, with tools on an SQLite database
conversation:FILE.jsonl     your own scenarios, one JSON object per line
FILE.jsonl, .parquet, …     a data file of questions, one turn each (docs/data.md), or more if the model has tools
reasoning_gym:NAME          a reasoning-gym dataset, one turn each
textarena:NAME              a single-player game of TextArena
verifiers:TASKSET           an environment of the package verifiers (make verifiers)
program:COMMAND             an agent program that speaks OpenAI's API, with task.options.tasks = "FILE.jsonl"
FILE.py:NAME                your own object, or a function or class that makes one, or
package.module:NAME         an `async def rollout(client, task)` with a list TASKS beside it
"""

import difflib
import inspect
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from groupwise.agents.conversation.completion_client import RolloutScenarios
from groupwise.agents.data import reasoning_gym
from groupwise.agents.data.dataset import find_data, names_data
from groupwise.agents.data.rows import refused
from groupwise.agents.environments import programs, textarena, verifiers_episodes
from groupwise.agents.environments.contract import Scenarios
from groupwise.agents.environments.conversation import ConversationEnvironment
from groupwise.agents.environments.orders import Orders
from groupwise.agents.environments.task import OneTurnScenarios
from groupwise.config import TaskSettings
from groupwise.errors import ConfigError
from groupwise.user_code import load_module, names_code, place_and_name

SCENARIOS: dict[str, Callable[..., Scenarios]] = {"orders": Orders}
CONVERSATION = "conversation:"
PREFIXES = (CONVERSATION, textarena.PREFIX, programs.PREFIX, verifiers_episodes.PREFIX)
NEEDED = ("name", "training", "held_out", "make")


def find_scenarios(task: TaskSettings) -> Scenarios:
    """Return the scenarios that `task.environment` names, made with `task.options`."""
    # The file with what users said belongs to the run (`agents/memory/run_memory`), not to the environment.
    name, options = task.environment, {key: value for key, value in task.options.items() if key != "memory"}
    if name.startswith(reasoning_gym.PREFIX):
        return OneTurnScenarios(reasoning_gym.GymProblems(name.removeprefix(reasoning_gym.PREFIX), options))
    if name.startswith(CONVERSATION):
        return _made(name, partial(ConversationEnvironment.from_file, name.removeprefix(CONVERSATION)), options)
    if name.startswith(textarena.PREFIX):
        return _made(name, partial(textarena.TextArena, name.removeprefix(textarena.PREFIX)), options)
    if name.startswith(programs.PREFIX):
        make = partial(programs.ProgramScenarios.from_settings, name.removeprefix(programs.PREFIX))
        return _made(name, make, options)
    if name.startswith(verifiers_episodes.PREFIX):
        played = partial(verifiers_episodes.VerifiersScenarios, name.removeprefix(verifiers_episodes.PREFIX))
        return _made(name, played, options)
    if names_code(name):
        return _own(name, options)
    if name not in SCENARIOS and names_data(name):
        return OneTurnScenarios(find_data(Path(name), options))
    if name not in SCENARIOS:
        near = difflib.get_close_matches(name, SCENARIOS, 1)
        known = ", ".join((*SCENARIOS, "conversation:FILE", "reasoning_gym:NAME", "textarena:NAME", "FILE.py:NAME"))
        hint = f"Did you mean {near[0]!r}? " if near else ""
        raise refused(f"task.environment = {name!r} does not name a conversation", f"{hint}It may be {known}.")
    return _made(name, SCENARIOS[name], options)


def names_scenarios(task: TaskSettings) -> bool:
    """Return whether `task.environment` names a conversation, not problems with one answer."""
    name = task.environment
    if name.startswith(reasoning_gym.PREFIX):
        return False
    return name in SCENARIOS or name.startswith(PREFIXES) or names_code(name)


def _made(name: str, make: Callable[..., Any], options: dict[str, Any]) -> Scenarios:
    try:
        scenarios: Scenarios = make(**options)
    except TypeError as error:
        raise ConfigError(f"task.options = {options} do not fit {name!r}: {error}", field="task.options") from error
    missing = [needed for needed in NEEDED if not hasattr(scenarios, needed)]
    if missing:
        message = f"{name!r} is not a source of scenarios: it has no {', '.join(missing)}"
        raise refused(message, "groupwise.agents.environments.Scenarios lists what it must have.")
    return scenarios


def _own(name: str, options: dict[str, Any]) -> Scenarios:
    place, attribute = place_and_name(name)
    if not attribute:
        message = f"task.environment = {name!r} must name a file or module and an object in it"
        raise refused(message, "Write FILE.py:NAME or package.module:NAME.")
    module = load_module(place, lambda fault: refused(f"{place} {fault}"))
    found = getattr(module, attribute, None)
    if found is None:
        raise refused(f"there is no {attribute!r} in {place}")
    # A rollout function rather than an environment.
    if inspect.iscoroutinefunction(found):
        tasks = getattr(module, "TASKS", None)
        if not tasks:
            message = f"{name!r} is a rollout function, but {place} has no list TASKS to call it with"
            raise refused(message, "Write TASKS = […] beside it.")
        return RolloutScenarios(found, tasks)
    return _made(name, found if callable(found) else lambda: found, options)
