"""A broken rule, as it is reported."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal[
    "unknown activity", "must include", "every case", "precedes", "excludes", "pool", "staffing", "separate",
    "deadline", "overload", "data", "outcome", "loop", "coexist", "response", "chain", "skills", "people",
]  # fmt: skip
ROUNDING = 1e-6  # by which the share of cases may fall short


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken rule: its kind, an explanation, and the activities or pools it concerns."""

    rule: Kind
    words: str
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.rule}: {self.words}"
