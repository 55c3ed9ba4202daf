"""Environments by name: ours, suites of several tasks, those given as objects, and every id Gymnasium knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from groupwise.config import TaskSettings
from groupwise.control.atari import Atari, is_atari_from_pixels
from groupwise.control.classic.cartpole import CartPole
from groupwise.control.classic.mountain_car import MountainCar, MountainCarContinuous
from groupwise.control.classic.pendulums import Acrobot, Pendulum
from groupwise.control.gymnasium_environment import GymnasiumEnvironment
from groupwise.control.gymnasium_ids import import_gymnasium, import_module_of, register_atari
from groupwise.control.multitask import SUITES, SuiteTask, make_suite
from groupwise.control.own_suites import SUFFIX, read_suite, suite_of
from groupwise.control.provided import GIVEN, GivenTasks, given, is_vector_environment
from groupwise.control.vector_form import RestartingVectorForm, VectorForm
from groupwise.errors import ConfigError, GroupwiseError, MissingExtra
from groupwise.types import VectorEnvironment

OWN: Mapping[str, Callable[..., VectorEnvironment]] = {
    "CartPole-v1": CartPole,
    "Acrobot-v1": Acrobot,
    "MountainCar-v0": MountainCar,
    "MountainCarContinuous-v0": MountainCarContinuous,
    "Pendulum-v1": Pendulum,
}


def registered() -> list[str]:
    """The names that need no import of a module that they mention: ours, and the ids that Gymnasium has registered."""
    names = [*OWN, *SUITES]
    with suppress(MissingExtra):
        gym = import_gymnasium()
        with suppress(MissingExtra):
            register_atari(gym)
        names += gym.registry
    return names


def make(
    name: str, *, max_steps: int | None = None, gymnasium: bool = False, options: Mapping[str, Any] | None = None
) -> VectorEnvironment:
    """The environment of that name; `gymnasium` asks for Gymnasium's own in place of our faster equivalent.

    `options` go to the environment: `half_length` of our CartPole, `gravity` of Gymnasium's LunarLander.
    """
    given = dict(options or {}) | ({} if max_steps is None else {"max_steps": max_steps})
    try:
        if name in SUITES:
            return make_suite(name, **given)
        if name in OWN and not gymnasium:
            return OWN[name](**given)
        if name.endswith(SUFFIX) and not options:
            return read_suite(name, make, max_steps)
        if is_atari_from_pixels(name, given):
            return Atari(name, **given)
        if factory := factory_of(name):
            return from_factory(name, factory, max_steps, dict(options or {}))
        return GymnasiumEnvironment(name, **given)
    except TypeError as error:
        message = f"task.options = {dict(options or {})} does not fit {name}: {error}"
        raise ConfigError(message, field="task.options") from error


def factory_of(name: str) -> Callable[..., Any] | None:
    """The function that makes this environment, if it was given as an object or is named as FILE.py:FUNCTION."""
    if name.startswith(GIVEN):
        return given(name)
    if ":" not in name or name.rpartition(":")[2] in import_gymnasium().registry:
        return None
    module, attribute = import_module_of(name)
    found = getattr(module, attribute, None)
    return found if callable(found) else None


def from_factory(name: str, factory: Callable[..., Any], max_steps: int | None, options: Any) -> VectorEnvironment:
    """The environment that a function makes: ours, Gymnasium's, or one in Gymnasium's vector form."""
    if isinstance(factory, GivenTasks):
        tasks = [SuiteTask(kind, make(own), **more) for kind, own, more in factory.tasks]
        return suite_of(name.removeprefix(GIVEN), tasks, max_steps)
    shown = name.removeprefix(GIVEN)
    try:
        made = factory(**options)
    except (GroupwiseError, TypeError):
        raise
    except Exception as error:
        message = f"{shown} could not be made: {type(error).__name__}: {error}"
        raise ConfigError(message, hint="Call it by itself to see where.", field="task.environment") from error
    if is_vector_environment(made):
        if max_steps is not None:
            made.max_steps = min(made.max_steps, max_steps)
        return made  # type: ignore[no-any-return]
    gym = import_gymnasium()
    if isinstance(made, gym.vector.VectorEnv):
        form = RestartingVectorForm if hasattr(made, "env_fns") else VectorForm
        return form(made, getattr(factory, "resized", None), max_steps=max_steps, name=shown)
    if not isinstance(made, gym.Env):
        message = f"{shown} makes {type(made).__name__}, which is not an environment"
        hint = "It must return a gymnasium.Env, a gymnasium.vector.VectorEnv or a VectorEnvironment."
        raise ConfigError(message, hint=hint, field="task.environment")
    return GymnasiumEnvironment(factory, max_steps=max_steps, name=shown, **options)


def make_environment(task: TaskSettings) -> VectorEnvironment:
    """The environment that `task` names: ours, a suite, or Gymnasium's, which `task.options.gymnasium` insists on."""
    options = dict(task.options)
    own = {name: options.pop(name, False) for name in RUN_OPTIONS}
    for name, value in own.items():
        if not isinstance(value, bool):
            raise ConfigError(f"task.options.{name} = {value!r} must be true or false", field="task.options")
    gymnasium = bool(own["gymnasium"])
    return make(task.environment, max_steps=task.max_episode_steps, gymnasium=gymnasium, options=options)


# Options that are ours; the others go to the environment.
RUN_OPTIONS = ("gymnasium", "different_starts")
