"""What `groupwise init` asks of people with an environment, and the settings that it writes for them."""

import inspect
import os
from pathlib import Path
from typing import Any

from groupwise.config import TrainingConfig
from groupwise.config.training_config import toml_value
from groupwise.control.environments import make
from groupwise.control.gymnasium_ids import import_gymnasium, import_module_of
from groupwise.control.model import tuned_settings
from groupwise.errors import ConfigError
from groupwise.reporting.starter import Answers, Question, Starter, StarterFiles, check_settings_file, stem

USUAL = "CartPole-v1"
LIMIT = 1000  # steps of an episode, where the environment has no limit of its own


def question(answers: Answers) -> Question | None:
    if "environment" in answers:
        return None
    words = "Which environment: a Gymnasium id, or FILE.py with one of yours (FILE.py:ID, FILE.py:CLASS)?"
    return Question("environment", words, USUAL)


def write(answers: Answers, folder: Path) -> StarterFiles:
    name = named(answers["environment"])
    limit = None
    try:
        make(name)
    except ConfigError as error:
        if error.field != "task.max_episode_steps":
            raise
        make(name, max_steps=LIMIT)
        limit = LIMIT
    place, colon, inner = name.rpartition(":")
    own = place.endswith(".py")
    file = f"{stem(Path(place).stem if own else name.rpartition('/')[2])}.toml".lower()
    shown = os.path.relpath(place, folder) + colon + inner if own else name
    limited = f"{name} is registered without a step limit: episodes end after {LIMIT} steps at the latest"
    notes = (limited,) if limit else ()
    commands = ("groupwise doctor {file}", "groupwise train {file}")
    return StarterFiles(file, {file: _settings(name, shown, limit)}, commands, notes)


def named(environment: str) -> str:
    """The environment with its name behind the file, if only the file was given and it has exactly one."""
    if not environment.endswith(".py"):
        return environment
    gym = import_gymnasium()
    before = set(gym.registry)
    module, _ = import_module_of(f"{environment}:")
    found = [name for name in gym.registry if name not in before]
    if not found:
        found = [name for name, value in vars(module).items() if _makes_one(value, module.__name__, gym)]
    if len(found) == 1:
        return f"{environment}:{found[0]}"
    message = f"{environment} has {len(found) or 'no'} environments"
    if found:
        raise ConfigError(message, hint=f"Name one: {', '.join(f'{environment}:{name}' for name in found)}.")
    raise ConfigError(message, hint="It needs a subclass of gymnasium.Env, or a call of gymnasium.register.")


def _makes_one(value: Any, module: str, gym: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, gym.Env) and value.__module__ == module


def _settings(name: str, shown: str, limit: int | None) -> str:
    lines = ["# Files are named relative to this one. `groupwise config show THIS --comments` explains all settings."]
    lines += ["", "[task]", 'product = "control"', f"environment = {toml_value(shown)}"]
    lines += [f"max_episode_steps = {limit}      # an episode is cut off here"] if limit else []
    changed: dict[str, dict[str, Any]] = {
        "rollout": {"num_generations": 8, "tasks_per_step": 4},
        "training": {"num_episodes": 60},
        "run": {"eval_steps": 10, "eval_episodes": 20, "save_steps": 20},
    }
    for section, values in _tuned(name).items():
        changed.setdefault(section, {}).update(values)
    for section, values in changed.items():
        lines += ["", f"[{section}]", *(f"{key} = {toml_value(value)}" for key, value in values.items())]
    return "\n".join(lines) + "\n"


def _tuned(name: str) -> dict[str, dict[str, Any]]:
    """What the settings that were tuned for this environment change, by section."""
    tuned, plain = tuned_settings(name, "grpo").to_dict(), TrainingConfig(environment=name, product="control").to_dict()
    found: dict[str, dict[str, Any]] = {}
    for section, values in tuned.items():
        for key, value in values.items() if isinstance(values, dict) else ():
            if section != "task" and value != plain[section][key]:
                found.setdefault(section, {})[key] = value
    return found


ENVIRONMENT = Starter(question, write, ("environment",), check_settings_file)
