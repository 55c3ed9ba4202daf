"""Pendulum and Acrobot (a double pendulum), many copies at once: Gymnasium's Pendulum-v1 and Acrobot-v1 without its
Python loop.
"""

from math import pi

import numpy as np
from numpy.typing import NDArray

from groupwise.control.classic.state_environment import StateEnvironment
from groupwise.types import Array, Box

# Seconds, rad/s and N·m.
PENDULUM_TIME_STEP = 0.05
SPEED_LIMIT = 8.0
TORQUE_LIMIT = 2.0
START_BOUNDS = np.array([pi, 1.0])


class Pendulum(StateEnvironment):
    """Swing a pendulum up and hold it there with a torque of up to ±2: a `VectorEnvironment` with continuous actions.

    Actions [N, 1] are clipped to the limits. The reward is minus the cost of angle, speed and torque. An attempt never
    terminates; it is truncated after `max_steps`.
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
        # 0 is upright, whatever turns have been made.
        upright = (angle + pi) % (2 * pi) - pi
        cost = upright * upright + 0.1 * (speed * speed) + 0.001 * (torque * torque)
        faster = speed + (3 * self._gravity / 2 * np.sin(angle) + 3.0 * torque) * PENDULUM_TIME_STEP
        np.clip(faster, -SPEED_LIMIT, SPEED_LIMIT, out=faster)
        return np.stack((angle + faster * PENDULUM_TIME_STEP, faster)), -cost, np.zeros(len(angle), np.bool_)

    def _observe(self, state: Array) -> NDArray[np.float32]:
        angle, speed = state
        return np.stack((np.cos(angle), np.sin(angle), speed), axis=1).astype(np.float32, copy=False)


GRAVITY = 9.8
ACROBOT_TIME_STEP = 0.2
SPEED_LIMITS = (4 * pi, 9 * pi)
TORQUES = np.array([-1.0, 0.0, 1.0])
START_BOUND = 0.1
# Distance from a link's joint to its centre of mass. Masses, lengths and moments of inertia are 1.
CENTRE = 0.5


class Acrobot(StateEnvironment):
    """Swing the tip of a two-link arm above the bar with a torque of −1, 0 or +1 at its elbow: a `VectorEnvironment`.

    The reward is −1 for every step until the tip is high enough. `torque` scales the motor; 1 is Acrobot-v1.
    """

    state_names = ("angle of the first link", "angle of the second", "speed of the first", "speed of the second")
    observation_size = 6
    action_count = 3

    def __init__(self, *, torque: float = 1.0, max_steps: int = 500) -> None:
        self._torques = TORQUES * torque
        super().__init__(max_steps)

    def _start(self, rng: np.random.Generator) -> Array:
        return rng.uniform(-START_BOUND, START_BOUND, 4).astype(np.float32)

    def _advance(self, actions: Array) -> tuple[Array, Array, Array]:
        after = runge_kutta(self._state, self._torques[actions])
        for angle in after[:2]:
            wrap(angle)
        for speed, limit in zip(after[2:], SPEED_LIMITS, strict=True):
            np.clip(speed, -limit, limit, out=speed)
        # The tip's height above the bar, in links.
        terminated = -np.cos(after[0]) - np.cos(after[1] + after[0]) > 1.0
        return after, np.where(terminated, 0.0, -1.0), terminated

    def _observe(self, state: Array) -> NDArray[np.float32]:
        first, second, *speeds = state
        rows = (np.cos(first), np.sin(first), np.cos(second), np.sin(second), *speeds)
        return np.stack(rows, axis=1).astype(np.float32, copy=False)


def runge_kutta(state: Array, torque: Array) -> Array:
    """One step of the classical fourth-order method, in Gymnasium's order of operations."""
    half = ACROBOT_TIME_STEP / 2.0
    k1 = derivative(state, torque)
    k2 = derivative(state + half * k1, torque)
    k3 = derivative(state + half * k2, torque)
    k4 = derivative(state + ACROBOT_TIME_STEP * k3, torque)
    moved: Array = state + ACROBOT_TIME_STEP / 6.0 * (k1 + 2 * k2 + 2 * k3 + k4)
    return moved


def derivative(state: Array, torque: Array) -> Array:
    """The time derivative of states [4, N], by the equations in Sutton and Barto's book (Gymnasium's default).

    θ̈₂ = (τ + d₂/d₁ · φ₁ − m₂ l₁ c₂ θ̇₁² sin θ₂ − φ₂) / (m₂ c₂² + I₂ − d₂²/d₁),   θ̈₁ = −(d₂ θ̈₂ + φ₁) / d₁
    """
    angle1, angle2, speed1, speed2 = state
    cos2, sin2 = np.cos(angle2), np.sin(angle2)
    square = CENTRE**2
    d1 = square + (1.0 + square + 2 * CENTRE * cos2) + 1.0 + 1.0
    d2 = (square + CENTRE * cos2) + 1.0
    phi2 = CENTRE * GRAVITY * np.cos(angle1 + angle2 - pi / 2.0)
    phi1 = (
        -CENTRE * (speed2 * speed2) * sin2
        - 2 * CENTRE * speed2 * speed1 * sin2
        + (CENTRE + 1.0) * GRAVITY * np.cos(angle1 - pi / 2)
        + phi2
    )
    ratio = d2 / d1
    turn2 = (torque + ratio * phi1 - CENTRE * (speed1 * speed1) * sin2 - phi2) / (square + 1.0 - d2 * d2 / d1)
    turn1 = -(d2 * turn2 + phi1) / d1
    return np.stack((speed1, speed2, turn1, turn2))


def wrap(angle: Array) -> None:
    """Bring angles into [−π, π] by full turns, in place."""
    while (far := angle > pi).any():
        angle[far] -= 2 * pi
    while (far := angle < -pi).any():
        angle[far] += 2 * pi
