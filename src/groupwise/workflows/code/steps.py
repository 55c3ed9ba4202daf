"""What a program is made of: its form, its signature, and the steps of a straight one."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum

from groupwise.workflows.code.values import Type

MOST_LINES = 80
PARAMETERS = "xyzwvu"


class Form(StrEnum):
    STRAIGHT = "straight"
    PLAIN = "plain"
    WORKFLOW = "workflow"


@dataclass(frozen=True, slots=True)
class Signature:
    """What the program of a problem takes and gives."""

    takes: tuple[Type, ...]
    gives: Type = Type.ANY

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(PARAMETERS[: len(self.takes)])

    @property
    def header(self) -> str:
        return f"def solve({', '.join(self.names)}):"


@dataclass(frozen=True, slots=True)
class Parameter:
    """An argument that is one of the program's own."""

    at: int


@dataclass(frozen=True, slots=True)
class Result:
    """An argument that is the result of an earlier step."""

    at: int


@dataclass(frozen=True, slots=True)
class Constant:
    """An argument that is written down: a number or a word."""

    value: int | str


Argument = Parameter | Result | Constant


@dataclass(frozen=True, slots=True)
class Step:
    """One line of a straight program: an operator and what it is given."""

    operator: str
    arguments: tuple[Argument, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """A checked program in its normal form. `steps` and `result` are those of a straight program, otherwise empty."""

    text: str
    form: Form
    parameters: tuple[str, ...]
    operators: tuple[str, ...]
    steps: tuple[Step, ...] = ()
    result: Argument | None = None

    def render(self) -> str:
        """The program as text; its parse renders identically."""
        return self.text

    @property
    def key(self) -> str:
        """Equal for equal programs."""
        return hashlib.sha256(self.text.encode("utf8", "surrogatepass")).hexdigest()[:16]

    @property
    def lines(self) -> int:
        """How many lines its body has."""
        return self.text.count("\n")

    @property
    def function(self) -> str:
        return "workflow" if self.form is Form.WORKFLOW else "solve"
