"""Programs with their steps, and problems: questions with the cases that check answers.

The first case of a problem is the question as asked. The others are hidden variations with other numbers, lists or
tables, which expose programs that are correct by accident.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from groupwise.errors import ContractError
from groupwise.programs.language.operators import Type, Value


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


PARAMETERS = "xyzwvu"
Split = Literal["train", "valid", "test"]
SPLITS: tuple[Split, ...] = ("train", "valid", "test")


@dataclass(frozen=True, slots=True)
class Signature:
    """The types of a program's parameters and of its answer."""

    takes: tuple[Type, ...]
    gives: Type = Type.ANY

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(PARAMETERS[: len(self.takes)])

    @property
    def header(self) -> str:
        return f"def solve({', '.join(self.names)}):"


@dataclass(frozen=True, slots=True)
class Case:
    """Arguments for `solve`, in order, and the correct answer."""

    inputs: tuple[Value, ...]
    answer: Value


@dataclass(frozen=True, slots=True)
class Word:
    """A constant that programs for this problem may contain: its value and its type."""

    value: int | str
    type: Type


@dataclass(frozen=True)
class CodeProblem:
    """A problem to be solved by a program.

    `question` is what the model reads. `constants` are the numbers and words that a line may contain. `max_lines`
    limits the lines of the body, including `return`. `gold` is a correct program for tests of the problem itself;
    nothing that learns may read it.
    """

    id: str
    family: str
    split: str
    difficulty: int
    question: str
    signature: Signature
    cases: tuple[Case, ...]
    constants: tuple[Word, ...] = ()
    max_lines: int = 4
    gold: str = field(default="", repr=False)
    meta: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        takes = len(self.signature.takes)
        if takes > len(PARAMETERS):
            raise ContractError(f"{self.id}: solve takes at most {len(PARAMETERS)} parameters, not {takes}")
        for case in self.cases:
            if len(case.inputs) != takes:
                raise ContractError(
                    f"{self.id}: a case has {len(case.inputs)} inputs, but solve takes {takes}",
                    hint="Every case needs one value per parameter, in order.",
                )

    @property
    def inputs(self) -> dict[str, Value]:
        """The arguments of the question as asked, by parameter name."""
        return dict(zip(self.signature.names, self.cases[0].inputs, strict=True)) if self.cases else {}

    @property
    def answer(self) -> Value:
        return self.cases[0].answer if self.cases else None
