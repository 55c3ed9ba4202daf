"""The straight form: a sequence of operator calls, stored as a graph of values with one fixed order.

A text is straight if every statement assigns an operator call (nested calls are unfolded), a constant or another name,
and the last statement returns one. Names are resolved, equal calls are merged, arguments of commutative operators are
sorted, and the values that the result needs are written depth first. Whatever order, names or nesting the author chose,
equal computations have the same text.
"""

import ast
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from groupwise.programs.language.faults import MOST_LINES, FaultCode, Faulty
from groupwise.programs.language.operators import WRITTEN, Operator, Type, Value, counted
from groupwise.programs.language.program import (
    PARAMETERS,
    Argument,
    Constant,
    Form,
    Parameter,
    Program,
    ProgramStep,
    Result,
    Signature,
)
from groupwise.programs.language.pure_operators import PURE

LARGEST_CONSTANT = 10**9
LONGEST_WORD = 100
PLACES = tuple(f"p{at}" for at in range(len(PARAMETERS)))
VARIABLES = "abcdefghijklmnopqrst"
# Of the arguments of a commutative operator, results come before parameters and constants.
RANKS = {Result: 0, Parameter: 1, Constant: 2}


class _NotStraight(Exception):
    """Not straight; it may still be a plain program."""


@dataclass
class _Reader:
    """Turns statements into values: the steps so far, the index of each, and the value of every name."""

    operators: Mapping[str, Operator]
    steps: list[ProgramStep] = field(default_factory=list)
    places: dict[ProgramStep, int] = field(default_factory=dict)
    names: dict[str, Argument] = field(default_factory=dict)

    def value(self, node: ast.expr) -> Argument:
        if isinstance(node, ast.Call):
            return self.call(node)
        if isinstance(node, ast.Name) and node.id in self.names:
            return self.names[node.id]
        constant = _literal(node)
        if constant is None:
            raise _NotStraight
        return constant

    def call(self, node: ast.Call) -> Argument:
        if not isinstance(node.func, ast.Name) or node.func.id in self.names:
            raise _NotStraight
        operator = self.operators.get(node.func.id)
        if operator is None or operator.kind != "pure" or node.keywords:
            raise _NotStraight
        if not operator.required <= len(node.args) <= len(operator.takes):
            said = f"{operator.name} takes {counted(operator)}, not {len(node.args)}: {operator.heading}"
            raise Faulty(FaultCode.WRONG_ARGUMENTS, said, node.lineno)
        return self.step(ProgramStep(operator.name, tuple(self.value(argument) for argument in node.args)))

    def step(self, step: ProgramStep) -> Result:
        if step not in self.places:
            self.places[step] = len(self.steps)
            self.steps.append(step)
        return Result(self.places[step])


def straight_program(
    function: ast.FunctionDef | ast.AsyncFunctionDef, signature: Signature | None, operators: Mapping[str, Operator]
) -> Program | None:
    """The straight program of a function; None if it is not straight, `Faulty` if it is but has a fault."""
    if isinstance(function, ast.AsyncFunctionDef) or not plainly_called(function.args):
        return None
    names = [argument.arg for argument in function.args.args]
    if len(names) > len(PARAMETERS) or len(set(names)) < len(names):
        return None
    reader = _Reader(operators, names={name: Parameter(at) for at, name in enumerate(names)})
    try:
        result = _follow(function.body, reader)
    except _NotStraight:
        return None
    return straight(len(names), reader.steps, result, signature, operators)


def straight(
    parameters: int,
    steps: Sequence[ProgramStep],
    result: Argument,
    signature: Signature | None,
    operators: Mapping[str, Operator],
) -> Program:
    """The normal form of a graph of steps; `Faulty` if its types do not fit."""
    ordered, result = _laid_out(steps, result, operators)
    if len(ordered) > MOST_LINES:
        raise Faulty(FaultCode.TOO_LONG, f"a program has at most {MOST_LINES} lines, not {len(ordered)}")
    if signature is not None:
        insist_on_types(parameters, ordered, result, signature, operators)
    names = tuple(PARAMETERS[:parameters])
    text = write(names, ordered, result)
    used = tuple(dict.fromkeys(step.operator for step in ordered))
    return Program(text, Form.STRAIGHT, names, used, tuple(ordered), result)


def write(names: Sequence[str], steps: Sequence[ProgramStep], result: Argument) -> str:
    """The text of straight steps, without a final newline."""
    lines = [f"def solve({', '.join(names)}):"]
    for at, step in enumerate(steps):
        given = ", ".join(written(argument, names) for argument in step.arguments)
        lines.append(f"    {variable(at)} = {step.operator}({given})")
    return "\n".join([*lines, f"    return {written(result, names)}"])


def written(argument: Argument, names: Sequence[str]) -> str:
    match argument:
        case Parameter(at):
            return names[at]
        case Result(at):
            return variable(at)
        case Constant(value):
            return repr(value)


def variable(at: int) -> str:
    """The name of a step's result: a, b, c … and then a1, b1 …"""
    turn, letter = divmod(at, len(VARIABLES))
    return VARIABLES[letter] + (str(turn) if turn else "")


def insist_on_types(
    parameters: int,
    steps: Sequence[ProgramStep],
    result: Argument,
    signature: Signature,
    operators: Mapping[str, Operator],
) -> None:
    """Check the types of all arguments and of the result; `Faulty` if one does not fit."""
    if parameters not in (0, len(signature.takes)):
        said = f"solve takes {len(signature.takes)} parameters here, not {parameters}: {signature.header}"
        raise Faulty(FaultCode.WRONG_ARGUMENTS, said, 1)
    found: list[Type] = []

    def type_of(argument: Argument) -> Type:
        match argument:
            case Parameter(at):
                return signature.takes[at]
            case Result(at):
                return found[at]
            case Constant(value):
                return Type.INT if isinstance(value, int) else Type.TEXT

    for step in steps:
        operator = operators[step.operator]
        for argument, wanted in zip(step.arguments, operator.takes, strict=False):
            if not _may_be(type_of(argument), wanted, argument):
                given = ", ".join(written(one, signature.names) for one in step.arguments)
                said = f"`{step.operator}({given})`: {operator.heading} cannot take {type_of(argument)} for {wanted}"
                raise Faulty(FaultCode.WRONG_TYPES, said)
        found.append(operator.gives)
    if not _may_be(type_of(result), signature.gives, result):
        said = f"the answer must be {signature.gives}, but this returns {type_of(result)}"
        raise Faulty(FaultCode.WRONG_TYPES, said)


def _may_be(given: Type, wanted: Type, argument: Argument) -> bool:
    if wanted in WRITTEN:
        return given is Type.TEXT and isinstance(argument, Constant)
    return given == wanted or Type.ANY in (given, wanted)


def plainly_called(arguments: ast.arguments) -> bool:
    """Whether a function has plain parameters only: no defaults, no *."""
    others = (arguments.posonlyargs, arguments.kwonlyargs, arguments.defaults, arguments.vararg, arguments.kwarg)
    return not any(others)


def _follow(body: Sequence[ast.stmt], reader: _Reader) -> Argument:
    for statement in body:
        match statement:
            case ast.Return(value=ast.expr() as value):
                return reader.value(value)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                meant = reader.value(value)
                reader.names[name] = meant
            case ast.Expr(value=ast.Constant(value=str())):
                continue
            case _:
                raise _NotStraight
    raise Faulty(FaultCode.NO_RETURN, "solve never returns; end it with `return` and the answer", body[-1].lineno)


def _literal(node: ast.expr) -> Constant | None:
    sign = 1
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        sign, node = -1, node.operand
    if not isinstance(node, ast.Constant) or isinstance(node.value, bool):
        return None
    if isinstance(node.value, int) and node.value <= LARGEST_CONSTANT:
        return Constant(sign * node.value)
    if isinstance(node.value, str) and sign == 1 and len(node.value) <= LONGEST_WORD and node.value.isprintable():
        return Constant(node.value)
    return None


def _laid_out(
    steps: Sequence[ProgramStep], result: Argument, operators: Mapping[str, Operator]
) -> tuple[list[ProgramStep], Argument]:
    # The steps that the result needs, depth first, with the arguments of commutative operators sorted.
    ordered: list[ProgramStep] = []
    places: dict[ProgramStep, int] = {}
    moved: dict[int, Result] = {}
    shape: dict[int, str] = {}

    def outline(argument: Argument) -> str:
        """What an argument computes, as a sort key that does not depend on names or order."""
        if not isinstance(argument, Result):
            return written(argument, PLACES)
        if argument.at not in shape:
            step = steps[argument.at]
            parts = [outline(part) for part in step.arguments]
            parts = sorted(parts) if operators[step.operator].commutes else parts
            # Computed once per step, so shared results do not multiply the work.
            shape[argument.at] = _short(f"{step.operator}({','.join(parts)})")
        return shape[argument.at]

    def place(argument: Argument) -> Argument:
        if not isinstance(argument, Result):
            return argument
        if argument.at not in moved:
            step = steps[argument.at]
            arguments = step.arguments
            if operators[step.operator].commutes:
                arguments = tuple(sorted(arguments, key=lambda one: (RANKS[type(one)], outline(one))))
            placed = ProgramStep(step.operator, tuple(place(part) for part in arguments))
            if placed not in places:
                places[placed] = len(ordered)
                ordered.append(placed)
            moved[argument.at] = Result(places[placed])
        return moved[argument.at]

    return ordered, place(result)


def _short(text: str) -> str:
    # The text, or a digest if it is long: outlines of nested calls would otherwise grow exponentially.
    if len(text) < 80:
        return text
    return "~" + hashlib.blake2b(text.encode("utf8", "surrogatepass"), digest_size=12).hexdigest()


def run_straight(program: Program, inputs: Sequence[Value], operators: Mapping[str, Operator] = PURE) -> Value:
    """Run a straight program; `OperatorError` if an operator cannot handle its arguments."""
    assert program.result is not None, "only straight programs can be interpreted"
    results: list[Value] = []
    for step in program.steps:
        given = [value_of(argument, inputs, results) for argument in step.arguments]
        results.append(operators[step.operator](*given))
    return value_of(program.result, inputs, results)


def value_of(argument: Argument, inputs: Sequence[Value], results: Sequence[Value]) -> Value:
    if isinstance(argument, Result):
        return results[argument.at]
    return inputs[argument.at] if isinstance(argument, Parameter) else argument.value
