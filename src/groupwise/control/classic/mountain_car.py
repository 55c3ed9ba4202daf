"""Mountain car, many copies at once: Gymnasium's MountainCar-v0 and MountainCarContinuous-v0 without their loops."""

import numpy as np
from numpy.typing import NDArray

from groupwise.control.classic.state_environment import StateEnvironment
from groupwise.errors import ContractError
from groupwise.types import Array, Box

LEFT_END, RIGHT_END = -1.2, 0.6
SPEED_LIMIT = 0.07
GRAVITY = 0.0025
POWER = 0.0015


class MountainCar(StateEnvironment):
    """Rock a car out of a valley by pushing left (0), not at all (1) or right (2): a `VectorEnvironment`.

    The reward is −1 for every step until the flag at 0.5. The car starts between −0.6 and −0.4, with `start_speed` to
    the right: 0 is MountainCar-v0, and from about 0.06 its momentum carries it to the flag.
    """

    state_names = ("position", "velocity")
    observation_size = 2
    action_count = 3
    goal = 0.5

    def __init__(self, *, start_speed: float = 0.0, max_steps: int = 200) -> None:
        if not -SPEED_LIMIT <= start_speed <= SPEED_LIMIT:
            hint = "Use a lower speed."
            raise ContractError(f"start_speed = {start_speed} exceeds the car's limit of ±{SPEED_LIMIT}.", hint=hint)
        self._start_speed = start_speed
        super().__init__(max_steps)

    def _start(self, rng: np.random.Generator) -> Array:
        return np.array([rng.uniform(-0.6, -0.4), self._start_speed])

    def _advance(self, actions: Array) -> tuple[Array, Array, Array]:
        position, velocity = self._state
        pull = (actions - 1) * 0.001 + np.cos(3 * position) * -GRAVITY
        after, arrived = self._move(position, np.clip(velocity + pull, -SPEED_LIMIT, SPEED_LIMIT))
        return after, np.full(len(arrived), -1.0), arrived

    def _move(self, position: Array, velocity: Array) -> tuple[Array, Array]:
        position = np.clip(position + velocity, LEFT_END, RIGHT_END)
        # The left end is a wall.
        velocity[(position == LEFT_END) & (velocity < 0)] = 0.0
        return np.stack((position, velocity)), (position >= self.goal) & (velocity >= 0.0)

    def _observe(self, state: Array) -> NDArray[np.float32]:
        return state.T.astype(np.float32, order="C")


class MountainCarContinuous(MountainCar):
    """The same valley with pushes of up to ±1, a reward of 100 at the flag (0.45) and a cost for every push.

    As in Gymnasium, the cost is that of the requested push, even out of range, and states after the first are rounded
    to single precision.
    """

    action_count = 1
    action_space = Box((-1.0,), (1.0,))
    goal = 0.45

    def __init__(self, *, start_speed: float = 0.0, max_steps: int = 999) -> None:
        super().__init__(start_speed=start_speed, max_steps=max_steps)

    def _advance(self, actions: Array) -> tuple[Array, Array, Array]:
        asked = actions[:, 0].astype(np.float32)
        single = np.float64 if self._elapsed == 1 else np.float32
        position, velocity = self._state.astype(single)
        slope = GRAVITY * np.cos((3 * position).astype(np.float64))
        # Gymnasium computes a push within the limits in single precision, and the limit itself in double precision.
        pull = np.where(
            np.abs(asked) <= 1.0,
            asked * np.float32(POWER) - slope.astype(np.float32),
            (np.copysign(POWER, asked.astype(np.float64)) - slope).astype(single),
        )
        velocity = np.clip((velocity + pull).astype(single), -SPEED_LIMIT, SPEED_LIMIT)
        after, arrived = self._move(position, velocity)
        rewards = 100.0 * arrived - 0.1 * np.square(asked, dtype=np.float64)
        return after.astype(np.float32).astype(np.float64), rewards, arrived
