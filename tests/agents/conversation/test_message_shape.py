"""Messages in the shape that a chat template wants."""

from __future__ import annotations

from typing import Any

import pytest

from groupwise.agents.conversation.message_shape import THOUGHTS, MessageShape, call_message
from groupwise.agents.environments.contract import ToolCall
from groupwise.errors import ContractError
from groupwise.types import Message


def call(arguments: Any, number: str = "c1", name: str = "look") -> dict[str, Any]:
    return {"id": number, "type": "function", "function": {"name": name, "arguments": arguments}}


def fitted(shape: MessageShape, **message: Any) -> Message:
    return shape.fit([{"role": "assistant", "content": "hi", **message}])[0]


@pytest.mark.parametrize("given", [{"a": "é"}, '{"a": "é"}'], ids=["object", "text"])
@pytest.mark.parametrize(("as_text", "wanted"), [(False, {"a": "é"}), (True, '{"a": "é"}')])
def test_arguments_are_an_object_or_text_as_the_template_wants(given: Any, as_text: bool, wanted: Any) -> None:
    said = fitted(MessageShape(arguments_as_text=as_text), tool_calls=[call(given)])
    assert said["tool_calls"] == [call(wanted)]


@pytest.mark.parametrize("broken", ["{", "[" * 100_000, ""])
def test_arguments_that_are_not_json_are_refused_where_an_object_is_wanted(broken: str) -> None:
    with pytest.raises(ContractError, match="the arguments of a call to 'look' are not valid JSON"):
        fitted(MessageShape(), tool_calls=[call(broken)])
    assert fitted(MessageShape(arguments_as_text=True), tool_calls=[call(broken)])["tool_calls"] == [call(broken)]


@pytest.mark.parametrize("empty", ["", None])
def test_beside_calls_missing_content_is_what_the_template_wants(empty: str | None) -> None:
    shape = MessageShape(empty=empty)
    for content in ("", None):
        assert fitted(shape, content=content, tool_calls=[call({})])["content"] == empty
    assert fitted(shape, tool_calls=[call({})])["content"] == "hi"
    assert fitted(shape, content="")["content"] == "", "without calls it stays"


@pytest.mark.parametrize("key", THOUGHTS)
@pytest.mark.parametrize("wanted", [*THOUGHTS, None])
def test_a_thought_goes_by_the_name_that_the_template_reads(key: str, wanted: str | None) -> None:
    said = fitted(MessageShape(thoughts=wanted), **{key: "so"})
    assert {name: said[name] for name in THOUGHTS if name in said} == ({wanted: "so"} if wanted else {})
    # Only the model thinks.
    asked: Message = {"role": "user", "content": "hi", key: "so"}
    assert MessageShape(thoughts=wanted).fit([asked]) == [asked]


def test_calls_may_be_named_by_their_function_and_counted_over_the_whole_conversation() -> None:
    talk: list[Message] = [
        {"role": "assistant", "content": "", "tool_calls": [call({}, "a", "add"), call({}, "b", "now")]},
        {"role": "tool", "tool_call_id": "b", "content": "2"},
        {"role": "tool", "tool_call_id": "a", "content": "1"},
        {"role": "tool", "tool_call_id": "other", "content": "?"},
        {"role": "assistant", "content": "", "tool_calls": [call({}, "c", "add")]},
    ]
    shape = MessageShape(named_ids=True)
    for _ in range(2):  # a second conversation counts from 0 again
        said = shape.fit(talk)
        made = [c["id"] for message in said for c in message.get("tool_calls", ())]
        assert made == ["functions.add:0", "functions.now:1", "functions.add:2"]
        assert [m.get("tool_call_id") for m in said[1:4]] == ["functions.now:1", "functions.add:0", "other"]
    assert MessageShape().fit(talk) == talk
    assert talk[0]["tool_calls"][0]["id"] == "a", "what was given stays as it was"


def test_content_is_a_list_of_parts_where_the_template_wants_pictures() -> None:
    talk: list[Message] = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": None}]
    shown = MessageShape(parts=True).fit(talk)
    assert [message["content"] for message in shown] == [[{"type": "text", "text": "hi"}], None]
    calls = MessageShape(parts=True, empty=None).fit([{"role": "assistant", "content": "", "tool_calls": [call({})]}])
    assert calls[0]["content"] is None


def test_shapes_are_tried_commonest_first() -> None:
    tried = [(s.named_ids, s.arguments_as_text, s.empty) for s in MessageShape.for_calls()]
    assert tried == [(n, a, e) for n in (False, True) for a in (False, True) for e in ("", None)]
    assert {(s.thoughts, s.parts) for s in MessageShape.for_calls()} == {("reasoning_content", False)}


def test_calls_are_a_turn_of_the_model() -> None:
    made = call_message([ToolCall("c1", "look", {"a": 1}), ToolCall("c2", "now", {})])
    assert made == {"role": "assistant", "content": "", "tool_calls": [call({"a": 1}), call({}, "c2", "now")]}
