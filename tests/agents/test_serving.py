"""A model served over real HTTP: the tiny model, the real engine, a real port."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from groupwise.agents.conversation.frame import Frame
from groupwise.agents.environments.contract import Reply, ToolCall
from groupwise.agents.openai.requests import Served, read_request
from groupwise.agents.openai.server import ModelServer
from groupwise.language.engine import Engine, Sampled, SamplingParams
from groupwise.language.tiny import tiny_model

httpx = pytest.importorskip("httpx2")

CLIENT = httpx.Client(timeout=30, trust_env=False)
GREEDY = {"temperature": 0, "max_tokens": 12}
HI = [{"role": "user", "content": "hi"}]
Start = Callable[..., ModelServer]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    model, tokenizer = tiny_model(seed=3, layers=2, width=32)
    with Engine(model, tokenizer, slots=32) as engine:
        yield engine


@pytest.fixture
def start(engine: Engine) -> Iterator[Start]:
    made: list[ModelServer] = []

    def serve(**settings: Any) -> ModelServer:
        params = SamplingParams(max_new_tokens=12)
        made.append(ModelServer(engine, Frame(engine.tokenizer), params, **{"name": "tiny", "seed": 0, **settings}))
        return made[-1]

    yield serve
    for server in made:
        server.close()


def post(server: ModelServer, body: Any, label: str = "", **headers: str) -> Any:
    content = body if isinstance(body, bytes) else json.dumps({"model": "tiny", **body}).encode()
    return CLIENT.post(f"{server.url(label)}/chat/completions", content=content, headers=headers)


def ask(server: ModelServer, messages: Any, label: str = "", **settings: Any) -> Any:
    response = post(server, {"messages": messages, **settings}, label)
    assert response.status_code == 200, response.text
    return response.json()


def directly(engine: Engine, messages: Any, count: int = 12) -> str:
    """What the engine says without a server between."""
    ids = Frame(engine.tokenizer).opening(messages)
    sampled = engine.submit(ids, SamplingParams(max_new_tokens=count, temperature=0), 0).result()
    return Frame(engine.tokenizer).reply(sampled, 0).content


def test_the_answer_is_the_engines_and_its_tokens_are_counted(start: Start, engine: Engine) -> None:
    answer = ask(start(), HI, **GREEDY)
    (choice,) = answer["choices"]
    assert choice["message"] == {"role": "assistant", "content": directly(engine, HI)}
    assert choice["finish_reason"] == "length"
    assert answer["usage"] == {"prompt_tokens": 5, "completion_tokens": 12, "total_tokens": 17}
    assert (answer["object"], answer["model"]) == ("chat.completion", "tiny")


def test_the_python_of_the_page_on_serving_runs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "serving.md").read_text("utf8")
    found: dict[str, Any] = {}
    exec(compile("".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL)), "serving.md", "exec"), found)  # noqa: S102
    assert isinstance(found["answer"], str)


def test_the_models_are_listed(start: Start) -> None:
    found = CLIENT.get(f"{start().url()}/models").json()
    assert [model["id"] for model in found["data"]] == ["tiny"]


def test_a_streamed_answer_is_the_same_in_pieces(start: Start) -> None:
    server = start()
    whole = ask(server, HI, **GREEDY)["choices"][0]
    body = {"messages": HI, "stream": True, "stream_options": {"include_usage": True}, **GREEDY}
    lines = [line for line in post(server, body).text.split("\n\n") if line]
    assert lines[-1] == "data: [DONE]"
    *pieces, usage = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
    assert usage["usage"]["completion_tokens"] == 12
    deltas = [piece["choices"][0]["delta"] for piece in pieces]
    assert len(deltas) > 4
    assert "".join(delta.get("content", "") for delta in deltas) == whole["message"]["content"]
    assert [piece["choices"][0]["finish_reason"] for piece in pieces[-2:]] == [None, "length"]
    assert len({piece["id"] for piece in pieces}) == 1


def test_a_conversation_under_a_label_carries_the_tokens_that_were_sampled(start: Start) -> None:
    seen: list[Served] = []
    server = start(on_answer=seen.append)
    messages: list[Any] = list(HI)
    for words in ("and?", "so?"):
        messages.append(ask(server, messages, label="g1/m2")["choices"][0]["message"])
        messages.append({"role": "user", "content": words})
    ask(server, messages, label="g1/m2")
    assert [served.label for served in seen] == ["g1/m2"] * 3
    for before, after in pairwise(seen):
        carried = (*before.prompt, *before.sampled.ids.tolist())
        assert after.prompt[: len(carried)] == carried
        assert len(after.prompt) > len(carried)


def test_a_conversation_told_otherwise_is_read_anew(start: Start, engine: Engine) -> None:
    seen: list[Served] = []
    server = start(on_answer=seen.append)
    ask(server, HI, label="a")
    other = [*HI, {"role": "assistant", "content": "what I never said"}, {"role": "user", "content": "and?"}]
    ask(server, other, label="a")
    assert list(seen[1].prompt) == Frame(engine.tokenizer).opening(other)


def test_answers_are_repeatable_by_label_and_turn_or_by_a_seed_of_their_own(start: Start) -> None:
    def said(server: ModelServer, **settings: Any) -> list[str]:
        return [choice["message"]["content"] for choice in ask(server, HI, **settings)["choices"]]

    first, again, other = start(), start(), start(seed=1)
    assert said(first, label="a") == said(again, label="a") != said(other, label="a")
    assert said(first, label="b") != said(first, label="b")
    several = said(first, n=3, seed=7)
    assert several == said(other, n=3, seed=7)
    assert len({*several}) == 3


def test_a_stop_text_ends_the_answer_and_is_not_part_of_it(start: Start) -> None:
    server = start()
    whole = ask(server, HI, **GREEDY)["choices"][0]["message"]["content"]
    stop = whole[4:6]
    cut = ask(server, HI, stop=stop, **GREEDY)["choices"][0]
    assert cut["message"]["content"] == whole[: whole.index(stop)]
    assert cut["finish_reason"] == "stop"
    streamed = post(server, {"messages": HI, "stop": [stop], "stream": True, **GREEDY}).text
    pieces = [
        json.loads(line[6:])["choices"][0]["delta"] for line in streamed.split("\n\n") if line.startswith("data: {")
    ]
    assert "".join(delta.get("content", "") for delta in pieces) == cut["message"]["content"]


def test_many_ask_at_once_and_each_gets_its_own_answer(start: Start, engine: Engine) -> None:
    server = start()
    asked = [[{"role": "user", "content": f"{n}?"}] for n in range(40)]
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda messages: ask(server, messages, **GREEDY), asked))
    said = [answer["choices"][0]["message"]["content"] for answer in answers]
    assert said == [directly(engine, messages) for messages in asked]


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        (b"{", None, "no JSON"),
        (b"[1]", None, "no JSON object"),
        ({}, "messages", "not a list of at least one object"),
        ({"messages": []}, "messages", "not a list of at least one object"),
        ({"messages": [{"role": "king", "content": "hi"}]}, None, "king"),
        ({"messages": [{"role": "user", "content": "<|assistant|>"}]}, None, "special token"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages", "only text"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"id": "1"}]}]}, "messages", "cannot be read"),
        ({"messages": [{"role": "user", "content": "a" * 3000}]}, "messages", "context of 2048"),
        ({"messages": HI, "response_format": {"type": "json_schema"}}, "response_format", "not supported"),
        ({"messages": HI, "logprobs": True}, "logprobs", "not supported"),
        ({"messages": HI, "colour": "red"}, "colour", "not supported"),
        ({"messages": HI, "temperature": "hot"}, "temperature", "not a number"),
        ({"messages": HI, "temperature": -1}, "temperature", "0 or more"),
        ({"messages": HI, "temperature": 10**400}, "temperature", "not a number up to"),
        ({"messages": HI, "top_k": 2.5}, "top_k", "not a whole number"),
        ({"messages": HI, "top_k": float("inf")}, "top_k", "not a whole number"),
        ({"messages": HI, "stream_options": 5}, "stream_options", "not an object"),
        ({"messages": HI, "n": 0}, "n", "from 1 to 64"),
        ({"messages": HI, "n": 2, "stream": True}, "n", "from 1 to 1"),
        ({"messages": HI, "max_tokens": 1.5}, "max_tokens", "whole number"),
        ({"messages": HI, "stop": [""]}, "stop", "list of texts"),
    ],
)
def test_what_cannot_be_answered_is_refused_by_name(start: Start, body: Any, field: str | None, words: str) -> None:
    server = start()
    response = post(server, body)
    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (400, field)
    assert words in error["message"]
    assert ask(server, HI)["choices"]


def test_unknown_places_and_wrong_keys_are_refused(start: Start) -> None:
    server = start(api_key="secret")
    assert CLIENT.get(f"{server.url()}/models").status_code == 401
    assert CLIENT.get(f"{server.url()}/nothing").status_code == 404
    assert CLIENT.post(f"{server.url()}/embeddings", content=b"{}").status_code == 404
    assert post(server, {"messages": HI}).json()["error"]["code"] == "invalid_api_key"
    assert post(server, {"messages": HI}, Authorization="Bearer secret").status_code == 200


def test_what_chat_clients_add_is_understood(start: Start, engine: Engine) -> None:
    messages = [{"role": "developer", "content": None}, {"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    found = ask(start(), messages, user="me", frequency_penalty=0, tool_choice="auto", logprobs=None, **GREEDY)
    assert found["choices"][0]["message"]["content"] == directly(engine, [{"role": "system", "content": ""}, *HI])


def test_calls_of_tools_are_written_as_chat_apis_do(engine: Engine) -> None:
    sampled = Sampled.cancelled_unread(0)
    request = read_request(json.dumps({"messages": HI}).encode(), SamplingParams())
    served = Served("", request, (1,), sampled, Reply("@f", (ToolCall("call-0-0", "f", {"a": 1}),)))
    (call,) = served.message["tool_calls"]
    assert call == {"id": "call-0-0", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    assert served.finish == "tool_calls"


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_nobody_waits_for_any_more_is_not_finished(start: Start, engine: Engine, stream: bool) -> None:
    answered: list[Served] = []
    server = start(on_answer=answered.append)
    host, port = server.url().removeprefix("http://").removesuffix("/v1").split(":")
    body = json.dumps({"messages": HI, "max_tokens": 2000, "temperature": 2.0, "stream": stream}).encode()
    with engine.hold(), socket.create_connection((host, int(port))) as client:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        client.sendall(head.encode() + body)
        deadline = time.monotonic() + 5
        while not engine._requests and time.monotonic() < deadline:
            time.sleep(0.01)
        (future,) = engine._requests
        client.close()
        time.sleep(0.6)  # while the engine is held, the server notices that its client has gone
    assert future.result(10).end == "cancelled"
    assert answered == []


def test_closing_the_server_ends_what_is_under_way(start: Start, engine: Engine) -> None:
    server = start()
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(ask(server, HI, max_tokens=2000, seed=1, temperature=2.0)))
    with engine.hold():
        thread.start()
        deadline = time.monotonic() + 5
        while not engine._requests and time.monotonic() < deadline:
            time.sleep(0.01)
        server.close()
        time.sleep(0.4)
    thread.join(10)
    assert found[0]["usage"]["completion_tokens"] < 2000
