"""From a text to the one function it defines. Whatever the text is, nothing here hangs or raises but `Faulty`."""

from __future__ import annotations

import ast
import re
import threading
import warnings

from groupwise.workflows.code.faults import FaultCode, Faulty
from groupwise.workflows.code.steps import MOST_LINES

LONGEST_TEXT = 8_000
DEEPEST = 40
WARNED = re.compile(r"\\|\d[A-Za-z]")
QUIET = threading.Lock()
"""Silencing warnings is not safe between threads."""


def read(text: str) -> ast.FunctionDef | ast.AsyncFunctionDef:
    """The one function that a text defines; `Faulty` if it is none, or too large to look at."""
    if len(text) > LONGEST_TEXT:
        raise Faulty(FaultCode.TOO_LONG, f"a program has at most {LONGEST_TEXT:,} characters, not {len(text):,}")
    if (lines := text.count("\n")) > 2 * MOST_LINES:
        raise Faulty(FaultCode.TOO_LONG, f"a program has at most {MOST_LINES} lines, not {lines}")
    try:
        module = _parsed(text)
    except SyntaxError as error:
        if "too many nested" in str(error.msg) or "recursion" in str(error.msg):
            raise Faulty(FaultCode.TOO_DEEP, f"brackets are nested deeper than {DEEPEST}", error.lineno or 0) from None
        raise Faulty(FaultCode.SYNTAX, f"this is no Python: {error.msg}", error.lineno or 0) from None
    except (ValueError, OverflowError) as error:  # a null byte, a lone surrogate, a number of thousands of digits
        raise Faulty(FaultCode.SYNTAX, f"this is no Python: {error}") from None
    except (RecursionError, MemoryError):
        raise Faulty(FaultCode.TOO_DEEP, f"expressions are nested deeper than {DEEPEST}") from None
    _insist_on_depth(module)
    return _the_function(module)


def _parsed(text: str) -> ast.Module:
    """The syntax tree; what Python would warn of, a strange escape or number, is kept from the screen."""
    if not WARNED.search(text):
        return ast.parse(text)
    with QUIET, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)


def _the_function(module: ast.Module) -> ast.FunctionDef | ast.AsyncFunctionDef:
    wanted = "write one `def solve(…):` or `async def workflow(problem):`"
    body = [node for node in module.body if not _is_remark(node)]
    if not body:
        raise Faulty(FaultCode.NO_FUNCTION, f"there is no function; {wanted}")
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            raise Faulty(FaultCode.FORBIDDEN, "nothing can be imported; the operators are there already", node.lineno)
    if len(body) > 1 or not isinstance(body[0], ast.FunctionDef | ast.AsyncFunctionDef):
        stray = next((node for node in body if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)), body[-1])
        raise Faulty(FaultCode.NO_FUNCTION, f"only one function may stand at the top; {wanted}", stray.lineno)
    function = body[0]
    if function.decorator_list:
        raise Faulty(FaultCode.FORBIDDEN, "decorators are not allowed", function.decorator_list[0].lineno)
    name = "solve" if isinstance(function, ast.FunctionDef) else "workflow"
    if function.name != name:
        kind = "def" if name == "solve" else "async def"
        raise Faulty(
            FaultCode.NO_FUNCTION, f"`{kind}` must define {name}, not {function.name[:40]}; {wanted}", function.lineno
        )
    return function


def _is_remark(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _insist_on_depth(module: ast.Module) -> None:
    layer: list[ast.AST] = [module]
    depth = 0
    while layer:
        depth += 1
        if depth > DEEPEST:
            line = getattr(layer[0], "lineno", 0)
            raise Faulty(
                FaultCode.TOO_DEEP, f"expressions are nested deeper than {DEEPEST}; give steps names of their own", line
            )
        layer = [child for node in layer for child in ast.iter_child_nodes(node)]
