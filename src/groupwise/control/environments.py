"""Environments by name: our own vectorised ones first, the suites of several tasks, and every id Gymnasium knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from groupwise.control.acrobot import Acrobot
from groupwise.control.cartpole import CartPole
from groupwise.control.mountain_car import MountainCar, MountainCarContinuous
from groupwise.control.pendulum import Pendulum
from groupwise.types import VectorEnvironment

OWN: Mapping[str, Callable[..., VectorEnvironment]] = {
    "CartPole-v1": CartPole,
    "Acrobot-v1": Acrobot,
    "MountainCar-v0": MountainCar,
    "MountainCarContinuous-v0": MountainCarContinuous,
    "Pendulum-v1": Pendulum,
}
