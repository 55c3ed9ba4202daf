"""A judge that is a real model behind a real server: the untrained tiny model, which answers rubbish."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType

import pytest

from groupwise.agents.conversation.chat_format import Frame
from groupwise.agents.openai.completion import Completion
from groupwise.agents.openai.requests import read_request
from groupwise.errors import GroupwiseError
from groupwise.language.engine import Engine, SamplingParams
from groupwise.language.tiny import tiny_model
from groupwise.rewards.judge.judge_reward import FLAG, RulerRewardFunction
from groupwise.rewards.scoring import score_groups
from groupwise.types import Failed, Score


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """The base URL of a server that answers chat completions as the service does."""
    model, tokenizer = tiny_model(seed=3, layers=2, width=32)
    model.config.max_position_embeddings = 8192  # a question is longer than the tiny model's usual context
    params = SamplingParams(max_new_tokens=40)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            try:
                request = read_request(body, params)
                events = Completion(engine, Frame(tokenizer), request, "tiny").events()
                status, answer = 200, dict(asyncio.run(anext(events)))
            except GroupwiseError as error:
                status, answer = 400, error.as_dict()
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    with Engine(model, tokenizer, slots=8) as engine, ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        engine.start()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        server.shutdown()


@pytest.mark.parametrize("fallback", [True, False])
def test_an_untrained_model_as_a_judge_gives_no_score_that_is_not_flagged(
    endpoint: str, scripted: ModuleType, tmp_path: Path, fallback: bool
) -> None:
    record = tmp_path / "record.jsonl"
    reward = RulerRewardFunction(
        "local/tiny", base_url=endpoint, fallback_enabled=fallback, retries=1, pause=0.01, record_path=record
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
    assert reward.endpoint.dialect.format == "json_schema"  # our own server follows one, and 40 tokens cut it short
