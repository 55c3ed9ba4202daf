"""Numbers of many records side by side, so that all of them are searched at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from groupwise.types import Array

FIRST_ROWS = 64


class Columns:
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
