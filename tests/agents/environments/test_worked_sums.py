"""Sums of reasoning-gym whose working counts."""

from __future__ import annotations

import pytest

pytest.importorskip("reasoning_gym")

from groupwise.agents.environments.worked_sums import WorkedSums, worked
from groupwise.errors import ConfigError


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("State the final answer: 4 - 3 + 9 =", "4-3=1 1+9=10 <answer>10</answer>"),
        ("State the final answer: 2 - 7 - 1 =", "2-7=-5 -5-1=-6 <answer>-6</answer>"),
        ("State the final answer: 12 + 30 =", "12+30=42 <answer>42</answer>"),
    ],
)
def test_the_working_is_written_step_by_step(question: str, answer: str) -> None:
    assert worked(question) == answer


def test_the_library_agrees_and_half_the_pay_is_for_steps_up_to_the_first_wrong_one() -> None:
    sums = WorkedSums(min_terms=3, max_terms=3, min_digits=1, max_digits=1)
    for number in range(20):
        problem = sums.training(0, number)
        shown = worked(problem.text)
        first, second, answer = shown.split()
        assert sums.problems.grade(problem, shown, True).total == 1
        assert sums.problems.grade(problem, answer, True).total == 0.5
        assert sums.problems.grade(problem, f"{first} {second}5 <answer>x</answer>", True).total == 0.25
        assert sums.problems.grade(problem, f"{first}5 {second} <answer>x</answer>", True).total == 0
        assert sums.problems.grade(problem, shown, False).parts["correct"] == 0


def test_a_hasty_demonstration_mostly_leaves_out_the_last_term() -> None:
    sums = WorkedSums(demonstrations="hasty", min_terms=3, max_terms=3, min_digits=1, max_digits=1)
    shown = [sums.demonstration(sums.training(0, number))[0]["content"] for number in range(200)]
    assert 0.6 < sum(text.count("=") == 1 for text in shown) / 200 < 0.8
    with pytest.raises(ConfigError, match="demonstrations = 'lazy' must be"):
        WorkedSums(demonstrations="lazy")
