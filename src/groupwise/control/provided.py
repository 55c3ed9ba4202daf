"""Environments given as objects: each gets a name, under which this process can make more of them."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from groupwise.control.gymnasium_ids import import_gymnasium
from groupwise.errors import ConfigError

GIVEN = "given:"
PROVIDED: dict[str, Callable[..., Any]] = {}
# Copying these objects in memory leaves two of them sharing one simulator, so they are made again from their spec.
SIMULATORS = ("box2d", "mujoco", "ale_py")


def name_of_environment(environment: Any) -> str:
    """The text by which settings name it: an id as it is, an importable function as MODULE:NAME, else `given:NAME`."""
    if isinstance(environment, str):
        return environment
    if callable(environment) and (importable := _importable(environment)):
        return importable
    factory = _given_tasks(environment) if isinstance(environment, list | tuple | Mapping) else _factory(environment)
    base = name = GIVEN + _short_name(environment)
    number = 1
    while name in PROVIDED and PROVIDED[name] not in (environment, factory):
        number += 1
        name = f"{base}-{number}"
    PROVIDED[name] = factory
    return name


def given(name: str) -> Callable[..., Any]:
    """The function that makes the environment given under that name."""
    if name in PROVIDED:
        return PROVIDED[name]
    message = f"the environment {name.removeprefix(GIVEN)!r} was given as an object, which this process does not have"
    hint = (
        "Pass it again, ControlModel.load(path, environment=...), or put a function that makes it into a module and "
        "name it: task.environment = 'my_module:make_environment'."
    )
    raise ConfigError(message, hint=hint, field="task.environment")


def is_vector_environment(environment: Any) -> bool:
    """Whether it has the arrays of `types.VectorEnvironment`, and not Gymnasium's interface."""
    return hasattr(environment, "observation_size") and hasattr(environment, "action_count")


@dataclass(frozen=True)
class GivenTasks:
    """The tasks of a suite: for each its name, the environment's, and a scale or weight."""

    tasks: tuple[tuple[str, str, Mapping[str, float]], ...]

    def __call__(self) -> Any:
        raise AssertionError("a suite is made by control.environments")


def _given_tasks(told: Any) -> GivenTasks:
    """From a table of environments by task, or a list of them (each with its own name, or a `SuiteTask`)."""
    pairs: list[tuple[str, Any]]
    if isinstance(told, Mapping):
        pairs = [(str(kind), one) for kind, one in told.items()]
    else:
        pairs = [(getattr(one, "kind", "") or _short_name(one), one) for one in told]
    kinds = [kind for kind, _ in pairs]
    if not pairs or len(set(kinds)) < len(kinds):
        twice = next((kind for kind in kinds if kinds.count(kind) > 1), "")
        fault = f"two tasks are named {twice!r}" if pairs else "it has no tasks"
        hint = 'Name each: ControlModel({"light": one, "heavy": other}).'
        raise ConfigError(f"the suite cannot be used: {fault}", hint=hint, field="task.environment")
    return GivenTasks(tuple((kind, *_parts_of(one)) for kind, one in pairs))


def _parts_of(task: Any) -> tuple[str, Mapping[str, float]]:
    if not hasattr(task, "kind"):
        return name_of_environment(task), {}
    more = {"reward_scale": task.reward_scale, "weight": task.weight}
    return name_of_environment(task.environment), more


def _factory(environment: Any) -> Callable[..., Any]:
    if is_vector_environment(environment) and not isinstance(environment, type):
        return lambda: copy.deepcopy(environment)
    gym = import_gymnasium()
    if isinstance(environment, gym.vector.VectorEnv):
        return _VectorFactory(environment)
    if isinstance(environment, gym.Env):
        return lambda **options: _another(environment, options)
    if callable(environment):
        return environment  # type: ignore[no-any-return]
    message = f"{environment!r:.80} is not an environment"
    hint = "Pass an id, a gymnasium.Env, a function that makes one, a Gymnasium vector environment, or a list of tasks."
    raise ConfigError(message, hint=hint, field="task.environment")


def _another(environment: Any, options: dict[str, Any]) -> Any:
    """Another environment like this one, wrappers included."""
    gym = import_gymnasium()
    shares = any(part in type(environment.unwrapped).__module__ for part in SIMULATORS)
    try:
        if not shares and not options:
            return copy.deepcopy(environment)
        spec = copy.deepcopy(environment.spec)
        if spec is None:
            raise ValueError("it has no spec")
        spec.kwargs.update(options)
        return gym.make(spec)
    except Exception as error:
        message = f"{_short_name(environment)} cannot be copied: {' '.join(str(error).split())}"
        hint = "Pass a function that makes one: ControlModel(lambda: make_my_environment())."
        raise ConfigError(message, hint=hint, field="task.environment") from error


class _VectorFactory:
    """Gymnasium's vector environments of any size, where they can be made again; else only the one given."""

    def __init__(self, environment: Any) -> None:
        self.environment = environment
        gym = import_gymnasium()
        functions = getattr(environment, "env_fns", None)
        spec = environment.spec
        self.resized: Callable[[int], Any] | None = None
        if functions:
            # The copies are restarted by us, each with its seed.
            mode, kind = gym.vector.AutoresetMode.DISABLED, type(environment)
            self.resized = lambda count: kind((list(functions) * count)[:count], autoreset_mode=mode)
        elif spec is not None:
            own = {k: v for k, v in spec.kwargs.items() if k not in ("num_envs", "vectorization_mode", "vector_kwargs")}
            self.resized = lambda count: gym.make_vec(spec.id, count, "vector_entry_point", **own)

    def __call__(self) -> Any:
        return self.resized(1) if self.resized else self.environment


def _importable(function: Any) -> str:
    """MODULE:NAME if that names the function in every process; "" for lambdas, local functions and scripts."""
    module, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
    loaded = sys.modules.get(module)
    if not name or module == "__main__" or "." in name or getattr(loaded, name, None) is not function:
        return ""
    return f"{module}:{name}"


def _short_name(environment: Any) -> str:
    if isinstance(environment, str):
        return environment
    if isinstance(environment, list | tuple | Mapping):
        return "suite"
    inner = getattr(environment, "unwrapped", environment)
    own = getattr(environment, "spec", None)
    name = own.id if own is not None else getattr(inner, "__name__", type(inner).__name__)
    return "environment" if name == "<lambda>" else str(name)
