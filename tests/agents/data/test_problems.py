"""Verifiable tasks: disjoint splits, and scores that rise with how right an answer is."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.agents.data.dataset import find_problems
from groupwise.agents.data.problems import TASKS, Problem, is_held_out
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
        assert task.grade(problem, task.demonstration(problem), finished=True).total == 1.0


def framed(problem: Problem, answer: str) -> str:
    """The answer with the working that belongs before it, if any."""
    return (problem.demonstration or problem.answer).removesuffix(problem.answer) + answer


@pytest.mark.parametrize("name", sorted(TASKS))
@given(data=st.data())
def test_an_answer_with_more_places_right_never_scores_less(name: str, data: st.DataObject) -> None:
    task = TASKS[name]
    problem = task.training(0, data.draw(st.integers(0, 1000)))
    places = range(len(problem.answer))
    worse = data.draw(st.sets(st.sampled_from(places)))
    better = {place for place in worse if data.draw(st.booleans())}

    def total(wrong: set[int]) -> float:
        letters = [task.alphabet[task.alphabet.index(c) - 1] if n in wrong else c for n, c in enumerate(problem.answer)]
        return task.grade(problem, framed(problem, "".join(letters)), finished=True).total

    assert total(better) >= total(worse)
    assert (total(better) > total(worse)) == (better != worse)


@pytest.mark.parametrize("name", sorted(TASKS))
@given(text=st.text(), finished=st.booleans())
def test_garbage_and_unfinished_answers_never_score_like_the_right_one(name: str, text: str, finished: bool) -> None:
    task = TASKS[name]
    problem = task.training(0, 0)
    score = task.grade(problem, text, finished)
    assert 0.0 <= score.total <= 1.0
    if not finished or not set(text) <= set(task.alphabet + task.marker + task.scratch):
        assert score.total == 0.0
    assert task.grade(problem, task.demonstration(problem), finished=False).total == 0.0


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


def test_a_sum_is_worked_out_from_the_units_with_carries() -> None:
    working = re.compile(r"(\d)\+(\d)(\+1)?=(\d+)")
    carried = 0
    for number in range(200):
        problem = TASKS["addition_steps"].training(0, number)
        first, second = problem.text.split("+")
        steps, _, answer = TASKS["addition_steps"].demonstration(problem).partition(":")
        assert int(answer) == int(first) + int(second)
        columns = [working.fullmatch(step) for step in steps.split(",")]
        assert all(c and int(c[1]) + int(c[2]) + bool(c[3]) == int(c[4]) for c in columns)
        digits = "".join(c[4][-1] for c in columns[:-1] if c) + (columns[-1] or [""] * 5)[4][::-1]
        assert digits[::-1] == answer
        carried += "+1=" in steps
    assert 50 < carried < 200


def test_only_what_stands_behind_the_marker_is_the_answer() -> None:
    task, problem = TASKS["addition_steps"], Problem("47+85", "132")
    answers = ["132", "7+5=12:", "7+5=12:4:132", "7+5=12:532", "no:132", ":132"]
    totals = [round(task.grade(problem, answer, finished=True).total, 3) for answer in answers]
    assert totals == [0.0, 0.0, 0.0, 0.233, 0.0, 1.0]


@pytest.mark.parametrize(
    ("prompt", "answer"),
    [("replace a by c in abad", "cbcd"), ("delete a in abad", "bd"), ("double a in abad", "aabaad")],
)
def test_an_edit_is_what_it_says(prompt: str, answer: str) -> None:
    made = {p.text: p.answer for n in range(20_000) if (p := TASKS["editing"].make(random.Random(n), 4)).text == prompt}
    assert made == {prompt: answer}


def test_a_task_takes_a_size_and_nothing_else() -> None:
    options = TaskSettings(environment="addition", options={"digits": 5})
    assert max(len(find_problems(options).training(0, n).answer) for n in range(50)) >= 5
    for wrong in ({"digits": 0}, {"digits": "5"}, {"letters": 3}, {"digits": 2.5}):
        with pytest.raises(ConfigError, match=r"option is digits, a whole number from 1 to 9"):
            find_problems(TaskSettings(environment="addition", options=wrong))


def test_an_unknown_task_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'addition'"):
        find_problems(TaskSettings(environment="adition"))


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"page 3 has an empty prompt"):
        Problem(" \n", "1", place="page 3")
