"""What may be expected of the next line of a program, before anything was tried."""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import Protocol

from groupwise.workflows.code.grammar import legal_lines, line_weights
from groupwise.workflows.code.problem import CodeProblem

Lines = Sequence[tuple[str, float]]


class Prior(Protocol):
    """A distribution over the next line. `name` tells priors apart: a saved search goes on only with its own."""

    @property
    def name(self) -> str: ...

    def lines(self, problem: CodeProblem, prefix: tuple[str, ...]) -> Lines:
        """Lines that may follow a prefix (lines of a body, without indentation), each with its log-probability."""
        ...


class Uniform:
    """Knows nothing: every operator alike, then every way to call it. `return` counts as an operator."""

    name = "uniform"

    def lines(self, problem: CodeProblem, prefix: tuple[str, ...]) -> Lines:
        lines = legal_lines(prefix, problem)
        return [(line, log(weight)) for line, weight in zip(lines, line_weights(lines), strict=True)]
