"""What a model thinks, apart from what it says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.thoughts import (
    ANY,
    DELIMITERS,
    MARKS,
    REASONING,
    THINK,
    SplitText,
    ThoughtFormat,
    apart,
    open_end,
    without_thoughts,
)

FINAL = "<|start|>assistant<|channel|>final<|message|>"
CALL = '<|channel|>commentary to=functions.add <|constrain|>json<|message|>{"a": 1}<|call|>'


@pytest.mark.parametrize("marks", MARKS, ids=[opens for opens, _ in MARKS])
def test_every_pair_of_marks_encloses_a_thought(marks: tuple[str, str]) -> None:
    opens, closes = marks
    assert ANY.split(f"{opens}\nIs it 14?\n{closes}\n\n14")[:2] == ("Is it 14?", "14")
    assert ANY.split(f"{opens}{closes}14")[:2] == ("", "14")
    assert ANY.split(f"{opens}\nIt is \\boxed{{14}}")[:2] == ("It is \\boxed{14}", "")


@pytest.mark.parametrize(
    ("text", "reasoning", "content"),
    [
        ("14", "", "14"),
        ("  14\n", "", "  14\n"),
        ("", "", ""),
        # R1's prompt opens the thought, and so the text only closes it.
        ("Is it 14?</think>14", "Is it 14?", "14"),
        ("<think>one</think>So: <think>two</think>14", "one\n\ntwo", "So: 14"),
        ("<think>one <think>two</think> three</think>14", "one <think>two three", "14"),
        ("<think>one</think><think>two", "one\n\ntwo", ""),
        ("14<think>or 15", "or 15", ""),
        ("<think>it's '14'</think>'14'", "it's '14'", "'14'"),
        # A mark in quotes is only mentioned.
        ("Write `<think>` first.", "", "Write `<think>` first."),
        ("<think>Do I need `</think>`?</think>No.", "Do I need `</think>`?", "No."),
        ("<think>[/THINK]</think>14", "[/THINK]", "14"),
    ],
)
def test_thoughts_are_found_wherever_they_are(text: str, reasoning: str, content: str) -> None:
    assert ANY.split(text)[:2] == (reasoning, content)


@pytest.mark.parametrize(
    ("text", "reasoning", "content"),
    [
        (f"<|channel|>analysis<|message|>14?<|end|>{FINAL}14", "14?", "14"),
        (f"<|channel|>analysis<|message|>14?<|end|>{FINAL}14<|return|>", "14?", "14"),
        ("<|channel|>analysis<|message|>It is 14", "It is 14", ""),
        ("<|channel|>analysis<|message|>It is 14<|end|>", "It is 14", ""),
        ("<|channel|>analysis", "", ""),
        ("<|channel|>final<|message|>14", "", "14"),
        ("14", "", "14"),
        (f"<|channel|>analysis<|message|>14?<|end|><|start|>assistant{CALL}", "14?", ""),
        (f"<|channel|>commentary<|message|>I add.<|end|><|start|>assistant{CALL}", "", "I add."),
        (" to=self<|message|>14?<|eom|><|start|>assistant to=user<|message|>14<|eot|>", "14?", "14"),
    ],
)
def test_messages_of_their_own_are_thoughts_too(text: str, reasoning: str, content: str) -> None:
    assert ANY.split(text)[:2] == (reasoning, content)


def test_calls_are_looked_for_outside_of_thoughts_only() -> None:
    said = ANY.split(f"<|channel|>analysis<|message|>{CALL}<|end|><|start|>assistant{CALL}")
    assert said.spoken.count("to=functions.add") == 2, "a message to a tool is a call, even one that follows a thought"
    assert "analysis" not in said.spoken
    assert ANY.split("<think><tool_call></tool_call></think> <tool_call>").spoken == " <tool_call>"


def test_a_prompt_that_opens_the_thought_is_continued() -> None:
    known = ThoughtFormat()
    assert known.opened("<|im_start|>assistant\n<think>\n") == THINK
    assert known.opened("<|im_start|>assistant\n<think>\n\n</think>\n\n") is None
    assert known.opened("What is <think>?<|im_end|>\n<|im_start|>assistant\n") is None
    assert known.split("It is 14", THINK)[:2] == ("It is 14", "")
    assert known.split("It is 14</think>\n\n14", THINK)[:2] == ("It is 14", "14")


def test_only_the_marks_of_the_model_count() -> None:
    text = "[THINK] is not a mark of mine, nor is <|message|>"
    assert ThoughtFormat().split(text)[:2] == ("", text)


@given(st.lists(st.sampled_from([mark for marks in MARKS for mark in marks]) | st.text(max_size=3)).map("".join))
def test_nothing_is_made_up_and_what_is_split_stays_split(text: str) -> None:
    said = ANY.split(text)
    assert len(said.reasoning.replace("\n\n", "")) + len(said.content) <= len(text)
    assert without_thoughts(said.content) == said.content


def test_a_message_is_taken_apart_once() -> None:
    split = apart({"role": "assistant", "content": "<think>14?</think>14"})
    assert split == {"role": "assistant", "content": "14", REASONING: "14?"}
    assert apart(split) is split
    for other in ({"role": "user", "content": "<think>"}, {"role": "assistant", "content": None}):
        assert apart(other) is other


GPT = ThoughtFormat(messages=True)
MAGISTRAL = ("[THINK]", "[/THINK]")


@pytest.mark.parametrize(
    ("text", "opened", "reasoning", "content", "spoken", "thinking"),
    [
        ("", None, "", "", "", False),
        ("", THINK, "", "", "", True),
        ("14", None, "", "14", "14", False),
        ("<think>", None, "", "", "", True),
        ("<think> a ", None, "a", "", "", True),
        ("b <think> a ", None, "a", "b ", "b ", True),
        ("<think>a</think> b ", None, "a", "b ", " b ", False),
        ("a</think> b ", THINK, "a", "b ", " b ", False),
        ("a <think> c</think> b", THINK, "a <think> c", "b", " b", False),
        ("a</think>b<think>c", THINK, "a\n\nc", "b", "b", True),
        # A thought that ends without having begun takes all before it with it, even what seemed said.
        ("a<think>b</think>c</think>d", None, "abc", "d", "d", False),
        # Another pair's end does not end a thought.
        ("a[/THINK]b</think>c", THINK, "a[/THINK]b", "c", "c", False),
    ],
)
def test_the_beginning_of_a_turn_tells_whether_it_is_still_a_thought(
    text: str, opened: tuple[str, str] | None, reasoning: str, content: str, spoken: str, thinking: bool
) -> None:
    known = ThoughtFormat((THINK, MAGISTRAL))
    assert known.so_far(text, opened) == (SplitText(reasoning, content, spoken), thinking)
    whole = SplitText(reasoning, "", "") if thinking else SplitText(reasoning, content, spoken)
    assert known.split(text, opened) == whole


@pytest.mark.parametrize(
    ("text", "reasoning", "content", "spoken", "thinking"),
    [
        ("<|channel|>analysis<|message|>a", "a", "", "", True),
        ("<|channel|>analysis<|message|>a<|end|>", "a", "", "", False),
        ("<|channel|>analysis<|message|>a<|end|><|start|>assistant", "a", "", "", False),
        ("<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|> b ",
         "a", "b", "assistant<|channel|>final<|message|> b ", False),
        ("<|channel|>analysis<|message|>a<|channel|>final<|message|>b",
         "a", "b", "<|channel|>final<|message|>b", False),
        ("<|channel|>final<|message|>b<|return|>", "", "b", "<|channel|>final<|message|>b<|return|>", False),
        # Only the last channel of a header counts, and only outside of the text.
        ("<|channel|>analysis<|channel|>final<|message|>b", "", "b",
         "<|channel|>analysis<|channel|>final<|message|>b", False),
        ("<|channel|>final<|message|>analysis", "", "analysis", "<|channel|>final<|message|>analysis", False),
        # To a tool, to itself, to the user.
        (" to=self<|message|>a", "a", "", "", True),
        ("<|channel|>analysis to=python<|message|>a", "", "", "<|channel|>analysis to=python<|message|>a", False),
        ("<|channel|>commentary to=user<|message|>a", "", "a", "<|channel|>commentary to=user<|message|>a", False),
        ("<|message|>a<|end|><|message|> <|end|><|message|>b", "", "a\n\nb",
         "<|message|>a<|end|><|message|> <|end|><|message|>b", False),
        ("<|channel|>analysis", "", "", "", False),
        # A prompt may have opened a thought in marks.
        ("no message", "", "no message", "no message", False),
    ],
)  # fmt: skip
def test_the_beginning_of_messages_tells_whether_the_last_is_a_thought(
    text: str, reasoning: str, content: str, spoken: str, thinking: bool
) -> None:
    assert GPT.so_far(text) == (SplitText(reasoning, content, spoken), thinking)


def test_messages_count_only_for_models_that_write_them_and_outside_of_opened_thoughts() -> None:
    text = "<|channel|>analysis<|message|>a"
    assert ThoughtFormat().so_far(text)[0].content == text
    assert GPT.so_far(text, THINK) == (SplitText(text, "", ""), True)
    assert ThoughtFormat().delimiters == THINK
    assert GPT.delimiters == (*THINK, *DELIMITERS)


@pytest.mark.parametrize(
    ("prompt", "opened"),
    [
        ("<think>", THINK), ("<think>\n\n ", THINK), ("a[THINK]", MAGISTRAL), ("", None), ("<think>a", None),
        ("<think></think>", None), ("</think>", None), ("think>", None),
    ],
)  # fmt: skip
def test_a_prompt_opens_the_thought_whose_mark_it_ends_with(prompt: str, opened: tuple[str, str] | None) -> None:
    assert ThoughtFormat((THINK, MAGISTRAL)).opened(prompt) == opened


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("`<think>` a", True), ("'<think>' a", True), ('"<think>" a', True), (" '<think>' a", True),
        ("('<think>') a", True), ("\n`<think>`", True),
        # Different quotes, one quote only, or the quote at the end of something else.
        ("`<think>' a", False), ("<think>` a", False), ("`<think> a", False), ("x'<think>' a", False),
        ("7\"<think>\" a", False), ("` <think>` a", False), ("(<think>) a", False),
    ],
)  # fmt: skip
def test_a_mark_between_two_equal_quotes_is_only_mentioned(text: str, quoted: bool) -> None:
    assert ThoughtFormat().so_far(text)[1] != quoted


@pytest.mark.parametrize(
    ("text", "marks", "end"),
    [
        ("", ("<think>",), 0),
        ("abc", ("<think>",), 3),
        ("abc<", ("<think>",), 3),
        ("abc<think", ("<think>",), 3),
        ("abc<think>", ("<think>",), 10),
        ("<<", ("<think>",), 1),
        ("<thin<", ("<think>",), 5),
        ("<thank", ("<think>",), 6),
        ("<think>", ("<think>", "<thinking>"), 0),
        ("a\n\n", ("\n\n\n",), 1),
        ("aab", ("b!", "ab?"), 1),
        ("abc", (), 3),
        ("abc", ("x",), 3),
    ],
)
def test_an_open_end_is_the_longest_that_may_become_a_mark(text: str, marks: tuple[str, ...], end: int) -> None:
    assert open_end(text, marks) == end


@given(
    st.lists(st.sampled_from(["<think>", "</think>", "<", "`", "a", " ", "</", "think>", '"']), max_size=8).map(
        "".join
    ),
    st.integers(0, 40),
)
def test_no_mark_is_cut_in_two_and_its_quote_is_waited_for(text: str, length: int) -> None:
    known, begun = ThoughtFormat(), text[:length]
    certain = known.certain(begun)
    assert 0 <= certain <= len(begun)
    for mark in THINK:
        for place in range(len(text)):
            if text.startswith(mark, place):
                assert not place < certain < place + len(mark)
    # What is certain stays: everything that follows only adds to it, unless a thought ends that never began.
    said, _ = known.so_far(begun[:certain])
    after, _ = known.so_far(text)
    if "</think>" not in text:
        assert after.spoken.startswith(said.spoken)
        assert after.reasoning.startswith(said.reasoning)


@pytest.mark.parametrize(
    ("known", "text", "certain"),
    [
        (ThoughtFormat(), "a", 1), (ThoughtFormat(), "a<thi", 1), (ThoughtFormat(), "a`<think>", 2),
        (ThoughtFormat(), "a<think>b", 9), (ThoughtFormat(), "'</think>", 1), (ThoughtFormat(), "a</think>", 9),
        (ThoughtFormat(), "<|message|>", 11), (GPT, "", 0), (GPT, "<|channel|>analysis", 0),
        (GPT, "<|channel|>analysis<|message|>", 30), (GPT, "<|message|>a<|en", 12), (GPT, "<|message|>ab", 13),
    ],
)  # fmt: skip
def test_how_much_of_a_beginning_is_certain(known: ThoughtFormat, text: str, certain: int) -> None:
    assert known.certain(text) == certain


def test_a_message_without_thoughts_is_returned_as_it_is() -> None:
    plain = {"role": "assistant", "content": " 14 "}
    assert apart(plain) is plain
    assert apart({"role": "assistant", "content": "<think>a</think> b", "name": "x"}) == {
        "role": "assistant", "content": "b", REASONING: "a", "name": "x",
    }  # fmt: skip
    assert apart({"role": "assistant", "content": "<think>a"}) == {"role": "assistant", "content": "", REASONING: "a"}
    given_apart = {"role": "assistant", "content": "<think>a</think>b", REASONING: ""}
    assert apart(given_apart) is given_apart
    assert without_thoughts("<think>a</think>b") == "b"
    assert without_thoughts(" b ") == " b "
