"""What plain programs and workflows may hold, node by node: the first breach is raised as `Faulty`."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from groupwise.programs.language.operators import Operator, Registry, counted
from groupwise.programs.language.program import MOST_LINES, PARAMETERS, FaultCode, Faulty, Signature
from groupwise.programs.language.straight import plainly_called

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
    """What a function must and must not hold; the first breach is raised as `Faulty`."""

    function: Function
    signature: Signature | None
    operators: Mapping[str, Operator]

    def run(self) -> None:
        self._header()
        own, awaited = bound(self.function), self._awaited()
        loops = 0
        for node in inside(self.function):
            self._node(node)
            loops += isinstance(node, LOOPS)
            if loops > MOST_LOOPS:
                said = f"a program has at most {MOST_LOOPS} loops; use operators or fewer passes"
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
            said = f"{self.function.name} takes at most {len(PARAMETERS)} plain parameters, without defaults or stars"
            raise Faulty(FaultCode.WRONG_ARGUMENTS, said, line)
        found = len(arguments.args)
        if isinstance(self.function, ast.AsyncFunctionDef):
            if found != 1:
                said = f"a workflow takes the problem and nothing else, not {found} parameters: workflow(problem)"
                raise Faulty(FaultCode.WRONG_ARGUMENTS, said, line)
        elif self.signature is not None and found not in (0, len(self.signature.takes)):
            said = f"solve takes {len(self.signature.takes)} parameters here, not {found}: {self.signature.header}"
            raise Faulty(FaultCode.WRONG_ARGUMENTS, said, line)

    def _awaited(self) -> set[ast.AST]:
        return {node.value for node in ast.walk(self.function) if isinstance(node, ast.Await)}

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
            raise Faulty(FaultCode.FORBIDDEN, "await stands only in `async def workflow(problem):`", node.lineno)
        elif isinstance(node, ast.Lambda) and not plainly_called(node.args):
            raise Faulty(FaultCode.FORBIDDEN, "a lambda takes plain parameters only", node.lineno)
        elif isinstance(node, ast.comprehension) and node.is_async:
            raise Faulty(FaultCode.FORBIDDEN, "async comprehensions are not allowed", _line(node.target))

    def _constant(self, node: ast.Constant) -> None:
        value = node.value
        if value is not None and not isinstance(value, bool | int | float | str):
            raise Faulty(
                FaultCode.FORBIDDEN, f"constants are numbers and texts, not {type(value).__name__}", node.lineno
            )
        if isinstance(value, int) and abs(value) > LARGEST_LITERAL:
            raise Faulty(FaultCode.TOO_LONG, f"a number may not go beyond {LARGEST_LITERAL:,}", node.lineno)

    def _call(self, node: ast.Call, own: frozenset[str], awaited: set[ast.AST]) -> None:
        if isinstance(node.func, ast.Attribute):
            return
        if not isinstance(node.func, ast.Name) or node.func.id in own:
            raise Faulty(FaultCode.FORBIDDEN, "only operators, builtins and methods can be called", node.lineno)
        name = node.func.id
        operator = self.operators.get(name)
        if operator is None:
            if name not in BUILTINS:
                self._unknown(name, node.lineno)
            return
        if node.keywords or not operator.required <= len(node.args) <= len(operator.takes):
            said = f"{name} takes {counted(operator)} in order, not {len(node.args)}: {operator.heading}"
            raise Faulty(FaultCode.WRONG_ARGUMENTS, said, node.lineno)
        if (operator.kind == "model") != (node in awaited):
            said = f"{name} asks a model: write `await {name}(…)` in `async def workflow(problem):`"
            plain = f"{name} is no coroutine: call it without `await`"
            raise Faulty(FaultCode.WRONG_TYPES, said if operator.kind == "model" else plain, node.lineno)

    def _unknown(self, name: str, line: int) -> None:
        if name in FORBIDDEN_NAMES or name.startswith("_"):
            said = f"{name[:40]} is not allowed in workflow code; programs compute and nothing else"
            raise Faulty(FaultCode.FORBIDDEN, said, line)
        hint = Registry(self.operators.values()).like(name)
        raise Faulty(FaultCode.UNKNOWN_OPERATOR, f"there is no operator {name[:40]!r}. {hint}", line)

    def _name(self, node: ast.Name, own: frozenset[str]) -> None:
        if node.id in own or node.id in BUILTINS or node.id in self.operators:
            return
        if node.id in FORBIDDEN_NAMES or node.id.startswith("_"):
            said = f"{node.id[:40]} is not allowed in workflow code; programs compute and nothing else"
            raise Faulty(FaultCode.FORBIDDEN, said, node.lineno)
        known = ", ".join(sorted(own)[:8]) or "none"
        raise Faulty(
            FaultCode.UNKNOWN_NAME, f"{node.id[:40]!r} was never given a value; the names here are {known}", node.lineno
        )


def bound(function: Function) -> frozenset[str]:
    """Every name that a function gives a value to: parameters, variables, and those of loops and lambdas."""
    return frozenset(bound_in_order(function))


def bound_in_order(function: Function) -> list[str]:
    """These names, in the order of the text."""
    names = [argument.arg for argument in function.args.args]
    for node in inside(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.append(node.id)
        elif isinstance(node, ast.Lambda):
            names += [argument.arg for argument in node.args.args]
    return list(dict.fromkeys(names))


def inside(function: Function) -> Iterator[ast.AST]:
    """Every node of a body, in the order of the text."""

    def visit(node: ast.AST) -> Iterator[ast.AST]:
        yield node
        for child in ast.iter_child_nodes(node):
            yield from visit(child)

    for statement in function.body:
        yield from visit(statement)


def _line(node: ast.AST) -> int:
    return getattr(node, "lineno", 0)
