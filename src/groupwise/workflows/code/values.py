"""What programs compute with: whole numbers, lists of them, texts, lists of words, and small tables (lists of rows).

Values are plain Python (`int`, `list`, `str`, `dict`), so that they travel to a sandbox and into JSON as they are.
Operators never change a value they were given.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, TypeAlias

Value: TypeAlias = Any

LARGEST = 10**15
LONGEST = 10_000


class Type(StrEnum):
    """The type of a value. `COLUMN`, `CELL` and `ROW` are words of a table that a program writes as constants."""

    INT = "int"
    NUMBERS = "numbers"
    TEXT = "text"
    WORDS = "words"
    TABLE = "table"
    COLUMN = "column"
    CELL = "cell"
    ROW = "row"
    ANY = "any"


WRITTEN = (Type.COLUMN, Type.CELL, Type.ROW)
"""Types that only constants have."""


class OperatorError(ValueError):
    """An operator could not do what it was asked: the message says with which value, and why."""


def fits(value: Value, wanted: Type) -> bool:
    """Whether a value is of a type."""
    match wanted:
        case Type.ANY:
            return True
        case Type.INT:
            return isinstance(value, int) and not isinstance(value, bool)
        case Type.TEXT | Type.COLUMN | Type.CELL | Type.ROW:
            return isinstance(value, str)
        case Type.NUMBERS:
            return isinstance(value, list) and all(fits(item, Type.INT) for item in value)
        case Type.WORDS:
            return isinstance(value, list) and all(isinstance(item, str) for item in value)
    return isinstance(value, list) and all(isinstance(row, dict) for row in value)


def bounded(value: Value, origin: str) -> Value:
    """The value, if it is of a size that programs may hold; `OperatorError` otherwise."""
    if isinstance(value, int) and abs(value) > LARGEST:
        raise OperatorError(f"{origin} gave a number beyond {LARGEST:,}; no problem needs one so large")
    bounded_size(value, origin)
    if isinstance(value, list):
        for item in value:
            if not isinstance(item, dict):
                bounded(item, origin)
    return value


def bounded_size(value: Value, origin: str) -> None:
    """Refuses what is too long to look at."""
    if isinstance(value, str | list) and len(value) > LONGEST:
        raise OperatorError(f"{origin} met {len(value):,} items or letters, more than {LONGEST:,}")


def same(one: Value, other: Value) -> bool:
    """Whether an answer is the right one: numbers by value (3.0 is 3, True is not 1), everything else exactly."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return one == other
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and bool(one == other)


def quoted(value: Value, width: int = 60) -> str:
    """A value for a message, shortened; safe for any value, however large."""
    if isinstance(value, int) and abs(value) > LARGEST:
        return "a number of many digits"
    text = repr(value[:width] if isinstance(value, str | list | tuple) else value)
    return text if len(text) <= width else text[: width - 1] + "…"
