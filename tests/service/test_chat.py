"""Chat with real models in a process of their own: seed requests, streams, strategies, OpenAI's client."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from typing import Any

import openai
import pytest
from websockets.sync.client import connect

from tests.service.conftest import until

SHORT = {"max_new_tokens": 6}


def test_a_conversation_goes_on_and_is_kept(service: Any) -> None:
    first = service.post("/api/chat", {"message": "I need help with my order", "strategy": "customer_service", **SHORT})
    assert first.status_code == 200
    answer = first.json()
    assert (answer["turn"], answer["strategy"], answer["model"]) == (1, "customer_service", "tiny")
    assert answer["state"]["issue"] == "order"
    assert 1 <= answer["tokens"] <= 6
    name = answer["conversation_id"]
    more = {"message": "It is late!", "conversation_id": name, **SHORT}
    second = service.post("/api/chat", more).json()
    assert (second["turn"], second["conversation_id"], second["strategy"]) == (2, name, "customer_service")
    kept = service.get(f"/api/conversations/{name}").json()
    said = [message["content"] for message in kept["messages"] if message["role"] in ("user", "assistant")]
    assert said == ["I need help with my order", answer["response"], "It is late!", second["response"]]
    listed = service.get("/api/conversations?limit=1").json()
    assert listed["conversations"][0]["conversation_id"] == name
    assert listed["total"] >= 1
    assert (listed["next"] is None) == (listed["total"] == 1)
    assert service.get(f"/api/conversations?from={listed['total']}").json()["conversations"] == []
    assert service.http.delete(f"/api/conversations/{name}").status_code == 204
    assert service.get(f"/api/conversations/{name}").json()["error"]["code"] == "conversation_not_found"


@pytest.mark.parametrize("strategy", ["customer_service", "technical_support", "educational", "sales", None])
def test_every_strategy_leads_a_conversation_as_it_is_made(service: Any, strategy: str | None) -> None:
    asked = {"message": "Hello", "strategy": strategy, "stream": True, "seed": 1, **SHORT}
    with service.http.stream("POST", "/api/chat", json=asked) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = [json.loads(line.removeprefix("data: ")) for line in answer.iter_lines() if line]
    assert (events[0]["type"], events[-1]["type"]) == ("start", "done")
    pieces = "".join(event["text"] for event in events if event["type"] == "delta")
    assert pieces == events[-1]["response"]
    assert events[-1]["strategy"] == strategy


def test_the_same_over_the_websocket(service: Any) -> None:
    with connect(f"ws://127.0.0.1:{service.port}/ws") as socket:
        request = {"message": "Hello", **SHORT}
        socket.send(json.dumps({"type": "chat", "id": "1", "request": request}))
        socket.send(json.dumps({"type": "chat", "id": "2", "request": {"message": 3}}))
        last: dict[str, dict[str, Any]] = {}
        while len([event for event in last.values() if event["type"] in ("done", "error")]) < 2:
            message = json.loads(socket.recv(timeout=600))
            if message["type"] == "chat":
                last[message["id"]] = message["event"]
        assert last["1"]["type"] == "done"
        assert last["2"]["error"]["field"] == "message"


@pytest.mark.parametrize(("body", "status", "code"), [
    ({"message": ""}, 422, "invalid"),
    ({"message": "Hi", "strategy": "customer_support"}, 422, "unknown_strategy"),
    ({"message": "Hi", "model": "nobody"}, 404, "model_not_found"),
    ({"message": "Hi", "model": "../tiny"}, 404, "model_not_found"),
    ({"message": "Hi", "model": "cart"}, 404, "model_not_found"),
    ({"message": "Hi", "conversation_id": "nobody"}, 404, "conversation_not_found"),
    ({"message": "Hi", "conversation_id": "nobody", "stream": True}, 404, "conversation_not_found"),
    ({"message": "Hi", "temperature": -1}, 422, "invalid"),
    ({"message": "x" * 9000}, 422, "context_full"),
])  # fmt: skip
def test_what_cannot_be_answered_is_refused(service: Any, body: dict[str, Any], status: int, code: str) -> None:
    answer = service.post("/api/chat", body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


def test_the_openai_client_talks_to_it_unchanged(service: Any) -> None:
    client = openai.OpenAI(base_url=f"{service.url}/v1", api_key="anything", max_retries=0)
    assert "tiny" in [model.id for model in client.models.list()]
    assert client.models.retrieve("tiny").id == "tiny"
    messages: Any = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello"}]
    whole = client.chat.completions.create(model="tiny", messages=messages, max_tokens=5, n=2, seed=3)
    assert len(whole.choices) == 2
    assert whole.usage is not None
    assert whole.usage.completion_tokens <= 10
    again = client.chat.completions.create(model="tiny", messages=messages, max_tokens=5, seed=3, temperature=0)
    stream = client.chat.completions.create(
        model="tiny", messages=messages, max_tokens=5, seed=3, temperature=0, stream=True,
        stream_options={"include_usage": True},
    )  # fmt: skip
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == re.sub(
        r"<\|\w+\|>", "", again.choices[0].message.content or ""
    )  # an untrained model says such tokens
    assert chunks[-1].usage is not None
    with pytest.raises(openai.NotFoundError, match="no model 'nobody'"):
        client.chat.completions.create(model="nobody", messages=messages)
    told = client.chat.completions.create(model="tiny", messages=messages, max_tokens=5, logprobs=True, top_logprobs=2)
    assert told.choices[0].logprobs is not None
    assert len((told.choices[0].logprobs.content or [])[0].top_logprobs) == 2
    schema: Any = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "boolean"}}}
    fits = client.chat.completions.create(model="tiny", messages=messages, max_tokens=50, response_format=schema)
    assert json.loads(fits.choices[0].message.content or "") in (True, False)
    plain = client.completions.create(model="tiny", prompt="1+1=", max_tokens=4, logprobs=1, seed=1)
    assert plain.choices[0].logprobs is not None
    assert "".join(plain.choices[0].logprobs.tokens or []) == plain.choices[0].text
    look: Any = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
    called = client.chat.completions.create(
        model="tiny", messages=messages, tools=[look], tool_choice="required", max_tokens=200, parallel_tool_calls=False
    )
    assert [call.function.name for call in called.choices[0].message.tool_calls or []] == ["look"]  # type: ignore[union-attr]
    with pytest.raises(openai.BadRequestError, match="tool_choice"):
        client.chat.completions.create(model="tiny", messages=messages, tool_choice="required")


def test_models_that_die_take_their_answers_with_them_and_nothing_else(service: Any) -> None:
    service.post("/api/chat", {"message": "Hello", **SHORT})
    asked = {"message": "Hello", "stream": True, "max_new_tokens": 1500, "temperature": 5.0}
    for _ in range(10):  # an answer may end by chance before it can be lost
        with service.http.stream("POST", "/api/chat", json=asked) as answer:
            lines = answer.iter_lines()
            name = json.loads(next(lines).removeprefix("data: "))["conversation_id"]
            next(line for line in lines if "delta" in line)
            killed = service.parts.chat_models.process.pid
            os.kill(killed, signal.SIGKILL)
            last = json.loads([line for line in lines if line][-1].removeprefix("data: "))
        until(lambda gone=killed: service.parts.chat_models.process.pid != gone)  # its death was noticed
        if "error" in last:
            break
    assert last["error"]["code"] == "generation_lost"
    kept = service.get(f"/api/conversations/{name}").json()
    assert [message["content"] for message in kept["messages"]][-1] == "Hello"
    assert service.post("/api/chat", {"message": "Again", "conversation_id": name, **SHORT}).json()["turn"] == 2


def test_the_next_run_of_a_name_does_not_speak_with_the_model_of_the_one_before(serve: Callable[..., Any]) -> None:
    service = serve()
    learning = {
        "product": "language", "environment": "addition", "num_generations": 2, "tasks_per_step": 1,
        "max_new_tokens": 4, "num_episodes": 1, "eval_steps": 0, "threads": 1, "save_steps": 1,
    }  # fmt: skip

    def said(name: str, model: str) -> Any:
        """The log-probability of what a run that starts from this model says first."""
        asked = {"name": name, "config": {**learning, "model_name": model}}
        job = service.post("/api/train", asked).json()["id"]
        service.wait_for(job, "finished")
        request = {"model": name, "messages": [{"role": "user", "content": "Hi"}], "temperature": 0, "logprobs": True}
        answer = service.post("/v1/chat/completions", {**request, "max_tokens": 2}).json()
        assert service.http.delete(f"/api/jobs/{job}").status_code == 204
        return answer["choices"][0]["logprobs"]["content"][0]["logprob"]

    one, other = said("talker", "tiny@1"), said("talker", "tiny@2")
    assert one != other == pytest.approx(said("another", "tiny@2"))
