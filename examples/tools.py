"""Tools for a conversation: `groupwise chat MODEL --tools examples/tools.py`.

A model trained to call tools can use these to tell the time, convert money and do arithmetic.
"""

import ast
import asyncio
import operator
from datetime import datetime, timedelta, timezone
from typing import Literal

from groupwise.agents.tools import ToolError, tool

IN_EUROS = {"EUR": 1.0, "USD": 0.9, "GBP": 1.2}
OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


@tool
def calculate(expression: str) -> float:
    """Calculate with numbers, + - * / and brackets.

    Args:
      expression: for example (2 + 3) * 4.
    """
    return _value(ast.parse(expression[:200], mode="eval").body)


def _value(node: ast.expr) -> float:
    match node:
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in OPERATORS:
            return float(OPERATORS[type(sign)](_value(left), _value(right)))
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_value(inner)
    raise ToolError("only numbers, + - * / and brackets are allowed")


@tool
def convert(amount: float, source: Literal["EUR", "USD", "GBP"], target: Literal["EUR", "USD", "GBP"] = "EUR") -> str:
    """Convert an amount of money, at fixed example rates."""
    return f"{amount * IN_EUROS[source] / IN_EUROS[target]:.2f} {target}"


@tool(timeout=2.0)
async def time_in(hours_from_utc: int = 0) -> str:
    """Return the time of day.

    Args:
      hours_from_utc: the offset from UTC in hours, from -12 to 14.
    """
    if not -12 <= hours_from_utc <= 14:
        raise ToolError(f"hours_from_utc must be from -12 to 14, not {hours_from_utc}")
    await asyncio.sleep(0)
    return datetime.now(timezone(timedelta(hours=hours_from_utc))).strftime("%H:%M")
