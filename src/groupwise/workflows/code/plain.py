"""The plain and workflow forms: a small Python, checked node by node."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from groupwise.workflows.code.faults import FaultCode, Faulty
from groupwise.workflows.code.operators import Operator, Registry
from groupwise.workflows.code.steps import Program, Signature


def program(
    function: ast.FunctionDef | ast.AsyncFunctionDef, signature: Signature | None, operators: Mapping[str, Operator]
) -> Program:
    """The plain program that a function is; `Faulty` if it is none."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id not in operators:
            hint = Registry(operators.values()).like(node.func.id)
            raise Faulty(FaultCode.UNKNOWN_OPERATOR, f"there is no operator {node.func.id[:40]!r}. {hint}", node.lineno)
    raise Faulty(FaultCode.FORBIDDEN, "only operator calls are understood so far")
