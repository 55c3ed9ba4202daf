"""Signs that a reply does not answer: it evades, talks down, echoes the question or has the wrong shape."""

from __future__ import annotations

import pytest

from groupwise.rewards.rules.answering import answering
from groupwise.rewards.rules.evasions import economy, evasiveness, respect, shape


@pytest.mark.parametrize(
    "reply",
    ["That depends on your provider.", "There are many reasons for it.", "Hard to say.", "I'm not sure about that.",
     "You may want to consult the manual.", "Historians hold a variety of views; form your own opinion.",
     "I'd love to talk about it on a call."],
)  # fmt: skip
def test_putting_an_answer_off_costs(reply):
    assert evasiveness(reply) < 1.0


@pytest.mark.parametrize(
    "reply",
    ["Stop asking.", "Learn to read first.", "That is not my problem.", "Everybody else got it.", "Google it."],
)
def test_talking_down_costs(reply):
    assert respect(reply) < 1.0


@pytest.mark.parametrize(
    "reply",
    ["Open Settings, choose Sound and press Stereo.", "It is held at the Leeds depot.",
     "I don't see a second charge, so nothing was taken twice.", "The lid stops the milk from boiling over.",
     "Everybody can join on Friday at noon.", "Read the meter before you call, and note the last three digits."],
)  # fmt: skip
def test_plain_answers_cost_nothing(reply):
    assert evasiveness(reply) == respect(reply) == 1.0


def test_saying_the_questions_words_again_and_again_costs():
    question = "How does photosynthesis work in plants?"
    assert economy(question, "Chlorophyll absorbs light and splits water; the energy builds sugar.") == 1.0
    assert economy(question, "Photosynthesis works in plants as plants work with photosynthesis in plants.") < 0.5
    assert economy(question, "") < 0.5


@pytest.mark.parametrize(
    ("question", "fits", "does_not"),
    [("How much is the ticket?", "It is 12 euros.", "It is a fine ticket."),
     ("When do you open?", "Tomorrow at noon.", "The shop is lovely."),
     ("Why is it cold?", "Because the pump stopped.", "Cold air is cold."),
     ("How do I reset it?", "Hold the button.", "A reset is a fine thing."),
     ("Is it open?", "Yes, all day.", "Opening is nice.")],
)  # fmt: skip
def test_a_question_asks_for_a_shape(question, fits, does_not):
    assert shape(question, fits) == 1.0 > shape(question, does_not)
    assert shape("Write a haiku.", does_not) == 1.0


def test_one_reply_for_all_questions_earns_less_than_a_short_answer_to_each():
    heap = (
        "Yes, at 9 Park Street, open from 10 to 6. The parcel is in Leeds. Your seat is 14A. The pump needs oil. "
        "Press Reset for ten seconds. The refund of 25 euros went out on Monday. It comes in blue and in green."
    )
    for question, answer in (
        ("Do you have a shop in Bristol?", "Yes, at 9 Park Street in Bristol, open from 10 to 6."),
        ("Where is my parcel?", "Your parcel is held at the Leeds depot until Friday."),
        ("Which colours does the kettle come in?", "The kettle comes in blue and green."),
    ):
        assert answering(question, answer).total > 1.1 * answering(question, heap).total
