"""What the model is shown of a conversation in one turn."""

from __future__ import annotations

from typing import Any

import pytest

from groupwise.agents.conversation.chat_format import Frame
from groupwise.agents.conversation.store import ConversationContext
from groupwise.agents.conversation.turn import (
    EXAMPLES,
    GUIDANCE,
    NOT_RUN,
    Response,
    TemplateShape,
    as_example,
    current,
    is_note,
    note,
    plain,
    unanswered_calls,
)
from groupwise.language.tiny import character_tokenizer
from groupwise.thoughts import REASONING
from groupwise.types import Message


def asked(text: str) -> Message:
    return {"role": "user", "content": text}


def said(text: str, *calls: str, **more: Any) -> Message:
    made = [{"id": name, "type": "function", "function": {"name": f"f{name}", "arguments": {}}} for name in calls]
    return {"role": "assistant", "content": text, **({"tool_calls": made} if made else {}), **more}


def result(name: str) -> Message:
    return {"role": "tool", "tool_call_id": name, "content": "ok"}


def contents(messages: Any) -> str:
    return "".join(str(message["content"]) for message in messages)


def test_only_the_newest_guidance_and_examples_not_yet_answered_are_shown() -> None:
    old, new = note(GUIDANCE, "g"), note(GUIDANCE, "h")
    shown, more, summary = note(EXAMPLES, "x", dialogues=[3]), note(EXAMPLES, "y"), note("summary", "s")
    assert shown == {"role": "system", "name": EXAMPLES, "content": "x", "dialogues": [3]}

    def left(*messages: Message) -> str:
        return contents(current(messages, str))

    assert left(summary, old, shown, asked("a")) == "sgxa"
    assert left(old, shown, asked("a"), said("b")) == "gab"
    assert left(old, shown, asked("a"), said("b"), new, more, asked("c")) == "abhyc"
    assert left(old, new) == "h"
    assert left(shown, more, asked("a")) == "xya", "both belong to the question that waits"
    assert left() == ""
    # A user may call himself what he likes.
    assert not is_note({**asked("a"), "name": GUIDANCE}, GUIDANCE)
    assert left({**asked("a"), "name": GUIDANCE}, old) == "ag"


def test_text_of_models_and_tools_is_defused_and_that_of_users_is_not() -> None:
    assert plain(asked("a<x>"), str.upper) == asked("a<x>")
    assert plain(said("a"), str.upper) == said("A")
    assert plain(result("1"), str.upper)["content"] == "OK"
    assert plain(said("a", **{REASONING: "b"}), str.upper) == said("A", **{REASONING: "B"})
    assert plain(said("a", **{REASONING: ""}), str.upper) == said("A", **{REASONING: ""})
    assert plain(said("a", "1"), str.upper) == said("", "1"), "the template writes the calls"
    assert plain({"role": "assistant", "content": None}, str.upper)["content"] == ""


@pytest.mark.parametrize(
    ("messages", "missing"),
    [
        ([], []),
        ([asked("a")], []),
        ([asked("a"), said("b")], []),
        ([asked("a"), said("b", "1", "2")], ["1", "2"]),
        ([asked("a"), said("b", "1", "2"), result("1")], ["2"]),
        ([asked("a"), said("b", "1", "2"), result("2"), result("1")], []),
        # Only the newest turn counts.
        ([said("b", "1"), asked("a"), said("b", "2")], ["2"]),
        ([said("b", "1"), asked("a"), said("b")], []),
        ([said("b", "1"), result("1"), asked("a"), said("b", "1")], ["1"]),
    ],
)
def test_calls_that_never_got_a_result_get_one(messages: list[Message], missing: list[str]) -> None:
    assert unanswered_calls(messages) == tuple(
        {"role": "tool", "tool_call_id": name, "name": f"f{name}", "content": NOT_RUN} for name in missing
    )


def shape(first: bool, later: bool) -> TemplateShape:
    made = TemplateShape.__new__(TemplateShape)
    made.first, made.later = first, later
    return made


TALK = [note("a", "1"), note("b", "2"), asked("3"), said("4"), note("c", "5"), asked("6"), asked("7"), note("d", "8")]


@pytest.mark.parametrize(
    ("first", "later", "opening", "wanted"),
    [
        (True, True, True, [("system", "1\n\n2"), ("user", "3"), ("assistant", "4"), ("system", "5"),
                            ("user", "6\n\n7"), ("system", "8")]),
        (True, False, True, [("system", "1\n\n2"), ("user", "3"), ("assistant", "4"), ("user", "5\n\n6\n\n7")]),
        (False, False, True, [("user", "1\n\n2\n\n3"), ("assistant", "4"), ("user", "5\n\n6\n\n7")]),
        # Between two turns, nothing is first.
        (True, False, False, [("user", "1\n\n2\n\n3"), ("assistant", "4"), ("user", "5\n\n6\n\n7")]),
        (True, True, False, [("system", "1\n\n2"), ("user", "3"), ("assistant", "4"), ("system", "5"),
                             ("user", "6\n\n7"), ("system", "8")]),
    ],
)  # fmt: skip
def test_notes_go_where_the_template_takes_them_or_before_the_next_question(
    first: bool, later: bool, opening: bool, wanted: list[tuple[str, str]]
) -> None:
    fitted = shape(first, later).fit(TALK, opening=opening)
    assert [(message["role"], message["content"]) for message in fitted] == wanted
    assert shape(first, later).fit([], opening=opening) == []
    alike = shape(first, later).fit([said("a"), said("b"), result("1"), result("2")], opening=opening)
    assert contents(alike) == "abokok"
    assert len(alike) == 4, "turns of the model and results stay apart"


TURNS = "{%- for m in messages %}{{ '<|' + m.role + '|>' + m.content + '<|end|>' }}{% endfor -%}"
ASKS = "{%- if add_generation_prompt %}{{ '<|assistant|>' }}{% endif -%}"
REFUSES = (
    "{%- for m in messages %}{% if m.role == 'system'CONDITION %}{{ raise_exception('no') }}{% endif %}{% endfor -%}"
)
DROPS = TURNS.replace("messages %}", "messages if m.role != 'system' %}")


@pytest.mark.parametrize(
    ("template", "first", "later"),
    [
        (TURNS + ASKS, True, True),
        (REFUSES.replace("CONDITION", "") + TURNS + ASKS, False, False),
        (DROPS + ASKS, False, False),
        (REFUSES.replace("CONDITION", " and not loop.first") + TURNS + ASKS, True, False),
    ],
    ids=["anywhere", "refused", "dropped", "only first"],
)
def test_where_a_template_takes_system_messages_is_found_by_trying(template: str, first: bool, later: bool) -> None:
    tokenizer = character_tokenizer()
    tokenizer.chat_template = template
    found = TemplateShape(Frame(tokenizer))
    assert (found.first, found.later) == (first, later)


def test_a_dialogue_is_shown_as_lines_of_its_two_sides() -> None:
    talk = [note("a", "1"), asked("Hi"), said("Yes?"), result("1"), {"role": "assistant", "content": None}]
    assert as_example(talk) == "user: Hi\nassistant: Yes?\nassistant: "
    assert len(as_example([asked("x" * 3000)])) <= 2000
    assert as_example([asked("x" * 1994)]) == "user: " + "x" * 1994
    assert len(as_example([asked("x" * 3000)], 100)) <= 100


def test_a_response_tells_all_about_itself_but_its_text() -> None:
    context = ConversationContext("c", "ann", "sales", {"n": 1}, (asked("a"), said("b"), asked("c")))
    response = Response("hello", context, 30, "stop", 1.23456, (), True, (3, 4), "so")
    assert str(response) == "hello"
    assert response.conversation_id == "c"
    assert response.metadata == {
        "conversation_id": "c", "user_id": "ann", "turn": 2, "strategy": "sales", "state": {"n": 1}, "tokens": 30,
        "end": "stop", "seconds": 1.2346, "tokens_per_second": 24.3, "tool_calls": 0, "compressed": True,
        "examples": [3, 4],
    }  # fmt: skip
    assert Response("", context, 3, "stop", 0.0).tokens_per_second == 0.0
