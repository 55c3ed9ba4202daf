"""CartPole, many copies at once: Gymnasium's CartPole-v1 to the last bit, without its Python loop.

The state is a table of four rows (position, velocity, angle, angular velocity) and N float64 columns. A reset allocates
every array that a step needs, constants included: with a few dozen copies the cost of NumPy is the call itself, and a
call on equal shapes without a scalar or a new array is the cheapest there is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from groupwise.control.classic.state_environment import starts_of
from groupwise.errors import ContractError
from groupwise.types import Array

# Gymnasium's constants, in SI units.
GRAVITY = 9.8
CART_MASS = 1.0
POLE_MASS = 0.1
TOTAL_MASS = POLE_MASS + CART_MASS
TIME_STEP = 0.02
POSITION_LIMIT = 2.4
ANGLE_LIMIT = 12 * 2 * math.pi / 360
START_BOUND = 0.05


class CartPole:
    """Balance a pole on a cart pushed left (0) or right (1): a `VectorEnvironment`.

    The reward is 1 for every step, including the one that ends the attempt. It terminates when the cart leaves ±2.4 or
    the pole ±12°, and is truncated after `max_steps`; as with Gymnasium's `TimeLimit`, a pole that falls on the very
    last step is both. Returned arrays are never reused.

    The defaults are those of CartPole-v1. `half_length` is half the pole's length, `force` the push to the right; a
    negative force swaps left and right.
    """

    observation_size = 4
    action_count = 2

    def __init__(self, *, half_length: float = 0.5, force: float = 10.0, max_steps: int = 500) -> None:
        self.max_steps, self.half_length = max_steps, half_length
        self._pushes = np.array([-force, force])
        self._count = -1
        self.set_state(np.empty((0, 4)))

    def reset(self, seeds: Sequence[int]) -> Array:
        """Start one copy per seed, exactly where Gymnasium's `reset(seed=seed)` starts."""
        return self.set_state(starts_of(seeds, _start, 4))

    def set_state(self, states: Array) -> Array:
        """Start one copy per row of `states` [N, 4] with its clock at 0; return the observations."""
        states = np.asarray(states, np.float64)
        if states.ndim != 2 or states.shape[1] != 4 or not np.isfinite(states).all():
            message = f"CartPole states must be finite and of shape [N, 4], not {states.shape}: {states!r:.120}"
            raise ContractError(message, hint="Pass one row (position, velocity, angle, angular velocity) per copy.")
        self._allocate(len(states))
        self._motion.state[...] = states.T
        return self._observe()

    def restart(self, copies: Array, seeds: Sequence[int]) -> Array:
        """Restart these copies, each from its seed, while the others continue; return all observations."""
        self._motion.state[:, copies] = starts_of(seeds, _start, 4).T
        self._motion.time_step[:, copies] = TIME_STEP
        self._alive[copies] = 1.0
        self._truncated[copies] = False
        self._deadlines[copies] = self._elapsed + self.max_steps
        self._find_next_deadline()
        return self._observe()

    @property
    def states(self) -> NDArray[np.float64]:
        """The states [N, 4] in full precision, as `set_state` takes them."""
        return self._motion.state.T.copy()

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array]:
        self._check(actions)
        self._elapsed += 1
        self._motion.advance(self._pushes[actions])
        terminated = self._motion.outside()
        rewards = self._alive.copy()
        if self._elapsed == self._next_deadline:
            self._truncate()
        if np.count_nonzero(terminated):
            self._stop(terminated)
        return self._observe(), rewards, terminated, self._truncated.copy()

    def _allocate(self, count: int) -> None:
        if count != self._count:
            self._count = count
            self._motion = _Motion(np.empty((4, count)), np.empty((4, count)), self.half_length)
            self._alive = np.empty(count)
            self._truncated = np.empty(count, np.bool_)
            self._deadlines = np.empty(count, np.int64)
        self._motion.time_step.fill(TIME_STEP)
        self._alive.fill(1.0)
        self._truncated.fill(False)
        self._elapsed = 0
        self._deadlines.fill(self.max_steps)
        self._next_deadline = self.max_steps

    def _check(self, actions: Array) -> None:
        # The bitwise OR of all actions is 0 or 1 exactly if each of them is: one pass checks both bounds.
        if (
            type(actions) is np.ndarray
            and actions.shape == (self._count,)
            and actions.dtype.kind in "iu"
            and self._count
            and 0 <= np.bitwise_or.reduce(actions) <= 1
        ):
            return
        if not self._count:
            raise ContractError("CartPole has no copies to step.", hint="Call reset(seeds) with seeds first.")
        message = f"CartPole takes {self._count} integer actions, each 0 or 1, not {actions!r:.120}"
        raise ContractError(message, hint="Pass an integer NumPy array with one action per copy.")

    def _truncate(self) -> None:
        """Stop the copies that reach their step limit now."""
        due = (self._deadlines == self._elapsed) & (self._alive > 0)
        self._truncated |= due
        self._stop(due)
        self._find_next_deadline()

    def _find_next_deadline(self) -> None:
        # A step compares only this one number with the clock.
        ahead = self._deadlines[self._deadlines > self._elapsed]
        self._next_deadline = int(ahead.min()) if len(ahead) else -1

    def _stop(self, copies: Array) -> None:
        """Freeze these copies: their time step becomes 0."""
        self._alive[copies] = 0.0
        self._motion.time_step[:, copies] = 0.0

    def _observe(self) -> NDArray[np.float32]:
        return self._motion.state.T.astype(np.float32, order="C")


class _Motion:
    """The physics: states as four rows, advanced by one Euler step at a time.

    Operations follow Gymnasium's order, so that rounding is the same. Rows that undergo the same operation are adjacent
    and share one call. `time_step` is 0 for copies that no longer move.
    """

    def __init__(self, state: Array, time_step: Array, half_length: float) -> None:
        count = state.shape[1]
        pole_moment = POLE_MASS * half_length
        self.state, self.time_step = state, time_step
        self._arguments = state, time_step, half_length
        self._rate = np.empty((4, count))
        self._trig = np.empty((2, count))
        self._factors = np.full((3, count), GRAVITY)
        self._products = np.empty((2, count))
        self._spare = np.empty(count)
        self._too_far = np.empty((2, count), np.bool_)
        self._limits = np.repeat([[POSITION_LIMIT], [ANGLE_LIMIT]], count, axis=1)
        self._masses = np.repeat([[pole_moment], [POLE_MASS]], count, axis=1)
        self._pole_moment = np.full(count, pole_moment)
        self._total_mass = np.full((2, count), TOTAL_MASS)
        self._four_thirds = np.full(count, 4.0 / 3.0)
        self._half_length = np.full(count, half_length)

        # Views into the tables above, so that one call can serve several rows: an operation on `_temp_and_inertia` is
        # one on `_temp` and `_inertia`.
        self._angle, self._spin = self.state[2:]
        self._placed, self._velocities = self.state[::2], self.state[1::2]
        self._speeds = self._rate[::2]
        self._acceleration, self._spin_acceleration = self._rate[1::2]
        self._sin, self._cos = self._trig
        self._gravity_and_temp, self._temp_and_inertia = self._factors[:2], self._factors[1:]
        self._temp, self._inertia = self._factors[1:]
        self._lift, self._drag = self._products
        self._off_track, self._fallen = self._too_far
        self._mass = self._total_mass[0]

    def __reduce__(self) -> tuple[type[_Motion], tuple[Array, Array, float]]:
        # Copied one by one, the views would no longer be parts of the tables.
        return _Motion, self._arguments

    def advance(self, push: Array) -> None:
        """One Euler step:

        temp = (push + pole_moment · θ̇² · sin θ) / total_mass
        θ̈    = (g · sin θ − cos θ · temp) / (half_length · (4/3 − pole_mass · cos² θ / total_mass))
        ẍ    = temp − pole_moment · θ̈ · cos θ / total_mass
        """
        sin, cos, temp, inertia, spare = self._sin, self._cos, self._temp, self._inertia, self._spare
        both = self._temp_and_inertia
        # temp = θ̇² and inertia = cos² θ, then both by their masses in one call.
        np.sin(self._angle, sin)
        np.cos(self._angle, cos)
        np.multiply(self._spin, self._spin, temp)
        np.multiply(cos, cos, inertia)
        np.multiply(both, self._masses, both)
        # temp = (push + pole_moment · θ̇² · sin θ) / total_mass
        np.multiply(temp, sin, temp)
        np.add(temp, push, temp)
        np.divide(both, self._total_mass, both)
        # inertia = half_length · (4/3 − pole_mass · cos² θ / total_mass)
        np.subtract(self._four_thirds, inertia, inertia)
        np.multiply(inertia, self._half_length, inertia)
        # (sin θ, cos θ) · (g, temp) = (lift, drag)
        np.multiply(self._trig, self._gravity_and_temp, self._products)
        np.subtract(self._lift, self._drag, spare)
        np.divide(spare, inertia, self._spin_acceleration)
        np.multiply(self._spin_acceleration, self._pole_moment, spare)
        np.multiply(spare, cos, spare)
        np.divide(spare, self._mass, spare)
        np.subtract(temp, spare, self._acceleration)
        # The old velocities move the cart and the pole: Gymnasium's explicit Euler step.
        np.copyto(self._speeds, self._velocities)
        np.multiply(self._rate, self.time_step, self._rate)
        np.add(self.state, self._rate, self.state)

    def outside(self) -> NDArray[np.bool_]:
        """Which copies have left the track or dropped the pole."""
        np.abs(self._placed, self._products)
        np.greater(self._products, self._limits, self._too_far)
        left: NDArray[np.bool_] = np.logical_or(self._off_track, self._fallen)
        return left


def _start(rng: np.random.Generator) -> NDArray[np.float64]:
    return rng.uniform(-START_BOUND, START_BOUND, 4)
