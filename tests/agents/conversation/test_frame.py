"""The frame of a conversation is what the chat template itself would render, in the structure of every family.

The templates are short ones of our own with the marks and the habits of a family: what they refuse, trim and rewrite.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken

from groupwise.agents.conversation.call_formats import read_reply
from groupwise.agents.conversation.chat_format import Frame, NotPlainText
from groupwise.agents.conversation.chat_template import ChatTemplate, special_tokens, template_of
from groupwise.agents.environments.contract import ToolCall
from groupwise.errors import ConfigError, ContractError
from groupwise.language.engine import Sampled
from groupwise.language.tiny import character_tokenizer, piece_tokenizer
from groupwise.types import Message

CHATML = """
{%- for m in messages -%}
{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}
{%- endfor -%}
{{ '<|im_start|>assistant\n' if add_generation_prompt }}"""

QWEN = """
{%- if tools -%}
{{ '<|im_start|>system\n' }}
{{- messages[0].content + '\n\n' if messages[0].role == 'system' }}
{%- for tool in tools %}{{ tool | tojson + '\n' }}{% endfor -%}
{{ 'Call as <tool_call>{"name": <name>, "arguments": <object>}</tool_call>.<|im_end|>\n' }}
{%- elif messages[0].role == 'system' -%}
{{ '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
{%- endif -%}
{%- set ns = namespace(asked=-1) -%}
{%- for m in messages if m.role == 'user' %}{% set ns.asked = messages.index(m) %}{% endfor -%}
{%- for m in messages -%}
{%- if m.role == 'user' -%}
{{ '<|im_start|>user\n' + m.content + '<|im_end|>\n' }}
{%- elif m.role == 'assistant' -%}
{{ '<|im_start|>assistant\n' }}
{{- m.content if loop.index0 > ns.asked else m.content.split('</think>')[-1].lstrip('\n') }}
{%- for call in m.tool_calls or [] -%}
{{ '\n' if m.content or not loop.first }}
{{- '<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' + call.function.arguments | tojson }}
{{- '}\n</tool_call>' }}
{%- endfor -%}
{{ '<|im_end|>\n' }}
{%- elif m.role == 'tool' -%}
{{ '<|im_start|>user' if loop.first or messages[loop.index0 - 1].role != 'tool' }}
{{- '\n<tool_response>\n' + m.content + '\n</tool_response>' }}
{{- '<|im_end|>\n' if loop.last or messages[loop.index0 + 1].role != 'tool' }}
{%- endif -%}
{%- endfor -%}
{{ '<|im_start|>assistant\n' if add_generation_prompt }}"""

LLAMA = """
{%- macro head(role) %}{{ '<|start_header_id|>' + role + '<|end_header_id|>\n\n' }}{% endmacro -%}
{{ '<|begin_of_text|>' + head('system') }}
{{- 'Environment: ipython\n' if tools }}
{{- messages[0].content | trim if messages[0].role == 'system' }}
{%- for tool in tools or [] %}{{ '\n' + tool | tojson }}{% endfor -%}
{{ '<|eot_id|>' }}
{%- for m in messages if m.role != 'system' -%}
{%- if m.role == 'tool' -%}
{{ head('ipython') + m.content | tojson + '<|eot_id|>' }}
{%- elif m.tool_calls -%}
{%- if m.tool_calls | length != 1 %}{{ raise_exception('one call at a time') }}{% endif -%}
{%- set call = m.tool_calls[0].function -%}
{{ head('assistant') + '{"name": "' + call.name + '", "parameters": ' + call.arguments | tojson + '}<|eot_id|>' }}
{%- else -%}
{{ head(m.role) + m.content | trim + '<|eot_id|>' }}
{%- endif -%}
{%- endfor -%}
{{ head('assistant') if add_generation_prompt }}"""

MISTRAL = """
{%- set ns = namespace(turn=0, asked=-1) -%}
{{ bos_token }}
{%- for m in messages if m.role == 'user' %}{% set ns.asked = messages.index(m) %}{% endfor -%}
{%- for m in messages -%}
{%- if m.role == 'user' or (m.role == 'assistant' and not m.tool_calls) -%}
{%- if (m.role == 'user') != (ns.turn % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif -%}
{%- set ns.turn = ns.turn + 1 -%}
{%- endif -%}
{%- if m.role == 'user' -%}
{{ '[AVAILABLE_TOOLS] ' + tools | tojson + '[/AVAILABLE_TOOLS]' if tools and loop.index0 == ns.asked }}
{{- '[INST] ' + m.content + '[/INST]' }}
{%- elif m.tool_calls -%}
{{ '[TOOL_CALLS] [' }}
{%- for call in m.tool_calls -%}
{%- if call.id | length != 9 %}{{ raise_exception('ids have nine characters') }}{% endif -%}
{{ '{"name": "' + call.function.name + '", "arguments": ' + call.function.arguments | tojson }}
{{- ', "id": "' + call.id + '"}' + ('' if loop.last else ', ') }}
{%- endfor -%}
{{ ']</s>' }}
{%- elif m.role == 'assistant' -%}
{{ ' ' + m.content + '</s>' }}
{%- elif m.role == 'tool' -%}
{%- if m.tool_call_id | length != 9 %}{{ raise_exception('ids have nine characters') }}{% endif -%}
{{ '[TOOL_RESULTS] {"content": ' + m.content | tojson + ', "call_id": "' + m.tool_call_id + '"}[/TOOL_RESULTS]' }}
{%- else -%}{{ raise_exception('no role ' + m.role) }}
{%- endif -%}
{%- endfor -%}"""

GEMMA = """
{{- bos_token }}
{%- for m in messages -%}
{%- if m.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif -%}
{%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif -%}
{%- set role = 'model' if m.role == 'assistant' else m.role -%}
{{ '<start_of_turn>' + role + '\n' + m.content | trim + '<end_of_turn>\n' }}
{%- endfor -%}
{{ '<start_of_turn>model\n' if add_generation_prompt }}"""

# Takes results only behind the calls they are of, by their ids, and writes no words beside calls.
PEDANT = """
{{- '<|system|>' + tools | map(attribute='function.name') | join(' ') + '<|end|>' if tools }}
{%- set ns = namespace(ids=[]) -%}
{%- for m in messages -%}
{%- if m.role == 'tool' -%}
{%- if m.tool_call_id not in ns.ids %}{{ raise_exception('a result of no call') }}{% endif -%}
{{ '<|result|>' + m.content }}
{%- else -%}
{%- set ns.ids = m.tool_calls | map(attribute='id') | list if m.tool_calls else [] -%}
{{ '<|' + m.role + '|>' }}
{%- for call in m.tool_calls or [] -%}
{{ '<tool_call>{"name": "' + call.function.name + '", "arguments": ' + call.function.arguments | tojson }}
{{- '}</tool_call>' }}
{%- endfor -%}
{{ ('' if m.tool_calls else m.content) + '<|end|>' }}
{%- endif -%}
{%- endfor -%}
{{ '<|assistant|>' if add_generation_prompt }}"""

# Nothing ends a turn but the next one's beginning.
OPEN = """
{%- for m in messages %}{{ '<|' + m.role + '|>' + m.content + '\n' }}{% endfor -%}
{{ '<|assistant|>' if add_generation_prompt }}"""

LINES = character_tokenizer().chat_template


@dataclass(frozen=True)
class Family:
    template: Any
    special: Sequence[str]
    end: str
    form: str | None = None
    system: bool = True
    calls: int = 0  # how many at once it can write

    def tokenizer(self) -> Any:
        made = character_tokenizer(100_000)
        made.add_tokens([AddedToken(token, special=True) for token in self.special if token not in made.get_vocab()])
        made.bos_token = "<bos>"
        made.chat_template = self.template
        return made


HEADS = ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|python_tag|>")
BRACKETS = ("[INST]", "[/INST]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "</s>")
ANGLES = ("<|im_start|>", "<|im_end|>")
FAMILIES = {
    "chatml": Family(CHATML, ANGLES, "<|im_end|>"),
    "qwen": Family(QWEN, ANGLES, "<|im_end|>", "tagged", calls=3),
    "hermes": Family({"default": CHATML, "tool_use": QWEN}, ANGLES, "<|im_end|>", "tagged", calls=3),
    "llama": Family(LLAMA, HEADS, "<|eot_id|>", "object", calls=1),
    "mistral": Family(MISTRAL, BRACKETS, "</s>", "list", system=False, calls=3),
    "gemma": Family(GEMMA, ("<start_of_turn>", "<end_of_turn>"), "<end_of_turn>", system=False),
    "pedant": Family(PEDANT, ("<|result|>",), "<|end|>", "tagged", calls=3),
    "tiny": Family(LINES, (), "<|end|>", "lines", calls=3),
}
FRAMES = {name: Frame(family.tokenizer()) for name, family in FAMILIES.items()}
TOOL = {"type": "function", "function": {"name": "find", "description": "d", "parameters": {"properties": {"x": {}}}}}

words = st.text("abc {}\"'\\@:;<>[]|/_", max_size=12).map(lambda text: f"s{text}e")
arguments = st.dictionaries(st.sampled_from("xyz"), words | st.integers() | st.lists(st.integers(), max_size=2))


@st.composite
def conversations(draw: Any, family: Family) -> list[Message]:
    """Users ask, the model answers or first calls tools; turn by turn."""
    said: list[Message] = []
    if family.system and draw(st.booleans()):
        said.append({"role": "system", "content": draw(words)})
    for turn in range(draw(st.integers(1, 3))):
        said.append({"role": "user", "content": f"{draw(words)}{turn}"})
        for again in range(draw(st.integers(0, 2)) if family.calls else 0):
            ids = [f"t{turn}{again}n0000{n}" for n in range(draw(st.integers(1, family.calls)))]
            calls = [
                {"id": i, "type": "function", "function": {"name": "find", "arguments": draw(arguments)}} for i in ids
            ]
            said.append({"role": "assistant", "content": "", "tool_calls": calls})
            said += [{"role": "tool", "tool_call_id": i, "name": "find", "content": draw(words)} for i in ids]
        said.append({"role": "assistant", "content": draw(words)})
    return said


def render(name: str, messages: Sequence[Message], ask: bool = True) -> str:
    tokenizer = FRAMES[name].tokenizer
    text = tokenizer.apply_chat_template(
        messages,
        tokenize=False,
        add_generation_prompt=ask,
        chat_template="tool_use" if isinstance(tokenizer.chat_template, dict) else None,
    )
    return str(text)


@pytest.mark.parametrize("name", FAMILIES)
def test_pieces_and_carried_turns_make_what_the_template_renders_of_the_whole(name: str) -> None:
    """What the model said is taken from the rendered whole, so that nothing but the frame's pieces can differ."""
    family, frame = FAMILIES[name], FRAMES[name]

    @settings(max_examples=25, deadline=None)
    @given(conversations(family), st.booleans())
    def holds(said: list[Message], ended: bool) -> None:
        turns = [n for n, message in enumerate(said) if message["role"] == "assistant"]
        text = frame.tokenizer.decode(frame.opening(said[: turns[0]]))
        if isinstance(family.template, dict):
            text = render(name, said[: turns[0]])  # words alone open in the template for words
        for turn, following in zip(turns, [*turns[1:], None], strict=True):
            whole = render(name, said[: turn + 1], ask=False)
            assert whole.startswith(text), "the turns before are as they were"
            own = whole[len(text) :].partition(family.end)[0]
            text += own + (family.end if ended else "")
            if following is not None:
                text += frame.tokenizer.decode(frame.following(said[turn + 1 : following], ended))
                assert text == render(name, said[:following])

    holds()


@pytest.mark.parametrize("name", FAMILIES)
def test_the_format_of_calls_is_seen_in_what_the_template_writes(name: str) -> None:
    form = FRAMES[name].form
    assert (form.name if form else None) == FAMILIES[name].form
    if form is None:
        with pytest.raises(ConfigError, match="no tool-call format that Groupwise knows"):
            FRAMES[name].opening([{"role": "user", "content": "hi"}], [TOOL])
    else:
        opening = FRAMES[name].opening([{"role": "user", "content": "hi"}], [TOOL])
        assert "find" in FRAMES[name].tokenizer.decode(opening)


@pytest.mark.parametrize("name", [name for name, family in FAMILIES.items() if family.calls])
def test_what_the_template_writes_of_calls_is_read_back(name: str) -> None:
    family, frame = FAMILIES[name], FRAMES[name]

    @settings(max_examples=25, deadline=None)
    @given(st.lists(arguments, min_size=1, max_size=family.calls))
    def holds(given: list[dict[str, Any]]) -> None:
        calls = [
            {"id": f"t0000n00{n}", "type": "function", "function": {"name": "find", "arguments": one}}
            for n, one in enumerate(given)
        ]
        said = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "", "tool_calls": calls}]
        whole = render(name, said, ask=False).removeprefix(render(name, said[:1]))
        reply = read_reply(whole.partition(family.end)[0], frame.form, 0)
        assert [(call.name, call.arguments) for call in reply.tool_calls] == [("find", one) for one in given]
        assert not reply.broken
        assert [call.id for call in reply.tool_calls] == [call["id"] for call in calls]

    holds()


NO_TOOLS = [
    "{% for m in messages %}{{ m.role }}: {{ m.content }} <tool_call>\n{% endfor %}",
    "{# '@' + name, [TOOL_CALLS] and <tool_call> are not ours #}{% for m in messages %}{{ m.content }}{% endfor %}",
    '{{ \'{"name": "x", "parameters": {}}\' }}{% for m in messages %}{{ m.content }}{% endfor %}',
    "{% for m in messages %}{{ m.tool_calls[0].nothing.there }}{% endfor %}",
    "{{ raise_exception('no') }}",
]


@pytest.mark.parametrize("template", NO_TOOLS)
def test_a_template_that_only_mentions_a_format_has_no_tools(template: str) -> None:
    assert Frame(Family(template, (), "").tokenizer()).form is None


def test_thoughts_that_the_template_would_drop_are_carried() -> None:
    frame = FRAMES["qwen"]
    thought = "<think>\nhm\n</think>\n\nyes"
    said = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": thought},
        {"role": "user", "content": "b"},
    ]
    assert "hm" not in render("qwen", said)
    text = frame.tokenizer.decode(frame.opening(said[:1])) + thought + "<|im_end|>"
    text += frame.tokenizer.decode(frame.following(said[2:], ended=True))
    assert text == render("qwen", said).replace("yes", thought)


def test_results_in_a_row_share_one_turn_where_the_template_has_it_so() -> None:
    results = [{"role": "tool", "content": content} for content in ("1", "2")]
    text = FRAMES["qwen"].tokenizer.decode(FRAMES["qwen"].following(results, ended=True))
    assert text == (
        "\n<|im_start|>user\n<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )


@pytest.mark.parametrize("name", [name for name, family in FAMILIES.items() if family.calls])
def test_results_that_name_no_call_are_taken_too(name: str) -> None:
    """Of malformed calls, say, or by an author who leaves ids out: even where a template wants nine characters."""
    results = [{"role": "tool", "content": "7"}]
    assert "7" in FRAMES[name].tokenizer.decode(FRAMES[name].following(results, ended=True))


def test_tools_are_told_once_where_the_template_would_move_them() -> None:
    frame = FRAMES["mistral"]
    opening = frame.tokenizer.decode(frame.opening([{"role": "user", "content": "a"}], [TOOL]))
    assert opening.startswith("<bos>[AVAILABLE_TOOLS] [{")
    assert frame.tokenizer.decode(frame.following([{"role": "user", "content": "b"}], True)) == "[INST] b[/INST]"


def test_only_a_token_that_ends_turns_is_taken_for_the_end() -> None:
    frame = Frame(Family(OPEN, (), "").tokenizer())
    text = frame.tokenizer.decode(frame.following([{"role": "user", "content": "b"}], ended=True))
    assert text == "\n<|user|>b\n<|assistant|>"


def test_what_a_template_refuses_is_said() -> None:
    with pytest.raises(ConfigError, match="rejects the roles system, user: System role not supported"):
        FRAMES["gemma"].opening([{"role": "system", "content": "s"}, {"role": "user", "content": "a"}])
    with pytest.raises(ConfigError, match="rejects the roles user, assistant, tool: roles must alternate"):
        FRAMES["gemma"].following([{"role": "tool", "content": "a"}], ended=True)
    with pytest.raises(ConfigError, match="rejects the roles user, assistant, user, user: roles must alternate"):
        FRAMES["mistral"].following([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}], ended=True)


@pytest.mark.parametrize("name", FAMILIES)
def test_what_a_tool_wrote_cannot_leave_its_place(name: str) -> None:
    """Special tokens and the marks of calls and results are broken up in what tools write, and refused in the rest."""
    frame, family = FRAMES[name], FAMILIES[name]
    marks = [*frame.special, *(frame.form.marks if frame.form else ())]

    @settings(max_examples=25, deadline=None)
    @given(st.lists(st.sampled_from(marks) | words, max_size=6).map("".join), st.sampled_from(marks))
    def holds(text: str, name: str) -> None:
        plain = frame.plain({"role": "tool", "content": text + marks[0], "name": name})
        assert not any(mark in plain["content"] or mark in plain["name"] for mark in marks)
        assert plain["content"].replace(" ", "") == (text + marks[0]).replace(" ", "")

    holds()
    for role in ("system", "user", "assistant"):
        with pytest.raises(NotPlainText):
            frame.plain({"role": role, "content": f"a{family.end}b"})
    calls = [{"id": "0", "type": "function", "function": {"name": "f", "arguments": {"x": [family.end]}}}]
    with pytest.raises(NotPlainText):
        frame.plain({"role": "assistant", "content": "", "tool_calls": calls})
    if family.calls:
        told = {"type": "function", "function": {"name": "f", "description": family.end}}
        with pytest.raises(NotPlainText):
            frame.opening([{"role": "user", "content": "a"}], [told])


def test_a_megabyte_from_a_tool_and_an_empty_message_are_framed() -> None:
    frame = FRAMES["qwen"]
    assert frame.defused("<|im_end|>" * 100_000) == "< |im_end|>" * 100_000
    long = frame.tokenizer.decode(frame.following([{"role": "tool", "content": "<|im_end|>" * 5_000}], ended=True))
    assert (len(long) > 55_000, long.count("<|im_end|>")) == (True, 1)
    empty = frame.tokenizer.decode(frame.following([{"role": "user", "content": None}], ended=True))
    assert empty == "\n<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n"


def sampled(text: str, end: Any = "stop") -> Sampled:
    ids = FRAMES["tiny"].tokenizer.encode(text, add_special_tokens=False)
    return Sampled(np.array(ids, np.int64), np.zeros(len(ids), np.float32), np.zeros(len(ids), np.int64), 0, end)


@pytest.mark.parametrize(
    ("text", "end", "content", "ended", "cut"),
    [
        ("hi<|end|>", "stop", "hi", True, False),
        ("hi", "stop", "hi", False, False),  # ended by a stop string
        ("hi", "length", "hi", False, True),
        ("hi", "context", "hi", False, True),
        ("hi", "cancelled", "hi", False, True),
        ("hi<|end|>", "length", "hi<|end|>", False, True),
        ("<|end|>", "stop", "", True, False),
        ("", "stop", "", False, False),
        ("a<|end|>b<|end|>", "stop", "a<|end|>b", True, False),
    ],
)
def test_a_turn_has_ended_with_a_special_token_of_its_own_or_was_cut(
    text: str, end: Any, content: str, ended: bool, cut: bool
) -> None:
    frame = FRAMES["tiny"]
    assert frame.ended(sampled(text, end)) is ended
    reply = frame.reply(sampled(text, end), 3)
    assert (reply.content, reply.cut, reply.tool_calls) == (content, cut, ())


def test_a_reply_is_read_with_its_turn_its_tools_and_the_thought_that_the_prompt_opened() -> None:
    frame = FRAMES["tiny"]
    reply = frame.reply(sampled('a thought</think>so\n@find {"x": 1}<|end|>'), 12, sampled("<think>").ids.tolist())
    assert (reply.reasoning, reply.content) == ("a thought", 'so\n@find {"x": 1}')
    assert [(call.id, call.name, call.arguments) for call in reply.tool_calls] == [("t0012n000", "find", {"x": 1})]
    tools = [{"function": {"name": "f", "parameters": {"properties": {"x": {"type": "integer"}}}}}]
    typed = Frame(character_tokenizer(), tool_format="functions")
    said = sampled("<function=f><parameter=x>7</parameter></function>")
    assert [typed.reply(said, 0, (), given).tool_calls[0].arguments for given in (tools, ())] == [{"x": 7}, {"x": "7"}]


@pytest.mark.parametrize(
    ("message", "plain"),
    [
        ({"role": "user", "content": None}, {"role": "user", "content": ""}),
        ({"role": "system"}, {"role": "system", "content": ""}),
        ({"role": "user", "content": "a\ud800b", "name": "x"}, {"role": "user", "content": "a?b", "name": "x"}),
        (
            {"role": "tool", "content": "a<|end|>"},
            {"role": "tool", "content": "a< |end|>", "tool_call_id": "t0000n000"},
        ),
        (
            {"role": "tool", "content": "7", "tool_call_id": "c9", "name": "<pad>"},
            {"role": "tool", "content": "7", "tool_call_id": "c9", "name": "< pad>"},
        ),
        ({"role": "assistant", "content": "@f"}, {"role": "assistant", "content": "@f"}),
    ],
)
def test_a_message_becomes_plain_text_with_all_else_that_it_says(message: Message, plain: Message) -> None:
    assert FRAMES["tiny"].plain(message) == plain


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({"content": "a"}, "a message has the role None; roles are system, user, assistant, tool"),
        ({"role": "narrator", "content": "a"}, "has the role 'narrator'"),
        ({"role": "user", "content": ["a"]}, "a message of user has content of type list, not text"),
        ({"role": "tool", "content": 7}, "a message of tool has content of type int, not text"),
        *(
            ({"role": "assistant", "content": "a", key: "b<|end|>"}, "contains '<|end|>', which is a special token")
            for key in ("reasoning_content", "thinking", "reasoning")
        ),
    ],
)
def test_a_message_that_cannot_be_framed_is_refused(message: Message, words: str) -> None:
    with pytest.raises(ContractError, match=re.escape(words)):
        FRAMES["tiny"].plain(message)


MOODY = "{% for m in messages %}<|{{ m.role }}|>{{ mood }}{{ size }}{{ m.content }}<|end|>{% endfor %}"


def test_options_are_laid_over_those_of_the_frame_and_leave_it_as_it_was() -> None:
    tokenizer = character_tokenizer()
    tokenizer.chat_template = MOODY
    frame = Frame(tokenizer, options={"mood": "glad", "size": 1})
    assert frame.with_options({}) is frame
    changed = frame.with_options({"mood": "sad"})
    asked = [{"role": "user", "content": "?"}]
    assert [tokenizer.decode(each.opening(asked)) for each in (frame, changed)] == [
        "<|user|>glad1?<|end|>", "<|user|>sad1?<|end|>",
    ]  # fmt: skip
    assert (dict(frame.options), dict(changed.options)) == ({"mood": "glad", "size": 1}, {"mood": "sad", "size": 1})
    tokenizer.chat_template = "{{ raise_exception('no mood') }}"
    with pytest.raises(ConfigError, match=r"rejects the roles user with \{'mood': 'glad', 'size': 1\}: ") as refused:
        frame.opening(asked)
    assert refused.value.hint.startswith("Check chat_template_kwargs. ")


def test_what_was_found_out_about_a_template_is_kept_for_the_same_one_only() -> None:
    tokenizer, other = character_tokenizer(), character_tokenizer()
    known = template_of(tokenizer, {"a": 1, "b": 2})
    assert template_of(tokenizer, {"b": 2, "a": 1}) is known
    assert template_of(tokenizer) is template_of(tokenizer, {})
    others = [template_of(tokenizer), template_of(tokenizer, {"a": 1}), template_of(tokenizer, {"a": 1, "b": 3}),
              template_of(tokenizer, {"a": 1, "b": 2}, "glm"), template_of(other, {"a": 1, "b": 2})]  # fmt: skip
    assert known not in others
    assert (others[3].tool_format, others[2].options) == ("glm", {"a": 1, "b": 3})
    tokenizer.chat_template = MOODY
    changed = template_of(tokenizer, {"a": 1, "b": 2})
    assert changed is not known
    assert changed.end == "<|end|>"


def test_special_tokens_are_found_with_their_places_the_longest_of_several() -> None:
    tokenizer = character_tokenizer()
    tokenizer.add_tokens([AddedToken("<|e", special=True), AddedToken("plain", special=False)])
    assert "<|e" in special_tokens(tokenizer)
    assert "plain" not in special_tokens(tokenizer)
    template = ChatTemplate(tokenizer)
    text = "a<|end|><|e<|end|>plain<|user|>"
    assert template._specials(text) == [(1, "<|end|>"), (8, "<|e"), (11, "<|end|>"), (23, "<|user|>")]
    firsts = {"<|user|>a": "<|user|>", "a<|user|>": "", "<|assistant|>a": "", "<|end|><|user|>": "<|end|>", "": ""}
    assert {text: template.first_special(text) for text in firsts} == firsts


def test_the_tokens_behind_a_place_are_those_of_the_whole_text() -> None:
    template = ChatTemplate(piece_tokenizer(["ab", "abc", "d"]))

    def pieces(text: str, place: int) -> list[str]:
        return list(template.tokenizer.convert_ids_to_tokens(template.ids_behind(text, place)))

    assert pieces("ab d abc", 3) == ["d", "abc"]
    assert pieces("abc", 2) == ["c"], "where the place is inside a token, the rest is encoded by itself"
    assert pieces("ab", 0) == ["ab"]
    assert pieces("ab", 2) == []


# Shows tools and results, but leaves the writing of calls to the model.
SILENT = (
    "{% for t in tools or [] %}{{ t.function.name }}{% endfor %}{% for m in messages %}<|{{ m.role }}|>"
    "{{ 'BEFORE' if m.role == 'tool' }}{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@pytest.mark.parametrize(
    ("template", "tokens", "form"),
    [
        (SILENT, ["<tool_call>"], "tagged"),
        (SILENT.replace("BEFORE", "<|tool_response>"), [], "gemma"),
        # What the model has a token for counts more than what stands around results.
        (SILENT.replace("BEFORE", "<tool_response>"), ["[TOOL_CALLS]"], "list"),
        # <|end|> is a mark of gpt-oss too, but here it ends every turn.
        (SILENT, [], None),
        (SILENT.replace("{{ t.function.name }}", ""), ["<tool_call>"], None),
        (SILENT.replace("{{ m.content }}", "{{ m.content if m.role != 'tool' }}"), ["<tool_call>"], None),
        (SILENT.replace("{{ m.content }}", "{{ m.content if m.role != 'assistant' }}"), ["<tool_call>"], None),
    ],
    ids=["token", "mark", "token before mark", "neither", "no tools", "no results", "no turns"],
)
def test_a_template_that_writes_no_calls_is_known_by_its_tokens_and_marks(
    template: str, tokens: list[str], form: str | None
) -> None:
    tokenizer = character_tokenizer()
    tokenizer.add_tokens(tokens)
    tokenizer.chat_template = template
    frame = Frame(tokenizer)
    assert (frame.form.name if frame.form else None) == form
    if form is not None:
        calls = [{"id": "c1", "type": "function", "function": {"name": "find", "arguments": {"x": 1}}}]
        said = [{"role": "assistant", "content": "", "tool_calls": calls}]
        ids, own = frame.demonstration([{"role": "user", "content": "a"}], said, [TOOL])
        written = tokenizer.decode([token for token, mine in zip(ids, own, strict=True) if mine])
        assert written == frame.call_format().write([ToolCall("c1", "find", {"x": 1})]) + "<|end|>"


def test_only_a_mark_that_ends_turns_is_not_repeated() -> None:
    """A newline that the model wrote last is its own, although what follows begins with one too."""
    frame = Frame(Family(OPEN, (), "").tokenizer())
    next_question = [{"role": "user", "content": "b"}]
    spoken = frame.tokenizer.encode("hi\n", add_special_tokens=False)
    following = frame.following(next_question, ended=False, after=spoken)
    assert frame.tokenizer.decode(following) == "\n<|user|>b\n<|assistant|>"
    closed = Frame(Family(OPEN.replace("+ '\n'", ""), (), "").tokenizer())
    (mark,) = closed.tokenizer.encode("<|user|>", add_special_tokens=False)
    assert mark in closed.end_ids
    for after, text in (
        (spoken, "<|user|>b<|assistant|>"),
        ([*spoken, mark], "b<|assistant|>"),
        ([], "<|user|>b<|assistant|>"),
    ):
        assert closed.tokenizer.decode(closed.following(next_question, ended=True, after=after)) == text


TURN = "{% for m in messages %}<|{{ m.role }}|>WORDS<|end|>{% endfor %}{{ '<|assistant|>' if add_generation_prompt }}"


@pytest.mark.parametrize("given", ["reasoning_content", "thinking", "reasoning"])
@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("{{ m.thinking or '' }}{{ m.content }}", "so42"),
        ("{{ m.reasoning or '' }}{{ m.content }}", "so42"),
        ("{{ m.reasoning_content or '' }}{{ m.content }}", "so42"),
        ("{{ m.content }}", "42"),
    ],
)
def test_a_thought_is_shown_where_the_template_reads_it(given: str, words: str, shown: str) -> None:
    tokenizer = character_tokenizer()
    tokenizer.chat_template = TURN.replace("WORDS", words)
    talk = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "42", given: "so"}]
    text = tokenizer.decode(Frame(tokenizer).opening([*talk, {"role": "user", "content": "b"}]))
    assert text == f"<|user|>a<|end|><|assistant|>{shown}<|end|><|user|>b<|end|><|assistant|>"


def test_a_template_for_pictures_gets_text_in_parts() -> None:
    tokenizer = character_tokenizer()
    tokenizer.chat_template = TURN.replace("WORDS", "{% for part in m.content %}{{ part.text }}{% endfor %}")
    frame = Frame(tokenizer)
    asked = {"role": "user", "content": "hi"}
    assert tokenizer.decode(frame.opening([asked])) == "<|user|>hi<|end|><|assistant|>"
    assert tokenizer.decode(frame.following([asked], ended=True)) == "<|user|>hi<|end|><|assistant|>"
    tokenizer.chat_template = TURN.replace("WORDS", "{{ m.content }}")
    assert tokenizer.decode(Frame(tokenizer).opening([asked])) == "<|user|>hi<|end|><|assistant|>"


# Opens a thought before every turn, writes none for a turn without one, and forgets those of earlier turns.
FORGETFUL = (
    "{% for m in messages %}<|{{ m.role }}|>"
    "{{ '<think>' + m.reasoning_content + '</think>' if m.reasoning_content and loop.last }}{{ m.content }}<|end|>"
    "{% endfor %}{{ '<|assistant|><think>' if add_generation_prompt }}"
)


def test_demonstrated_turns_stay_as_they_were_sampled_and_open_no_thought_that_they_do_not_have() -> None:
    tokenizer = character_tokenizer()
    tokenizer.chat_template = FORGETFUL
    talk = [
        {"role": "assistant", "content": "1", "reasoning_content": "so"}, {"role": "user", "content": "b"},
        {"role": "assistant", "content": "2"}, {"role": "user", "content": "c"},
        {"role": "assistant", "content": "3", "reasoning_content": "hm"},
    ]  # fmt: skip
    ids, own = Frame(tokenizer).demonstration([{"role": "user", "content": "a"}], talk)
    assert tokenizer.decode(ids) == (
        "<|user|>a<|end|><|assistant|><think>so</think>1<|end|><|user|>b<|end|><|assistant|>2<|end|>"
        "<|user|>c<|end|><|assistant|><think>hm</think>3<|end|>"
    )
    mine = tokenizer.decode([token for token, spoken in zip(ids, own, strict=True) if spoken])
    assert mine == "so</think>1<|end|>2<|end|>hm</think>3<|end|>"


@pytest.mark.parametrize(
    ("closing", "end"),
    [
        ("<|end|>", "<|end|>"), ("<|end|>\n", "<|end|>"), ("<|sep|>", "<|sep|>"), ("<|sep|> \n", "<|sep|>"),
        # The token that ends all text comes before any other, wherever it stands.
        ("<|sep|><|end|>", "<|end|>"), ("<|end|><|sep|>", "<|end|>"), ("<|sep|><|end|><|sep|>", "<|end|>"),
        ("<|sep|>.", ""), (".", ""), ("", ""),
        ("<|sep|><|tool|>", "<|tool|>"),
    ],
)  # fmt: skip
def test_a_turn_ends_with_the_last_special_token_behind_its_words(closing: str, end: str) -> None:
    tokenizer = character_tokenizer()
    tokenizer.add_tokens([AddedToken("<|sep|>", special=True)])
    tokenizer.chat_template = (
        "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{{ 'CLOSING' if m.role == 'assistant' else '.' }}"
        "{% endfor %}{{ '<|assistant|>' if add_generation_prompt }}"
    ).replace("CLOSING", closing)
    template = ChatTemplate(tokenizer)
    assert template.end == end
    # Where a turn has no end, the beginning of the next question ends it.
    assert tokenizer.convert_ids_to_tokens(template.end_ids) == [end or "<|user|>"]
