"""What the model reads and writes: a question and a header in, the lines of a program's body out.

    hugo starts with x stickers. how many stickers does each of y friends get? 1 step to int
    def solve(x, y):
                        → the model goes on:
        a = div(x, y)
        return a

The numbers of a question that are parameters of `solve` are read as their names, and how many steps a program may have
and what it gives are told: all of that is in the problem, and every prior and every random program knows it too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from groupwise.language.tiny import piece_tokenizer
from groupwise.programs.language.grammar import INDENT
from groupwise.programs.language.operators import Type
from groupwise.programs.language.problem import CodeProblem
from groupwise.programs.language.pure_operators import PURE
from groupwise.programs.language.straight import variable
from groupwise.programs.problems import tables, vocabulary

NUMBER, WORD = re.compile(r"\d+"), re.compile(r"[A-Za-z]+")
PARAMETERS, VARIABLES = 4, 6
CONTEXT = 512


def question_of(problem: CodeProblem) -> str:
    """The question as it is read: parameters by name, words in lower case unless a program may have to write them."""
    return WORD.sub(lambda word: _read(word[0], _kept(problem)), _with_parameters(problem))


def prompt_of(problem: CodeProblem) -> str:
    """All the model reads before it writes."""
    steps = problem.max_lines - 1
    limit = f"{steps} step{'s' if steps > 1 else ''} to {problem.signature.gives}"
    return f"{question_of(problem)} {limit}\n{problem.signature.header}"


def whole_text(problem: CodeProblem, written: str) -> str:
    """The program that an answer makes: the header, and what was written under it."""
    return problem.signature.header + written


def body_of(program: str) -> str:
    """What the model would have to write for a program: all after the header."""
    return program[program.index("\n") :]


def line_text(line: str) -> str:
    """A line of a body as the model writes it."""
    return f"\n{INDENT}{line}"


@lru_cache(maxsize=1)
def code_tokenizer() -> Any:
    """The small model's tokenizer: a token for every word of the questions, every operator and every number to 99."""
    return piece_tokenizer(_pieces(), CONTEXT)


def _pieces() -> Iterator[str]:
    names = [variable(at) for at in range(VARIABLES)]
    yield from (line_text(f"{name} = ") for name in names)
    yield line_text("return ")
    yield from (f"{operator}(" for operator in PURE)
    yield from (", ", ")", ", '", "', '", "')", *names, *"xyzw", *map(str, range(100)))
    yield from (f"\ndef solve({', '.join('xyzw'[:count])}):" for count in range(1, PARAMETERS + 1))
    yield from ("step", "steps", "to", *map(str, Type), *vocabulary(), *_cells())


def _cells() -> Iterator[str]:
    """The words of tables with their capitals: programs write them."""
    for sheet in tables.SHEETS:
        yield from (*sheet.names, *sheet.numbers)
        for column, cells, _ in sheet.words:
            yield from (column, *cells)


def _with_parameters(problem: CodeProblem) -> str:
    """The question with its numbers named, where they are the parameters in order of mention."""
    names, found = problem.signature.names, NUMBER.findall(problem.question)
    asked = [str(value) for value in problem.cases[0].inputs] if problem.cases else []
    if found != asked or not set(problem.signature.takes) <= {Type.INT}:
        return problem.question
    following = iter(names)
    return NUMBER.sub(lambda _: next(following), problem.question)


def _kept(problem: CodeProblem) -> Sequence[str]:
    return [str(word.value) for word in problem.constants]


def _read(word: str, kept: Sequence[str]) -> str:
    shouted = len(word) > 1 and word.isupper()
    return word if word in kept or shouted else word.lower()
