"""Numbers of many records side by side, so that all of them are searched at once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from groupwise.errors import ContractError
from groupwise.types import Array

FIRST_ROWS = 64


class RecordColumns:
    """Named arrays with a row for every record, in the order of their ids.

    The order is the same however the rows came to be there, one by one or all at once from a file. Sums over rows are
    therefore rounded alike, and a run that was resumed recalls bit for bit what it would have recalled.

    Args:
      shapes: the shape of one row of each column: () is a number, (5,) a vector.
    """

    def __init__(self, **shapes: tuple[int, ...]) -> None:
        self._length = 0
        self._ids = np.empty(FIRST_ROWS, np.int64)
        self._columns = {name: np.empty((FIRST_ROWS, *shape)) for name, shape in shapes.items()}

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, name: str) -> Array:
        return self._columns[name][: self._length]

    @property
    def ids(self) -> Array:
        return self._ids[: self._length]

    def append(self, record: int, **values: Any) -> None:
        """A row for a new record, whose id is above all others."""
        if self._length == len(self._ids):
            self._grow()
        self._ids[self._length] = record
        for name, value in values.items():
            self._columns[name][self._length] = value
        self._length += 1

    def change(self, record: int, **values: Any) -> None:
        place = self.place(record)
        for name, value in values.items():
            self._columns[name][place] = value

    def remove(self, record: int) -> None:
        place, end = self.place(record), self._length
        for column in (self._ids, *self._columns.values()):
            column[place : end - 1] = column[place + 1 : end]
        self._length -= 1

    def place(self, record: int) -> int:
        place = int(np.searchsorted(self.ids, record))
        assert place < self._length
        assert self._ids[place] == record
        return place

    def _grow(self) -> None:
        self._ids = _doubled(self._ids)
        self._columns = {name: _doubled(column) for name, column in self._columns.items()}


def _doubled(column: Array) -> Array:
    larger = np.empty((2 * len(column), *column.shape[1:]), column.dtype)
    larger[: len(column)] = column
    return larger


Direction: TypeAlias = NDArray[np.float32]


def direction(features: Any, width: int) -> Direction:
    """The direction of a feature vector, read-only, rounded to float32 as it will be stored."""
    vector = np.asarray(features, np.float64)
    if vector.shape != (width,):
        raise ContractError(
            f"features have shape {vector.shape}, and this memory was opened for vectors of {width} numbers",
            hint="Open it with the width of the features that are used now; vectors of another width stay in the file.",
        )
    if not np.isfinite(vector).all():
        place = int(np.flatnonzero(~np.isfinite(vector))[0])
        raise ContractError(
            f"feature {place} is {vector[place]}, and features must be finite",
            hint="Leave the situation out, or repair the function that makes its features.",
        )
    largest = np.abs(vector).max(initial=0.0)
    if largest == 0:
        raise ContractError(
            f"all {width} features are 0, and such a vector has no direction to compare",
            hint="Add a feature that is always 1.",
        )
    vector = vector / largest  # before squaring, so that neither 1e300 nor 1e-300 is lost
    made: Direction = (vector / np.linalg.norm(vector)).astype("<f4")
    made.setflags(write=False)
    return made


def from_bytes(stored: bytes) -> Direction:
    """A direction as `tobytes` wrote it; read-only, as bytes are."""
    return np.frombuffer(stored, "<f4")


def similarities(matrix: NDArray[np.float64], wanted: Direction) -> NDArray[np.float64]:
    """Cosines of the rows of `matrix` with `wanted`, those below 0 as 0."""
    cosines: NDArray[np.float64] = np.clip(matrix @ wanted.astype(np.float64), 0.0, 1.0)
    return cosines


@dataclass(frozen=True, slots=True)
class Decay:
    """`factor` is what remains of a weight after `unit` generations without use."""

    factor: float = 0.999
    unit: int = 1

    def faded(self, weight: Array, used: Array, now: int) -> Array:
        """Present weights of things whose `weight` was as given when they were last `used`."""
        return weight * self.factor ** ((now - used) / self.unit)

    def rank(self, weight: float, used: int) -> float:
        """Orders things like their faded weights, at every moment alike: all fade at one pace.

        It is the logarithm of the weight faded at generation 0, so the weakest is found without fading all of them.
        """
        return math.log(weight) - used / self.unit * math.log(self.factor)
