"""A suite of one's own: a list or table of environments from Python, or a TOML file of tasks.

[[task]]
environment = "CartPole-v1"
name = "light"                                       # the environment's by default
weight = 2                                           # played twice as often as a task of weight 1
reward_scale = 0.01
max_episode_steps = 200
options = { gravity = 3.0 }                          # arguments of the environment
wrappers = ["gymnasium.wrappers:NormalizeObservation", { wrapper = "mine.py:Windy", force = 2.0 }]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from groupwise.control.gymnasium_environment import GymnasiumEnvironment
from groupwise.control.gymnasium_ids import import_gymnasium, import_module_of
from groupwise.control.multitask import MultiTask, SuiteTask
from groupwise.errors import ConfigError, GroupwiseError
from groupwise.readers import load_toml, read_bytes
from groupwise.types import VectorEnvironment

SUFFIX = ".toml"
Make = Callable[..., VectorEnvironment]
# What a task of a file may say, and of which type.
KEYS: Mapping[str, type | tuple[type, ...]] = {
    "environment": str, "name": str, "weight": (int, float), "reward_scale": (int, float),
    "max_episode_steps": int, "options": dict, "wrappers": list,
}  # fmt: skip


def read_suite(path: str, make: Make, max_steps: int | None = None) -> MultiTask:
    """The suite that a TOML file describes; `make` makes the environment of a task."""
    try:
        told = load_toml(read_bytes(path))
    except ConfigError as error:
        raise _refused(path, error.message, error.hint) from None
    tasks = told.get("task")
    if not isinstance(tasks, list) or not tasks or set(told) != {"task"}:
        raise _refused(path, "it must be a list of [[task]] tables and nothing else")
    return suite_of(path, [_task(path, number, task, make) for number, task in enumerate(tasks, 1)], max_steps)


def suite_of(name: str, tasks: Sequence[SuiteTask], max_steps: int | None = None) -> MultiTask:
    """One environment of these tasks; two of the same name are refused."""
    names = [task.kind for task in tasks]
    twice = next((one for one in names if names.count(one) > 1), None)
    if twice is not None:
        raise _refused(name, f"two tasks are named {twice!r}", "Give each a name of its own: name = ...")
    return MultiTask(Path(name).stem, tasks, max_steps=max_steps)


def _task(path: str, number: int, told: Any, make: Make) -> SuiteTask:
    where = f"task {number}"
    if not isinstance(told, dict) or "environment" not in told:
        raise _refused(path, f"{where} has no environment", 'Write environment = "CartPole-v1".')
    for key, value in told.items():
        if key not in KEYS:
            raise _refused(path, f"{where} has an unknown key {key!r}", f"It may have {', '.join(KEYS)}.")
        if not isinstance(value, KEYS[key]) or isinstance(value, bool):
            raise _refused(path, f"{where} has {key} = {value!r}")
    limit = told.get("max_episode_steps")
    if limit is not None and limit < 1:
        raise _refused(path, f"{where} has max_episode_steps = {limit}", "A limit is at least 1.")
    name, options = told["environment"], told.get("options", {})
    try:
        if wrappers := told.get("wrappers", []):
            environment: VectorEnvironment = _wrapped(path, name, options, wrappers, limit)
        else:
            environment = make(name, max_steps=limit, options=options)
        scale, weight = float(told.get("reward_scale", 1)), float(told.get("weight", 1))
        return SuiteTask(str(told.get("name", name)), environment, scale, weight=weight)
    except GroupwiseError as error:
        raise _refused(path, f"{where}: {error.message}", error.hint) from error


def _wrapped(path: str, name: str, options: Any, wrappers: Sequence[Any], limit: int | None) -> GymnasiumEnvironment:
    """The environment in its wrappers, the first one innermost."""
    found = []
    for told in wrappers:
        arguments = dict(told) if isinstance(told, dict) else {"wrapper": told}
        place = arguments.pop("wrapper", None)
        if not isinstance(place, str):
            raise _refused(path, f"{told!r} names no wrapper", 'Write { wrapper = "MODULE:CLASS" }.')
        module, attribute = import_module_of(place) if ":" in place else (None, place)
        wrapper = getattr(module, attribute, None)
        if not callable(wrapper):
            raise _refused(path, f"there is no wrapper {place!r}", "Write MODULE:CLASS or FILE.py:CLASS.")
        found.append((wrapper, arguments))
    inner = GymnasiumEnvironment(name, max_steps=limit, **options)

    def wrapped(**more: Any) -> Any:
        copy: Any = inner.make_one(**more)
        for wrapper, arguments in found:
            try:
                copy = wrapper(copy, **arguments)
            except Exception as error:
                raise _refused(path, f"{wrapper.__name__} raised {type(error).__name__}: {error}") from error
        if not isinstance(copy, import_gymnasium().Env):
            raise _refused(path, f"a wrapper made {type(copy).__name__}, which is not an environment")
        return copy

    return GymnasiumEnvironment(wrapped, max_steps=inner.max_steps, name=name)


def _refused(path: str, fault: str, hint: str = "") -> ConfigError:
    return ConfigError(f"the suite {path} cannot be used: {fault}", hint=hint, field="task.environment")
