"""The grammar: what it offers can always be finished, types and all, and is never the same line twice."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.programs.language.evaluation import ProgramEvaluator
from groupwise.programs.language.grammar import as_program, legal_lines, line_weights, random_program
from groupwise.programs.language.operators import Type
from groupwise.programs.language.parser import Program, Signature, parse
from groupwise.programs.language.program import Case, CodeProblem, Word
from groupwise.programs.problems import OFFLINE, generate


def small(gives: Type = Type.INT, max_lines: int = 2) -> CodeProblem:
    signature = Signature((Type.INT, Type.INT), gives)
    return CodeProblem("p", "f", "train", 1, "?", signature, (Case((1, 2), 3),), max_lines=max_lines)


def test_the_legal_first_lines_of_a_small_problem_are_these() -> None:
    assert legal_lines([], small()) == [
        "a = add(x, y)", "a = sub(x, y)", "a = sub(y, x)", "a = mul(x, y)", "a = div(x, y)", "a = div(y, x)",
        "a = rest(x, y)", "a = rest(y, x)", "a = double(x)", "a = double(y)", "a = half(x)", "a = half(y)",
    ]  # fmt: skip
    assert legal_lines(["a = add(x, y)"], small()) == ["return a"]
    assert legal_lines(["a = add(x, y)", "return a"], small()) == []


def test_a_result_that_nobody_used_must_be_used_by_the_last_line() -> None:
    last = legal_lines(["a = add(x, y)", "b = double(x)"], small(max_lines=4))
    assert all("a" in line.split("(")[1] and "b" in line.split("(")[1] for line in last)
    assert "c = add(a, b)" in last
    assert "return b" not in last


def test_lines_that_are_not_straight_lead_nowhere() -> None:
    for prefix in (["a = x + y"], ["a = open(x)"], ["a = add(x, q)"], ["nonsense"], ["a = add(x, 'it, s')", "b = 1"]):
        assert legal_lines(prefix, small(max_lines=4)) == []


def test_words_of_the_problem_can_be_written_and_nothing_else() -> None:
    signature = Signature((Type.TABLE,), Type.INT)
    words = (Word("age", Type.COLUMN), Word("red", Type.CELL), Word("Ann", Type.ROW), Word(30, Type.INT))
    problem = CodeProblem("p", "f", "train", 1, "?", signature, (), words, max_lines=2)
    assert "a = look(x, 'Ann', 'age')" in legal_lines([], problem)
    assert not any("where" in line for line in legal_lines([], problem))  # a table cannot be returned here
    longer = CodeProblem("p", "f", "train", 1, "?", signature, (), words, max_lines=3)
    assert "a = where(x, 'red')" in legal_lines([], longer)
    assert "a = over(x, 'age', 30)" in legal_lines([], longer)
    assert "b = count_rows(a)" in legal_lines(["a = where(x, 'red')"], longer)


def test_weights_give_every_operator_the_same_and_sum_to_one() -> None:
    lines = ["a = add(x, y)", "a = sub(x, y)", "a = sub(y, x)", "return b"]
    assert line_weights(lines) == pytest.approx([1 / 3, 1 / 6, 1 / 6, 1 / 3])


@settings(max_examples=60)
@given(st.sampled_from(OFFLINE), st.integers(0, 10_000), st.integers(1, 3))
def test_every_walk_ends_in_a_program_with_a_named_outcome(family: str, seed: int, difficulty: int) -> None:
    problem = generate(family, seed % 200, "train", difficulty)
    rng = random.Random(seed)
    body: list[str] = []
    while lines := legal_lines(body, problem):
        assert len(set(lines)) == len(lines)
        body.append(rng.choice(lines))
    assert body[-1].startswith("return ")
    text = as_program(body, problem)
    program = parse(text, problem.signature)
    assert isinstance(program, Program), program
    assert program.lines == len(body) <= problem.max_lines  # no line was dead
    assert ProgramEvaluator(problem)(text).outcome in ("passed", "wrong", "raised")


def test_the_same_seed_draws_the_same_programs() -> None:
    problem = generate("tables", 1, "train", 3)
    draws = [[random_program(problem, random.Random(seed)) for seed in range(5)] for _ in range(2)]
    assert draws[0] == draws[1]
    assert len(set(draws[0])) > 1
