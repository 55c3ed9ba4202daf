"""Verifiable tasks: disjoint splits, and scores that rise with how right an answer is."""

from __future__ import annotations

import pytest

from groupwise.agents.finding import find_problems
from groupwise.agents.problems import Problem
from groupwise.agents.tasks import TASKS, is_held_out
from groupwise.config import TaskSettings
from groupwise.errors import ConfigError


@pytest.mark.parametrize("name", sorted(TASKS))
def test_training_and_held_out_problems_never_meet(name: str) -> None:
    train = {TASKS[name].training(0, number).text for number in range(500)}
    test = {problem.text for problem in TASKS[name].held_out(0, 200)}
    assert not train & test
    assert len(test) > 20
    assert all(is_held_out(prompt) for prompt in test)


@pytest.mark.parametrize("name", sorted(TASKS))
def test_a_problem_is_a_function_of_seed_and_number(name: str) -> None:
    task = TASKS[name]
    assert [task.training(3, n) for n in range(20)] == [task.training(3, n) for n in range(20)]
    assert [task.training(3, n) for n in range(20)] != [task.training(4, n) for n in range(20)]


@pytest.mark.parametrize("name", sorted(TASKS))
def test_a_demonstration_scores_one(name: str) -> None:
    task = TASKS[name]
    for problem in task.held_out(1, 100):
        assert task.grade(problem, task.demonstration(problem), finished=True).total == pytest.approx(1.0)


def test_an_answer_that_is_more_right_scores_more() -> None:
    task, problem = TASKS["addition"], Problem("37+45", "82")
    answers = ["x", "17", "12", "82"]
    totals = [task.grade(problem, answer, finished=True).total for answer in answers]
    assert totals == sorted(totals)
    assert totals[0] == 0.0 < totals[1] < totals[2] < totals[3] == pytest.approx(1.0)


def test_an_answer_that_was_cut_off_is_not_correct() -> None:
    task, problem = TASKS["addition"], Problem("37+45", "82")
    assert task.grade(problem, "82", finished=False).parts["correct"] == 0.0
    assert task.grade(problem, "", finished=True).total == 0.0


def test_an_unknown_task_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'addition'"):
        find_problems(TaskSettings(environment="adition"))


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"page 3 has an empty prompt"):
        Problem(" \n", "1", place="page 3")
