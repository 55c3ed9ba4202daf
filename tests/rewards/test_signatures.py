"""One's own function as a reward: every form that is known works, and any other is refused with those that are."""

from __future__ import annotations

from typing import Any

import pytest

from groupwise.agents.data.problems import Problem
from groupwise.errors import ConfigError
from groupwise.rewards.function import attempt_of
from groupwise.rewards.scoring import score_groups
from groupwise.rewards.signatures import as_reward
from groupwise.types import Failed, Group, Task

CHAT = ({"role": "user", "content": "2+2"},)
ROW = {"question": "2+2", "answer": "4", "level": 3}


def turns_only(turns):
    return float(turns[-1]["content"] == "4")


def of_a_group(task, group):
    return [float(attempt.meta["messages"][-1]["content"] == task.payload.columns["answer"]) for attempt in group]


async def of_a_group_later(_, attempts):
    return [1.0, 0.0]


def trl(completions, answer, **columns):
    assert set(columns) == {"prompts", "completion_ids", "question", "level"}
    return [float(said == right) for said, right in zip(completions, answer, strict=True)]


def trl_of_prompts(prompts, completions, **columns):
    assert prompts == ["2+2", "2+2"]
    assert columns["level"] == [3, 3]
    return [float(said == "4") for said in completions]


async def trl_later(completions, answer):
    return [float(said == right) for said, right in zip(completions, answer, strict=True)]


def trl_of_keywords(*, completions, level=(0, 0), log_metric, trainer_state):
    log_metric("level", level[0])
    return [level[0] / 3 if said == "4" else 0 for said in completions]


def scores(reward: Any, prompt: Any = "2+2") -> Any:
    members = tuple(attempt_of([*CHAT, {"role": "assistant", "content": said}]) for said in ("4", "5"))
    (found,) = score_groups(as_reward(reward), [Group("g", Task("t", Problem(prompt, "4", ROW)), members)])
    return found.scores


@pytest.mark.parametrize(
    "reward", [turns_only, of_a_group, of_a_group_later, trl, trl_of_prompts, trl_later, trl_of_keywords]
)
def test_every_form_scores_right_and_wrong(reward: Any) -> None:
    assert [score.total for score in scores(reward)] == [1.0, 0.0]


def test_a_chat_goes_with_completions_that_are_messages() -> None:
    def reward(prompts, completions, **_):
        assert prompts == [list(CHAT), list(CHAT)]
        return [float(said[0]["content"] == "4") for said in completions]

    assert [score.total for score in scores(reward, prompt=CHAT)] == [1.0, 0.0]


def test_none_means_that_a_completion_has_no_score() -> None:
    right, wrong = scores(lambda completions, **_: [1.0, None])
    assert right.total == 1.0
    assert isinstance(wrong, Failed)
    assert "returned None for this completion" in wrong.failure.message


def test_a_missing_column_is_named_with_those_there_are() -> None:
    (failed, _) = scores(lambda completions, solution: [1.0, 1.0])
    assert "needs the column 'solution', which this task does not have (its columns: question, answer, level)" in (
        failed.failure.message
    )
    told = as_reward(lambda completions, solution: []).unfit(
        [Task("row 1", Problem("2+2", "4", ROW)), Task("row 2", {"solution": 1})]
    )  # type: ignore[attr-defined]
    assert list(told) == ["row 1"]


@pytest.mark.parametrize(
    "reward", [lambda text, answer: 1.0, lambda data_source, solution_str, ground_truth, extra_info=None: 1.0]
)
def test_a_signature_that_nobody_knows_is_refused_with_those_that_are(reward: Any) -> None:
    with pytest.raises(ConfigError, match="is not the signature of a reward") as refused:
        as_reward(reward)
    for form in (
        "f(turns)",
        "f(task, group)",
        "f(completions, answer, **columns)",
        "f(prompts, completions, **columns)",
    ):
        assert form in refused.value.hint
