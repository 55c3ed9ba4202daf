"""Programs: their forms, and the steps of a straight program."""

import hashlib
from dataclasses import dataclass
from enum import StrEnum


class Form(StrEnum):
    STRAIGHT = "straight"
    PLAIN = "plain"
    WORKFLOW = "workflow"


@dataclass(frozen=True, slots=True)
class Parameter:
    """An argument that is a parameter of the program."""

    at: int


@dataclass(frozen=True, slots=True)
class Result:
    """An argument that is the result of an earlier step."""

    at: int


@dataclass(frozen=True, slots=True)
class Constant:
    """An argument that is a literal: a number or a word."""

    value: int | str


Argument = Parameter | Result | Constant


@dataclass(frozen=True, slots=True)
class ProgramStep:
    """One line of a straight program: an operator and its arguments."""

    operator: str
    arguments: tuple[Argument, ...]


def key_of(text: str) -> str:
    return hashlib.sha256(text.encode("utf8", "surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Program:
    """A checked program in normal form. `steps` and `result` are only set for straight programs."""

    text: str
    form: Form
    parameters: tuple[str, ...]
    operators: tuple[str, ...]
    steps: tuple[ProgramStep, ...] = ()
    result: Argument | None = None

    @property
    def key(self) -> str:
        return key_of(self.text)

    @property
    def lines(self) -> int:
        return self.text.count("\n")

    @property
    def function(self) -> str:
        return "workflow" if self.form is Form.WORKFLOW else "solve"
