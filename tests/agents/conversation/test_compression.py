"""A compressed conversation always fits, keeps what it must, and never parts a tool's call from its result."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.agents.conversation.chat_format import Frame
from groupwise.agents.conversation.compression import SUMMARY, ContextFull, blocks_of, compress, extract, shorten
from groupwise.language.tiny import character_tokenizer
from groupwise.types import Message


def count(messages: Sequence[Message]) -> int:
    """Tokens of the tiny model's own chat format: one a character, two a turn, and the one that asks for an answer."""
    return sum(len(message["content"]) + 2 for message in messages) + 1


def squeeze(messages: Sequence[Message], budget: int, **options: Any) -> tuple[Message, ...]:
    return asyncio.run(compress(messages, budget, count, **options))


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def said(text: str) -> Message:
    return {"role": "assistant", "content": text}


def call(number: int, result: str = "fine") -> list[Message]:
    made = {"id": f"c{number}", "type": "function", "function": {"name": "look", "arguments": {"order": number}}}
    return [
        {"role": "assistant", "content": f'@look {{"order": {number}}}', "tool_calls": [made]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": result},
    ]


LONG = [
    {"role": "system", "content": "Be kind."},
    user("My order 4711 is late."), said("I am sorry."),
    *[m for n in range(12) for m in (user(f"Question {n}: what about part {n}?"), said(f"Part {n} is on its way."))],
    user("So when?"), *call(4711, "on Friday"), said("On Friday."),
    user("Thanks!"),
]  # fmt: skip

texts = st.text(st.characters(min_codepoint=32, max_codepoint=126, exclude_characters="<|>"), max_size=200)


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    """A system turn or none, then turns with any number of calls, some of several results; perhaps one not answered."""
    messages: list[Message] = [{"role": "system", "content": draw(texts)}] if draw(st.booleans()) else []
    for turn in range(draw(st.integers(1, 8))):
        messages.append(user(draw(texts) * draw(st.sampled_from([1, 1, 1, 20]))))
        for number in range(draw(st.integers(0, 3))):
            asked, result = call(10 * turn + number, draw(texts) * draw(st.sampled_from([1, 1, 20])))
            messages += [asked, *[result] * draw(st.integers(1, 2))]
        if draw(st.booleans()):
            messages.append(said(draw(texts)))
    return messages


@settings(max_examples=200, deadline=None)
@given(messages=conversations(), budget=st.integers(1, 1500), first=st.integers(0, 2), recent=st.integers(1, 5))
def test_it_fits_keeps_calls_with_results_and_twice_is_once(
    messages: list[Message], budget: int, first: int, recent: int
) -> None:
    try:
        short = squeeze(messages, budget, first=first, recent=recent)
    except ContextFull:
        assert budget < 300, "a system turn, a question and two marks always fit"
        return
    assert count(short) <= budget
    assert squeeze(short, budget, first=first, recent=recent) == short
    whole = {name(block) for block in blocks_of(messages)}
    kept = [name(block) for block in blocks_of(short) if block[0].get("name") != SUMMARY]
    assert {*kept} <= whole, "a call has all its results, and nothing else behind it"
    if messages[0]["role"] == "system":
        assert short[0]["role"] == "system"
    newest = max(n for n, message in enumerate(messages) if message["role"] == "user")
    ends = messages[newest]["content"][-3:]
    assert any(m["role"] == "user" and (m["content"].endswith(ends) or "left out" in m["content"]) for m in short)


def name(block: Sequence[Message]) -> tuple[Any, ...]:
    """What tells a block: roles, and which call each belongs to."""
    return tuple((m["role"], m.get("tool_call_id"), *[c["id"] for c in m.get("tool_calls", ())]) for m in block)


def test_the_tokens_counted_here_are_those_of_the_tiny_model() -> None:
    assert count(LONG) == len(Frame(character_tokenizer()).opening(LONG))


def test_system_first_and_recent_turns_are_kept_word_for_word() -> None:
    short = squeeze(LONG, 700)
    assert short[:3] == (LONG[0], LONG[1], LONG[2])
    assert short[3]["name"] == SUMMARY
    assert list(short[-5:]) == LONG[-5:]
    assert count(short) > 500, "the room there is, is used"


def test_what_is_left_out_is_told_by_the_sentences_that_say_most() -> None:
    middle = [user("ok. ok. The serial number is XK-99. ok."), said("ok."), user("ok. ok."), said("ok. ok. ok.")]
    assert extract(middle, 1) == "user: The serial number is XK-99."
    messages = [*LONG[:3], *middle * 3, *LONG[-5:]]
    summary = next(m["content"] for m in squeeze(messages, 280, recent=2) if m.get("name") == SUMMARY)
    assert summary.startswith("[Summary of 12 messages:]\n")
    assert "XK-99" in summary


def test_a_summariser_writes_the_summary_and_is_held_to_the_room() -> None:
    asked: list[tuple[int, int]] = []

    async def summarise(messages: Sequence[Message], room: int) -> str:
        asked.append((len(messages), room))
        return "They talked about parts. " * 100

    short = squeeze(LONG, 700, summarise=summarise)
    assert count(short) <= 700
    assert len(asked) == 1
    told = next(m["content"] for m in short if m.get("name") == SUMMARY)
    assert "They talked about parts." in told
    assert "characters left out" in told


def test_a_summariser_that_fails_is_reported_and_replaced(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(messages: Sequence[Message], room: int) -> str:
        raise TimeoutError("model busy")

    assert squeeze(LONG, 700, summarise=broken) == squeeze(LONG, 700)
    assert "the summariser failed (TimeoutError: model busy)" in caplog.text


def test_a_summary_is_summed_up_again_and_does_not_pile_up() -> None:
    messages = list(squeeze(LONG, 500))
    for n in range(10):
        messages = list(squeeze([*messages, user(f"And now, number {n}?" * 3), said("Yes. " * 20)], 500))
    assert sum(m.get("name") == SUMMARY for m in messages) == 1


def test_a_result_longer_than_the_budget_is_shortened_with_a_mark() -> None:
    messages = [LONG[0], user("How many?"), *call(1, "x" * 5000)]
    short = squeeze(messages, 300)
    assert count(short) <= 300
    assert short[:3] == tuple(messages[:3])
    assert "characters left out" in short[3]["content"]


def test_a_giant_among_the_turns_does_not_push_out_the_others() -> None:
    messages = [*LONG[:-1], user("And the log?"), *call(1, "x" * 5000), said("Long."), user("Thanks!")]
    short = squeeze(messages, 700)
    assert short[1] == LONG[1]
    assert any(m.get("name") == SUMMARY and "Question" in m["content"] for m in short)


def test_a_budget_too_small_for_anything_is_an_error_with_both_numbers() -> None:
    with pytest.raises(ContextFull, match=r"at least \d+ tokens even when shortened, but there is room for 20"):
        squeeze(LONG, 20)


def test_a_shortened_text_keeps_both_ends_and_says_how_much_is_missing() -> None:
    short = shorten("a" * 500 + "z" * 500, 100)
    assert len(short) <= 100
    assert short.startswith("aaaa")
    assert short.endswith("zzz")
    kept = short.count("a ") + len(short.split(" [")[0]) - 1 + len(short.split("] ")[1])
    assert f"[... {1000 - kept} characters left out ...]" in short
    assert shorten("brief", 3) == "brief", "a mark would be longer"
