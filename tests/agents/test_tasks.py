"""Verifiable tasks: disjoint splits, and scores that rise with how right an answer is."""

from __future__ import annotations

import random

import pytest

from groupwise.agents.tasks import TASKS, Problem, find_task, grade, is_held_out
from groupwise.errors import ConfigError


@pytest.mark.parametrize("name", sorted(TASKS))
def test_training_and_held_out_problems_never_meet(name: str) -> None:
    task, rng = TASKS[name], random.Random(0)
    train = {task.sample(rng).prompt for _ in range(500)}
    test = {task.sample(rng, held_out=True).prompt for _ in range(200)}
    assert not train & test
    assert all(is_held_out(prompt) for prompt in test)


@pytest.mark.parametrize("name", sorted(TASKS))
def test_the_right_answer_scores_one_and_is_well_formed(name: str) -> None:
    task, rng = TASKS[name], random.Random(1)
    for _ in range(100):
        problem = task.sample(rng)
        assert grade(task, problem, problem.answer, finished=True).total == pytest.approx(1.0)


def test_an_answer_that_is_more_right_scores_more() -> None:
    task, problem = TASKS["addition"], Problem("37+45", "82")
    answers = ["x", "17", "12", "82"]
    totals = [grade(task, problem, answer, finished=True).total for answer in answers]
    assert totals == sorted(totals)
    assert totals[0] == 0.0 < totals[1] < totals[2] < totals[3] == pytest.approx(1.0)


def test_an_answer_that_was_cut_off_is_not_correct() -> None:
    task, problem = TASKS["addition"], Problem("37+45", "82")
    assert grade(task, problem, "82", finished=False).parts["correct"] == 0.0
    assert grade(task, problem, "", finished=True).total == 0.0


def test_an_unknown_task_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'addition'"):
        find_task("adition")
