"""`tool_choice`: what must be called is called, in the model's own format and with arguments that fit."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from groupwise.agents.conversation.call_formats.known import FORMATS, named_format
from groupwise.agents.conversation.chat_format import Frame
from groupwise.agents.openai.completion import Completion
from groupwise.agents.openai.forced_calls import MOST_FORCED, forced_grammar
from groupwise.agents.openai.requests import RequestError, read_request
from groupwise.errors import GroupwiseError
from groupwise.language.engine import Engine, SamplingParams
from groupwise.language.tiny import tiny_model

llguidance = pytest.importorskip("llguidance")
HI = [{"role": "user", "content": "hi"}]
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 9}, "word": {"enum": ["x", "y z"]}},
    "required": ["a", "word"],
    "additionalProperties": False,
}
TOOLS = [
    {"type": "function", "function": {"name": "add", "parameters": SCHEMA}},
    {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}},
]
ADD = {"type": "function", "function": {"name": "add"}}
AS_TEXT = {"functions", "glm", "gemma", "functiongemma", "python", "bare_python", "dsml", "atem", "invoke"}


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    model, tokenizer = tiny_model(seed=3, layers=2, width=32)
    with Engine(model, tokenizer, slots=8) as engine:
        yield engine.start()


def message(engine: Engine, **body: Any) -> Any:
    asked = {"model": "tiny", "messages": HI, "tools": TOOLS, "max_tokens": 400, **body}
    request = read_request(json.dumps(asked).encode(), SamplingParams())

    async def answer() -> Any:
        return await anext(Completion(engine, Frame(engine.tokenizer), request, "tiny").events())

    return asyncio.run(answer())["choices"][0]["message"]


def test_a_named_tool_is_called_with_arguments_that_fit(engine: Engine) -> None:
    for seed in range(6):
        calls = message(engine, tool_choice=ADD, seed=seed, temperature=1.5)["tool_calls"]
        assert {call["function"]["name"] for call in calls} == {"add"}
        for call in calls:
            jsonschema.validate(json.loads(call["function"]["arguments"]), SCHEMA)


def test_required_calls_any_tool_and_one_at_a_time_if_asked(engine: Engine) -> None:
    counts = set()
    for seed in range(6):
        asked = {"tool_choice": "required", "seed": seed, "temperature": 1.5, "logit_bias": {"3": -5}}
        # Pressed to go on, a model that may make several calls does, and one that may not does not.
        several = message(engine, **asked)["tool_calls"]
        assert 1 <= len(several) <= MOST_FORCED
        counts.add(len(several))
        assert len(message(engine, parallel_tool_calls=False, **asked)["tool_calls"]) == 1
    assert max(counts) > 1


@pytest.mark.parametrize("parameters", [None, {"properties": {}}])
def test_arguments_that_no_tool_declared_are_not_written(engine: Engine, parameters: Any) -> None:
    tool = {"type": "function", "function": {"name": "look", "parameters": parameters}}
    for seed in range(4):
        asked = {"tools": [tool], "tool_choice": "required", "parallel_tool_calls": False, "seed": seed}
        (call,) = message(engine, temperature=1.5, **asked)["tool_calls"]
        assert call["function"]["arguments"] == "{}"


def test_arguments_declared_in_branches_may_be_written() -> None:
    branches = {"anyOf": [{"properties": {"a": {"type": "null"}}, "required": ["a"]}]}
    tool = {"type": "function", "function": {"name": "look", "parameters": branches}}
    assert "additionalProperties" not in forced_grammar(named_format("tagged"), [tool], ["look"], several=False)


@pytest.mark.parametrize("name", [form.name for form in FORMATS])
def test_every_format_with_arguments_in_json_can_be_forced_and_others_say_so(name: str) -> None:
    form = named_format(name)
    if name in AS_TEXT:
        with pytest.raises(RequestError, match="cannot be forced"):
            forced_grammar(form, TOOLS, ["add"], several=True)
        return
    grammar = forced_grammar(form, TOOLS, ["add"], several=True)
    assert "look" not in grammar
    assert llguidance.LLMatcher.grammar_from_lark(grammar)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"tool_choice": "required", "tools": None}, "has no such tool"),
        ({"tool_choice": {"type": "function", "function": {"name": "fly"}}}, "the tool 'fly'"),
        ({"tool_choice": "always"}, "not auto, none, required or a function"),
        ({"tool_choice": ADD, "response_format": {"type": "json_object"}}, "exclude each other"),
    ],
)
def test_a_choice_that_cannot_be_met_is_one_sentence(engine: Engine, body: Any, said: str) -> None:
    with pytest.raises(GroupwiseError, match=said) as caught:
        message(engine, **body)
    assert caught.value.field == "tool_choice"
