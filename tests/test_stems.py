"""Forms of one English word have one stem, and different words keep theirs."""

from __future__ import annotations

import pytest

from groupwise.stems import stem


@pytest.mark.parametrize(
    "words",
    ["refund refunds refunded refunding", "delivery deliveries", "ship shipped shipping ships", "agree agreed agrees",
     "invite invited invitation"],
)  # fmt: skip
def test_forms_of_one_word_have_one_stem(words: str) -> None:
    assert len({stem(word) for word in words.split()}) == 1


def test_short_words_and_other_words_keep_apart() -> None:
    assert stem("bus") == "bus"
    assert stem("glass") == "glass"
    assert len({stem(word) for word in ["printer", "payment", "parcel", "bring", "red", "bed"]}) == 6
