"""Whatever goes wrong between us and a judge, over real HTTP: a score is right, flagged, or not there."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import pytest

from groupwise.rewards.judge.judge_reward import FLAG, RulerRewardFunction
from groupwise.rewards.scoring import score_groups
from groupwise.types import Failed, Group, Score

Make = Callable[..., RulerRewardFunction]
WORTHS = (0.2, 0.9, 0.5, 0.7)


def scores_of(judge: RulerRewardFunction, *groups: Group) -> list[Sequence[Score | Failed]]:
    return [scored.scores for scored in score_groups(judge, groups)]


def right(worths: Sequence[float], scores: Sequence[Score | Failed], criteria: int = 3) -> bool:
    """The honest judge's scores: each criterion 0.01 below the one before."""
    expected = [worth - 0.01 * (criteria - 1) / 2 for worth in worths]
    totals = [score.total if isinstance(score, Score) and not score.flags else None for score in scores]
    return totals == pytest.approx(expected)


def flagged(scores: Sequence[Score | Failed]) -> bool:
    return all(isinstance(score, Score) and score.flags == (FLAG,) for score in scores)


def test_a_fault_that_passes_costs_a_retry_and_changes_no_score(
    judge: Make, server: Any, scripted: ModuleType, fault: Any
) -> None:
    server.script = [fault]
    (scores,) = scores_of(judge(timeout=scripted.time_for(fault)), scripted.group_worth(WORTHS))
    assert right(WORTHS, scores)
    assert len(server.asked) == 2


def test_a_fault_that_stays_sends_the_whole_group_to_the_fallback_flagged(
    judge: Make, server: Any, scripted: ModuleType, fault: Any
) -> None:
    server.always = fault
    reward = judge(retries=1, timeout=scripted.time_for(fault))
    (scores,) = scores_of(reward, scripted.group_worth(WORTHS))
    assert flagged(scores)
    assert len(server.asked) == 2
    assert reward.metrics()["judge/fallback_share"] == 1.0
    (hint,) = reward.hints()
    assert (hint.code, hint.remedy != "") == ("judge_fallback", True)


def test_without_a_fallback_the_group_has_failed_and_says_why(
    judge: Make, server: Any, scripted: ModuleType, fault: Any
) -> None:
    server.always = fault
    reward = judge(retries=0, fallback_enabled=False, timeout=scripted.time_for(fault))
    (scores,) = scores_of(reward, scripted.group_worth(WORTHS))
    assert all(isinstance(score, Failed) and score.failure.where == "judge" for score in scores)
    assert all(len(score.failure.message) > 30 for score in scores if isinstance(score, Failed))
    assert reward.metrics()["judge/failed_share"] == 1.0


def test_among_random_faults_every_score_is_right_or_its_whole_group_is_flagged(
    judge: Make, server: Any, scripted: ModuleType
) -> None:
    rng = random.Random(1)
    quick = [fault for name, fault in scripted.FAULTS.items() if name not in ("slow", "dripping")]
    server.script = [rng.choice([*quick, *[scripted.honest] * 8]) for _ in range(150)]
    worths = [[round(rng.uniform(0.1, 1.0), 2) for _ in range(4)] for _ in range(60)]
    groups = [scripted.group_worth(each, name=f"g{n}") for n, each in enumerate(worths)]
    reward = judge(retries=1, breaker_threshold=100)
    found = scores_of(reward, *groups)
    correct = [right(each, scores) for each, scores in zip(worths, found, strict=True)]
    assert all(ok or flagged(scores) for ok, scores in zip(correct, found, strict=True))
    assert 0 < sum(correct) < len(groups)
    assert reward.metrics()["judge/fallback_share"] == pytest.approx(1 - sum(correct) / len(groups))


def test_a_server_that_is_not_there_is_a_fault_like_any_other(judge: Make, scripted: ModuleType) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    (scores,) = scores_of(judge(base_url=url, retries=1), scripted.group_worth(WORTHS))
    assert flagged(scores)


def test_a_fallback_that_fails_too_leaves_no_score(judge: Make, server: Any, scripted: ModuleType) -> None:
    async def broken(task: Any, group: Any) -> Any:
        raise RuntimeError("nobody is at home")

    server.always = scripted.refuse(500)
    (scores,) = scores_of(judge(retries=0, fallback=broken), scripted.group_worth(WORTHS))
    assert all(isinstance(score, Failed) and "nobody is at home" in score.failure.message for score in scores)


@pytest.mark.parametrize(("status", "code"), [(401, ""), (403, ""), (404, ""), (302, ""), (429, "insufficient_quota")])
def test_what_no_retry_can_mend_is_asked_once(
    judge: Make, server: Any, scripted: ModuleType, status: int, code: str
) -> None:
    error = {"error": {"message": "no", "code": code}}
    server.always = lambda handler, _: handler.give(status, error, Location="/elsewhere")
    (scores,) = scores_of(judge(), scripted.group_worth(WORTHS))
    assert flagged(scores)
    assert len(server.asked) == 1


def test_a_server_without_json_schema_is_asked_more_simply_and_not_refused_twice(
    judge: Make, server: Any, scripted: ModuleType
) -> None:
    server.always = scripted.without_schema
    groups = [scripted.group_worth(WORTHS, name=name) for name in "ab"]
    reward = judge(max_concurrency=1)
    assert all(right(WORTHS, scores) for scores in scores_of(reward, *groups))
    formats = [body.get("response_format", {}).get("type") for body in server.asked]
    assert formats == ["json_schema", "json_object", "json_object"]
    assert reward.metrics()["judge/retries"] == 0


def test_a_server_that_knows_no_form_of_answer_is_asked_for_json_in_words(
    judge: Make, server: Any, scripted: ModuleType
) -> None:
    def plain(handler: Any, body: Any) -> None:
        if "response_format" in body or "temperature" in body:
            handler.give(
                400, {"error": {"message": "unknown: " + ("temperature" if "temperature" in body else "form")}}
            )
        else:
            handler.say(f"<think>hm {{</think>\n```json\n{scripted.json.dumps({'scores': scripted.rows(body)})}\n```")

    server.always = plain
    (scores,) = scores_of(judge(), scripted.group_worth(WORTHS))
    assert right(WORTHS, scores)
    assert len(server.asked) == 4


def test_a_question_the_server_finds_too_long_is_neither_repeated_nor_held_against_it(
    judge: Make, server: Any, scripted: ModuleType
) -> None:
    server.always = scripted.refuse(400, "maximum context length is 10 tokens")
    reward = judge(breaker_threshold=1)
    found = scores_of(reward, *(scripted.group_worth(WORTHS, name=name) for name in "ab"))
    assert all(flagged(scores) for scores in found)
    assert len(server.asked) == 2
    assert reward.metrics()["judge/breaker_open"] == 0.0


def test_a_group_too_long_to_ask_about_is_not_sent(judge: Make, server: Any, scripted: ModuleType) -> None:
    reward = judge(max_prompt_tokens=2000)
    (scores,) = scores_of(reward, scripted.group_of("worth 0.1" + " a" * 4000, "worth 0.2"))
    assert flagged(scores)
    assert server.asked == []
    assert "the limit is 2000" in reward.hints()[0].message


def test_without_a_key_nothing_is_sent_anywhere(scripted: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    reward = RulerRewardFunction("openai/gpt-4", fallback_enabled=True)
    (scores,) = scores_of(reward, scripted.group_worth(WORTHS))
    assert flagged(scores)
    assert "OPENAI_API_KEY" in reward.hints()[0].message
