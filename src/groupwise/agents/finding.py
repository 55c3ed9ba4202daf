"""`task.environment` to the problems it names."""

from __future__ import annotations

import difflib

from groupwise.agents.problems import Problems
from groupwise.agents.tasks import TASKS
from groupwise.config import TaskSettings
from groupwise.errors import ConfigError


def find_problems(task: TaskSettings) -> Problems:
    """The problems that `task.environment` names, or a `ConfigError` with the nearest name."""
    name = task.environment
    if name in TASKS:
        return TASKS[name].with_options(task.options)
    near = difflib.get_close_matches(name, TASKS, 1)
    hint = f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(TASKS)}."
    raise ConfigError(f"task.environment = {name!r} is not a task we know", hint=hint, field="task.environment")
