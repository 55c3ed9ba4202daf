"""Whether a reply says the opposite of a reference, or of itself."""

from __future__ import annotations

import pytest

from groupwise.rewards.rules.contradictions import contradicts, contradicts_itself, restated, stance


def test_opposites_contradict_and_double_negations_do_not():
    reference = "You can return the shoes before the deadline."
    assert contradicts("You cannot return the shoes before the deadline.", reference)
    assert contradicts("You can return the shoes after the deadline.", reference)
    assert not contradicts("It is not impossible to return the shoes before the deadline.", reference)
    assert not contradicts("Bananas are never yellow.", reference)


@pytest.mark.parametrize(
    ("question", "reference", "right", "wrong"),
    [
        ("Is there a setup fee?", "No setup fee; first month free.", "No, there is none.", "Yes, there is one."),
        ("Are spiders insects?", "No, they are arachnids.", "They aren't: count the legs.", "They are, count them."),
        ("Can my friend collect it?", "Friends may collect it.", "She can, with the code.", "She can't, sorry."),
        ("Do I need the box?", "The box is not needed.", "No box needed.", "The box is needed, keep it."),
        ("Did he win for relativity?", "For optics, not for relativity.", "For optics, never for relativity.",
         "For relativity, not for optics."),
        ("Is 2 over 3 rational?", "It is rational: two whole numbers.", "Rational, yes.", "It is irrational."),
        ("What is the capital?", "Canberra, not Sydney.", "Canberra rather than Sydney.",
         "Sydney rather than Canberra."),
    ],
)  # fmt: skip
def test_the_opposite_is_found_and_the_same_in_other_words_is_not(question, reference, right, wrong):
    assert not contradicts(right, reference, question)
    assert contradicts(wrong, reference, question)


@pytest.mark.parametrize(
    ("text", "found"),
    [("Yes, gladly.", True), ("No box needed.", False), ("That's a myth.", False), ("No problem, it fits.", None),
     ("You don't have to.", False), ("It does; look here.", True), ("The lamp is blue.", None), ("", None)],
)  # fmt: skip
def test_yes_and_no_are_read_from_the_opening(text, found):
    assert stance(text) is found


def test_a_statement_that_says_the_question_again_takes_a_side():
    question = "Are returns to the shop free?"
    assert restated("Returns to the shop are free.", question) is True
    assert restated("Returns to the shop are not free.", question) is False
    assert restated("The weather is fine.", question) is None


def test_a_reply_that_takes_back_what_it_said_contradicts_itself():
    assert contradicts_itself("The parcel can be returned. The parcel cannot be returned.")
    assert not contradicts_itself("The parcel can be returned. It is not in Leeds any more.")
