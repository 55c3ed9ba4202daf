"""The registry of operators: what a line of workflow code may call.

Every operator says what it takes, what it gives, and whether it is pure (computed here, the same every time) or asks
a model. Names are single words or two joined by an underscore, so that a vocabulary can hold each as one token.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from groupwise.errors import ConfigError
from groupwise.workflows.code.values import OperatorError, Type, Value, bounded, bounded_size, fits, quoted

Kind = Literal["pure", "model"]


@dataclass(frozen=True, slots=True)
class Operator:
    """One thing a program can do.

    `commutes`: the order of its two arguments does not matter. `run` is an ordinary function for a pure operator and
    an asynchronous one for an operator that asks a model. `least`: how many arguments must be given.
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
        """How it is written: `take(numbers, int) -> numbers`."""
        return f"{self.name}({', '.join(self.takes)}) -> {self.gives}"

    def __call__(self, *given: Value) -> Value:
        """The result of a pure operator for checked arguments; `OperatorError` for any that do not fit."""
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
    """How many arguments an operator takes, in words."""
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
            raise ConfigError(f"{operator.name!r} is no name for an operator", hint="Use a plain word, such as `take`.")
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
        """These and others, as a registry of its own."""
        return Registry([*self._named.values(), *others])

    def like(self, name: str) -> str:
        """What to say about a name that is no operator."""
        close = difflib.get_close_matches(name[:40], self._named, n=1)
        if close:
            return f"Did you mean {self._named[close[0]].heading}?"
        return f"The operators are {', '.join(list(self._named)[:60])}."
