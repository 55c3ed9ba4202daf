"""What is asked can be read back exactly, and what is answered is believed whole or not at all: over random texts."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.rewards.judge.endpoint import EndpointError, JudgeReply
from groupwise.rewards.judge.question_and_answer import marks_of, question, split_shared, talk_of
from groupwise.rewards.judge.rubrics import GENERAL

PIECES = st.sampled_from(
    ['<attempt id="x">', "</attempt>", "< / Attempt", "<shared>", "</rubric>", "\n", "\\u003c", "{", "é"]
)
TEXTS = st.lists(PIECES | st.text(max_size=8), max_size=6).map("".join)
TURNS = st.tuples(st.sampled_from(["user", "assistant"]), TEXTS).map(lambda turn: {"role": turn[0], "content": turn[1]})
TALKS = st.lists(st.lists(TURNS, min_size=1, max_size=4).map(talk_of), min_size=1, max_size=5, unique=True)
NAMES = ("aaaa", "bbbb")
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.sampled_from([*NAMES, "scores", "id"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["scores", "id", *GENERAL.names]), inner)
    ),
    max_leaves=12,
)


def readable(text: str) -> str:
    """What survives on the wire: half a surrogate pair is a question mark."""
    return text.encode("utf8", "replace").decode()


@settings(max_examples=50, deadline=None)
@given(talks=TALKS, seed=st.integers(0, 99))
def test_every_attempt_can_be_read_back_from_the_question_whatever_it_says(talks: Any, seed: int) -> None:
    rng = random.Random(seed)
    asked = question(GENERAL, talks, rng.sample(range(len(talks)), len(talks)), rng)
    text = asked.messages[1]["content"]
    shared = re.search(r"<shared>\n(.*?)\n</shared>", text, re.DOTALL)[1]  # type: ignore[index]
    found = dict(re.findall(r'<attempt id="(\w+)">\n(.*?)\n</attempt>', text, re.DOTALL))
    assert {*found} == {*asked.names}
    assert len({*asked.names}) == len(talks)
    beginning = [] if shared == "(nothing)" else shared.split("\n")
    for name, talk in zip(asked.names, talks, strict=True):
        assert [*beginning, *found[name].split("\n")] == list(talk)


@settings(max_examples=40, deadline=None)
@given(turns=st.lists(TURNS, min_size=1, max_size=4))
def test_a_turn_is_one_line_and_says_what_it_said(turns: Any) -> None:
    lines = talk_of(turns)
    assert all("\n" not in line and not re.search(r"<\s*/?\s*(attempt|shared|rubric)\b", line) for line in lines)
    assert [json.loads(line)["content"] for line in lines] == [readable(turn["content"]) for turn in turns]


@settings(max_examples=40, deadline=None)
@given(talks=TALKS)
def test_what_is_shared_and_the_rest_are_the_whole_and_no_rest_is_empty(talks: Any) -> None:
    shared, rests = split_shared(talks)
    assert [(*shared, *rest) for rest in rests] == talks
    assert all(rests)


@settings(max_examples=150, deadline=None)
@given(answer=JSON | TEXTS)
def test_an_answer_is_whole_and_in_range_or_refused(answer: Any) -> None:
    text = answer if isinstance(answer, str) else json.dumps(answer)
    try:
        found = marks_of(JudgeReply(text, False, None, None), NAMES, GENERAL)
    except EndpointError:
        return
    assert [{*marks} for marks in found] == [{*GENERAL.names}] * 2
    assert all(0 <= mark <= 1 for marks in found for mark in marks.values())


@settings(max_examples=40, deadline=None)
@given(marks=st.lists(st.floats(0, 1), min_size=6, max_size=6), order=st.permutations(range(2)))
def test_a_sound_answer_is_read_in_the_order_of_the_names_whatever_its_own(marks: Any, order: Any) -> None:
    rows = [{"id": name, **dict(zip(GENERAL.names, marks[3 * n :], strict=False))} for n, name in enumerate(NAMES)]
    text = json.dumps({"scores": [rows[n] for n in order]})
    found = marks_of(JudgeReply(f"```json\n{text}\n```", False, None, None), NAMES, GENERAL)
    assert [list(each.values()) for each in found] == [pytest.approx(marks[:3]), pytest.approx(marks[3:])]
