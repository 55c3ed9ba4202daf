"""Families of problems: solvable, disjoint between splits, the same for one seed, and hard to solve by accident."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from groupwise.errors import ConfigError
from groupwise.programs.language.evaluation import ProgramEvaluator
from groupwise.programs.language.grammar import as_program, legal_lines
from groupwise.programs.language.program import SPLITS
from groupwise.programs.problems import FAMILIES, LEVELS, OFFLINE, CodeProblem, generate, tokens, vocabulary

KNOWN = frozenset(vocabulary())


def problems(family: str, split: str = "train", count: int = 30) -> list[CodeProblem]:
    levels = range(1, LEVELS[family] + 1)
    return [generate(family, seed, split, level) for level in levels for seed in range(count)]  # type: ignore[arg-type]


def gym() -> str:
    pytest.importorskip("reasoning_gym")
    return "reasoning_gym"


@pytest.mark.parametrize("family", FAMILIES)
def test_every_problem_is_solved_by_its_own_program_within_its_lines(family: str) -> None:
    if family == "reasoning_gym":
        gym()
    for problem in problems(family):
        found = ProgramEvaluator(problem)(problem.gold)
        assert found.solved, (problem, found)
        assert found.length == problem.difficulty + 1 == problem.max_lines
        assert len(problem.cases) == 6


@pytest.mark.parametrize("family", FAMILIES)
def test_splits_share_no_wording(family: str) -> None:
    if family == "reasoning_gym":
        gym()
    wordings = {
        split: {re.sub(r"\d+", "#", problem.question) for problem in problems(family, split)} for split in SPLITS
    }
    assert not wordings["train"] & wordings["valid"]
    assert not wordings["train"] & wordings["test"]
    assert not wordings["valid"] & wordings["test"]
    assert all(len(found) > 15 for found in wordings.values())


@pytest.mark.parametrize("family", FAMILIES)
def test_questions_are_short_and_of_known_words(family: str) -> None:
    if family == "reasoning_gym":
        gym()
    for problem in problems(family):
        cut = tokens(problem.question, KNOWN)
        assert len(cut) <= 70, problem.question
        strange = [token for token in cut if token not in KNOWN and not (token.isdecimal() and int(token) < 100)]
        assert not strange, (problem.question, strange)


@pytest.mark.parametrize("family", OFFLINE)
def test_questions_vary_and_the_same_seed_asks_the_same(family: str) -> None:
    first, again = problems(family), problems(family)
    assert first == again
    assert len({problem.question for problem in first}) > 0.8 * len(first)
    assert len({problem.gold for problem in first}) > 20


@pytest.mark.parametrize("family", OFFLINE)
def test_a_program_that_answers_only_the_question_as_asked_is_found_out(family: str) -> None:
    for problem in problems(family, count=10):
        found = ProgramEvaluator(problem)(f"def solve():\n    return {problem.answer!r}")
        assert not found.solved
        assert found.correctness < 1


@pytest.mark.parametrize("family", OFFLINE)
def test_no_single_step_solves_a_harder_problem(family: str) -> None:
    for seed in range(6):
        problem = generate(family, seed, "test", 2 + seed % 2)
        shorter = replace(problem, max_lines=2)
        evaluate = ProgramEvaluator(problem)
        for line in legal_lines([], shorter):
            assert not evaluate(as_program([line, "return a"], problem)).solved, (problem, line)


def test_unknown_families_splits_and_difficulties_are_refused_with_what_there_is() -> None:
    with pytest.raises(ConfigError, match="word_problems, transformations, tables"):
        generate("riddles", 0)
    with pytest.raises(ConfigError, match="train, valid, test"):
        generate("tables", 0, "exam")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="1 to 3"):
        generate("tables", 0, "train", 9)


def test_reasoning_gyms_answers_are_those_of_another_library() -> None:
    gym()
    sympy = pytest.importorskip("sympy")
    for problem in problems("reasoning_gym", "test", count=10):
        expression = re.sub(r"[^\d+*()-]", "", problem.question)
        assert int(sympy.sympify(expression)) == problem.answer, problem.question
