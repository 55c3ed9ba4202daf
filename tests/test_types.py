"""The vocabulary: names that files depend on, and the few things its values compute."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from groupwise.types import (
    EVENT_TYPES,
    LARGEST_REWARD,
    SEARCHED,
    SHOWN,
    Box,
    Discrete,
    End,
    Event,
    Failed,
    Failure,
    Group,
    Hint,
    MultiDiscrete,
    Score,
    ScoredGroup,
    Task,
    Trajectory,
)


@pytest.mark.parametrize(("name", "kind"), [
    ("CartPole-v1/17", "CartPole-v1"), ("ALE/Pong-v5/3", "ALE/Pong-v5"), ("alone", "alone"), ("/3", "/3"), ("a/", "a"),
    ("", ""),
])  # fmt: skip
def test_a_tasks_kind_is_what_stands_before_the_last_slash(name: str, kind: str) -> None:
    assert Task(name).kind == kind


def test_names_and_numbers_in_files_never_change() -> None:
    """Event logs, group files and checkpoints of earlier versions have them."""
    assert [str(end) for end in End] == [
        "finished", "truncated", "turn_limit", "tool_failure", "env_error", "cancelled",
    ]  # fmt: skip
    assert EVENT_TYPES == ("start", "step", "eval", "checkpoint", "control", "hint", "error", "end")
    assert (SEARCHED, SHOWN, LARGEST_REWARD) == (-1, -2, 1e15)
    assert Event("r", 0, 1, 0.0, 0, "step", {}).v == 1


def test_an_attempt_counts_its_steps_and_its_own_actions() -> None:
    zeros = np.zeros(4)
    mask = np.array([False, True, False, True])
    made = Trajectory("a", "t", "g", zeros, zeros, mask, zeros, zeros, zeros, End.FINISHED, True)
    assert (len(made), made.actions_taken, made.last_obs, made.error, made.meta) == (4, 2, None, None, {})
    with pytest.raises(FrozenInstanceError):
        made.end = End.TRUNCATED  # type: ignore[misc]


def test_totals_are_in_order_and_nothing_where_there_is_no_score() -> None:
    lost = Failed(Failure("reward", "raised", "no"))
    scored = ScoredGroup(Group("g", Task("t"), ()), (Score(2.0), lost, Score(-1.0)))
    np.testing.assert_array_equal(scored.totals(), [2.0, np.nan, -1.0])
    assert scored.totals().dtype == np.float64


def test_scores_are_compared_without_the_times_of_their_rewards() -> None:
    assert Score(1.0, {"a": 1.0}, ("f",), np.ones(2)) == Score(1.0, {"a": 1.0}, ("f",), np.zeros(3))
    assert Score(1.0) != Score(2.0)
    assert Score(1.0, {"a": 1.0}) != Score(1.0, {"a": 2.0})
    assert Score(1.0, flags=("f",)) != Score(1.0)


def test_a_hint_shows_a_traceback_only_if_there_is_one() -> None:
    assert Hint("c", "m", "").as_dict() == {"code": "c", "message": "m", "remedy": ""}
    assert Hint("c", "m", "r", "at line 3").as_dict()["traceback"] == "at line 3"


def test_shapes_of_actions() -> None:
    assert (Discrete(7).shape, MultiDiscrete((2, 3, 4)).shape, Box((0.0, 1.0), (1.0, 2.0)).shape) == ((), (3,), (2,))
