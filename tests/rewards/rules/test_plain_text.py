"""Shorthand is written out and figures get one form before anything is compared."""

from __future__ import annotations

import pytest

from groupwise.rewards.rules.answering import agreement, answering
from groupwise.rewards.rules.plain_text import figures, plain


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("ur refund is on its way, cant say when", "your refund is on its way, can't say when"),
        ("lol idk", " i don't know"),
        ("It costs $1,080.50 for twenty-one people.", "It costs $1080p5 for 21 people."),
        ("a dozen eggs, two hundred grams", "12 eggs, 200 grams"),
        ("2.0 kg and 3kg", "2 kg and 3 kg"),
        ("version 1.2.3 at 10,5", "version 1.2.3 at 10,5"),
        ("Plan B needs 8 MB", "Plan B needs 8 MB"),
    ],
)
def test_shorthand_and_figures_are_read_in_one_form(written, read):
    assert plain(written) == read


def test_a_figure_is_the_same_in_words_and_with_separators():
    said, right = (plain(text) for text in ("You have thirty days and 1,200 points.", "30 days, 1200 points"))
    assert figures(said) == figures(right) == {"30", "1200"}


def test_figures_in_words_agree_with_a_reference_in_digits():
    question, reference = "How long is delivery to Norway?", "Five working days, twelve euros."
    right = answering(question, "It takes 5 working days and costs 12 euros.", [reference])
    wrong = answering(question, "It takes 9 working days and costs 40 euros.", [reference])
    assert right.total > 2 * wrong.total
    assert agreement(question, plain("5 days"), plain(reference)) > 0


def test_an_answer_in_shorthand_beats_empty_courtesy():
    question = "wheres my refund, its been 2 wks"
    answer = answering(question, "ur refund of 49.90 went out on the 3rd, banks take up to 10 days")
    courtesy = answering(question, "Hello! Refunds are handled with care by our refund team. Have a nice day.")
    assert answer.total > 2 * courtesy.total
