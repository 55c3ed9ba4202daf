"""An unreliable reward is asked again and then replaced; its scores are never padded."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from groupwise.rewards.function import WithFallback
from groupwise.rewards.scoring import score_groups
from groupwise.types import End, Failed, Group, Score, Task, Trajectory


def group_of(size: int) -> Group:
    def member(number: int) -> Trajectory:
        one = np.ones(number + 1)
        return Trajectory(
            f"m{number}", "t", "g", one, one, one.astype(bool), one, one.astype(int), one, End.FINISHED, True
        )

    return Group("g", Task("t"), tuple(member(number) for number in range(size)))


class Judge:
    """Answers with one score too few for the first `bad` questions."""

    def __init__(self, bad: int) -> None:
        self.bad = bad
        self.asked = 0

    async def __call__(self, task: Task, group: Sequence[Trajectory]) -> list[Score]:
        self.asked += 1
        scores = [Score(0.1 * len(t)) for t in group]
        return scores[:-1] if self.asked <= self.bad else scores


async def by_length(task: Task, group: Sequence[Trajectory]) -> list[Score]:
    return [Score(float(len(t))) for t in group]


def padded_with_a_half(scores: list[Score], count: int) -> list[Score]:
    """The fault: scores that were never given, made up as 0.5."""
    return scores + [Score(0.5)] * (count - len(scores))


def test_fault_10_a_judge_that_returns_too_few_scores_is_asked_again_and_never_padded() -> None:
    judge = Judge(bad=1)
    (scored,) = score_groups(WithFallback(judge, by_length), [group_of(3)])
    assert judge.asked == 2
    assert [s.total for s in scored.scores] == pytest.approx([0.1, 0.2, 0.3])
    wrong = padded_with_a_half([Score(0.1), Score(0.2)], 3)
    assert [s.total for s in wrong] != [s.total for s in scored.scores]


def test_fault_10_a_judge_that_keeps_failing_is_replaced_for_the_whole_group() -> None:
    judge = Judge(bad=99)
    (scored,) = score_groups(WithFallback(judge, by_length, retries=2), [group_of(3)])
    assert judge.asked == 3
    assert [s.total for s in scored.scores] == [1.0, 2.0, 3.0]
    assert all(s.flags == ("fallback",) for s in scored.scores)


def test_fault_10_too_few_scores_without_a_fallback_fail_the_group() -> None:
    (scored,) = score_groups(Judge(bad=99), [group_of(3)])
    assert all(isinstance(s, Failed) and "2 scores for 3 attempts" in s.failure.message for s in scored.scores)


def test_when_the_fallback_fails_too_the_group_has_no_scores() -> None:
    async def broken(task: Task, group: Sequence[Trajectory]) -> list[Score]:
        raise RuntimeError("nobody is at home")

    (scored,) = score_groups(WithFallback(Judge(bad=99), broken), [group_of(2)])
    assert all(isinstance(s, Failed) and "nobody is at home" in s.failure.message for s in scored.scores)
