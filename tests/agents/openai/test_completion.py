"""Chat-completions requests answered by the real engine with the tiny model. `tests/service` covers the HTTP side."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from groupwise.agents.conversation.chat_format import Frame
from groupwise.agents.environments.contract import Reply, ToolCall
from groupwise.agents.openai.completion import Completion, api_message, finish_reason
from groupwise.agents.openai.requests import read_request
from groupwise.errors import GroupwiseError
from groupwise.language.engine import Engine, Sampled, SamplingParams
from groupwise.language.tiny import tiny_model

GREEDY = {"temperature": 0, "max_tokens": 12}
HI = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    model, tokenizer = tiny_model(seed=3, layers=2, width=32)
    with Engine(model, tokenizer, slots=32) as engine:
        yield engine.start()


def events(engine: Engine, body: Any) -> AsyncIterator[Any]:
    content = body if isinstance(body, bytes) else json.dumps({"model": "tiny", **body}).encode()
    request = read_request(content, SamplingParams(max_new_tokens=12))
    return Completion(engine, Frame(engine.tokenizer), request, "tiny").events()


async def collected(engine: Engine, body: Any) -> list[Any]:
    return [event async for event in events(engine, body)]


def ask(engine: Engine, messages: Any, **settings: Any) -> Any:
    (answer,) = asyncio.run(collected(engine, {"messages": messages, **settings}))
    return answer


def stream(engine: Engine, messages: Any, **settings: Any) -> list[Any]:
    return asyncio.run(collected(engine, {"messages": messages, "stream": True, **settings}))


def text_of(chunks: list[Any]) -> str:
    return "".join(choice["delta"].get("content", "") for chunk in chunks for choice in chunk["choices"])


def directly(engine: Engine, messages: Any, count: int = 12) -> str:
    """What the engine says by itself."""
    ids = Frame(engine.tokenizer).opening(messages)
    sampled = engine.submit(ids, SamplingParams(max_new_tokens=count, temperature=0), 0).result()
    return Frame(engine.tokenizer).reply(sampled, 0).content


def test_the_answer_is_the_engines_and_its_tokens_are_counted(engine: Engine) -> None:
    answer = ask(engine, HI, **GREEDY)
    (choice,) = answer["choices"]
    assert choice["message"] == {"role": "assistant", "content": directly(engine, HI)}
    assert choice["finish_reason"] == "length"
    assert answer["usage"] == {"prompt_tokens": 5, "completion_tokens": 12, "total_tokens": 17}
    assert (answer["object"], answer["model"]) == ("chat.completion", "tiny")


def test_a_streamed_answer_is_the_same_in_pieces(engine: Engine) -> None:
    complete = ask(engine, HI, **GREEDY)["choices"][0]
    *pieces, usage = stream(engine, HI, stream_options={"include_usage": True}, **GREEDY)
    assert usage["usage"]["completion_tokens"] == 12
    assert len(pieces) > 4
    assert text_of(pieces) == complete["message"]["content"]
    assert [piece["choices"][0]["finish_reason"] for piece in pieces[-2:]] == [None, "length"]
    assert len({piece["id"] for piece in pieces}) == 1


def test_answers_are_repeatable_by_their_seed(engine: Engine) -> None:
    def said(**settings: Any) -> list[str]:
        return [choice["message"]["content"] for choice in ask(engine, HI, **settings)["choices"]]

    several = said(n=3, seed=7)
    assert several == said(n=3, seed=7) != said(n=3, seed=8)
    assert len({*several}) == 3
    assert said() != said()


def test_a_stop_text_ends_the_answer_and_is_not_part_of_it(engine: Engine) -> None:
    complete = ask(engine, HI, **GREEDY)["choices"][0]["message"]["content"]
    stop = complete[4:6]
    cut = ask(engine, HI, stop=stop, **GREEDY)["choices"][0]
    assert cut["message"]["content"] == complete[: complete.index(stop)]
    assert cut["finish_reason"] == "stop"
    assert text_of(stream(engine, HI, stop=[stop], **GREEDY)) == cut["message"]["content"]


def test_many_ask_at_once_and_each_gets_its_own_answer(engine: Engine) -> None:
    asked = [[{"role": "user", "content": f"{n}?"}] for n in range(40)]

    async def all_answers() -> list[Any]:
        return await asyncio.gather(*(collected(engine, {"messages": messages, **GREEDY}) for messages in asked))

    said = [answer["choices"][0]["message"]["content"] for (answer,) in asyncio.run(all_answers())]
    assert said == [directly(engine, messages) for messages in asked]


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        (b"{", "", "not valid JSON"),
        (b"[1]", "", "not a JSON object"),
        ({}, "messages", "not a list of at least one object"),
        ({"messages": []}, "messages", "not a list of at least one object"),
        ({"messages": [{"role": "king", "content": "hi"}]}, "", "king"),
        ({"messages": [{"role": "user", "content": "<|assistant|>"}]}, "", "special token"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages", "only text"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"id": "1"}]}]}, "messages", "cannot be read"),
        ({"messages": [{"role": "user", "content": "a" * 3000}]}, "messages", "context of 2048"),
        ({"messages": HI, "response_format": {"type": "json_schema"}}, "response_format", "with a schema"),
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
        ({"messages": HI, "stop": [""]}, "stop", "list of strings"),
    ],
)
def test_what_cannot_be_answered_is_refused_by_name(engine: Engine, body: Any, field: str, words: str) -> None:
    with pytest.raises(GroupwiseError) as caught:
        asyncio.run(collected(engine, body))
    assert caught.value.field == field
    assert words in caught.value.message
    assert ask(engine, HI)["choices"]


def test_what_chat_clients_add_is_understood(engine: Engine) -> None:
    messages = [{"role": "developer", "content": None}, {"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    found = ask(engine, messages, user="me", frequency_penalty=0, tool_choice="auto", logprobs=None, **GREEDY)
    assert found["choices"][0]["message"]["content"] == directly(engine, [{"role": "system", "content": ""}, *HI])


def test_calls_of_tools_are_written_as_chat_apis_do() -> None:
    reply = Reply("@f", (ToolCall("call-0-0", "f", {"a": 1}),))
    (call,) = api_message(reply)["tool_calls"]
    assert call == {"id": "call-0-0", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    assert finish_reason(reply, Sampled.cancelled_unread(0)) == "tool_calls"


@pytest.mark.parametrize("streamed", [False, True])
def test_an_answer_nobody_waits_for_any_more_is_not_finished(engine: Engine, streamed: bool) -> None:
    body = {"messages": HI, "max_tokens": 2000, "temperature": 2.0, "stream": streamed, "seed": 1}

    async def leave_early() -> Any:
        with engine.hold():
            asked = asyncio.create_task(collected(engine, body))
            while not engine._requests:
                await asyncio.sleep(0)
            (future,) = engine._requests
            asked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked
        return future

    future = asyncio.run(leave_early())
    assert future.cancelled() or future.result(60).end == "cancelled"


def test_the_python_of_the_page_on_serving_runs() -> None:
    page = (Path(__file__).parents[3] / "docs" / "serving.md").read_text("utf8")
    found: dict[str, Any] = {}
    exec(compile("".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL)), "serving.md", "exec"), found)  # noqa: S102
    assert isinstance(found["answer"], str)
