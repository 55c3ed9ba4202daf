"""Runs straight programs here and now: they are lists of operator calls, so no text is ever executed.

Pure operators check what they are given and bound what they give, so a straight program always ends, and soon.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from groupwise.workflows.code.operators import Operator
from groupwise.workflows.code.pure import PURE
from groupwise.workflows.code.steps import Argument, Parameter, Program, Result
from groupwise.workflows.code.values import Value


def run_straight(program: Program, inputs: Sequence[Value], operators: Mapping[str, Operator] = PURE) -> Value:
    """What a straight program returns for these inputs; `OperatorError` if an operator refuses."""
    assert program.result is not None, "only straight programs can be interpreted"
    results: list[Value] = []
    for step in program.steps:
        given = [value_of(argument, inputs, results) for argument in step.arguments]
        results.append(operators[step.operator](*given))
    return value_of(program.result, inputs, results)


def value_of(argument: Argument, inputs: Sequence[Value], results: Sequence[Value]) -> Value:
    """What an argument stands for."""
    if isinstance(argument, Result):
        return results[argument.at]
    return inputs[argument.at] if isinstance(argument, Parameter) else argument.value
