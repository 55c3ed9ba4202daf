"""Whether a dialogue met the user's need is weighed from words where no phrase of the rules tells."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.agents.strategies import CustomerService
from groupwise.agents.strategies.reading import resolved_by_rules
from groupwise.agents.strategies.resolution import heard, is_resolved
from groupwise.agents.strategies.valence import balance, valences

ROLES = {">": "user", "<": "assistant"}


def talk(*turns: str) -> list[Any]:
    return [{"role": ROLES[turn[0]], "content": turn[2:]} for turn in turns]


@pytest.mark.parametrize(
    ("turns", "resolved"),
    [
        (
            [
                "> The blinds get stuck.",
                "< He came back with a new motor. Do they go all the way down?",
                "> All the way down and all the way up, nice and quiet.",
            ],
            True,
        ),
        (["> Is there a vegan option left?", "< Please call our hotline.", "> Your hotline sent me here."], False),
        (
            ["> The editor dies when I export.", "< Update to 7.1 please.", "> 7.1 dies when I export to anything."],
            False,
        ),
    ],
)
def test_words_tell_where_the_phrases_of_the_rules_do_not(turns: list[str], resolved: bool) -> None:
    assert resolved_by_rules(talk(*turns)) is not resolved
    assert is_resolved(talk(*turns)) is resolved


def test_rules_decide_where_they_are_sure() -> None:
    promised = talk("> Where is my desk?", "< I'll ask the courier.", "> Lovely, thank you so much!")
    assert not is_resolved(promised)
    # Where the assistant has the last word, too.
    confirmed = talk("> Solve 3x = 15.", "< What is 15 / 3?", "> Hm, 5? No idea.", "< Exactly right!")
    assert is_resolved(confirmed)
    assert heard("The fan is loud.", "Does that solve it?", "Yes") == "settled"
    assert heard("The fan is loud.", "Does that solve it?", "No") == "open"


def test_a_running_talk_is_read_with_the_answer_before_and_its_state_stays_small() -> None:
    state = CustomerService()
    for message in talk("> My refund is missing.", "< " + "We are sorry. " * 400, "> Nobody ever answers me properly."):
        state = state.advance(message)
    assert state.status == "working"
    assert len(state.said) <= 600
    assert len(state.asked) <= 120


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["user", "assistant", "tool", "system"]), st.text(max_size=60)), max_size=5))
def test_whatever_is_said_is_read(turns: list[tuple[str, str]]) -> None:
    assert is_resolved([{"role": role, "content": content} for role, content in turns]) in (True, False)


def test_a_turn_without_text_is_read_too() -> None:
    assert not is_resolved([{"role": "user", "content": None}, {"role": "assistant", "content": None}])
    assert not is_resolved([])


def test_a_negation_turns_praise_round_and_blame_too() -> None:
    assert balance(valences("That is great.")) > 0.5
    assert balance(valences("That is not great.")) < 0
    assert balance(valences("No problem at all.")) > 0
    assert valences("The table is made of wood.") == []
