"""Right and wrong answers: exact, numeric, symbolic; nothing a model writes is ever run."""

from __future__ import annotations

import copy
import os
import signal
import time
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.errors import ConfigError
from groupwise.rewards.rules.correctness import ExactReward, NumericReward, SymbolicReward, answer_in
from groupwise.rewards.rules.expressions import LONGEST, Unreadable, read_expression, same_expression
from groupwise.types import Failed


@pytest.fixture(scope="module")
def symbolic():
    return SymbolicReward(time_limit=60.0)


@pytest.mark.parametrize(
    ("text", "answer", "marked"),
    [
        ("  4 ", "4", False),
        ("I think <answer> 4 </answer> or <ANSWER>5</ANSWER>.", "5", True),
        (r"so \boxed{\frac{1}{2}} it is", r"\frac{1}{2}", True),
        (r"\boxed{1} then <answer>2</answer>", "2", True),
        (r"<answer>1</answer> then \boxed{2}", "2", True),
        (r"\boxed{1} and \boxed{2", "1", True),
        ("<answer>1", "<answer>1", False),
        ("", "", False),
    ],
)
def test_the_last_marked_answer_counts_or_else_the_whole_text(text, answer, marked):
    assert answer_in(text) == (answer, marked)


@pytest.mark.parametrize("piece", [r"\boxed{", "<answer>", "{", "}", "</answer>", "1/"])
def test_looking_for_an_answer_takes_linear_time_whatever_is_written(piece, growth):
    assert growth(lambda size: NumericReward(expected=1).grade((piece * size)[:size], "1")) < 8


def test_the_right_answer_comes_with_the_task_or_is_given(scored):
    right, wrong, nothing = scored(ExactReward(), " New  York\n", "new york", "", payload={"answer": "New York"})
    assert (right.total, right.parts) == (1.0, {"correct": 1.0, "format": 1.0})
    assert (wrong.total, wrong.parts) == (0.0, {"correct": 0.0, "format": 1.0})
    assert nothing.parts == {"correct": 0.0, "format": 0.0}
    assert scored(ExactReward(expected="Rome", ignore_case=True), "rome", payload={"answer": "Paris"})[0].total == 1.0


@pytest.mark.parametrize("reward", [ExactReward(), NumericReward(expected="many")])
def test_an_attempt_without_a_right_answer_to_compare_with_has_failed_and_is_no_0(reward, scored):
    (score,) = scored(reward, "7")
    assert isinstance(score, Failed)
    assert "correct answer" in score.failure.message


@pytest.mark.parametrize(
    ("text", "right", "settings", "correct"),
    [
        ("The total is 1,000 dollars.", "1000.0", {}, True),
        ("3 apples, no, 4", "3", {}, False),
        (r"\boxed{3} (not 4)", "3", {}, True),
        ("3/4", "0.75", {}, True),
        ("0/5", "0", {}, True),
        ("1/0", "0", {}, True),  # no fraction: the last number is 0
        ("3.14", "3.14159", {}, False),
        ("3.14", "3.14159", {"tolerance": 0.01}, True),
        ("990", "1000", {"relative_tolerance": 0.01}, True),
        ("989", "1000", {"relative_tolerance": 0.01}, False),
        ("\u22125", "-5", {}, True),
        ("no number", "5", {}, False),
        ("9e999999", "9e999999", {"relative_tolerance": 10.0}, False),  # beyond what can be worked out
    ],
)
def test_numbers_are_compared_by_value_within_a_tolerance(text, right, settings, correct):
    assert NumericReward(expected=right, **settings).grade(text, right).total == float(correct)


@given(value=st.decimals(-1e6, 1e6, places=3), off=st.decimals(-2, 2, places=3))
@settings(max_examples=60)
def test_a_number_is_right_exactly_within_its_tolerance(value, off):
    reward = NumericReward(tolerance=1.0)
    assert reward.grade(f"It is {value + off}", str(value)).total == float(abs(off) <= 1)


def test_tolerances_that_are_none_are_refused():
    with pytest.raises(ConfigError, match="tolerance = -1"):
        NumericReward(tolerance=-1)
    with pytest.raises(ConfigError, match="time_limit = 0"):
        SymbolicReward(time_limit=0)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("x + x", "2x"), ("(x+1)^2", "x^2 + 2x + 1"), (r"\frac{1}{2}", "0.5"), (r"\dfrac12", "1/2"), ("-2^2", "-4"),
        (r"2\sqrt{3}", r"\sqrt{12}"), (r"\sqrt[3]{8}", "2"), ("sin^2 x + cos^2 x", "1"), ("x = 5", "5"), ("5!", "120"),
        (r"\left( 3, 4 \right)", "(3,4)"), ("1,000", "1000"), (r"e^{i\pi}", "-1"), ("|-3|", "3"), ("2.5e3", "2500"),
        ("x y", "y*x"), ("2(x+1)", "2x+2"), ("8/4/2", "1"), ("2^-1", ".5"), ("x÷2", "x/2"), ("ln(e)", "1"),
    ],
)  # fmt: skip
def test_expressions_are_equal_however_they_are_written(first, second):
    assert same_expression(first, second)


@pytest.mark.parametrize(
    ("first", "second"), [("x", "y"), ("3,4", "4,3"), ("(3,4)", "3"), ("|x|", "x"), ("1/0", "1"), ("-2^2", "4")]
)
def test_different_expressions_are_different(first, second):
    assert not same_expression(first, second)


@pytest.mark.parametrize(
    "text",
    [
        "", "(", "1 +", "((1)", "2 2)", "a.b", "__import__('os').system('x')", "9^9^9^9", "10^(10^10)", "999!", "x!",
        "f'(x)", "(1,2)+1", "\\int x", "1;2", "x" * (LONGEST + 1), "(" * 200 + "1" + ")" * 200, "2^" * 100 + "2",
        "x = y = 2",
    ],
)  # fmt: skip
def test_what_is_no_expression_or_too_large_is_refused(text):
    with pytest.raises(Unreadable):
        read_expression(text)


@given(st.text(alphabet="0123456789xyzei+-*/^!(){}[],.|\\ sqrtfacpi", max_size=25))
@settings(max_examples=150, deadline=None)
def test_any_text_is_an_expression_or_unreadable_and_nothing_else(text):
    with suppress(Unreadable):
        read_expression(text)


def test_symbolic_answers_are_judged_in_a_process_of_their_own(symbolic):
    assert symbolic.grade(r"Hence it is $\boxed{\frac{x}{2}+\frac{x}{2}}$.", "x").total == 1.0
    assert symbolic.grade("We find\n2x + 1.", "1+2x").total == 1.0
    wrong = symbolic.grade("3x", "2x")
    assert (wrong.total, wrong.flags) == (0.0, ())


def test_what_cannot_be_compared_as_an_expression_is_compared_as_text_and_says_so(symbolic):
    assert symbolic.grade("it's a dog!", "it's a dog!").total == 1.0
    unreadable = symbolic.grade("it's a cat!", "it's a dog!")
    assert (unreadable.total, unreadable.flags) == (0.0, ("compared_as_text",))


def test_an_expression_without_end_costs_its_time_limit_and_the_next_one_is_judged_again():
    symbolic = SymbolicReward(time_limit=0.2)
    assert symbolic.equal("(a+b+c+d+f+g)^150", "(a+b+c+d+f+g)^149*(a+b+c+d+f+h)") is None
    symbolic.time_limit = 60.0
    assert symbolic.equal("x+x", "2x")
    assert symbolic.workers.starts == 2


def test_a_process_that_died_is_started_again():
    symbolic = SymbolicReward(time_limit=60.0)
    assert symbolic.equal("1", "1.0")
    (pid,) = symbolic.workers.pids
    os.kill(pid, signal.SIGKILL)
    while symbolic.workers.pids == [pid]:
        time.sleep(0.01)
    assert symbolic.equal("1", "2") is False


def test_a_copy_of_the_reward_has_a_process_of_its_own():
    assert copy.deepcopy(SymbolicReward(time_limit=60.0)).equal("2x", "x+x")
