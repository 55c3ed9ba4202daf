"""The base of the vectorised environments: N copies of a small state, their clock, and how they end."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from groupwise.errors import ContractError
from groupwise.types import Array, Box


def starts_of(seeds: Sequence[int], start: Callable[[np.random.Generator], Array], size: int) -> Array:
    """Where each seed starts, [N, size]."""
    # The members of a group share a seed, so each start is drawn once.
    rows = {seed: row for row, seed in enumerate(dict.fromkeys(seeds))}
    if negative := [seed for seed in rows if seed < 0]:
        raise ContractError(f"A reset seed must be 0 or more, not {negative[0]}.", hint="Use non-negative seeds.")
    table = np.array([start(np.random.default_rng(seed)) for seed in rows]).reshape(-1, size)
    return np.asarray(table[np.array([rows[seed] for seed in seeds], np.intp)])


class StateEnvironment(ABC):
    """A `VectorEnvironment` whose state is a few float64 numbers per copy.

    A subclass names these numbers and defines where a seed starts (`_start`), what an action does (`_advance`) and what
    the policy sees (`_observe`). States are stored as [S, N], so that one number of all copies is a contiguous row.
    """

    state_names: ClassVar[tuple[str, ...]]
    observation_size: int
    action_count: int

    def __init__(self, max_steps: int) -> None:
        self.max_steps = max_steps
        self.set_state(np.empty((0, len(self.state_names))))

    def reset(self, seeds: Sequence[int]) -> Array:
        """Start one copy per seed, exactly where Gymnasium's `reset(seed=seed)` starts."""
        return self.set_state(starts_of(seeds, self._start, len(self.state_names)))

    def set_state(self, states: Array) -> Array:
        """Start one copy per row of `states` [N, S] with its clock at 0; return the observations."""
        given = np.asarray(states)
        size = len(self.state_names)
        if given.ndim != 2 or given.shape[1] != size or given.dtype.kind not in "fiu" or not np.isfinite(given).all():
            raise ContractError(
                f"{type(self).__name__} states must be finite and of shape [N, {size}], not {given.shape}: "
                f"{given!r:.120}",
                hint=f"Pass one row ({', '.join(self.state_names)}) per copy.",
            )
        count = len(given)
        self._state = given.T.astype(np.float64, order="C")
        self._alive = np.ones(count, np.bool_)
        self._terminated = np.zeros(count, np.bool_)
        self._truncated = np.zeros(count, np.bool_)
        self._elapsed = 0
        # The first observation has the precision of the given state, as in Gymnasium.
        return self._observe(given.T)

    @property
    def states(self) -> NDArray[np.float64]:
        """The states [N, S] in full precision, as `set_state` takes them."""
        return self._state.T.copy()

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array]:
        self._check(actions)
        self._elapsed += 1
        after, rewards, terminated = self._advance(actions)
        # Ended copies keep their state and earn nothing.
        if self._alive.all():
            self._state = after
        else:
            np.copyto(self._state, after, where=self._alive)
            rewards = np.where(self._alive, rewards, 0.0)
        np.logical_or(self._terminated, terminated & self._alive, self._terminated)
        if self._elapsed == self.max_steps:
            np.copyto(self._truncated, self._alive)
        self._alive = ~(self._terminated | self._truncated)
        return self._observe(self._state), rewards, self._terminated.copy(), self._truncated.copy()

    @abstractmethod
    def _start(self, rng: np.random.Generator) -> Array:
        """A start [S], drawn from the generator of its seed."""

    @abstractmethod
    def _advance(self, actions: Array) -> tuple[Array, Array, Array]:
        """The states [S, N] after one step, as a new array, each copy's reward, and whether it has terminated."""

    @abstractmethod
    def _observe(self, state: Array) -> NDArray[np.float32]:
        """The observations [N, D] of the states [S, N]."""

    def _check(self, actions: Array) -> None:
        count = len(self._alive)
        if not count:
            hint = "Call reset(seeds) with seeds first."
            raise ContractError(f"{type(self).__name__} has no copies to step.", hint=hint)
        box: Box | None = getattr(self, "action_space", None)
        good = type(actions) is np.ndarray and actions.shape == (count, *(box.shape if box else ()))
        if good and box:
            good = actions.dtype.kind == "f" and bool(np.isfinite(actions).all())
        elif good:
            good = actions.dtype.kind in "iu" and bool(actions.min() >= 0 and actions.max() < self.action_count)
        if not good:
            wanted = f"{count} rows of finite numbers" if box else f"{count} integers from 0 to {self.action_count - 1}"
            hint = "Pass a NumPy array with one action per copy."
            raise ContractError(f"{type(self).__name__} takes {wanted} as actions, not {actions!r:.120}", hint=hint)
