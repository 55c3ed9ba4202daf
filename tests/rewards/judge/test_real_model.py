"""A judge that is a real model behind a real server: the untrained tiny model, which answers rubbish."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from groupwise.agents.conversation.frame import Frame
from groupwise.agents.openai.server import ModelServer
from groupwise.language.engine import Engine, SamplingParams
from groupwise.language.tiny import tiny_model
from groupwise.rewards.judge.ruler import FLAG, RulerRewardFunction
from groupwise.rewards.scoring import score_groups
from groupwise.types import Failed, Score


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    model, tokenizer = tiny_model(seed=3, layers=2, width=32)
    model.config.max_position_embeddings = 8192  # a question is longer than the tiny model's usual context
    params = SamplingParams(max_new_tokens=40)
    with (
        Engine(model, tokenizer, slots=8) as engine,
        ModelServer(engine, Frame(tokenizer), params, name="tiny", seed=0) as served,
    ):
        yield served


@pytest.mark.parametrize("fallback", [True, False])
def test_an_untrained_model_as_a_judge_gives_no_score_that_is_not_flagged(
    server: ModelServer, scripted: ModuleType, tmp_path: Path, fallback: bool
) -> None:
    record = tmp_path / "record.jsonl"
    reward = RulerRewardFunction(
        "local/tiny", base_url=server.url(), fallback_enabled=fallback, retries=1, pause=0.01, record_path=record
    )
    groups = [scripted.group_worth([0.2, 0.9], name=name) for name in "abc"]
    scores = [score for scored in score_groups(reward, groups) for score in scored.scores]
    if fallback:
        assert all(isinstance(score, Score) and score.flags == (FLAG,) for score in scores)
        assert reward.metrics()["judge/fallback_share"] == 1.0
    else:
        assert all(isinstance(score, Failed) and score.failure.code == "malformed" for score in scores)
    calls = [line for line in map(json.loads, record.read_text().splitlines()) if line["kind"] == "call"]
    assert len(calls) == 6
    assert all(call["answered"] and "cannot be used" in call["error"] for call in calls)
    assert reward.metrics()["judge/completion_tokens"] == sum(call["completion_tokens"] for call in calls) > 0
    assert reward.endpoint.dialect.format == "text"  # it knows no JSON formats and said so
