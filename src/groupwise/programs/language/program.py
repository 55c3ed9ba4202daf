"""Programs and problems: forms, signatures and steps; named faults; and questions with the cases that check answers.

The first case of a problem is the question as asked. The others are hidden variations with other numbers, lists or
tables, which expose programs that are correct by accident.
"""

import ast
import hashlib
import re
import threading
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from groupwise.errors import ContractError
from groupwise.programs.language.operators import Type, Value


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
PARAMETERS = "xyzwvu"


class Form(StrEnum):
    STRAIGHT = "straight"
    PLAIN = "plain"
    WORKFLOW = "workflow"


@dataclass(frozen=True, slots=True)
class Signature:
    """The types of a program's parameters and of its answer."""

    takes: tuple[Type, ...]
    gives: Type = Type.ANY

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(PARAMETERS[: len(self.takes)])

    @property
    def header(self) -> str:
        return f"def solve({', '.join(self.names)}):"


@dataclass(frozen=True, slots=True)
class Parameter:
    """An argument that is a parameter of the program."""

    at: int


@dataclass(frozen=True, slots=True)
class Result:
    """An argument that is the result of an earlier step."""

    at: int


@dataclass(frozen=True, slots=True)
class Constant:
    """An argument that is a literal: a number or a word."""

    value: int | str


Argument = Parameter | Result | Constant


@dataclass(frozen=True, slots=True)
class ProgramStep:
    """One line of a straight program: an operator and its arguments."""

    operator: str
    arguments: tuple[Argument, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """A checked program in normal form. `steps` and `result` are only set for straight programs."""

    text: str
    form: Form
    parameters: tuple[str, ...]
    operators: tuple[str, ...]
    steps: tuple[ProgramStep, ...] = ()
    result: Argument | None = None

    @property
    def key(self) -> str:
        return hashlib.sha256(self.text.encode("utf8", "surrogatepass")).hexdigest()[:16]

    @property
    def lines(self) -> int:
        return self.text.count("\n")

    @property
    def function(self) -> str:
        return "workflow" if self.form is Form.WORKFLOW else "solve"


LONGEST_TEXT = 8_000
# Levels of nesting, far fewer than overflow Python's own parser.
DEEPEST = 40
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
            raise Faulty(
                FaultCode.FORBIDDEN, "imports are not allowed; the operators are already available", node.lineno
            )
    if len(body) > 1 or not isinstance(body[0], ast.FunctionDef | ast.AsyncFunctionDef):
        stray = next((node for node in body if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)), body[-1])
        raise Faulty(FaultCode.NO_FUNCTION, f"only one function is allowed at the top level; {wanted}", stray.lineno)
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
                FaultCode.TOO_DEEP,
                f"expressions are nested deeper than {DEEPEST}; assign intermediate results to variables",
                line,
            )
        layer = [child for node in layer for child in ast.iter_child_nodes(node)]


Split = Literal["train", "valid", "test"]
SPLITS: tuple[Split, ...] = ("train", "valid", "test")


@dataclass(frozen=True, slots=True)
class Case:
    """Arguments for `solve`, in order, and the correct answer."""

    inputs: tuple[Value, ...]
    answer: Value


@dataclass(frozen=True, slots=True)
class Word:
    """A constant that programs for this problem may contain: its value and its type."""

    value: int | str
    type: Type


@dataclass(frozen=True)
class CodeProblem:
    """A problem to be solved by a program.

    `question` is what the model reads. `constants` are the numbers and words that a line may contain. `max_lines`
    limits the lines of the body, including `return`. `gold` is a correct program for tests of the problem itself;
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
                    f"{self.id}: a case has {len(case.inputs)} inputs, but solve takes {takes}",
                    hint="Every case needs one value per parameter, in order.",
                )

    @property
    def inputs(self) -> dict[str, Value]:
        """The arguments of the question as asked, by parameter name."""
        return dict(zip(self.signature.names, self.cases[0].inputs, strict=True)) if self.cases else {}

    @property
    def answer(self) -> Value:
        return self.cases[0].answer if self.cases else None
