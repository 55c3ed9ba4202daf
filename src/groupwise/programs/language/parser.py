"""From text to program: `parse(text, signature)` returns a `Program` in normal form, or a `ProgramFault`.

Three forms are valid:

- *straight*: `def solve(x):` with operator calls only. It is stored as steps: equal computations are merged, lines
  whose result is never used disappear, and the rest has one fixed order, so that equal programs have equal texts.
- *plain*: `def solve(…):` in a small subset of Python: arithmetic, lists, strings, `if`, a few loops, operators.
- *workflow*: `async def workflow(problem):`, which awaits operators that ask a model.

The plain and workflow forms are checked node by node against what is allowed, then renamed and laid out in one way; a
sandbox runs the resulting text. `parse(program.text)` gives the same text again, for every program of every form.
"""

import ast
import builtins
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeGuard

from groupwise.programs.language.faults import MOST_LINES, NESTED, FaultCode, Faulty, ProgramFault, read
from groupwise.programs.language.operators import Operator, Registry, counted
from groupwise.programs.language.program import PARAMETERS, Form, Program, Signature
from groupwise.programs.language.pure_operators import PURE
from groupwise.programs.language.straight_form import plainly_called, straight_program, variable

MOST_LOOPS = 4
LARGEST_LITERAL = 10**18
Function = ast.FunctionDef | ast.AsyncFunctionDef

BUILTINS = frozenset(
    (
        "abs", "all", "any", "bool", "chr", "dict", "divmod", "enumerate", "filter", "float", "int", "len",
        "list", "map", "max", "min", "ord", "range", "reversed", "round", "set", "sorted", "str", "sum",
        "tuple", "zip",
    )
)  # fmt: skip
METHODS = frozenset(
    (
        "add", "append", "capitalize", "copy", "count", "discard", "endswith", "extend", "find", "get",
        "index", "insert", "intersection", "isalpha", "isdigit", "islower", "isupper", "items", "join", "keys",
        "lower", "lstrip", "pop", "remove", "replace", "reverse", "rstrip", "setdefault", "sort", "split",
        "startswith", "strip", "title", "union", "update", "upper", "values",
    )
)  # fmt: skip
ALLOWED = (
    ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Return, ast.If, ast.For, ast.While, ast.Expr, ast.Pass, ast.Break,
    ast.Continue, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Call, ast.keyword, ast.Constant,
    ast.Name, ast.Attribute, ast.Subscript, ast.Slice, ast.List, ast.Tuple, ast.Dict, ast.Set, ast.ListComp,
    ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.comprehension, ast.JoinedStr, ast.FormattedValue, ast.Lambda,
    ast.arguments, ast.arg, ast.Await, ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop,
)  # fmt: skip
LOOPS = (ast.For, ast.While, ast.comprehension)
WORDS: dict[type[ast.AST], str] = {
    ast.Import: "import", ast.ImportFrom: "import", ast.ClassDef: "class", ast.FunctionDef: "a function inside",
    ast.AsyncFunctionDef: "a function inside", ast.Try: "try", ast.With: "with", ast.Global: "global",
    ast.Delete: "del", ast.Yield: "yield", ast.YieldFrom: "yield", ast.Raise: "raise", ast.Assert: "assert",
    ast.NamedExpr: ":=", ast.Nonlocal: "nonlocal", ast.Starred: "*", ast.Match: "match",
}  # fmt: skip
FORBIDDEN_NAMES = frozenset(
    (
        "eval", "exec", "compile", "open", "input", "print", "globals", "locals", "vars", "dir", "getattr",
        "setattr", "delattr", "hasattr", "type", "object", "super", "id", "breakpoint", "exit", "quit", "help",
        "memoryview", "bytearray", "bytes", "classmethod", "staticmethod", "property", "iter", "next", "hash",
        "callable", "isinstance", "issubclass", "format", "pow", "slice", "os", "sys", "subprocess", "asyncio",
        "importlib", "builtins",
    )
)  # fmt: skip


@dataclass(frozen=True)
class Checks:
    """What a function must and must not contain; the first violation is raised as `Faulty`."""

    function: Function
    signature: Signature | None
    operators: Mapping[str, Operator]

    def run(self) -> None:
        self._header()
        own = frozenset(bound_names(self.function))
        awaited: set[ast.AST] = {node.value for node in ast.walk(self.function) if isinstance(node, ast.Await)}
        loops = 0
        for node in inside(self.function):
            self._node(node)
            loops += isinstance(node, LOOPS)
            if loops > MOST_LOOPS:
                said = f"a program has at most {MOST_LOOPS} loops; use operators instead"
                raise Faulty(FaultCode.TOO_MANY_LOOPS, said, _line(node))
            if isinstance(node, ast.Call):
                self._call(node, own, awaited)
            elif isinstance(node, ast.Name):
                self._name(node, own)
        if not any(isinstance(node, ast.Return) and node.value is not None for node in inside(self.function)):
            said = f"{self.function.name} never returns; end it with `return` and the answer"
            raise Faulty(FaultCode.NO_RETURN, said, self.function.body[-1].lineno)
        last = max(_line(node) for node in inside(self.function))
        if last - self.function.lineno > MOST_LINES:
            raise Faulty(FaultCode.TOO_LONG, f"a program has at most {MOST_LINES} lines", last)

    def _header(self) -> None:
        arguments, line = self.function.args, self.function.lineno
        if not plainly_called(arguments) or len(arguments.args) > len(PARAMETERS):
            said = f"{self.function.name} takes at most {len(PARAMETERS)} plain parameters, without defaults or *"
            raise Faulty(FaultCode.WRONG_ARGUMENTS, said, line)
        found = len(arguments.args)
        if isinstance(self.function, ast.AsyncFunctionDef):
            if found != 1:
                said = f"a workflow takes only the problem, not {found} parameters: workflow(problem)"
                raise Faulty(FaultCode.WRONG_ARGUMENTS, said, line)
        elif self.signature is not None and found not in (0, len(self.signature.takes)):
            said = f"solve takes {len(self.signature.takes)} parameters here, not {found}: {self.signature.header}"
            raise Faulty(FaultCode.WRONG_ARGUMENTS, said, line)

    def _node(self, node: ast.AST) -> None:
        if not isinstance(node, ALLOWED):
            word = WORDS.get(type(node), type(node).__name__)
            said = f"{word} is not allowed in workflow code; use plain statements and operators"
            raise Faulty(FaultCode.FORBIDDEN, said, _line(node))
        if isinstance(node, ast.Constant):
            self._constant(node)
        elif isinstance(node, ast.Attribute) and node.attr not in METHODS:
            said = f"the attribute {node.attr[:40]!r} is not allowed; methods are {', '.join(sorted(METHODS)[:8])} …"
            raise Faulty(FaultCode.FORBIDDEN, said, node.lineno)
        elif isinstance(node, ast.Await) and not isinstance(self.function, ast.AsyncFunctionDef):
            raise Faulty(FaultCode.FORBIDDEN, "await is only allowed in `async def workflow(problem):`", node.lineno)
        elif isinstance(node, ast.Lambda) and not plainly_called(node.args):
            raise Faulty(FaultCode.FORBIDDEN, "a lambda takes plain parameters only", node.lineno)
        elif isinstance(node, ast.comprehension) and node.is_async:
            raise Faulty(FaultCode.FORBIDDEN, "async comprehensions are not allowed", _line(node.target))

    def _constant(self, node: ast.Constant) -> None:
        value = node.value
        if value is not None and not isinstance(value, bool | int | float | str):
            said = f"constants are numbers and strings, not {type(value).__name__}"
            raise Faulty(FaultCode.FORBIDDEN, said, node.lineno)
        if isinstance(value, int) and abs(value) > LARGEST_LITERAL:
            raise Faulty(FaultCode.TOO_LONG, f"a number may not exceed {LARGEST_LITERAL:,}", node.lineno)

    def _call(self, node: ast.Call, own: frozenset[str], awaited: set[ast.AST]) -> None:
        if isinstance(node.func, ast.Attribute):
            return
        if not isinstance(node.func, ast.Name) or node.func.id in own:
            raise Faulty(FaultCode.FORBIDDEN, "only operators, builtins and methods can be called", node.lineno)
        name = node.func.id
        operator = self.operators.get(name)
        if operator is None:
            if name not in BUILTINS:
                self._insist_harmless(name, node.lineno)
                hint = Registry(self.operators.values()).like(name)
                raise Faulty(FaultCode.UNKNOWN_OPERATOR, f"there is no operator {name[:40]!r}. {hint}", node.lineno)
            return
        if node.keywords or not operator.required <= len(node.args) <= len(operator.takes):
            said = f"{name} takes {counted(operator)} in order, not {len(node.args)}: {operator.heading}"
            raise Faulty(FaultCode.WRONG_ARGUMENTS, said, node.lineno)
        if (operator.kind == "model") != (node in awaited):
            said = f"{name} asks a model: write `await {name}(…)` in `async def workflow(problem):`"
            plain = f"{name} is not asynchronous: call it without `await`"
            raise Faulty(FaultCode.WRONG_TYPES, said if operator.kind == "model" else plain, node.lineno)

    def _insist_harmless(self, name: str, line: int) -> None:
        if name in FORBIDDEN_NAMES or name.startswith("_"):
            said = f"{name[:40]} is not allowed in workflow code; programs compute and nothing else"
            raise Faulty(FaultCode.FORBIDDEN, said, line)

    def _name(self, node: ast.Name, own: frozenset[str]) -> None:
        if node.id in own or node.id in BUILTINS or node.id in self.operators:
            return
        self._insist_harmless(node.id, node.lineno)
        known = ", ".join(sorted(own)[:8]) or "none"
        said = f"{node.id[:40]!r} was never given a value; the names here are {known}"
        raise Faulty(FaultCode.UNKNOWN_NAME, said, node.lineno)


def bound_names(function: Function) -> list[str]:
    """Every name that a function binds, in order: parameters, variables, and those of loops and lambdas."""
    names = [argument.arg for argument in function.args.args]
    for node in inside(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.append(node.id)
        elif isinstance(node, ast.Lambda):
            names += [argument.arg for argument in node.args.args]
    return list(dict.fromkeys(names))


def inside(function: Function) -> Iterator[ast.AST]:
    """Every node of a body, in order of appearance."""

    def visit(node: ast.AST) -> Iterator[ast.AST]:
        yield node
        for child in ast.iter_child_nodes(node):
            yield from visit(child)

    for statement in function.body:
        yield from visit(statement)


def _line(node: ast.AST) -> int:
    return getattr(node, "lineno", 0)


__all__ = ["Form", "Program", "ProgramFault", "Signature", "parse"]

# Normalising can make more of it possible; programs that need more rounds are refused.
ROUNDS = 4


def parse(
    text: str, signature: Signature | None = None, operators: Mapping[str, Operator] = PURE
) -> Program | ProgramFault:
    """The program in a text, or its first fault. It never raises."""
    try:
        tree = read(text)
        return straight_program(tree, signature, operators) or plain_program(tree, signature, operators)
    except Faulty as faulty:
        return faulty.fault
    except RecursionError:
        return ProgramFault(FaultCode.TOO_DEEP, NESTED)


def plain_program(function: Function, signature: Signature | None, operators: Mapping[str, Operator]) -> Program:
    """The plain program or workflow of a function; `Faulty` if it is not one."""
    Checks(function, signature, operators).run()
    text = _settled(function, operators)
    written = read(text)
    names = tuple(argument.arg for argument in written.args.args)
    called = (node.func.id for node in ast.walk(written) if isinstance(node, ast.Call) and _is_name(node.func))
    used = tuple(dict.fromkeys(name for name in called if name in operators))
    form = Form.WORKFLOW if isinstance(function, ast.AsyncFunctionDef) else Form.PLAIN
    return Program(text, form, names, used)


def host_name(operator: str) -> str:
    """An operator's name in a sandbox: its own, unless it is a Python builtin, which would take precedence."""
    return f"{operator}_operator" if hasattr(builtins, operator) else operator


def hosted(program: Program) -> str:
    """The text that a sandbox runs: the program with the operators' names in the sandbox."""
    other = {name: host_name(name) for name in program.operators if host_name(name) != name}
    return ast.unparse(_Renaming(other).visit(ast.parse(program.text))) if other else program.text


def _settled(function: Function, operators: Mapping[str, Operator]) -> str:
    # The normal text: a fixed point of reading and writing.
    text = ""
    for _ in range(ROUNDS):
        try:
            again = ast.unparse(_normal(function, operators))
        except ValueError as error:  # an f-string that cannot be unparsed
            raise Faulty(FaultCode.SYNTAX, f"this cannot be normalised: {error}") from None
        if again == text:
            return text
        text = again
        function = read(text)
    raise Faulty(FaultCode.SYNTAX, "this has no normal form; write it more simply")


def _normal(function: Function, operators: Mapping[str, Operator]) -> Function:
    # The function without comments, annotations and dead lines, and with normal names.
    before = 0
    while (size := len(list(inside(function)))) != before:
        before = size
        loads = {node.id for node in inside(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
        # `x += 1` reads x as well.
        loads |= {n.target.id for n in inside(function) if isinstance(n, ast.AugAssign) and _is_name(n.target)}
        function.body = _living(function.body, frozenset(loads), operators)
    own = [argument.arg for argument in function.args.args]
    names = ["problem"] if isinstance(function, ast.AsyncFunctionDef) else list(PARAMETERS[: len(own)])
    given = dict(zip(own, names, strict=True))
    for name in bound_names(function):
        if name not in given:
            given[name] = variable(len(given) - len(own))
    function.returns = None
    renamed: Function = _Renaming(given).visit(function)
    return ast.fix_missing_locations(renamed)


def _living(body: list[ast.stmt], used: frozenset[str], operators: Mapping[str, Operator]) -> list[ast.stmt]:
    # The statements of a block that have an effect; `pass` if there are none.
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
    # Whether an expression has no effect besides its value.
    for node in ast.walk(value):
        if isinstance(node, ast.Await):
            return False
        if isinstance(node, ast.Call) and not (_is_name(node.func) and node.func.id in {*BUILTINS, *operators}):
            return False
    return True


class _Renaming(ast.NodeTransformer):
    """Renames the variables of a function, and drops annotations."""

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
