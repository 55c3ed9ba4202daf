"""A compressed conversation always fits, keeps what it must, and never parts a tool's call from its result."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.agents.conversation import compression
from groupwise.agents.conversation.chat_format import Frame
from groupwise.agents.conversation.compression import (
    SUMMARY,
    CompressionPlan,
    ContextFull,
    blocks_of,
    compress,
)
from groupwise.agents.conversation.extraction import RARITY, RESULT, WEIGHT, extract, ranked_sentences, shorten
from groupwise.language.tiny import character_tokenizer
from groupwise.types import Message

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))

from context_cases import conversation


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


@pytest.mark.parametrize("size", [0, 1, 34, 35, 36, 37, 38, 60, 99, 100, 101, 1000])
def test_a_shortened_text_is_as_long_as_it_may_be_and_two_thirds_are_its_beginning(size: int) -> None:
    text = ("ab ba abba " * 100)[:size]
    # At every limit: random ones rarely leave room for just one letter or two.
    for limit in range(110):
        _is_shortened(text, shorten(text, limit), limit)


def _is_shortened(text: str, short: str, limit: int) -> None:
    if len(text) <= limit:
        assert short == text
        return
    before, found, behind = short.partition("[... ")
    if not found:
        assert short == text, "a text shorter than the mark stays"
        return
    missing, _, end = behind.partition(" characters left out ...]")
    kept = before[:-1] + end[1:]
    assert len(kept) == len(text) - int(missing)
    assert text.startswith(before[:-1])
    assert text.endswith(end[1:])
    assert len(short) <= limit or not kept
    if kept:
        assert len(end[1:]) == len(kept) // 3
        assert len(kept) == limit - len(f" [... {len(text)} characters left out ...] ")


@pytest.mark.parametrize("high", range(6))
@pytest.mark.parametrize("true_to", range(6))
def test_the_largest_number_that_holds_is_found(high: int, true_to: int) -> None:
    asked: list[int] = []

    def holds(number: int) -> bool:
        asked.append(number)
        return number <= true_to

    assert compression._largest(0, high, holds) == min(high, true_to)
    assert all(0 <= number <= high for number in asked)


def test_sentences_are_ranked_by_kind_rare_words_and_speaker_whatever_their_length() -> None:
    """(kind + 0.6 · mean of ln(1 + N / n(word)) / ln(1 + N)) / √(8 + words): 'b' is in two of the four lines."""
    messages = [user("A b. C d e!"), {"role": "tool", "content": "b\n...\n"}, {"role": "assistant", "content": "F"}]
    once, twice = 1.0, math.log(1 + 4 / 2) / math.log(1 + 4 / 1)
    wanted = {
        "tool: b ...": RESULT / math.sqrt(8 + 1),
        "user: C d e!": (0.7 + RARITY * once) / math.sqrt(8 + 3),
        "user: A b.": (0.7 + RARITY * (once + twice) / 2) / math.sqrt(8 + 2),
        "assistant: F": WEIGHT["assistant"] * RARITY * once / math.sqrt(8 + 1),
    }
    found = ranked_sentences(messages)
    assert {sentence.text: sentence.score for sentence in found} == pytest.approx(wanted)
    assert [s.text for s in found] == sorted(wanted, key=lambda text: -wanted[text])
    assert extract(messages, 2) == "user: C d e!\ntool: b ..."
    assert extract(messages, 0) == ""
    assert extract([said("same one"), said("same one")], 2) == "assistant: same one"
    assert extract([user("Thanks a lot!"), said("You're welcome.")], 2) == "", "small talk is not worth a token"
    long = extract([user("x" * 400)], 1)
    assert len(long) <= 300 + len("user: ")
    assert "characters left out" in long


def test_results_belong_to_the_message_before_them() -> None:
    first, result = call(1)
    assert blocks_of([result, first, result, result, user("a"), said("b")]) == [
        (result,), (first, result, result), (user("a"),), (said("b"),),
    ]  # fmt: skip
    assert blocks_of([]) == []


def test_a_turn_begins_with_a_question_and_the_notes_before_it() -> None:
    note: Message = {"role": "system", "content": "n"}
    talk = [said("0"), note, user("1"), user("2"), said("3"), user("4"), note, said("5"), said("6"), note]
    turns = compression._turns(blocks_of(talk))
    assert ["".join(str(block[0]["content"]) for block in turn) for turn in turns] == ["0", "n123", "4n56", "n"]


def test_a_plan_says_how_much_it_leaves_out() -> None:
    plan = CompressionPlan(((user("a"),),), ((user("z"),),), (tuple(call(1)), (said("b"),)))
    assert [m["content"] for m in plan.messages("gist")] == ["a", "[Summary of 3 messages:]\ngist", "z"]
    assert [m["content"] for m in plan.messages()] == ["a", "[3 earlier messages left out]", "z"]
    assert CompressionPlan(plan.head, plan.kept, ()).messages("gist") == (user("a"), user("z"))


def test_the_mildest_plan_with_room_for_the_facts_it_leaves_out_is_taken() -> None:
    def plan(size: int, left: str = "b") -> CompressionPlan:
        # `count` is the text and 2 of the question, 29 and 2 of the mark of what is left out, and 1.
        text = "x" * (size - 3 - (31 if left else 0))
        return CompressionPlan((), ((user(text),),), ((user(left),),) if left else ())

    def size(taken: CompressionPlan | None) -> int | None:
        return None if taken is None else count(taken.messages())

    assert count(plan(90).messages()) == 90
    for sizes, wanted in (
        ((101, 71, 70), 70), ((70, 60), 70), ((71, 69), 69), ((80, 75), 80), ((81, 80), 80), ((81, 82), None),
    ):  # fmt: skip
        assert size(compression._roomy([plan(n) for n in sizes], 80, count)) == wanted
    assert size(compression._roomy([plan(80, left=""), plan(60)], 80, count)) == 80
    fact = "My locker is 4711."
    assert size(compression._roomy([plan(70, fact), plan(60, fact), plan(50, fact)], 80, count)) == 60


@pytest.mark.parametrize("first", [0, 1, 2])
@pytest.mark.parametrize("recent", [1, 3])
def test_as_many_turns_stay_at_either_end_as_are_asked_for(first: int, recent: int) -> None:
    talk = [{"role": "system", "content": "s"}, *[user(str(n)) if n % 2 == 0 else said(str(n)) for n in range(16)]]
    mildest = next(compression._plans(talk, first, recent))
    assert [b[0]["content"] for b in mildest.head] == ["s", *map(str, range(2 * first))]
    assert [b[0]["content"] for b in mildest.kept] == [str(n) for n in range(16 - 2 * recent, 16)]
    assert [b[0]["content"] for b in mildest.left] == [str(n) for n in range(2 * first, 16 - 2 * recent)]


def test_plans_become_stricter_down_to_the_newest_question() -> None:
    talk = [user("0"), said("1"), user("2"), *call(3), *call(4), said("5")]
    plans = [
        tuple("".join(str(b[0]["content"])[-3:] for b in part) for part in (plan.head, plan.kept, plan.left))
        for plan in compression._plans(talk, 1, 2)
    ]
    assert plans == [
        ("", "012 3} 4}5", ""),
        ("01", "2 3} 4}5", ""),
        ("", "2 3} 4}5", "01"),
        ("", "2 4}5", "01 3}"),
        ("", "25", "01 3} 4}"),
        ("", "2", "01 3} 4}5"),
    ]


def test_a_conversation_of_exactly_the_budget_stays_and_one_token_more_does_not() -> None:
    size = count(LONG)
    assert squeeze(LONG, size) == tuple(LONG)
    assert squeeze(LONG, size - 1) != tuple(LONG)
    assert count(squeeze(LONG, size - 1)) <= size - 1


def test_the_newest_question_and_the_system_turn_are_not_cut_as_giants() -> None:
    giant = "x" * 300
    talk: list[Message] = [{"role": "system", "content": giant}, user(giant), said(giant), user(giant)]
    cut = compression._without_giants(talk, 100, count)
    assert [len(m["content"]) <= 100 for m in cut] == [False, True, True, False]
    assert [cut[0], cut[3]] == [talk[0], talk[3]]
    asked, result = call(1, giant)
    asked = {**asked, "content": giant}
    assert compression._without_giants([asked, result], 100, count)[0] == asked
    at = said("x" * 100)
    assert compression._without_giants([at], 100, count) == [at]


def fits_a_quarter(seed: int) -> tuple[str, list[Any], list[str]]:
    messages, facts, results = conversation(seed)
    budget = round(0.25 * count(messages))
    short = squeeze(messages, budget)
    assert count(short) <= budget
    return "\n".join(str(message.get("content")) for message in short), facts, results


@pytest.mark.parametrize("seed", range(3))
def test_facts_and_results_of_tools_survive_in_a_quarter_of_the_tokens(seed: int) -> None:
    text, facts, results = fits_a_quarter(1000 + seed)
    assert sum(fact.value in text for fact in facts) >= 9
    assert all(result in text for result in results)


def test_what_was_corrected_gives_way_to_the_correction() -> None:
    talk = [
        user("The ferry leaves at 7:40."), said("Noted, 7:40."), user("My desk is in room 12."), said("Fine."),
        user("Actually, the ferry leaves at 9:15."), said("Changed."), user("My desk is in room 31 now."),
    ]  # fmt: skip
    kept = extract(talk, 20)
    assert "9:15" in kept
    assert "room 31" in kept
    assert "7:40" not in kept
    assert "room 12" not in kept


def test_facts_that_a_summariser_leaves_out_are_kept_behind_its_words() -> None:
    async def vague(messages: Sequence[Message], room: int) -> str:
        return "They talked about this and that."

    talk = [*LONG[:3], user("My passport number is K4471."), said("Noted."), *LONG[3:]]
    told = next(m["content"] for m in squeeze(talk, 500, summarise=vague) if m.get("name") == SUMMARY)
    assert "They talked about this and that." in told
    assert "user: My passport number is K4471." in told


def test_a_conversation_longer_than_any_budget_keeps_the_question_and_what_fits() -> None:
    talk = [
        LONG[0],
        *[m for n in range(1000) for m in (user(f"Box {n} weighs {n * 7} kilos."), said("Fine."))],
        LONG[-1],
    ]
    short = squeeze(talk, 400)
    assert 200 < count(short) <= 400
    assert short[0] == LONG[0]
    assert short[-1] == LONG[-1]
    assert any(m.get("name") == SUMMARY and "Box 9" in m["content"] for m in short)
