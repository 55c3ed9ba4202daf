"""What a step's answers look like, as numbers by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from groupwise.rewards.answer_drift import answer_metrics
from groupwise.rewards.function import attempt_of
from groupwise.types import Group, Score, ScoredGroup, Task


def group(question, *answers):
    members = tuple(
        attempt_of([{"role": "user", "content": question}, {"role": "assistant", "content": answer}])
        for answer in answers
    )
    return ScoredGroup(Group("g", Task("t"), members), (Score(0.0),) * len(members))


def test_answers_to_different_questions_are_compared_and_those_to_one_are_not():
    one = answer_metrics([group("red ball?", "a b", "a b"), group("blue box?", "b c")])
    # {a, b} and {b, c}: one of three words in common, for both pairs across the questions
    assert one["answers/sameness"] == pytest.approx(1 / 3)
    assert "answers/sameness" not in answer_metrics([group("red ball?", "a b", "a b")])


def test_repetition_parroting_and_length_are_means_over_answers():
    found = answer_metrics([group("red ball bounces", "ball window garden", "x y z x y z")])
    # Six words have four runs of three, one of them (x y z) for the second time.
    assert found["answers/repetition"] == pytest.approx((0 + 1 / 4) / 2)
    assert found["answers/words"] == pytest.approx((3 + 6) / 2)
    # One of three subjects is the question's; single letters are about nothing, so the second answer does not count.
    assert found["answers/parroting"] == pytest.approx(1 / 3)


def test_attempts_without_words_have_no_such_metrics():
    blank = replace(attempt_of([]), meta={})
    assert answer_metrics([ScoredGroup(Group("g", Task("t"), (blank,)), (Score(0.0),))]) == {}
    assert answer_metrics([group("a?", "")]) == {}
    assert answer_metrics([]) == {}
    assert np.isfinite(list(answer_metrics([group("a?", "b")]).values())).all()
