"""`task.environment` to the problems it names."""

from __future__ import annotations

import difflib
from pathlib import Path

from groupwise.agents.data import find_data
from groupwise.agents.gym import PREFIX, GymProblems
from groupwise.agents.problems import Problems
from groupwise.agents.rows import READERS
from groupwise.agents.tasks import TASKS
from groupwise.config import TaskSettings
from groupwise.errors import ConfigError


def find_problems(task: TaskSettings) -> Problems:
    """A registered task by its name, a dataset of reasoning-gym, or a data file or folder by its path."""
    name, path = task.environment, Path(task.environment)
    if name in TASKS:
        return TASKS[name].with_options(task.options)
    if name.startswith(PREFIX):
        return GymProblems(name.removeprefix(PREFIX), task.options)
    if "/" in name or path.suffix.lower() in READERS or path.exists():
        return find_data(path, task.options)
    near = difflib.get_close_matches(name, TASKS, 1)
    hint = f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(TASKS)}; or the path of a data file."
    raise ConfigError(f"task.environment = {name!r} is not a task we know", hint=hint, field="task.environment")
