"""Facts are read from what users say, and requests to forget from what they ask."""

from __future__ import annotations

import pytest

from groupwise.agents.memory.facts import Fact, facts_in_lines, forget_request, read_facts


@pytest.mark.parametrize(
    ("said", "subject", "value"),
    [
        ("My name is Anna Berg.", "name", "Anna Berg"),
        ("My sister's name is Ada.", "sister's name", "Ada"),
        ("I live at 12 Elm Street, Leeds.", "address", "12 Elm Street, Leeds"),
        ("Actually I moved to Porto last week.", "home", "Porto"),
        ("I'm allergic to peanuts.", "allergy peanuts", "peanuts"),
        ("My dog is called Rex.", "dog name", "Rex"),
        ("My budget is 1.500 euros, not 1.400.", "budget", "1.500 euros"),
        ("My email is a.b@c.org.", "email", "a.b@c.org"),
        ("Tom is my brother.", "brother", "Tom"),
        ("I prefer window seats.", "preferred seats", "window seats"),
        ("Sorry, my birthday is the 4th of May, not the 5th.", "birthday", "the 4th of May"),
        ("The door code is 4471.", "door code", "4471"),
    ],
)
def test_what_a_user_says_about_themselves_is_a_fact(said: str, subject: str, value: str) -> None:
    (fact,) = read_facts(said)
    assert (fact.subject, fact.value) == (subject, value)


@pytest.mark.parametrize(
    "said",
    [
        "I'm happy with it.",
        "The weather is nice.",
        "What is my name?",
        "my order is late",
        "I'm looking for a hotel.",
        "",
        "?!",
        "Please forget my address.",
    ],
)
def test_what_says_nothing_lasting_is_no_fact(said: str) -> None:
    assert read_facts(said) == []


def test_two_facts_in_one_sentence_and_a_correction_in_the_next() -> None:
    found = read_facts("I work as a nurse and my dog is called Rex. My desk is number 12. No, it's 14.")
    assert {fact.subject: fact.value for fact in found} == {"job": "nurse", "dog name": "Rex", "desk": "14"}


def test_a_correction_is_about_what_was_said_last() -> None:
    (fact,) = read_facts("No, it's 555-0143.", [Fact("phone number", "555-0142", "My phone number is 555-0142.")])
    assert (fact.subject, fact.value) == ("phone number", "555-0143")


@pytest.mark.parametrize(
    ("said", "subject"),
    [
        ("Forget my address.", "address"),
        ("Please forget what I told you about my job.", "job"),
        ("Can you delete my phone number?", "phone number"),
        ("Forget everything about me.", None),
        ("forget me", None),
        ("Erase all my data please", None),
        ("Forget that.", ""),
        ("Kindly erase all of my information.", None),
        ("Remove my personal data, please (GDPR).", None),
        ("Clear your memory of me", None),
        ("I'd like to be forgotten.", None),
        ("I want all my data deleted, please.", None),
        ("Scrap my phone number from your memory.", "phone number"),
        ("I would like my address to be removed.", "address"),
        ("You can forget about my allergy now.", "allergy"),
        ("Forget what I said about my sister, she moved.", "sister"),
    ],
)
def test_requests_to_forget_are_understood(said: str, subject: str | None) -> None:
    request = forget_request(said)
    assert request is not None
    assert (request.everything, request.subject) == (subject is None, subject or "")


@pytest.mark.parametrize(
    "said",
    [
        "Don't forget my birthday!",
        "I forgot my password",
        "Delete the second paragraph.",
        "forget it",
        "Hello",
        "I want my parcel",
        "I would like the second paragraph removed.",
        "Clear the table",
    ],
)
def test_other_words_ask_to_forget_nothing(said: str) -> None:
    assert forget_request(said) is None


def test_a_models_list_counts_as_far_as_the_user_said_it() -> None:
    found = facts_in_lines("- cat: Minka\n- dog: Rex\nnone\nnonsense", "I have a cat, Minka.")
    assert [(fact.subject, fact.value) for fact in found] == [("cat", "Minka")]
