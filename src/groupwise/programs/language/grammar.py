"""The legal next lines of a straight program, in a fixed order.

`legal_lines(prefix, problem)` never leads into a dead end: from every line it offers, some sequence of legal lines
reaches a `return` of the right type within the problem's `max_lines`, with no result left unused. Lines that only
repeat an earlier result, or swap the arguments of a commutative operator, are left out.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

from groupwise.errors import ContractError
from groupwise.programs.language.operators import Type
from groupwise.programs.language.program import (
    Argument,
    CodeProblem,
    Constant,
    Form,
    Parameter,
    Program,
    ProgramStep,
    Result,
    Signature,
)
from groupwise.programs.language.pure_operators import PURE
from groupwise.programs.language.straight_form import variable, written

# How many further steps the search for a reachable `return` looks ahead.
FAR_ENOUGH = 6
INDENT = "    "
LINE = re.compile(r"(\w+) = (\w+)\((.*)\)", re.ASCII)
ARGUMENT = re.compile(r"\s*('[^']*'|\"[^\"]*\"|-?\w+)\s*(?:,|$)", re.ASCII)


def legal_lines(prefix: Sequence[str], problem: CodeProblem) -> list[str]:
    """The lines that may follow the body so far (ignoring indentation).

    There are none after a `return`, or after lines that are not straight, typed and within the problem's limit.
    """
    return list(_legal(tuple(line.strip() for line in prefix), _facts(problem)))


def one_step_programs(problem: CodeProblem) -> Iterator[Program]:
    """Every legal one-step program, ready to run but without text: none of them may solve a harder problem."""
    facts = _facts(problem)
    for step in _steps(_Scope(), facts):
        if PURE[step.operator].gives == facts.signature.gives:
            yield Program("", Form.STRAIGHT, facts.signature.names, (step.operator,), (step,), Result(0))


def line_weights(lines: Sequence[str]) -> list[float]:
    """The uninformed distribution over legal lines: uniform over operators (`return` is one), then over arguments.

    Uniform lines would favour operators with many possible arguments, and programs would rarely end before they must.
    """
    kinds = [line.split("(", 1)[0].split(" = ")[-1].split(" ")[0] for line in lines]
    sizes = Counter(kinds)
    return [1 / (len(sizes) * sizes[kind]) for kind in kinds]


def random_program(problem: CodeProblem, rng: random.Random) -> str:
    """A legal program, sampled line by line from `line_weights`."""
    body: list[str] = []
    while lines := legal_lines(body, problem):
        body += rng.choices(lines, line_weights(lines))
    if not body:
        raise ContractError(
            f"no program of {problem.max_lines} lines returns {problem.signature.gives} for {problem.id}",
            hint="Raise the problem's max_lines.",
        )
    return as_program(body, problem)


def as_program(body: Sequence[str], problem: CodeProblem) -> str:
    """The lines of a body below the problem's header."""
    return "\n".join([problem.signature.header, *(INDENT + line.strip() for line in body)])


@dataclass(frozen=True, slots=True)
class _Facts:
    """The part of a problem that decides what is legal; the key of the caches below."""

    signature: Signature
    constants: tuple[tuple[Type, int | str], ...]
    max_lines: int


def _facts(problem: CodeProblem) -> _Facts:
    return _Facts(problem.signature, tuple((word.type, word.value) for word in problem.constants), problem.max_lines)


@dataclass(frozen=True, slots=True)
class _Scope:
    """What a prefix has computed: its steps, the types of their results, and which results are unused so far."""

    steps: tuple[ProgramStep, ...] = ()
    types: tuple[Type, ...] = ()
    unused: frozenset[int] = frozenset()

    def after(self, step: ProgramStep) -> _Scope:
        used = {argument.at for argument in step.arguments if isinstance(argument, Result)}
        unused = (self.unused - used) | {len(self.steps)}
        return _Scope((*self.steps, step), (*self.types, PURE[step.operator].gives), unused)


@lru_cache(maxsize=20_000)
def _legal(prefix: tuple[str, ...], facts: _Facts) -> tuple[str, ...]:
    scope = _scope(prefix, facts)
    if scope is None:
        return ()
    names = facts.signature.names
    left = facts.max_lines - len(prefix) - 2  # lines for steps after this one, before the return
    lines = []
    known: dict[tuple[Type, frozenset[int]], bool] = {}
    for step in _steps(scope, facts) if left >= 0 else ():
        used = scope.unused.intersection([one.at for one in step.arguments if isinstance(one, Result)])
        alike = (PURE[step.operator].gives, used)
        if alike not in known:
            known[alike] = _can_end(scope.after(step), facts, left)
        if known[alike]:
            given = ", ".join(written(argument, names) for argument in step.arguments)
            lines.append(f"{variable(len(prefix))} = {step.operator}({given})")
    if len(scope.unused) == 1 and scope.types[(at := next(iter(scope.unused)))] == facts.signature.gives:
        lines.append(f"return {variable(at)}")
    return tuple(lines)


def _steps(scope: _Scope, facts: _Facts) -> Iterator[ProgramStep]:
    # Every legal step: typed, no argument twice, not computed before, and not only constants if there are parameters.
    done = set(scope.steps)
    # Everything that a line may refer to, with its type: results, parameters, constants.
    values: list[tuple[Argument, Type]] = [(Result(at), kind) for at, kind in enumerate(scope.types)]
    values += [(Parameter(at), kind) for at, kind in enumerate(facts.signature.takes)]
    values += [(Constant(value), kind) for kind, value in facts.constants]
    places = {argument: at for at, (argument, _) in enumerate(values)}
    for operator in PURE.values():
        choices = [[argument for argument, kind in values if kind == wanted] for wanted in operator.takes]
        for given in product(*choices):
            step = ProgramStep(operator.name, given)
            constant = all(isinstance(argument, Constant) for argument in given)
            if len(set(given)) < len(given) or (facts.signature.takes and constant):
                continue
            if operator.commutes and places[given[0]] > places[given[1]]:
                continue
            if step not in done:
                yield step


def _can_end(scope: _Scope, facts: _Facts, left: int) -> bool:
    # Whether a `return` of the right type, with no unused result, is within reach.
    waiting = tuple(sorted(scope.types[at] for at in scope.unused))
    free = {*facts.signature.takes, *(kind for kind, _ in facts.constants)}
    free |= {kind for at, kind in enumerate(scope.types) if at not in scope.unused}
    return _reachable(waiting, frozenset(free), facts.signature.gives, min(left, FAR_ENOUGH))


@lru_cache(maxsize=20_000)
def _reachable(waiting: tuple[Type, ...], free: frozenset[Type], gives: Type, left: int) -> bool:
    if waiting == (gives,):
        return True
    # An operator consumes at most three results and adds one, so each step removes at most two.
    if left == 0 or len(waiting) > 2 * left + 1:
        return False
    for operator in PURE.values():
        for spared, consumed in _sources(operator.takes, waiting, free):
            after = tuple(sorted((*spared, operator.gives)))
            if len(after) <= len(waiting) and _reachable(after, free | consumed, gives, left - 1):
                return True
    return False


def _sources(
    takes: tuple[Type, ...], waiting: tuple[Type, ...], free: frozenset[Type]
) -> Iterator[tuple[tuple[Type, ...], frozenset[Type]]]:
    # The ways to supply an operator: the types still unused afterwards, and those consumed.
    for choice in product((True, False), repeat=len(takes)):
        spared, consumed = list(waiting), set()
        for wanted, from_waiting in zip(takes, choice, strict=True):
            if from_waiting and wanted in spared:
                spared.remove(wanted)
                consumed.add(wanted)
            elif from_waiting or wanted not in free:
                break
        else:
            if consumed:
                yield tuple(spared), frozenset(consumed)


def _scope(prefix: tuple[str, ...], facts: _Facts) -> _Scope | None:
    # The scope after the lines of a prefix; None if they are not the beginning of a straight program.
    scope = _Scope()
    names = dict(zip(facts.signature.names, map(Parameter, range(len(facts.signature.takes))), strict=True))
    for at, line in enumerate(prefix):
        step = _read(line, {**names, **{variable(n): Result(n) for n in range(at)}})
        if step is None or step.operator not in PURE:
            return None
        scope = scope.after(step)
    return scope


def _read(line: str, names: Mapping[str, Argument]) -> ProgramStep | None:
    found = LINE.fullmatch(line)
    if found is None:
        return None
    arguments: list[Argument] = []
    at, inside = 0, found[3]
    while at < len(inside):
        one = ARGUMENT.match(inside, at)
        if one is None:
            return None
        at, text = one.end(), one[1]
        if text in names:
            arguments.append(names[text])
        elif text[0] in "'\"":
            arguments.append(Constant(text[1:-1]))
        elif text.lstrip("-").isdecimal() and len(text) <= 10:
            arguments.append(Constant(int(text)))
        else:
            return None
    return ProgramStep(found[2], tuple(arguments))
