"""Workflows: programs that await operators which ask a model, run in the sandbox with the operators outside."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from groupwise.programs.language.evaluation import MOST_ASKED, ProgramEvaluator, answer_in
from groupwise.programs.language.operators import Operator, Registry, Type
from groupwise.programs.language.parser import Form, Program, Signature, parse
from groupwise.programs.language.program import Case, CodeProblem
from groupwise.programs.language.pure_operators import PURE
from groupwise.sandbox import Monty, SandboxOutcome

PROBLEM = CodeProblem(
    "sum", "hand", "train", 1, "What is 12 plus 30?", Signature((Type.INT, Type.INT), Type.INT), (Case((12, 30), 42),)
)


class Model:
    """Answers by rule: guesses wrongly, and gives the right answer once a review has called the guess wrong."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def guess(self, problem: str) -> str:
        self.asked.append("guess")
        await asyncio.sleep(0)
        return "12 and 30.\nAnswer: 41"

    async def review(self, problem: str, solution: str) -> str:
        self.asked.append("review")
        return "right" if "42" in solution else "wrong: it is one too small"

    async def revise(self, problem: str, solution: str, review: str) -> str:
        self.asked.append("revise")
        return "The answer is 42."

    def operators(self) -> Registry:
        text = Type.TEXT
        return PURE.joined([
            Operator("guess", (text,), text, self.guess, "model"),
            Operator("review", (text, text), text, self.review, "model"),
            Operator("revise", (text, text, text), text, self.revise, "model"),
        ])  # fmt: skip


@pytest.fixture(scope="module")
def monty() -> Iterator[Monty]:
    pytest.importorskip("pydantic_monty")
    with Monty(workers=2) as sandbox:
        yield sandbox


def workflow(*lines: str) -> str:
    return "\n".join(["async def workflow(problem):", *(f"    {line}" for line in lines)])


REVISED = workflow(
    "first = await guess(problem)", "said = await review(problem, first)", "if said == 'right':", "    return first",
    "return await revise(problem, first, said)",
)  # fmt: skip


def test_a_workflow_over_a_model_solves_a_problem(monty: Monty) -> None:
    model = Model()
    found = ProgramEvaluator(PROBLEM, monty, operators=model.operators())(REVISED)
    assert (found.outcome, found.solved, found.message) == (SandboxOutcome.PASSED, True, "")
    assert model.asked == ["guess", "review", "revise"]
    assert found.calls == 3


def test_a_workflow_that_asks_without_end_is_stopped(monty: Monty) -> None:
    text = workflow("a = problem", "while True:", "    a = await guess(a)", "return a")
    found = ProgramEvaluator(PROBLEM, monty, operators=Model().operators())(text)
    assert found.outcome is SandboxOutcome.RAISED
    assert f"at most {MOST_ASKED} times" in found.message


def test_a_model_that_fails_is_an_outcome_and_not_an_exception(monty: Monty) -> None:
    async def broken(problem: str) -> str:
        raise ConnectionError("the server went away")

    operators = PURE.joined([Operator("guess", (Type.TEXT,), Type.TEXT, broken, "model")])
    found = ProgramEvaluator(PROBLEM, monty, operators=operators)(workflow("return await guess(problem)"))
    assert found.outcome is SandboxOutcome.RAISED
    assert "the server went away" in found.message


def test_a_model_must_be_awaited_and_only_in_a_workflow() -> None:
    evaluate = ProgramEvaluator(PROBLEM, operators=Model().operators())
    assert "write `await guess(…)`" in evaluate(workflow("return guess(problem)")).message
    assert "write `await guess(…)`" in evaluate("def solve(x, y):\n    return guess(x)").message
    assert "without `await`" in evaluate(workflow("return await double(2)")).message


def test_a_workflow_has_a_normal_form() -> None:
    operators = Model().operators()
    made = parse(REVISED, operators=operators)
    assert isinstance(made, Program)
    assert made.form is Form.WORKFLOW
    assert "    a = await guess(problem)\n    b = await review(problem, a)" in made.text
    assert parse(made.text, operators=operators) == made


@pytest.mark.parametrize(
    ("said", "wanted", "answer"),
    [
        ("First 3, then 4.\nAnswer: 1,234", 5, 1234),
        ("It costs 5 coins", 5, 5),
        ("nothing", 5, "nothing"),
        ("Answer: 1, 2, 3", [1], [1, 2, 3]),
        ("Answer: ['a', 'b']", ["a"], ["a", "b"]),
        ("The answer is Ann.", "Ann", "Ann"),
        ([1], 5, [1]),
        ("9" * 5000, 5, "9" * 5000),
    ],
)
def test_the_answer_is_found_in_what_a_model_said(said: Any, wanted: Any, answer: Any) -> None:
    assert answer_in(said, wanted) == answer
