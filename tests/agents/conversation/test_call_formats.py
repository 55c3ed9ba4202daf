"""Calls are read out of anything a model may write, in every format, in time linear in what it wrote."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from groupwise.agents.conversation.call_formats import FORMATS, CallFormat, read_reply
from groupwise.agents.environments.contract import Reply

BY_NAME = {form.name: form for form in FORMATS}
A, B = ("add", {"a": 1}), ("sub", {"b": [2, None]})
ONE, TWO = '{"name": "add", "arguments": {"a": 1}}', '{"name": "sub", "arguments": {"b": [2, null]}}'


def read(form: str, text: str) -> Reply:
    return read_reply(text, BY_NAME[form], turn=7)


@pytest.mark.parametrize(
    ("form", "text", "calls"),
    [
        ("tagged", f"<tool_call>\n{ONE}\n</tool_call>", [A]),
        ("tagged", f"Let me see. <tool_call>{ONE}</tool_call>\n<tool_call>{TWO}</tool_call> Done.", [A, B]),
        ("tagged", f"<tool_call>{ONE}", [A]),
        ("tagged", '<tool_call>{"name": "now"}</tool_call>', [("now", {})]),
        ("tagged", '<tool_call>{"name": "add", "arguments": "{\\"a\\": 1}"}</tool_call>', [A]),
        ("tagged", f"<think>\n<tool_call>{TWO}</tool_call> no\n</think>\n<tool_call>{ONE}</tool_call>", [A]),
        ("tagged", f"I could <tool_call>{TWO}</tool_call></think><tool_call>{ONE}</tool_call>", [A]),
        ("tagged", f"<think>perhaps <tool_call>{ONE}</tool_call>", []),
        ("tagged", ONE, []),
        ("tagged", "", []),
        ("object", '{"name": "add", "parameters": {"a": 1}}', [A]),
        ("object", f' <|python_tag|>{ONE}; {TWO}', [A, B]),
        ("object", f"{ONE}\n{TWO}\n", [A, B]),
        ("object", '{"answer": 42}', []),
        ("object", '{"name": "Ada", "age": 36}', []),
        ("object", f"The call would be {ONE}", []),
        ("list", f"[TOOL_CALLS] [{ONE}, {TWO}]", [A, B]),
        ("list", f"So: [TOOL_CALLS][{ONE}]", [A]),
        ("list", f"[TOOL_CALLS]{ONE}[TOOL_CALLS]{TWO}", [A, B]),
        ("list", '[TOOL_CALLS]add[ARGS]{"a": 1}[TOOL_CALLS]sub[CALL_ID]123456789[ARGS]{"b": [2, null]}', [A, B]),
        ("list", f"[{ONE}]", []),
        ("lines", '@add {"a": 1}', [A]),
        ("lines", 'so\n@add {"a": 1}\n@sub {"b": [2, null]}\n', [A, B]),
        ("lines", "@now", [("now", {})]),
        ("lines", 'write to me@example {"a": 1}', []),
    ],
)  # fmt: skip
def test_calls_are_read_in_every_format(form: str, text: str, calls: list[Any]) -> None:
    reply = read(form, text)
    assert [(call.name, call.arguments) for call in reply.calls] == calls
    assert not reply.broken
    assert reply.content == text
    assert [call.id for call in reply.calls] == [f"t0007n00{n}" for n in range(len(calls))]


DEEP = '{"name": "f", "arguments": {"x": ' + "[" * 70 + "]" * 70 + "}}"
WRONG = [
    ("{", "not valid JSON"),
    ("", "not valid JSON"),
    ("[]", "not a JSON object"),
    ("3", "not a JSON object"),
    ("{}", 'no "name"'),
    ('{"name": ""}', 'no "name"'),
    ('{"name": 3}', 'no "name"'),
    ('{"name": "f", "arguments": [1]}', "the arguments of f are not a JSON object"),
    ('{"name": "f", "arguments": null}', "the arguments of f are not a JSON object"),
    ('{"name": "f", "arguments": "x"}', "not valid JSON"),
    ('{"name": "f", "arguments": {"x": NaN}}', "NaN is not a JSON number"),
    ('{"name": "f", "arguments": {"x": -Infinity}}', "-Infinity is not a JSON number"),
    ('{"name": "f", "arguments": {"x": 1e999}}', "1e999 is not a JSON number"),
    ('{"name": "f", "arguments": {"x": ' + "9" * 5000 + "}}", "not valid JSON: Exceeds the limit"),
    ("{'name': 'f'}", "not valid JSON"),
    (DEEP, "nested more than 64 levels"),
    ('{"x":' * 100_000, "nested more than 64 levels"),
    ("[" * 100_000, "nested more than 64 levels"),
]


@pytest.mark.parametrize(("raw", "problem"), WRONG, ids=[raw[:40] for raw, _ in WRONG])
def test_what_is_no_call_is_told_with_a_reason_and_its_place(raw: str, problem: str) -> None:
    reply = read("tagged", f"<tool_call>{ONE}</tool_call><tool_call>{raw}</tool_call><tool_call>{TWO}</tool_call>")
    assert [call.id for call in reply.calls] == ["t0007n000", "t0007n002"]
    (broken,) = reply.broken
    assert (broken.text, broken.id) == (raw, "t0007n001")
    assert problem in broken.problem


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("object", "<|python_tag|>print(1)"),
        ("object", "<|python_tag|>" + ONE[:-3]),
        ("object", ONE[:-1]),
        ("list", "[TOOL_CALLS] [" + ONE[:-5]),
        ("list", "[TOOL_CALLS]"),
        ("list", "[TOOL_CALLS]add[ARGS]{"),
        ("lines", '@add {"a": 1'),
        ("lines", "@add me"),
        ("lines", "@"),
    ],
)
def test_half_a_call_is_a_broken_one(form: str, text: str) -> None:
    reply = read(form, text)
    assert (len(reply.calls), len(reply.broken)) == (0, 1)


MARKS = [
    "<tool_call>", "</tool_call>", "<think>", "</think>", "<|python_tag|>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "@",
    "\n@", "{", "}", "[", "]", '"', '{"name": "f", ', '"arguments": ', '"parameters": ', ONE, "\\", "\\ud800", "NaN",
    ",", ";", ":", "1e999", " ", "\n", "\x00", "\ud800",
]  # fmt: skip


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_any_text_is_a_reply(form: CallFormat) -> None:
    @settings(max_examples=150, deadline=None)
    @given(st.lists(st.sampled_from(MARKS) | st.text(max_size=4), max_size=24).map("".join))
    @example("")
    def holds(text: str) -> None:
        reply = read_reply(text, form, 0)
        assert reply.content == text
        for call in reply.calls:
            assert json.loads(json.dumps(call.arguments, allow_nan=False)) == call.arguments
        ids = [call.id for call in (*reply.calls, *reply.broken)]
        assert sorted(ids) == [f"t0000n{n:03}" for n in range(len(ids))]
        assert reply.as_message()["content"] == text

    holds()


MEGABYTE = 1_000_000
HUGE = {
    "words": "word " * (MEGABYTE // 5),
    "at signs": "@" * MEGABYTE,
    "lines of at signs": "@\n" * (MEGABYTE // 2),
    "tags": "<tool_call>" * (MEGABYTE // 11),
    "half tags": "<tool_call" * (MEGABYTE // 10),
    "thoughts": "<think></think>" * (MEGABYTE // 15),
    "brackets": "[TOOL_CALLS]" + "[" * MEGABYTE,
    "numbers": "[TOOL_CALLS]" + "1 " * (MEGABYTE // 2),
    "objects": '<|python_tag|>{"name":' + "{}" * (MEGABYTE // 2),
    "nested": '{"name":' * (MEGABYTE // 8),
    "one string": '{"name": "' + "x" * MEGABYTE,
    "escapes": '<tool_call>{"name": "' + "\\" * MEGABYTE,
    "digits": '<tool_call>{"name": ' + "9" * MEGABYTE,
    "spaces": "@f " + " " * MEGABYTE + "{",
    "a long list": '@f {"x": [' + "1," * (MEGABYTE // 2) + "1]}",
    "calls": f"{ONE}\n" * (MEGABYTE // 39),
}


@pytest.mark.parametrize("text", HUGE.values(), ids=HUGE)
def test_a_megabyte_of_anything_is_read_at_once(text: str) -> None:
    began = time.process_time()
    for form in FORMATS:
        reply = read_reply(text, form, 0)
        assert len(reply.calls) + len(reply.broken) <= 1000
    assert time.process_time() - began < 2.0


def test_a_model_without_tools_calls_none() -> None:
    assert read_reply(f"<tool_call>{ONE}</tool_call>", None, 0) == Reply(f"<tool_call>{ONE}</tool_call>")
