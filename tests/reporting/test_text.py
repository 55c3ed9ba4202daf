"""Durations as people read them."""

from groupwise.reporting.text import clock


def test_clock_reads_like_a_clock() -> None:
    assert [clock(s) for s in (0, 59.9, 60, 3725)] == ["0:00", "0:59", "1:00", "1:02:05"]
