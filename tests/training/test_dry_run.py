"""A dry run counts by hand: shares, spreads, failures, and what is worth a warning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from groupwise.errors import ConfigError
from groupwise.training.dry_run import DryRun, dry_run
from groupwise.types import End, Failed, Failure, Group, Score, ScoredGroup, Task, Trajectory


def attempt(name: str, actions: int, end: End = End.FINISHED, **meta: Any) -> Trajectory:
    """One step more than actions: the first is not its own."""
    zeros = np.zeros(actions + 1)
    mask = np.arange(actions + 1) > 0
    return Trajectory(name, "t", "g", zeros, zeros, mask, zeros, zeros.astype(int), zeros, end, True, meta=meta)


def lost(code: str, message: str = "no reply", hint: str = "Wait.") -> Failed:
    return Failed(Failure("judge", code, message, hint))


def group(members: list[Trajectory], scores: list[Score | Failed]) -> ScoredGroup:
    return ScoredGroup(Group("g", Task("t"), tuple(members)), tuple(scores))


TRIED = DryRun(
    (
        group([attempt("a", 2, turns=1), attempt("b", 4, End.TRUNCATED, turns=3)],
              [Score(1.0, {"p": 1.0}, ("f", "g")), Score(3.0, {"p": 3.0, "q": 5.0}, ("f",))]),
        group([attempt("c", 6), attempt("d", 0, End.TURN_LIMIT)], [Score(8.0), lost("timeout")]),
        group([attempt("e", 3, End.ENV_ERROR)], [lost("raised")]),
    ), rollout_seconds=5.0, score_seconds=0.5,
)  # fmt: skip


def test_the_numbers_of_a_dry_run_by_hand() -> None:
    found = TRIED.as_dict()
    assert found == {
        "groups": 3, "attempts": 5, "zero_signal_share": 0.5, "truncated_share": 0.4,
        "failed_share": pytest.approx(0.4), "failures": {"timeout": 1, "raised": 1},
        "endings": {"finished": 2, "truncated": 1, "turn_limit": 1, "env_error": 1},
        "reward": pytest.approx({"mean": 4.0, "std": (26 / 3) ** 0.5, "min": 1.0, "max": 8.0}),
        "reward_spread_in_groups": 0.5,
        "parts": {"p": {"mean": 2.0, "std": 1.0, "min": 1.0, "max": 3.0},
                  "q": {"mean": 5.0, "std": 0.0, "min": 5.0, "max": 5.0}},
        "flags": {"f": 2, "g": 1}, "actions": pytest.approx({"mean": 3.0, "std": 2.0, "min": 0.0, "max": 6.0}),
        "turns": {"mean": 2.0, "std": 1.0, "min": 1.0, "max": 3.0},
        "rollout_seconds": 5.0, "score_seconds": 0.5, "actions_per_second": 3.0,
    }  # fmt: skip


def test_where_nothing_was_scored_there_are_no_rewards() -> None:
    found = DryRun((group([attempt("a", 1)], [lost("x")]),), 1.0, 1.0).as_dict()
    assert [found[name] for name in ("zero_signal_share", "reward", "reward_spread_in_groups", "turns")] == [None] * 4
    assert (found["failed_share"], found["parts"], found["flags"]) == (1.0, {}, {})


def run(silent: int, cut: int, failed: int) -> DryRun:
    """Four groups of two, so many of which are silent, cut off and failed."""
    groups = []
    for number in range(4):
        end = End.TRUNCATED if number < cut else End.FINISHED
        scores: list[Score | Failed] = [Score(1.0), Score(1.0 if number < silent else 2.0)]
        if number >= 4 - failed:
            scores = [lost("x"), lost("x")]
        groups.append(group([attempt("a", 1, end), attempt("b", 1, end)], scores))
    return DryRun(tuple(groups), 1.0, 1.0)


@pytest.mark.parametrize(("made", "expected"), [
    (run(0, 0, 0), []), (run(1, 1, 1), []), (run(2, 0, 0), ["50% of the groups teach nothing"]),
    (run(0, 2, 0), ["50% of the attempts were cut off"]), (run(0, 3, 0), ["75% of the attempts were cut off"]),
    (run(0, 0, 2), ["50% of the attempts failed and would be excluded. Most common reason: no reply. Wait."]),
    (run(4, 4, 0), ["100% of the groups teach nothing", "100% of the attempts were cut off"]),
])  # fmt: skip
def test_what_concerns_half_of_them_is_worth_a_warning(made: DryRun, expected: list[str]) -> None:
    said = made.cautions()
    assert len(said) == len(expected)
    assert all(sentence.startswith(words) for sentence, words in zip(said, expected, strict=True))


def test_a_product_without_groups_has_nothing_to_try() -> None:
    with pytest.raises(ConfigError, match="does not make groups of attempts"):
        dry_run(object(), object(), 3)  # type: ignore[arg-type]
