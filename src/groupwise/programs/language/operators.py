"""Values and operators: what programs compute with, and what a line of workflow code may call."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from groupwise.errors import ConfigError

Value: TypeAlias = Any

# The largest number, and the most items of a list or letters of a string, that programs may compute.
LARGEST = 10**15
LONGEST = 10_000


class Type(StrEnum):
    """The type of a value. `COLUMN`, `CELL` and `ROW` are words of a table, which programs write as constants."""

    INT = "int"
    NUMBERS = "numbers"
    TEXT = "text"
    WORDS = "words"
    TABLE = "table"
    COLUMN = "column"
    CELL = "cell"
    ROW = "row"
    ANY = "any"


# Types that only constants have.
WRITTEN = (Type.COLUMN, Type.CELL, Type.ROW)


class OperatorError(ValueError):
    """An operator cannot handle its arguments; the message names the value and the reason."""


def fits(value: Value, wanted: Type) -> bool:
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
    """The value itself; `OperatorError` if it is too large for a program."""
    if isinstance(value, int) and abs(value) > LARGEST:
        raise OperatorError(f"{origin} returned a number beyond {LARGEST:,}; no problem needs one that large")
    bounded_size(value, origin)
    if isinstance(value, list):
        for item in value:
            if not isinstance(item, dict):
                bounded(item, origin)
    return value


def bounded_size(value: Value, origin: str) -> None:
    """Refuse values that are too long to process."""
    if isinstance(value, str | list) and len(value) > LONGEST:
        raise OperatorError(f"{origin} got {len(value):,} items or letters; the limit is {LONGEST:,}")


def same(one: Value, other: Value) -> bool:
    """Whether two answers are equal: numbers by value (3.0 equals 3, True does not equal 1), all else exactly."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return one == other
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and bool(one == other)


def quoted(value: Value, width: int = 60) -> str:
    """A value for a message, shortened; safe for values of any size."""
    if isinstance(value, int) and abs(value) > LARGEST:
        return "a number with many digits"
    text = repr(value[:width] if isinstance(value, str | list | tuple) else value)
    return text if len(text) <= width else text[: width - 1] + "…"


Kind = Literal["pure", "model"]


@dataclass(frozen=True, slots=True)
class Operator:
    """One operation of programs.

    `run` is a normal function for a pure operator and an asynchronous one for an operator that asks a model.
    `commutes`: the order of its two arguments does not matter. `least`: how many arguments are required (−1: all).
    """

    name: str
    takes: tuple[Type, ...]
    gives: Type
    run: Callable[..., Any]
    kind: Kind = "pure"
    doc: str = ""
    commutes: bool = False
    least: int = -1

    @property
    def required(self) -> int:
        return len(self.takes) if self.least < 0 else self.least

    @property
    def heading(self) -> str:
        """Its signature, such as `take(numbers, int) -> numbers`."""
        return f"{self.name}({', '.join(self.takes)}) -> {self.gives}"

    def __call__(self, *given: Value) -> Value:
        """Check the arguments and run a pure operator; `OperatorError` for arguments that do not fit."""
        self._check(given)
        return bounded(self.run(*given), self.name)

    async def asked(self, *given: Value) -> Value:
        """The same for an operator that asks a model."""
        self._check(given)
        return bounded(await self.run(*given), self.name)

    def _check(self, given: tuple[Value, ...]) -> None:
        if not self.required <= len(given) <= len(self.takes):
            raise OperatorError(f"{self.name} takes {counted(self)}, not {len(given)}: {self.heading}")
        for value in given:
            bounded_size(value, self.name)
        for place, (value, wanted) in enumerate(zip(given, self.takes, strict=False), 1):
            if not fits(value, wanted):
                raise OperatorError(f"{self.name} takes {wanted} as argument {place}, not {quoted(value)}")


def counted(operator: Operator) -> str:
    least, most = operator.required, len(operator.takes)
    if least != most:
        return f"{least} to {most} arguments"
    return f"{most} argument{'' if most == 1 else 's'}"


class Registry(Mapping[str, Operator]):
    """Operators by name, in the order they were registered."""

    def __init__(self, operators: Iterable[Operator] = ()) -> None:
        self._named: dict[str, Operator] = {}
        for operator in operators:
            self.add(operator)

    def add(self, operator: Operator) -> None:
        if not operator.name.isidentifier() or operator.name.startswith("_"):
            hint = "Use a plain identifier, such as `take`."
            raise ConfigError(f"{operator.name!r} is not a valid operator name", hint=hint)
        if operator.name in self._named:
            raise ConfigError(f"there is already an operator {operator.name!r}", hint="Give it another name.")
        self._named[operator.name] = operator

    def __getitem__(self, name: str) -> Operator:
        return self._named[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._named)

    def __len__(self) -> int:
        return len(self._named)

    def joined(self, others: Iterable[Operator]) -> Registry:
        return Registry([*self._named.values(), *others])

    def like(self, name: str) -> str:
        """A hint for a name that is not an operator."""
        close = difflib.get_close_matches(name[:40], self._named, n=1)
        if close:
            return f"Did you mean {self._named[close[0]].heading}?"
        return f"The operators are {', '.join(list(self._named)[:60])}."
