"""Text as people read it, and as a terminal can bear it."""

import pytest

from groupwise.reporting.text import capital, clock, duration, printable, short, traceback_lines


def test_clock_reads_like_a_clock() -> None:
    assert [clock(s) for s in (0, 59.9, 60, 3725)] == ["0:00", "0:59", "1:00", "1:02:05"]
    assert [clock(s) for s in (3599.9, 3600, 36_000)] == ["59:59", "1:00:00", "10:00:00"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.0 s"), (59.94, "59.9 s"), (60, "1 min 0 s"), (61.4, "1 min 1 s"), (3599, "59 min 59 s"),
     (3599.6, "1 h 0 min"), (3600, "1 h 0 min"), (7265, "2 h 1 min")],
)  # fmt: skip
def test_a_duration_is_told_in_the_units_people_use(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_control_characters_are_replaced_and_white_space_is_a_space() -> None:
    assert printable("a\x1b[2J\rb\nc\td\x00é😀") == "a�[2J�b c d�é😀"
    assert (printable(None), printable(3), printable("")) == ("", "3", "")
    assert traceback_lines({"traceback": "one\ntwo\x1b"}) == ["one", "two�"]
    assert traceback_lines({}) == traceback_lines({"traceback": None}) == []


@pytest.mark.parametrize(
    ("text", "shown"), [("", ""), ("abcd", "abcd"), ("abcde", "abcde"), ("abcdef", "abcd…"), ("a\nb", "a�b")]
)
def test_text_for_a_figure_is_cut_to_its_length(text: str, shown: str) -> None:
    assert short(text, 5) == shown


def test_a_sentence_begins_with_a_capital_and_keeps_the_others() -> None:
    assert [capital(words) for words in ("", "a", "mean KL", "KL")] == ["", "A", "Mean KL", "KL"]
