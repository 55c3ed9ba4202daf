"""What a problem is: a question, what its program takes and gives, and cases that tell right programs from lucky ones.

The first case is the question as asked. The others are hidden variations: other numbers, lists or tables under the
same question, so that a program which is right by accident is found out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from groupwise.errors import ContractError
from groupwise.programs.language.operators import Type, Value
from groupwise.programs.language.program import PARAMETERS, Signature

Split = Literal["train", "valid", "test"]
SPLITS: tuple[Split, ...] = ("train", "valid", "test")


@dataclass(frozen=True, slots=True)
class Case:
    """Arguments for `solve`, in order, and the right answer to them."""

    inputs: tuple[Value, ...]
    answer: Value


@dataclass(frozen=True, slots=True)
class Word:
    """A constant that programs for this problem may write: its value and its type."""

    value: int | str
    type: Type


@dataclass(frozen=True)
class CodeProblem:
    """A problem to be solved by a program.

    `question` is what the model reads. `constants` are the numbers and words that a line may hold. `max_lines` counts
    the lines of a program's body, `return` included. `gold` is a right program, for checks of the problem itself;
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
                    f"{self.id}: a case has {len(case.inputs)} inputs, and solve takes {takes}",
                    hint="Give every case one value for every parameter, in their order.",
                )

    @property
    def inputs(self) -> dict[str, Value]:
        """The question's own arguments, by the names of `solve`'s parameters."""
        return dict(zip(self.signature.names, self.cases[0].inputs, strict=True)) if self.cases else {}

    @property
    def answer(self) -> Value:
        """The right answer to the question as asked."""
        return self.cases[0].answer if self.cases else None
