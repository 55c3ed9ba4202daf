"""Why a text is no program: one named fault with the line, what was found there and what to write instead."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FaultCode(StrEnum):
    """The faults that workflow code can have."""

    SYNTAX = "syntax"
    TOO_LONG = "too_long"
    TOO_DEEP = "too_deep"
    NO_FUNCTION = "no_function"
    NO_RETURN = "no_return"
    FORBIDDEN = "forbidden"
    UNKNOWN_NAME = "unknown_name"
    UNKNOWN_OPERATOR = "unknown_operator"
    WRONG_ARGUMENTS = "wrong_arguments"
    WRONG_TYPES = "wrong_types"
    TOO_MANY_LOOPS = "too_many_loops"


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a text, and in which line (0: with all of it)."""

    code: FaultCode
    message: str
    line: int = 0

    def __str__(self) -> str:
        return f"line {self.line}: {self.message}" if self.line else self.message


class Faulty(Exception):
    """Carries a fault out of a check; `parse` turns it into a value."""

    def __init__(self, code: FaultCode, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.fault = Fault(code, message, line)
