"""Pendulum, many copies at once: Gymnasium's Pendulum-v1 without its Python loop."""

from __future__ import annotations

from math import pi

import numpy as np
from numpy.typing import NDArray

from groupwise.control.states import StateEnvironment
from groupwise.types import Array, Box

TIME_STEP = 0.05
SPEED_LIMIT = 8.0
TORQUE_LIMIT = 2.0
START_BOUNDS = np.array([pi, 1.0])


class Pendulum(StateEnvironment):
    """Swing a pendulum up and hold it there by a torque of ±2: a `VectorEnvironment` with continuous actions.

    An action [N, 1] beyond the limits counts as the limit. Reward is minus the cost of angle, speed and torque; an
    attempt never terminates, it is truncated after `max_steps`.
    """

    state_names = ("angle", "speed")
    observation_size = 3
    action_count = 1
    action_space = Box((-TORQUE_LIMIT,), (TORQUE_LIMIT,))

    def __init__(self, *, gravity: float = 10.0, max_steps: int = 200) -> None:
        self._gravity = gravity
        super().__init__(max_steps)

    def _start(self, rng: np.random.Generator) -> Array:
        return rng.uniform(-START_BOUNDS, START_BOUNDS)

    def _advance(self, actions: Array) -> tuple[Array, Array, Array]:
        angle, speed = self._state
        torque = np.clip(actions[:, 0], -TORQUE_LIMIT, TORQUE_LIMIT)
        upright = (angle + pi) % (2 * pi) - pi
        cost = upright * upright + 0.1 * (speed * speed) + 0.001 * (torque * torque)
        faster = speed + (3 * self._gravity / 2 * np.sin(angle) + 3.0 * torque) * TIME_STEP
        np.clip(faster, -SPEED_LIMIT, SPEED_LIMIT, out=faster)
        return np.stack((angle + faster * TIME_STEP, faster)), -cost, np.zeros(len(angle), np.bool_)

    def _observe(self, state: Array) -> NDArray[np.float32]:
        angle, speed = state
        return np.stack((np.cos(angle), np.sin(angle), speed), axis=1).astype(np.float32, copy=False)
