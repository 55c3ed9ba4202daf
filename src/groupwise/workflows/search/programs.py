"""The domain of workflow code: a state is a program's lines so far, an action is its next line."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeAlias

from groupwise.workflows.code.grammar import as_program
from groupwise.workflows.code.problem import CodeProblem
from groupwise.workflows.code.program import Program, parse
from groupwise.workflows.code.steps import PARAMETERS
from groupwise.workflows.search.domain import Domain, Judged
from groupwise.workflows.search.priors import Lines, Prior

Prefix: TypeAlias = tuple[str, ...]
CALL = re.compile(r"\w+ = (\w+)\((.*)\)", re.ASCII)
RESULT = re.compile(rf"(?<![\w'\"])(?![{PARAMETERS}]\b)[a-z]\d*(?![\w'\"])", re.ASCII)


def program_domain(problem: CodeProblem, judge: Callable[[str], Judged], prior: Prior) -> Domain[Prefix]:
    """The search for a program that solves a problem. `judge` evaluates the text of a program.

    Finished programs are the same if their normal forms are; then one is evaluated for all of them.
    """

    def actions(prefix: Prefix) -> Lines:
        if finished(prefix) or len(prefix) >= problem.max_lines:
            return []
        return prior.lines(problem, prefix)

    def key(prefix: Prefix) -> str:
        text = as_program(prefix, problem)
        if not finished(prefix):
            return text
        program = parse(text, problem.signature)
        return program.key if isinstance(program, Program) else text

    return Domain(
        name=f"{problem.id}, {prior.name} prior",
        root=(),
        actions=actions,
        step=lambda prefix, line: (*prefix, line),
        key=key,
        evaluate=lambda prefix: judge(as_program(prefix, problem)),
        traits=traits,
    )


def finished(prefix: Sequence[str]) -> bool:
    return bool(prefix) and prefix[-1].startswith("return")


@lru_cache(maxsize=10_000)
def traits(line: str) -> tuple[str, ...]:
    """What a line has in common with others: its operator, and its call whatever results it is given."""
    call = CALL.fullmatch(line)
    return (call[1], f"{call[1]}({RESULT.sub('_', call[2])})") if call else ()
