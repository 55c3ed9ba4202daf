"""Runs straight programs here and now: they are lists of operator calls, so no text is ever executed.

Pure operators check what they are given and bound what they give, so a straight program always ends, and soon.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from groupwise.workflows.code.operators import Operator
from groupwise.workflows.code.pure import PURE
from groupwise.workflows.code.steps import Argument, Constant, Parameter, Program, Result
from groupwise.workflows.code.values import Value


def run_straight(program: Program, inputs: Sequence[Value], operators: Mapping[str, Operator] = PURE) -> Value:
    """What a straight program returns for these inputs; `OperatorError` if an operator refuses."""
    assert program.result is not None, "only straight programs can be interpreted"
    results: list[Value] = []

    def value(argument: Argument) -> Value:
        match argument:
            case Parameter(at):
                return inputs[at]
            case Result(at):
                return results[at]
            case Constant(constant):
                return constant

    for step in program.steps:
        results.append(operators[step.operator](*(value(argument) for argument in step.arguments)))
    return value(program.result)
