"""Environments by name: our own vectorised ones first, the suites of several tasks, and every id Gymnasium knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from groupwise.control.acrobot import Acrobot
from groupwise.control.cartpole import CartPole
from groupwise.control.gymnasium_env import GymnasiumEnvironment
from groupwise.control.mountain_car import MountainCar, MountainCarContinuous
from groupwise.control.multitask import SUITES, make_suite
from groupwise.control.pendulum import Pendulum
from groupwise.errors import ConfigError
from groupwise.types import VectorEnvironment

OWN: Mapping[str, Callable[..., VectorEnvironment]] = {
    "CartPole-v1": CartPole,
    "Acrobot-v1": Acrobot,
    "MountainCar-v0": MountainCar,
    "MountainCarContinuous-v0": MountainCarContinuous,
    "Pendulum-v1": Pendulum,
}


def make(
    name: str, *, max_steps: int | None = None, gymnasium: bool = False, options: Mapping[str, Any] | None = None
) -> VectorEnvironment:
    """The environment of that name; `gymnasium` asks for Gymnasium's own where we have a faster one that is equal.

    `options` are the environment's: `half_length` of our CartPole, `gravity` of Gymnasium's LunarLander.
    """
    given = dict(options or {}) | ({} if max_steps is None else {"max_steps": max_steps})
    try:
        if name in SUITES:
            return make_suite(name, **given)
        if name in OWN and not gymnasium:
            return OWN[name](**given)
        return GymnasiumEnvironment(name, **given)
    except TypeError as error:
        raise ConfigError(
            f"task.options = {dict(options or {})} does not fit {name}: {error}", field="task.options"
        ) from error
