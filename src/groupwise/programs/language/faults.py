"""The faults of workflow code, each with a name, and the one function that a text defines."""

import ast
import re
import threading
import warnings
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
class ProgramFault:
    """What is wrong with a text, and in which line (0: the whole text)."""

    code: FaultCode
    message: str
    line: int = 0

    def __str__(self) -> str:
        return f"line {self.line}: {self.message}" if self.line else self.message


class Faulty(Exception):
    """Carries a fault out of a check; `parse` returns it as a value."""

    def __init__(self, code: FaultCode, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.fault = ProgramFault(code, message, line)


# Of the body.
MOST_LINES = 80
LONGEST_TEXT = 8_000
# Levels of nesting, far fewer than overflow Python's own parser.
DEEPEST = 40
NESTED = f"expressions are nested deeper than {DEEPEST}; assign intermediate results to variables"
# What Python warns about when it parses: backslashes, and numbers that run into letters.
WARNED = re.compile(r"\\|\d[A-Za-z]")
# `warnings.catch_warnings` is not thread-safe.
QUIET = threading.Lock()


def read(text: str) -> ast.FunctionDef | ast.AsyncFunctionDef:
    """The one function that a text defines; `Faulty` if there is none, or if the text is too large."""
    if len(text) > LONGEST_TEXT:
        raise Faulty(FaultCode.TOO_LONG, f"a program has at most {LONGEST_TEXT:,} characters, not {len(text):,}")
    if (lines := text.count("\n")) > 2 * MOST_LINES:
        raise Faulty(FaultCode.TOO_LONG, f"a program has at most {MOST_LINES} lines, not {lines}")
    try:
        module = _parsed(text)
    except SyntaxError as error:
        if "too many nested" in str(error.msg) or "recursion" in str(error.msg):
            raise Faulty(FaultCode.TOO_DEEP, f"brackets are nested deeper than {DEEPEST}", error.lineno or 0) from None
        raise Faulty(FaultCode.SYNTAX, f"not valid Python: {error.msg}", error.lineno or 0) from None
    except (ValueError, OverflowError) as error:  # a null byte, a lone surrogate, a number of thousands of digits
        raise Faulty(FaultCode.SYNTAX, f"not valid Python: {error}") from None
    except (RecursionError, MemoryError):
        raise Faulty(FaultCode.TOO_DEEP, f"expressions are nested deeper than {DEEPEST}") from None
    _insist_on_depth(module)
    return _the_function(module)


def _parsed(text: str) -> ast.Module:
    # The syntax tree, without Python's warnings about odd escapes and numbers.
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
            said = "imports are not allowed; the operators are already available"
            raise Faulty(FaultCode.FORBIDDEN, said, node.lineno)
    if len(body) > 1 or not isinstance(body[0], ast.FunctionDef | ast.AsyncFunctionDef):
        stray = next((node for node in body if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)), body[-1])
        raise Faulty(FaultCode.NO_FUNCTION, f"only one function is allowed at the top level; {wanted}", stray.lineno)
    function = body[0]
    if function.decorator_list:
        raise Faulty(FaultCode.FORBIDDEN, "decorators are not allowed", function.decorator_list[0].lineno)
    name = "solve" if isinstance(function, ast.FunctionDef) else "workflow"
    if function.name != name:
        kind = "def" if name == "solve" else "async def"
        said = f"`{kind}` must define {name}, not {function.name[:40]}; {wanted}"
        raise Faulty(FaultCode.NO_FUNCTION, said, function.lineno)
    return function


def _is_remark(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _insist_on_depth(module: ast.Module) -> None:
    layer: list[ast.AST] = [module]
    depth = 0
    while layer:
        depth += 1
        if depth > DEEPEST:
            raise Faulty(FaultCode.TOO_DEEP, NESTED, getattr(layer[0], "lineno", 0))
        layer = [child for node in layer for child in ast.iter_child_nodes(node)]
