"""The numbers that memories search: columns of many records, feature vectors as directions, and decay.

    decayed = weight · factor^((now − used) / unit)

A decayed weight is always computed from the weight at the last use, never from a decayed one: reading twice changes
nothing.
"""

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from groupwise.errors import ContractError
from groupwise.types import Array

FIRST_ROWS = 64


class RecordColumns:
    """Named arrays with one row per record, ordered by id.

    The order is the same whether rows were added one by one or loaded from a file. Sums over rows are therefore rounded
    the same way, and a resumed run recalls exactly what it would have recalled.

    Args:
      shapes: the shape of one row of each column: () for a number, (5,) for a vector.
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
        """Add a row for a new record, whose id must be larger than all others."""
        if self._length == len(self._ids):
            self._ids = _doubled(self._ids)
            self._columns = {name: _doubled(column) for name, column in self._columns.items()}
        self._ids[self._length] = record
        for name, value in values.items():
            self._columns[name][self._length] = value
        self._length += 1

    def change(self, record: int, **values: Any) -> None:
        place = self.place(record)
        for name, value in values.items():
            self._columns[name][place] = value

    def remove_lowest(self, name: str) -> int:
        """Remove the record with the lowest number in a column, the oldest of equals, and return its id."""
        place, end = int(np.argmin(self[name])), self._length
        lowest = int(self._ids[place])
        for column in (self._ids, *self._columns.values()):
            # Shift and do not swap with the last: the order by id is what makes sums reproducible.
            column[place : end - 1] = column[place + 1 : end]
        self._length -= 1
        return lowest

    def place(self, record: int) -> int:
        # Ids only grow, so they are sorted.
        place = int(np.searchsorted(self.ids, record))
        assert place < self._length
        assert self._ids[place] == record
        return place


def _doubled(column: Array) -> Array:
    larger = np.empty((2 * len(column), *column.shape[1:]), column.dtype)
    larger[: len(column)] = column
    return larger


Direction: TypeAlias = NDArray[np.float32]


def direction(features: Any, width: int) -> Direction:
    """The direction of a feature vector: of length 1, so that the product of two is their cosine.

    It is read-only, and rounded to float32 as it will be stored.
    """
    vector = np.asarray(features, np.float64)
    if vector.shape != (width,):
        raise ContractError(
            f"features have shape {vector.shape}, but this memory was opened for vectors of {width} numbers",
            hint="Open it with the width of your current features; vectors of another width stay in the file.",
        )
    if not np.isfinite(vector).all():
        place = int(np.flatnonzero(~np.isfinite(vector))[0])
        message = f"feature {place} is {vector[place]}, but features must be finite"
        raise ContractError(message, hint="Leave the situation out, or fix the function that computes its features.")
    largest = np.abs(vector).max(initial=0.0)
    if largest == 0:
        hint = "Add a feature that is always 1."
        raise ContractError(f"all {width} features are 0, so the vector has no direction", hint=hint)
    vector = vector / largest  # before squaring, so that 1e300 does not overflow and 1e-300 does not vanish
    made: Direction = (vector / np.linalg.norm(vector)).astype("<f4")
    made.setflags(write=False)
    return made


def from_bytes(stored: bytes) -> Direction:
    """A direction from the bytes of `tobytes`; read-only, as bytes are."""
    return np.frombuffer(stored, "<f4")


def similarities(matrix: NDArray[np.float64], wanted: Direction) -> NDArray[np.float64]:
    """Cosines of the rows of `matrix` [N, width] with `wanted`, clipped to [0, 1]."""
    cosines: NDArray[np.float64] = np.clip(matrix @ wanted.astype(np.float64), 0.0, 1.0)
    return cosines


@dataclass(frozen=True, slots=True)
class Decay:
    """After `unit` generations without use, a weight is multiplied by `factor`."""

    factor: float = 0.999
    unit: int = 1

    def decayed(self, weight: Array, used: Array, now: int) -> Array:
        """The decayed weights at generation `now`, given the weights at the last use and when that was."""
        return weight * self.factor ** ((now - used) / self.unit)

    def rank(self, weight: float, used: int) -> float:
        """A number that orders things like their decayed weights, at any time: all decay at the same pace.

        It is the logarithm of the weight decayed to generation 0, so the weakest is found without decaying all.
        """
        return math.log(weight) - used / self.unit * math.log(self.factor)
