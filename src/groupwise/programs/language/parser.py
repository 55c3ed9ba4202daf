"""Programs: workflow code that was read, checked and put into its one normal form.

    parse(text, signature) -> Program | ProgramFault

Three forms are valid:

- *straight*: `def solve(x):` with operator calls only. It is kept as steps; equal computations become one, lines whose
  result nobody uses vanish, and the rest is laid out in one order, so that equal programs have equal texts.
- *plain*: `def solve(…):` in a small Python: arithmetic, lists, texts, `if`, a few loops, operators too.
- *workflow*: `async def workflow(problem):`, which awaits operators that ask a model.

`parse(program.text)` gives the same text again, for every program of every form.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Mapping
from typing import TypeGuard

from groupwise.programs.language.operators import Operator
from groupwise.programs.language.plain_checks import BUILTINS, Checks, Function, bound_in_order, inside
from groupwise.programs.language.program import (
    DEEPEST,
    PARAMETERS,
    FaultCode,
    Faulty,
    Form,
    Program,
    ProgramFault,
    Signature,
    read,
)
from groupwise.programs.language.pure_operators import PURE
from groupwise.programs.language.straight import straight_program, variable

__all__ = ["Form", "Program", "ProgramFault", "Signature", "parse"]

ROUNDS = 4


def parse(
    text: str, signature: Signature | None = None, operators: Mapping[str, Operator] = PURE
) -> Program | ProgramFault:
    """The program that a text is, or the first fault that keeps it from being one. It never raises."""
    try:
        tree = read(text)
        made = straight_program(tree, signature, operators) or plain_program(tree, signature, operators)
    except Faulty as faulty:
        return faulty.fault
    except RecursionError:
        return ProgramFault(
            FaultCode.TOO_DEEP, f"expressions are nested deeper than {DEEPEST}; give steps names of their own"
        )
    return made


def plain_program(function: Function, signature: Signature | None, operators: Mapping[str, Operator]) -> Program:
    """The plain program or workflow that a function is; `Faulty` if it is none."""
    Checks(function, signature, operators).run()
    text = _settled(function, operators)
    written = read(text)
    names = tuple(argument.arg for argument in written.args.args)
    called = (node.func.id for node in ast.walk(written) if isinstance(node, ast.Call) and _is_name(node.func))
    used = tuple(dict.fromkeys(name for name in called if name in operators))
    form = Form.WORKFLOW if isinstance(function, ast.AsyncFunctionDef) else Form.PLAIN
    return Program(text, form, names, used)


def host_name(operator: str) -> str:
    """The name an operator has in a sandbox: its own, unless Python has a builtin of that name, which would win."""
    return f"{operator}_operator" if hasattr(builtins, operator) else operator


def hosted(program: Program) -> str:
    """The text that a sandbox runs: the program, with operators under the names they have there."""
    other = {name: host_name(name) for name in program.operators if host_name(name) != name}
    return ast.unparse(_Renaming(other).visit(ast.parse(program.text))) if other else program.text


def _settled(function: Function, operators: Mapping[str, Operator]) -> str:
    """The normal text: writing it, reading it and writing it again changes nothing any more."""
    text = ""
    for _ in range(ROUNDS):
        try:
            again = ast.unparse(_normal(function, operators))
        except ValueError as error:  # an f-string that cannot be written down
            raise Faulty(FaultCode.SYNTAX, f"this cannot be written back: {error}") from None
        if again == text:
            return text
        text = again
        function = read(text)
    raise Faulty(FaultCode.SYNTAX, "this has no settled form; write it more simply")


def _normal(function: Function, operators: Mapping[str, Operator]) -> Function:
    """The function without remarks, annotations and dead lines, and with the names that everybody gets."""
    before = 0
    while (size := len(list(inside(function)))) != before:
        before = size
        function.body = _living(function.body, _read_names(function), operators)
    own = [argument.arg for argument in function.args.args]
    names = ["problem"] if isinstance(function, ast.AsyncFunctionDef) else list(PARAMETERS[: len(own)])
    given = dict(zip(own, names, strict=True))
    for name in bound_in_order(function):
        if name not in given:
            given[name] = variable(len(given) - len(own))
    function.returns = None
    renamed: Function = _Renaming(given).visit(function)
    return ast.fix_missing_locations(renamed)


def _read_names(function: Function) -> frozenset[str]:
    """The names whose values are looked at somewhere."""
    loaded = {node.id for node in inside(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    changed = {n.target.id for n in inside(function) if isinstance(n, ast.AugAssign) and _is_name(n.target)}
    return frozenset(loaded | changed)


def _living(body: list[ast.stmt], used: frozenset[str], operators: Mapping[str, Operator]) -> list[ast.stmt]:
    """The statements of a block that can matter; `pass` if none does."""
    kept: list[ast.stmt] = []
    for statement in body:
        if isinstance(statement, ast.If | ast.For | ast.While):
            statement.body = _living(statement.body, used, operators)
            statement.orelse = _living(statement.orelse, used, operators) if statement.orelse else []
            if all(isinstance(one, ast.Pass) for one in statement.orelse):
                statement.orelse = []
        if not _is_dead(statement, used, operators):
            kept.append(statement)
        if isinstance(statement, ast.Return | ast.Break | ast.Continue):
            break
    return kept or [ast.Pass()]


def _is_dead(statement: ast.stmt, used: frozenset[str], operators: Mapping[str, Operator]) -> bool:
    match statement:
        case ast.Pass() | ast.AnnAssign(value=None):
            return True
        case ast.Expr(value=value):
            return _is_pure(value, operators)
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            return name not in used and _is_pure(value, operators)
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            return name not in used and _is_pure(value, operators)
    return False


def _is_pure(value: ast.expr, operators: Mapping[str, Operator]) -> bool:
    """Whether nothing but its value can come of an expression."""
    for node in ast.walk(value):
        if isinstance(node, ast.Await):
            return False
        if isinstance(node, ast.Call) and not (_is_name(node.func) and node.func.id in {*BUILTINS, *operators}):
            return False
    return True


class _Renaming(ast.NodeTransformer):
    """Gives every own name of a function its new one, and drops annotations."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id = self.names.get(node.id, node.id)
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.arg, node.annotation = self.names.get(node.arg, node.arg), None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        assert node.value is not None, "annotations without a value are dead lines"
        return self.visit(ast.copy_location(ast.Assign([node.target], node.value), node))  # type: ignore[no-any-return]


def _is_name(node: ast.expr) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name)
