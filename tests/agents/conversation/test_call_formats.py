"""Calls are read out of anything a model may write, in every format, in time linear in what it wrote."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from groupwise.agents.conversation.call_formats import (
    FORMATS,
    CallFormat,
    derived_formats,
    named_format,
    read_reply,
    register_format,
)
from groupwise.agents.conversation.call_formats.literals import Literals, typed
from groupwise.agents.conversation.call_formats.reading import schemas_of, strict_json
from groupwise.agents.environments.contract import Reply, ToolCall
from groupwise.thoughts import ANY, without_thoughts

BY_NAME = {form.name: form for form in FORMATS}
A, B = ("add", {"a": 1}), ("sub", {"b": [2, None]})
ONE, TWO = '{"name": "add", "arguments": {"a": 1}}', '{"name": "sub", "arguments": {"b": [2, null]}}'


V3 = '<｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n{"a": 1}\n```'
DSML = (
    '<｜DSML｜invoke name="say">\n<｜DSML｜parameter name="t" string="true">1</｜DSML｜parameter>\n'
    '<｜DSML｜parameter name="n" string="false">[1]</｜DSML｜parameter>\n</｜DSML｜invoke>'
)
PROPERTIES = {"a": {"type": "integer"}, "t": {"type": "string"}, "d": {"type": "object"}}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"properties": PROPERTIES}}}
    for name in ("add", "say")
]


def read(form: str, text: str) -> Reply:
    return read_reply(text, BY_NAME[form], turn=7, tools=TOOLS)


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
        ("object", f"[{ONE}, {TWO}]", [A, B]),
        ("tagged", f"<tool_call>[{ONE}, {TWO}]</tool_call>", [A, B]),
        ("deepseek", f"<｜tool▁calls▁begin｜>{V3}<｜tool▁call▁end｜><｜tool▁calls▁end｜>", [A]),
        ("deepseek", '<｜tool▁call▁begin｜>add<｜tool▁sep｜>{"a": 1}<｜tool▁call▁end｜>', [A]),
        ("kimi", '<|tool_call_begin|>functions.add:0<|tool_call_argument_begin|>{"a": 1}<|tool_call_end|>', [A]),
        ("harmony", '<|channel|>commentary to=functions.add <|constrain|>json<|message|>{"a": 1}<|call|>', [A]),
        ("harmony", ' to=functions.add<|channel|>commentary json<|message|>{"a": 1}', [A]),
        ("gemma", '<|tool_call>call:add{a:1}<tool_call|><|tool_call>call:sub{b:[2,null]}<tool_call|>', [A, B]),
        ("gemma", '<|tool_call>call:say{t:<|"|>a, {b}: "c"<|"|>}<tool_call|>', [("say", {"t": 'a, {b}: "c"'})]),
        ("python", "<|tool_call_start|>[add(a=1), sub(b=[2, None])]<|tool_call_end|>", [A, B]),
        ("bare_python", "[add(a=1), say(t='it\\'s, (so)', d={'x': True})]",
         [A, ("say", {"t": "it's, (so)", "d": {"x": True}})]),
        ("bare_python", "[1, 2] is a list", []),
        ("bare_python", "Let me see. [add(a=1)]", [A]),
        ("bare_python", "Call [add(a=1)] for that", []),
        ("functions", "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>", [A]),
        ("functions", "<function=say><parameter=t>\n two\nlines \n</parameter></function>",
         [("say", {"t": " two\nlines "})]),
        ("glm", "<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>", [A]),
        ("glm", "<tool_call>now</tool_call>", [("now", {})]),
        ("atem", '<atem:invoke name="add">\n<atem:parameter name="a">1</atem:parameter>\n</atem:invoke>', [A]),
        ("invoke", '<invoke name="add">\n<parameter name="a">1</parameter>\n</invoke>', [A]),
        ("dsml", DSML, [("say", {"t": "1", "n": [1]})]),
        ("functionary", '<function=add>{"a": 1}</function>', [A]),
        ("apertus", '<|tools_prefix|>[{"add": {"a": 1}}]<|tools_suffix|>', [A]),
        ("action", '<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "add", "parameters": {"a": 1}}]', [A]),
        ("lines", '@add {"a": 1}', [A]),
        ("lines", 'so\n@add {"a": 1}\n@sub {"b": [2, null]}\n', [A, B]),
        ("lines", "@now", [("now", {})]),
        ("lines", 'write to me@example {"a": 1}', []),
    ],
)  # fmt: skip
def test_calls_are_read_in_every_format(form: str, text: str, calls: list[Any]) -> None:
    reply = read(form, text)
    assert [(call.name, call.arguments) for call in reply.tool_calls] == calls
    assert not reply.broken
    assert text.endswith(reply.content) or form == "harmony"
    assert "think>" not in reply.content
    assert [call.id for call in reply.tool_calls] == [f"t0007n00{n}" for n in range(len(calls))]


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
    assert [call.id for call in reply.tool_calls] == ["t0007n000", "t0007n002"]
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
        ("gemma", "<|tool_call>call:add{a:"),
        ("gemma", '<|tool_call>call:add{a:<|"|>x'),
        ("gemma", "<|tool_call>call:add"),
        ("python", "<|tool_call_start|>[add(a="),
        ("python", "<|tool_call_start|>[add(a=1"),
        ("python", "<|tool_call_start|>[add(" + "[" * 1000),
        ("functions", "<function=add><parameter=a>1"),
        ("functions", '<function=add>{"a": 1}</function>'),
        ("glm", "<tool_call>add<arg_key>a</arg_key>"),
        ("deepseek", "<｜tool▁call▁begin｜>add<｜tool▁sep｜>{"),
        ("harmony", 'to=functions.add<|channel|>commentary<|message|>{"a"'),
        ("lines", '@add {"a": 1'),
        ("lines", "@add me"),
        ("lines", "@"),
    ],
)
def test_half_a_call_is_a_broken_one(form: str, text: str) -> None:
    reply = read(form, text)
    assert (len(reply.tool_calls), len(reply.broken)) == (0, 1)


NEW_MARKS = sorted({mark for form in FORMATS for mark in (*form.marks, *form.begins)})
MARKS = [
    "<tool_call>", "</tool_call>", "<think>", "</think>", "<|python_tag|>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "@",
    "\n@", "{", "}", "[", "]", '"', '{"name": "f", ', '"arguments": ', '"parameters": ', ONE, "\\", "\\ud800", "NaN",
    ",", ";", ":", "1e999", " ", "\n", "\x00", "\ud800", "(", ")", "=", "'", "f(", "a=", *NEW_MARKS,
]  # fmt: skip


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_any_text_is_a_reply(form: CallFormat) -> None:
    @settings(max_examples=60, deadline=None)
    @given(st.lists(st.sampled_from(MARKS) | st.text(max_size=4), max_size=24).map("".join))
    @example("")
    def holds(text: str) -> None:
        reply = read_reply(text, form, 0)
        assert reply.content == without_thoughts(text)
        for call in reply.tool_calls:
            assert json.loads(json.dumps(call.arguments, allow_nan=False)) == call.arguments
        ids = [call.id for call in (*reply.tool_calls, *reply.broken)]
        assert sorted(ids) == [f"t0000n{n:03}" for n in range(len(ids))]
        assert reply.as_message()["content"] == reply.content

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
    began, said = time.process_time(), ANY.split(text)
    for form in FORMATS:
        reply = read_reply(said, form, 0)
        assert len(reply.tool_calls) + len(reply.broken) <= 1000
    assert time.process_time() - began < 4.0


MADE = [
    ToolCall("t0000n000", "say", {"a": 7, "t": "one, 'two' \"three\"\nfour", "d": {"x": [1.5, True, None, "y"]}}),
    ToolCall("t0000n001", "add", {"a": -1}),
]


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_what_a_format_writes_it_reads(form: CallFormat) -> None:
    reply = read_reply(form.write(MADE), form, 0, tools=TOOLS)
    assert (list(reply.tool_calls), reply.broken) == (MADE, ())


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "string"}, "7", "7"), ({"type": "integer"}, "7", 7), ({"type": "number"}, "7.5", 7.5),
        ({"type": "boolean"}, "True", True), ({"type": "boolean"}, "false", False), ({}, "7", "7"),
        ({"type": ["integer", "null"]}, "None", None), ({"type": "array"}, "['a', 1]", ["a", 1]),
        ({"type": "object"}, '{"a": {"b": 1}}', {"a": {"b": 1}}), ({"type": "integer"}, "seven", "seven"),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "7", "7"), ({"anyOf": [{"type": "integer"}]}, "7", 7),
        ({"type": "integer"}, "", ""), ({"type": "number"}, "NaN", "NaN"),
        ({"type": "integer"}, "9" * 5000, "9" * 5000),
    ],
)  # fmt: skip
def test_plain_text_is_typed_by_the_schema(schema: Any, text: str, value: Any) -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"properties": {"x": schema}}}}]
    said = f"<function=f><parameter=x>\n{text}\n</parameter></function>"
    (call,) = read_reply(said, BY_NAME["functions"], 0, tools=tools).tool_calls
    assert call.arguments == {"x": value}


def test_a_model_without_tools_calls_none() -> None:
    assert read_reply(f"<tool_call>{ONE}</tool_call>", None, 0) == Reply(f"<tool_call>{ONE}</tool_call>")


@pytest.mark.parametrize("opens", ["[", '{"a":'])
def test_sixty_four_levels_are_read_and_one_more_is_not(opens: str) -> None:
    closes = "]" if opens == "[" else "}"

    def nested(levels: int) -> str:
        return opens * (levels - 1) + ("[]" if opens == "[" else "{}") + closes * (levels - 1)

    assert strict_json(nested(64)) == json.loads(nested(64))
    assert Literals(nested(64)).value() == json.loads(nested(64))
    for read_one in (strict_json, lambda text: Literals(text).value()):
        with pytest.raises(ValueError, match="nested more than 64 levels"):
            read_one(nested(65))


def test_of_a_thousand_calls_none_is_lost_and_more_are_not_read() -> None:
    reply = read("lines", "@now\n" * 1000)
    assert [reply.tool_calls[n].id for n in (0, 999)] == ["t0007n000", "t0007n999"]
    assert len(read("lines", "@now\n" * 1001).tool_calls) == 1000


@pytest.mark.parametrize(
    ("text", "value", "rest"),
    [
        ("1", 1, ""), ("-12 x", -12, " x"), ("1.5e3,", 1500.0, ","), ("1e2", 100.0, ""), ("'a'b", "a", "b"),
        ('"it\\"s"', 'it"s', ""), ("'\\n\\x41\\u00e9\\q\\\\'", "\nAé\\q\\", ""), ("true", True, ""),
        ("None]", None, "]"), ("False", False, ""), ("null", None, ""), ("12ab", "12ab", ""), ("1.2.3", "1.2.3", ""),
        (" word two ,", "word two", ","), ("[1,[2,], 'x']", [1, [2], "x"], ""), ("[]", [], ""), ("{}", {}, ""),
        ("{a: 1, 'b c': {d: []}}", {"a": 1, "b c": {"d": []}}, ""), ("{a:1 b:2}", {"a": 1, "b": 2}, ""),
        ("<q>a'b<q>c", "a'b", "c"),
    ],
)  # fmt: skip
def test_values_are_read_as_python_and_gemma_write_them(text: str, value: Any, rest: str) -> None:
    reader = Literals(text, "<q>")
    assert reader.value() == value
    assert text[reader.place :] == rest
    assert type(Literals(text, "<q>").value()) is type(value)


@pytest.mark.parametrize("text", ["", "]", "'a", '"a\\"', "<q>a", "[1", "{a 1}", "{:1}", "{a:", "(", "1e999"])
def test_what_is_not_a_value_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="the call|JSON number"):
        Literals(text, "<q>").value()


def test_numbers_have_at_most_300_digits() -> None:
    assert Literals("9" * 300).value() == 10**300 - 1
    with pytest.raises(ValueError, match="more than 300 digits"):
        Literals("9" * 301).value()


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (None, "7"), ("integer", "7"), ({}, "7"), ({"type": "string"}, "7"), ({"type": ["string", "integer"]}, "7"),
        ({"type": "integer"}, 7), ({"type": ["integer", "null"]}, 7), ({"type": []}, "7"),
        ({"anyOf": [{"type": "integer"}, {}]}, "7"), ({"oneOf": [{"type": "integer"}, {"type": "null"}]}, 7),
        ({"oneOf": [{"type": "integer"}, {"type": "string"}]}, "7"),
        ({"type": "integer", "anyOf": [{"type": "string"}]}, "7"), ({"anyOf": [{"anyOf": [{"type": "number"}]}]}, 7),
    ],
)  # fmt: skip
def test_text_is_a_number_only_where_the_schema_allows_no_text(schema: Any, value: Any) -> None:
    assert typed("7", schema) == value


def test_a_value_with_something_behind_it_stays_text() -> None:
    wanted = {"type": "array"}
    assert typed(" [1] ", wanted) == [1]
    assert typed(" ['a'] ", wanted) == ["a"]
    assert typed("['a'] b", wanted) == "['a'] b"


def test_schemas_of_another_shape_have_no_parameters() -> None:
    properties = {"a": {"type": "integer"}}
    wrapped = {"type": "function", "function": {"name": "f", "parameters": {"properties": properties}}}
    bare = {"name": "g", "parameters": {"properties": {}}}
    odd = [
        {"function": 7},
        {"function": {"name": "h"}},
        {"name": "i", "parameters": 7},
        {"parameters": {"properties": 7}},
    ]
    assert schemas_of([wrapped, bare, *odd]) == {"f": properties, "g": {}}


JSON_A, JSON_B = '{"name": "say", "arguments": {"a": 1, "t": "é"}}', '{"name": "now", "arguments": {}}'
SAY, LIST = '{"a": 1, "t": "é"}', f"[{JSON_A}, {JSON_B}]"
D, K = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>", "<|tool_call_argument_begin|>"
WRITTEN = {
    "tagged": (f"<tool_call>{LIST}</tool_call>", ["<tool_call>"]),
    "list": (f"[TOOL_CALLS]say[ARGS]{SAY}[TOOL_CALLS]now[ARGS]{{}}", ["[TOOL_CALLS]", '[{"']),
    "object": (
        f'{{"name": "say", "parameters": {SAY}}}{{"name": "now", "parameters": {{}}}}',
        ["\n{", '\n[{"', "<|python_tag|>"],
    ),
    "lines": (f"@say {SAY}\n@now {{}}\n", ["\n@"]),
    "functions": (
        ("<function=say><parameter=a>\n1\n</parameter><parameter=t>\né\n</parameter></function>"
        "<function=now></function>"),
        ["<tool_call>", "<function="],
    ),
    "glm": (
        ("<tool_call>say<arg_key>a</arg_key><arg_value>1</arg_value><arg_key>t</arg_key><arg_value>é</arg_value>"
        "</tool_call><tool_call>now</tool_call>"),
        ["<tool_call>"],
    ),
    "harmony": (
        (f" to=functions.say<|channel|>commentary json<|message|>{SAY}<|call|>"
        " to=functions.now<|channel|>commentary json<|message|>{}<|call|>"),
        ["to=functions."],
    ),
    "gemma": (
        '<|tool_call>call:say{a:1,t:<|"|>é<|"|>}<tool_call|><|tool_call>call:now{}<tool_call|>', ["<|tool_call>"],
    ),
    "functiongemma": (
        ("<start_function_call>call:say{a:1,t:<escape>é<escape>}<end_function_call>"
        "<start_function_call>call:now{}<end_function_call>"),
        ["<start_function_call>"],
    ),
    "python": ("<|tool_call_start|>[say(a=1, t='é'), now()]<|tool_call_end|>", ["<|tool_call_start|>"]),
    "bare_python": ("[say(a=1, t='é'), now()]", ["\n["]),
    "deepseek": (
        f"{D}say\n```json\n{SAY}\n```<｜tool▁call▁end｜>{D}now\n```json\n{{}}\n```<｜tool▁call▁end｜>",
        ["<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"],
    ),
    "dsml": (
        ('<｜DSML｜invoke name="say"><｜DSML｜parameter name="a" string="false">1</｜DSML｜parameter>'
        '<｜DSML｜parameter name="t" string="true">é</｜DSML｜parameter></｜DSML｜invoke>'
        '<｜DSML｜invoke name="now"></｜DSML｜invoke>'),
        ["<｜DSML｜function_calls>", "<｜DSML｜tool_calls>", '<｜DSML｜invoke name="'],
    ),
    "atem": (
        ('<atem:invoke name="say"><atem:parameter name="a">1</atem:parameter>'
        '<atem:parameter name="t">é</atem:parameter></atem:invoke><atem:invoke name="now"></atem:invoke>'),
        ["<atem:function_calls>", '<atem:invoke name="'],
    ),
    "invoke": (
        ('<invoke name="say"><parameter name="a">1</parameter><parameter name="t">é</parameter></invoke>'
        '<invoke name="now"></invoke>'),
        ["<minimax:tool_call>", '<invoke name="'],
    ),
    "kimi": (
        (f"<|tool_call_begin|>functions.say:0{K}{SAY}<|tool_call_end|>"
        f"<|tool_call_begin|>functions.now:1{K}{{}}<|tool_call_end|>"),
        ["<|tool_calls_section_begin|>", "<|tool_call_begin|>"],
    ),
    "action": (f"<|START_ACTION|>{LIST}<|END_ACTION|>", ["<|START_ACTION|>"]),
    "granite": (f"<|tool_call|>{LIST}<|/tool_call|>", ["<|tool_call|>"]),
    "calls": (f"<tool_calls>{LIST}</tool_calls>", ["<tool_calls>"]),
    "toolcall": (f"<TOOLCALL>{LIST}</TOOLCALL>", ["<TOOLCALL>"]),
    "apertus": (f'<|tools_prefix|>[{{"say": {SAY}}}, {{"now": {{}}}}]<|tools_suffix|>', ["<|tools_prefix|>"]),
    "functionary": (f"<function=say>{SAY}</function><function=now>{{}}</function>", ["<function="]),
}  # fmt: skip


def test_every_format_writes_calls_as_its_models_do() -> None:
    """In the order in which formats are tried, with the marks a call may begin with."""
    calls = [ToolCall("c1", "say", {"a": 1, "t": "é"}), ToolCall("c2", "now", {})]
    assert {form.name: (form.write(calls), list(form.begins)) for form in FORMATS} == WRITTEN
    assert [form.name for form in FORMATS] == list(WRITTEN)
    # One call alone is no list.
    assert BY_NAME["tagged"].write(calls[:1]) == f"<tool_call>{JSON_A}</tool_call>"
    assert BY_NAME["apertus"].write(calls[1:]) == '<|tools_prefix|>{"now": {}}<|tools_suffix|>'
    nested = [ToolCall("c1", "f", {"d": {"b": [1.5, True, None, "x"], "a": {}}})]
    assert BY_NAME["gemma"].write(nested) == ('<|tool_call>call:f{d:{a:{},b:[1.5,true,null,<|"|>x<|"|>]}}<tool_call|>')


FURTHER_MARKS = {
    "tagged": {"</tool_call>", "<tool_response>", "</tool_response>"},
    "list": {"[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[ARGS]", "[CALL_ID]"},
    "functions": {"</function>", "<parameter=", "</parameter>", "</tool_call>", "<tool_response>", "</tool_response>"},
    "glm": {"</tool_call>", "<arg_key>", "<arg_value>", "</arg_value>", "<tool_response>", "<|observation|>"},
    "harmony": {"<|start|>", "<|channel|>", "<|message|>", "<|call|>", "<|end|>", "<|return|>"},
    "gemma": {"<tool_call|>", '<|"|>', "<|tool_response>", "<tool_response|>"},
    "functiongemma": {"<end_function_call>", "<escape>"},
    "python": {"<|tool_call_end|>", "<|tool_response_start|>", "<|tool_response_end|>"},
    "deepseek": {f"<｜tool▁{m}｜>" for m in ("sep", "call▁end", "calls▁end", "output▁begin", "output▁end",
                                           "outputs▁begin", "outputs▁end")},
    "dsml": {'<｜DSML｜parameter name="', "</｜DSML｜parameter>", "</｜DSML｜invoke>"},
    "atem": {"</atem:invoke>", "</atem:parameter>", "</atem:function_calls>", "<tool_output", "</tool_output>"},
    "invoke": {"</invoke>", '<parameter name="', "</parameter>", "</minimax:tool_call>"},
    "kimi": {"<|tool_call_argument_begin|>", "<|tool_call_end|>", "<|tool_calls_section_end|>"},
    "action": {"<|END_ACTION|>", "<|START_TOOL_RESULT|>", "<|END_TOOL_RESULT|>"},
    "granite": {"<|/tool_call|>", "<|tool_response|>"},
    "functionary": {"</function>"},
}  # fmt: skip


def test_what_delimits_calls_and_results_is_a_mark_and_signs_of_plain_text_are_none() -> None:
    """Marks are broken up in what a tool writes; a newline, a brace or an @ is no mark."""
    for form in FORMATS:
        begins = {begin for begin in form.begins if not begin.startswith(("\n", "[{", "to="))}
        assert {*begins, *FURTHER_MARKS.get(form.name, ())} <= set(form.marks), form.name
        assert not {"", ">", "\n", "{", "@", '"', '">'} & set(form.marks)


def test_a_format_of_ones_own_goes_first_and_replaces_one_of_its_name() -> None:
    before = list(FORMATS)
    own = CallFormat("kimi", lambda text: iter(()), lambda raw, schemas: ("", {}), lambda calls: "", ("?",))
    try:
        assert register_format(own) is own
        assert own is FORMATS[0]
        assert named_format("kimi") is own
        assert [form.name for form in FORMATS] == ["kimi", *(form.name for form in before if form.name != "kimi")]
    finally:
        FORMATS[:] = before
    assert named_format("kimi") is BY_NAME["kimi"]


@pytest.mark.parametrize(
    ("form", "text", "calls"),
    [
        ("tagged", '<tool_call>{"function": {"name": "add", "arguments": {"a": 1}}}</tool_call>', [A]),
        ("tagged", '<tool_call>{"function": "x", "name": "add", "arguments": {"a": 1}}</tool_call>', [A]),
        ("tagged", '<tool_call>{"name": "add", "arguments": {"a": 1}, "parameters": {"a": 2}}</tool_call>', [A]),
        ("tagged", '<tool_call>{"name": "add", "tool_name": "sub", "arguments": {"a": 1}}</tool_call>', [A]),
        ("tagged", f"<tool_call>{ONE}{TWO}</tool_call>{TWO}", [A, B]),
        ("object", f"{ONE} {TWO}", [A, B]), ("object", f"[{ONE}; {TWO}]", [A, B]),
        ("object", f"say <|python_tag|>{ONE}", [A]),
        ("object", '{"name": "add"}', []), ("object", '{"add": 1, "arguments": {}}', []),
        ("object", '"name" and "arguments": {}', []),
        ("list", f'[TOOL_CALLS] add [CALL_ID]1[ARGS] {{"a": 1}} [TOOL_CALLS] {TWO}', [A, B]),
        ("kimi", f'<|tool_call_begin|>add{K}{{"a": 1}}', [A]),
        ("kimi", f'<|tool_call_begin|> functions.add:12 {K} {{"a": 1}} <|tool_call_end|> more', [A]),
        ("kimi", f'<|tool_call_begin|>functions.a:b:3{K}{{}}', [("a:b", {})]),
        ("kimi", f'<|tool_call_begin|>functions.functions.f{K}{{}}', [("functions.f", {})]),
        ("harmony", 'to=functions.a.b-c json<|message|>{"a": 1}<|end|>{"a": 2}', [("a.b-c", {"a": 1})]),
        ("harmony", 'to=functions.add<|message|>{"a": 1} more<|call|> to=functions.sub<|message|>{"b": [2, null]}',
         [A, B]),
        ("deepseek", f'{D} add \n```json\n{{"a": 1}}\n```<｜tool▁call▁end｜>', [A]),
        ("deepseek", '<｜tool▁call▁begin｜> add <｜tool▁sep｜> {"a": 1} more', [A]),
        ("functionary", '<function=add>{"a": 1} more</function>', [A]),
        ("functionary", '<function= add >{"a": 1}', [A]),
        ("apertus", '<|tools_prefix|>[{"add": {"a": 1}}, {"sub": {"b": [2, null]}}]', [A, B]),
        ("apertus", '<|tools_prefix|>[{"name": "add", "arguments": {"a": 1}}]', [A]),
        ("granite", f"<|tool_call|>[{ONE}]", [A]), ("calls", f"<tool_calls>[{ONE}, {TWO}]</tool_calls>", [A, B]),
        ("toolcall", f"<TOOLCALL>[{ONE}]</TOOLCALL>", [A]),
        ("functiongemma", "<start_function_call>call:add{a:1}<end_function_call>", [A]),
        ("functiongemma", "<start_function_call>call:say{t:<escape>{a:1}<escape>, a:'2'}",
         [("say", {"t": "{a:1}", "a": 2})]),
        ("gemma", "<|tool_call>add{a:1}<tool_call|>", [A]), ("gemma", "<|tool_call> call: add {a:1}", [A]),
        ("python", "<|tool_call_start|>[add(a='1')]<|tool_call_end|>[sub(b=1)]", [A]),
        ("python", "<|tool_call_start|>add(a=1)<|tool_call_end|>", [A]),
        ("bare_python", " [ add ( a = 1 ) , sub(b=[2,None]) ] ", [A, B]),
        ("bare_python", "[add(a=1)] is what I call", [A]),
        ("bare_python", "[7add(a=1)]", []), ("bare_python", "[a.b-c()]", [("a.b-c", {})]),
        ("functions", "<function=add>\n<parameter=a>1</parameter></function><parameter=a>2</parameter>", [A]),
        ("functions", "<function=say><parameter=t>\n\na\n\n</parameter>", [("say", {"t": "\na\n"})]),
        ("functions", "<function=other><parameter=a>1</parameter></function>", [("other", {"a": "1"})]),
        ("glm",
         "<tool_call>say<arg_key>t</arg_key><arg_value>1</arg_value>\n<arg_key>a</arg_key>\n<arg_value>2</arg_value>",
         [("say", {"t": "1", "a": 2})]),
        ("dsml", ('<｜DSML｜invoke name="say"><｜DSML｜parameter name="n" type="number">1</｜DSML｜parameter>'
         '<｜DSML｜parameter name="t" type="string">1</｜DSML｜parameter>'
         '<｜DSML｜parameter name="a" string="true">1</｜DSML｜parameter>'
         '<｜DSML｜parameter name="u">1</｜DSML｜parameter></｜DSML｜invoke>'),
         [("say", {"n": 1, "t": "1", "a": "1", "u": "1"})]),
        ("invoke", '<invoke name="add"><parameter name="a">1</parameter></invoke><invoke name="now"></invoke>',
         [A, ("now", {})]),
        ("lines", '@add  {"a": 1} ', [A]), ("lines", "@now ", [("now", {})]), ("lines", " @add {}", []),
    ],
)  # fmt: skip
def test_calls_are_read_in_further_spellings(form: str, text: str, calls: list[Any]) -> None:
    reply = read(form, text)
    assert [(call.name, call.arguments) for call in reply.tool_calls] == calls
    assert not reply.broken


LONG = "x" * 100


@pytest.mark.parametrize(
    ("form", "text", "problem"),
    [
        ("tagged", f'<tool_call>{{"name": "{LONG}", "arguments": 1}}</tool_call>',
         f"the arguments of {LONG[:64]} are not a JSON object"),
        ("functions", f"<function=add>{LONG}<parameter=a>1</parameter></function>",
         f"the call has '{LONG[:40]}' where <parameter= must be"),
        ("functions", f"<function=add><parameter={LONG}>1</function>",
         f"the parameter '{LONG[:64]}' is not closed with </parameter>"),
        ("glm", "<tool_call>add<arg_key>a<arg_value>1</arg_value>", ("the parameter 'a<arg_value>1</arg_value>' is not "
         "closed with </arg_value>")),
        ("gemma", f"<|tool_call>call:add{{a {LONG}}}", "the call has '}' where ':' must be"),
        ("gemma", "<|tool_call>call:add{a:}", "the call has no value at '}'"),
        ("gemma", f"<|tool_call>call:add{{:{LONG}}}", f"the call has no name at ':{LONG[:19]}'"),
        ("python", f"<|tool_call_start|>[add[{LONG}]]", f"the call has '[{LONG[:19]}' where '(' must be"),
        ("harmony", "to=functions.add json", "the call has no <|message|> behind its name"),
        ("harmony", "to=functions.<|message|>{}", "the call has no <|message|> behind its name"),
    ],
)  # fmt: skip
def test_a_broken_call_says_what_is_wrong_where(form: str, text: str, problem: str) -> None:
    (broken,) = read(form, text).broken
    assert broken.problem == problem


def test_of_several_calls_a_broken_one_takes_the_rest_of_its_list_along() -> None:
    reply = read("python", "<|tool_call_start|>[add(a=1), sub(b=, now()]<|tool_call_end|>")
    assert [call.name for call in reply.tool_calls] == ["add"]
    assert [broken.text for broken in reply.broken] == ["sub(b=, now()]"]
    reply = read("tagged", f"<tool_call>[{ONE}, {{oops, {TWO}]</tool_call>")
    assert [call.name for call in reply.tool_calls] == ["add"]
    assert [broken.text for broken in reply.broken] == [f"{{oops, {TWO}]"]


def test_a_reply_tells_whether_it_was_cut() -> None:
    for cut in (True, False):
        assert read_reply(f"<tool_call>{ONE}", BY_NAME["tagged"], 12345, cut=cut).cut is cut
    assert read_reply("hi", BY_NAME["tagged"], 0).cut is False
    assert read_reply("@f", BY_NAME["lines"], 12).tool_calls[0].id == "t0012n000"


PROBE = ToolCall("c1", "probe", {"text": "one two", "number": 7})
OTHERS = [ToolCall("c1", "say", {"text": "a", "number": 2}), ToolCall("c2", "say", {"text": "b", "number": 3})]


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ('<do>{"name": "probe", "arguments": {"text": "one two", "number": 7}}</do>',
         ('<do>{"name": "say", "arguments": {"text": "a", "number": 2}}</do>\n'
         '<do>{"name": "say", "arguments": {"text": "b", "number": 3}}</do>')),
        ('I do. [DO][{"name": "probe", "arguments": {"text": "one two", "number": 7}}]',
         ('[DO][{"name": "say", "arguments": {"text": "a", "number": 2}}, '
         '{"name": "say", "arguments": {"text": "b", "number": 3}}]')),
        ('<do>{"probe": {"text": "one two", "number": 7}}</do>',
         '<do>{"say": {"text": "a", "number": 2}}</do><do>{"say": {"text": "b", "number": 3}}</do>'),
        ('[RUN]probe[WITH]{"text": "one two", "number": 7}[END]',
         '[RUN]say[WITH]{"text": "a", "number": 2}[END][RUN]say[WITH]{"text": "b", "number": 3}[END]'),
        ("<run probe><with text>one two</with><with number>7</with></run>",
         ("<run say><with text>a</with><with number>2</with></run>"
         "<run say><with text>b</with><with number>3</with></run>")),
        ("<run>probe\n<key>text</key>\n<value>\none two\n</value>\n<key>number</key>\n<value>\n7\n</value>\n</run>",
         ("<run>say\n<key>text</key>\n<value>\na\n</value>\n<key>number</key>\n<value>\n2\n</value>\n</run>"
         "<run>say\n<key>text</key>\n<value>\nb\n</value>\n<key>number</key>\n<value>\n3\n</value>\n</run>")),
    ],
)  # fmt: skip
def test_the_format_of_one_call_is_worked_out_and_reads_others(one: str, two: str) -> None:
    properties = {"text": {"type": "string"}, "number": {"type": "integer"}}
    tools = [{"function": {"name": name, "parameters": {"properties": properties}}} for name in ("probe", "say")]

    def calls(form: CallFormat, text: str) -> list[tuple[str, Any]]:
        reply = read_reply(text, form, 0, tools=tools)
        return [] if reply.broken else [(call.name, call.arguments) for call in reply.tool_calls]

    forms = [form for form in derived_formats(one, PROBE) if calls(form, one) == [(PROBE.name, PROBE.arguments)]]
    wanted = [(call.name, call.arguments) for call in OTHERS]
    assert calls(forms[0], two) == wanted, "the likeliest comes first"
    assert calls(forms[0], forms[0].write(OTHERS)) == wanted


@pytest.mark.parametrize("text", ["", "one two 7", "probe", "{", '{"name": "other"}', "probe text one two number"])
def test_where_no_call_stands_no_format_is_worked_out(text: str) -> None:
    assert list(derived_formats(text, PROBE)) == []
