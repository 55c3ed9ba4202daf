"""What OpenAI's clients ask for beyond text: log-probabilities, JSON schemas, penalties, and plain completions."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import torch

from groupwise.agents.conversation.chat_format import Frame
from groupwise.agents.openai.completion import Completion, TextCompletion
from groupwise.agents.openai.requests import read_request
from groupwise.errors import GroupwiseError
from groupwise.language.engine import Engine, SamplingParams
from groupwise.language.policy import LanguagePolicy
from groupwise.language.tiny import tiny_model

HI = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    model, tokenizer = tiny_model(seed=3, layers=2, width=32)
    with Engine(model, tokenizer, slots=32) as engine:
        yield engine.start()


def events(engine: Engine, **body: Any) -> AsyncIterator[Any]:
    request = read_request(json.dumps({"model": "tiny", **body}).encode(), SamplingParams(max_new_tokens=12))
    kind = TextCompletion if "prompt" in body else Completion
    return kind(engine, Frame(engine.tokenizer), request, "tiny").events()


def all_of(engine: Engine, **body: Any) -> list[Any]:
    async def collected() -> list[Any]:
        return [event async for event in events(engine, **body)]

    return asyncio.run(collected())


def test_logprobs_are_those_of_the_learner(engine: Engine) -> None:
    (answer,) = all_of(engine, messages=HI, logprobs=True, top_logprobs=3, seed=4, max_tokens=16, temperature=0.8)
    (choice,) = answer["choices"]
    listed = choice["logprobs"]["content"]
    assert "".join(one["token"] for one in listed) == choice["message"]["content"]
    prompt = list(Frame(engine.tokenizer).opening(HI))
    ids = [engine.tokenizer.convert_tokens_to_ids(one["token"]) for one in listed]
    rows = torch.tensor([prompt + ids])
    policy = LanguagePolicy(engine.model, temperature=0.8)
    said = torch.arange(rows.shape[1])[None] >= len(prompt)
    inputs = {"input_ids": rows, "attention_mask": torch.ones_like(rows), "action_mask": said}
    with torch.no_grad():
        learned = policy.evaluate(inputs).logp[0, len(prompt) :]
    assert torch.allclose(learned, torch.tensor([one["logprob"] for one in listed]), atol=1e-4)
    for one in listed:
        top = one["top_logprobs"]
        assert len(top) == 3
        assert top[0]["logprob"] >= top[1]["logprob"] >= top[2]["logprob"]
        assert one["logprob"] <= top[0]["logprob"] + 1e-5
        assert bytes(one["bytes"]).decode() == one["token"]


def test_a_stream_has_the_same_logprobs(engine: Engine) -> None:
    asked = {"messages": HI, "logprobs": True, "top_logprobs": 2, "seed": 4}
    (answer,) = all_of(engine, **asked)
    chunks = all_of(engine, stream=True, **asked)
    told = [one for chunk in chunks for c in chunk["choices"] for one in c.get("logprobs", {}).get("content", [])]
    assert told == answer["choices"][0]["logprobs"]["content"]


def random_schema(rng: random.Random, depth: int = 0) -> dict[str, Any]:
    kind = rng.choice(["integer", "boolean", "enum", "string", "number", *(["object", "array"] if depth < 2 else [])])
    if kind == "enum":
        return {"enum": rng.sample(["red", "green", 3, None, True], rng.randrange(1, 4))}
    if kind == "string":
        return {"type": "string", "maxLength": rng.randrange(1, 6)}
    if kind == "integer":
        low = rng.randrange(-50, 50)
        return {"type": "integer", "minimum": low, "maximum": low + rng.randrange(90)}
    if kind == "number":
        return {"type": "number", "minimum": 0, "maximum": 10}
    if kind == "array":
        return {"type": "array", "items": random_schema(rng, depth + 1), "maxItems": rng.randrange(1, 3)}
    if kind == "object":
        names = rng.sample("abcdef", rng.randrange(1, 4))
        inner = {name: random_schema(rng, depth + 1) for name in names}
        return {"type": "object", "properties": inner, "required": names, "additionalProperties": False}
    return {"type": kind}


def answered(engine: Engine, seed: int) -> tuple[Any, dict[str, Any]]:
    schema = random_schema(random.Random(seed))
    wanted = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    # Random weights rarely close a number: the likeliest token may be a digit for ever.
    asked = {"messages": HI, "seed": seed, "max_tokens": 600, "temperature": 1.0, "logit_bias": {"3": 2}}
    (answer,) = all_of(engine, response_format=wanted, **asked)
    return answer["choices"][0], schema


def valid_share(engine: Engine, seeds: range) -> float:
    jsonschema = pytest.importorskip("jsonschema")
    pytest.importorskip("llguidance")
    right = 0
    for seed in seeds:
        choice, schema = answered(engine, seed)
        if choice["finish_reason"] == "stop":
            jsonschema.validate(json.loads(choice["message"]["content"]), schema)
            right += 1
    return right / len(seeds)


def test_answers_fit_their_schema(engine: Engine) -> None:
    assert valid_share(engine, range(25)) == 1.0


@pytest.mark.long
def test_a_thousand_random_schemas_are_all_met(engine: Engine) -> None:
    assert valid_share(engine, range(1000, 2000)) == 1.0


def test_a_schema_that_cannot_be_followed_is_one_sentence_and_others_go_on(engine: Engine) -> None:
    pytest.importorskip("llguidance")
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "nonsense"}}}
    with pytest.raises(GroupwiseError, match="the JSON schema cannot be followed") as caught:
        all_of(engine, messages=HI, response_format=wanted)
    assert caught.value.field == "response_format"
    assert all_of(engine, messages=HI)[0]["choices"][0]["finish_reason"] in ("stop", "length")


def test_penalties_and_biases_change_what_is_said_but_not_what_is_recorded(engine: Engine) -> None:
    greedy = {"messages": HI, "temperature": 0, "max_tokens": 12, "logprobs": True}
    (plain,) = all_of(engine, **greedy)
    (varied,) = all_of(engine, frequency_penalty=2, presence_penalty=2, **greedy)
    said = [one["token"] for one in varied["choices"][0]["logprobs"]["content"]]
    assert len(set(said)) >= len({one["token"] for one in plain["choices"][0]["logprobs"]["content"]})
    token = engine.tokenizer.convert_tokens_to_ids("q")
    (forced,) = all_of(engine, logit_bias={str(token): 100}, **greedy)
    told = forced["choices"][0]["logprobs"]["content"]
    assert {one["token"] for one in told} == {"q"}
    assert all(one["logprob"] < -1e-3 for one in told)


def test_tool_choice_none_offers_no_tools(engine: Engine) -> None:
    tool = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
    (without,) = all_of(engine, messages=HI)
    (none,) = all_of(engine, messages=HI, tools=[tool], tool_choice="none")
    (offered,) = all_of(engine, messages=HI, tools=[tool], tool_choice="auto")
    assert none["usage"]["prompt_tokens"] == without["usage"]["prompt_tokens"] < offered["usage"]["prompt_tokens"]


def test_a_text_is_continued_without_a_chat_format(engine: Engine) -> None:
    asked = {"prompt": "1+1=", "seed": 2, "max_tokens": 8, "logprobs": 2}
    (answer,) = all_of(engine, **asked)
    (choice,) = answer["choices"]
    assert answer["object"] == "text_completion"
    assert answer["usage"]["prompt_tokens"] == len(engine.tokenizer.encode("1+1="))
    assert "".join(choice["logprobs"]["tokens"]) == choice["text"]
    assert all(len(top) == 2 for top in choice["logprobs"]["top_logprobs"])
    chunks = all_of(engine, stream=True, **asked)
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == choice["text"]


def test_a_client_that_leaves_in_mid_stream_frees_its_place(engine: Engine) -> None:
    async def leave() -> None:
        stream = events(engine, messages=HI, stream=True, max_tokens=1500, logit_bias={"3": -100})
        assert await anext(stream)
        assert await anext(stream)
        await stream.aclose()

    asyncio.run(leave())
    engine.run_until_idle()  # returns at once: nothing is left to make
    assert all_of(engine, messages=HI)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"messages": HI, "top_logprobs": 3}, "top_logprobs"),
        ({"messages": HI, "logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"messages": HI, "response_format": {"type": "grammar"}}, "response_format"),
        ({"messages": HI, "tool_choice": "required"}, "tool_choice"),
        ({"messages": HI, "logit_bias": {"a": 1}}, "logit_bias"),
        ({"messages": HI, "logit_bias": {"1": 10**400}}, "logit_bias"),
        ({"messages": HI, "logit_bias": {"104": 1}}, "logit_bias"),
        ({"messages": HI, "logit_bias": {"9" * 4000: 1}}, "logit_bias"),
        *(
            ({"messages": HI, "tools": [{"type": "function", "function": {"name": "f", "parameters": wrong}}],
              "tool_choice": "required"}, "tools")
            for wrong in ([1], "x", 3)
        ),
        ({"messages": HI, "stop": [f"{n}." for n in range(65)]}, "stop"),
        ({"messages": HI, "stop": "a" * 1001}, "stop"),
        ({"messages": HI, "frequency_penalty": "much"}, "frequency_penalty"),
        ({"prompt": ["a", "b"]}, "prompt"),
        ({"prompt": "a", "messages": HI}, "prompt"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_by_name(engine: Engine, body: Any, field: str) -> None:
    with pytest.raises(GroupwiseError) as caught:
        all_of(engine, **body)
    assert caught.value.field == field


def test_stop_strings_of_many_requests_do_not_add_up(engine: Engine) -> None:
    for number in range(60):
        all_of(engine, messages=HI, stop=[f"stop {number}"], max_tokens=1)
    assert len(engine._stops) <= 32
