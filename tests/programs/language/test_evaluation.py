"""Evaluation: every text has a named outcome; the sandbox and the interpreter agree; rewards put correctness first."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from groupwise.errors import ConfigError, ContractError
from groupwise.programs.language.evaluation import ProgramEvaluation, ProgramEvaluator, RewardWeights, score
from groupwise.programs.language.grammar import random_program
from groupwise.programs.language.operators import Type, same
from groupwise.programs.language.parser import Program, Signature, parse
from groupwise.programs.language.program import Case, CodeProblem
from groupwise.programs.language.pure_operators import PURE
from groupwise.programs.problems import OFFLINE, generate
from groupwise.sandbox import Monty, SandboxLimits, SandboxOutcome, SandboxResult

LISTS = CodeProblem(
    "lists", "hand", "train", 2, "Sort and keep two.", Signature((Type.NUMBERS,), Type.NUMBERS),
    tuple(Case((given,), sorted(given)[:2]) for given in ([3, 1, 2], [9, 8, 7, 6], [1, 2, 5])), max_lines=3,
)  # fmt: skip


@pytest.fixture(scope="module")
def monty() -> Iterator[Monty]:
    pytest.importorskip("pydantic_monty")
    with Monty(workers=1) as sandbox:
        yield sandbox


def test_a_right_program_passes_and_its_costs_are_known() -> None:
    found = ProgramEvaluator(LISTS)("def solve(x):\n    return take(sort(x), 2)")
    assert (found.outcome, found.solved, found.correctness) == (SandboxOutcome.PASSED, True, 1.0)
    assert (found.calls, found.length, found.message, found.fault) == (2, 3, "", None)


def test_a_program_that_is_right_by_accident_is_told_apart() -> None:
    found = ProgramEvaluator(LISTS)("def solve(x):\n    return drop(sort(x), 1)")
    assert (found.outcome, found.solved, found.correctness) == (SandboxOutcome.WRONG, False, 0.0)
    assert found.message == "the answer is [1, 2], but this returns [2, 3]"
    lucky = replace(LISTS, cases=(Case(([1, 2],), [1, 2]), *LISTS.cases[1:]))
    found = ProgramEvaluator(lucky)("def solve(x):\n    return take(x, 2)")
    assert found.correctness == pytest.approx(2 / 3)
    assert found.message == "correct for the question as asked, but wrong for 1 of 2 variations of it"


def test_an_operator_that_refuses_is_an_outcome_with_its_words() -> None:
    found = ProgramEvaluator(LISTS)("def solve(x):\n    return take(x, -1)")
    assert (found.outcome, found.message) == (SandboxOutcome.RAISED, "take takes a count of 0 or more, not -1")


def test_texts_that_are_no_programs_are_named_outcomes() -> None:
    evaluate = ProgramEvaluator(LISTS)
    assert evaluate("def solve(x) return").outcome is SandboxOutcome.RAISED
    assert evaluate("import os").outcome is SandboxOutcome.FORBIDDEN
    found = evaluate("def solve(x):\n    return srot(x)")
    assert (found.outcome, found.fault) == (SandboxOutcome.FORBIDDEN, "unknown_operator")
    assert "Did you mean sort" in found.message
    long = evaluate("def solve(x):\n    return take(sort(reverse(x)), 2)")
    assert (long.fault, long.outcome) == ("too_long", SandboxOutcome.RAISED)
    assert "at most 3 lines, not 4" in long.message


def test_without_a_sandbox_only_operators_are_run() -> None:
    found = ProgramEvaluator(LISTS)("def solve(x):\n    return sorted(x)[:2]")
    assert (found.outcome, found.solved) == (SandboxOutcome.FORBIDDEN, False)
    assert "open a sandbox" in found.message


def test_plain_python_runs_in_the_sandbox(monty: Monty) -> None:
    evaluate = ProgramEvaluator(LISTS, monty)
    assert evaluate("def solve(x):\n    return sorted(x)[:2]").solved
    assert evaluate("def solve(x):\n    a = sort(x)\n    return [a[0], a[1]]").calls == 1
    assert evaluate("def solve(x):\n    return x[9]").outcome is SandboxOutcome.RAISED
    assert "takes numbers as argument 1" in evaluate("def solve(x):\n    return sort([x])").message


@pytest.mark.parametrize(
    ("value", "outcome"),
    [
        ("9 ** 9 ** 9", SandboxOutcome.MEMORY),
        ("'a' * 10 ** 12", SandboxOutcome.MEMORY),
        ("[x] * 10 ** 9", SandboxOutcome.MEMORY),
        ("[i for i in range(10 ** 10)]", None),
        ("sum(range(10 ** 10))", SandboxOutcome.TIMED_OUT),
        ("x.append(x)", SandboxOutcome.WRONG),
        ("sort(x * 10 ** 4)", SandboxOutcome.RAISED),
    ],
)
def test_hostile_programs_end_with_a_named_outcome(monty: Monty, value: str, outcome: SandboxOutcome | None) -> None:
    evaluate = ProgramEvaluator(LISTS, monty, limits=SandboxLimits(seconds=0.3))
    found = evaluate(f"def solve(x):\n    return {value}")
    assert found.outcome in ({outcome} if outcome else {SandboxOutcome.MEMORY, SandboxOutcome.TIMED_OUT})
    assert found.message


@pytest.mark.parametrize("family", OFFLINE)
def test_the_interpreter_and_the_sandbox_agree(monty: Monty, family: str) -> None:
    rng = random.Random(0)
    for seed in range(12):
        problem = generate(family, seed, "train", 1 + seed % 3)
        text = random_program(problem, rng) if seed % 2 else problem.gold
        program = parse(text, problem.signature)
        assert isinstance(program, Program)
        evaluate = ProgramEvaluator(problem, monty)
        here = evaluate(text)
        there = _in_sandbox(program, problem, monty)
        assert [one.outcome for one in there].count(SandboxOutcome.PASSED) > 0 or here.outcome is SandboxOutcome.RAISED
        right = [one.passed and same(one.value, case.answer) for one, case in zip(there, problem.cases, strict=True)]
        assert here.correctness == pytest.approx(sum(right) / len(right))


def _in_sandbox(program: Program, problem: CodeProblem, monty: Monty) -> list[SandboxResult]:
    functions: dict[str, Any] = {name: PURE[name].__call__ for name in program.operators}
    return [
        monty.run(program.text, dict(zip(program.parameters, case.inputs, strict=True)), functions, call="solve")
        for case in problem.cases
    ]


def evaluation(correctness: float, calls: int = 2, seconds: float = 0.01, length: int = 3) -> ProgramEvaluation:
    outcome = SandboxOutcome.PASSED if correctness == 1 else SandboxOutcome.WRONG
    return ProgramEvaluation(outcome, correctness == 1, correctness, calls, seconds, length)


def test_correctness_comes_before_calls_before_time_before_length() -> None:
    totals = [
        score(evaluation(1.0)).total,
        score(evaluation(1.0, length=6)).total,
        score(evaluation(1.0, seconds=0.35, length=1)).total,
        score(evaluation(1.0, calls=10)).total,
        score(evaluation(5 / 6, calls=0, seconds=0.0, length=1)).total,
        score(evaluation(0.0, calls=0)).total,
    ]
    assert totals == sorted(totals, reverse=True)
    assert len(set(totals)) == len(totals)
    assert totals[-1] == 0
    assert score(evaluation(1.0, calls=0, seconds=0.0, length=0)).total == pytest.approx(1.0)


def test_two_runs_of_one_program_score_alike_although_their_times_differ() -> None:
    assert score(evaluation(1.0, seconds=0.010)) == score(evaluation(1.0, seconds=0.034))


def test_a_problem_that_nothing_could_be_judged_by_is_refused() -> None:
    with pytest.raises(ContractError, match="no cases to evaluate"):
        ProgramEvaluator(replace(LISTS, cases=()))
    with pytest.raises(ContractError, match="a case has 2 inputs, but solve takes 1"):
        replace(LISTS, cases=(Case((1, 2), 3),))
    with pytest.raises(ContractError, match="at most 6 parameters, not 7"):
        replace(LISTS, cases=(), signature=Signature((Type.INT,) * 7))


def test_weights_that_would_put_speed_first_are_refused() -> None:
    with pytest.raises(ConfigError, match="at least twice the rest"):
        RewardWeights(correctness=0.5, calls=0.4)


def test_a_score_names_its_outcome_and_fault() -> None:
    assert score(ProgramEvaluator(LISTS)("import os")).flags == ("forbidden", "forbidden")
    assert score(ProgramEvaluator(LISTS)("def solve(x):\n    return sort(x)")).flags == ("wrong",)
