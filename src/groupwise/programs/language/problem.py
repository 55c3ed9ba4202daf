"""Problems: questions with the signature of their programs and the cases that check answers.

The first case of a problem is the question as asked. The others are hidden variations with other numbers, lists or
tables, which expose programs that are correct by accident.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from groupwise.errors import ContractError
from groupwise.programs.language.operators import Type, Value

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
