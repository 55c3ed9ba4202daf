"""The curve in characters: whole, in its box, whatever a run gives."""

import math

import pytest

from groupwise.reporting.text import course, curve, resample


def test_curve_goes_from_corner_to_corner() -> None:
    lines = curve([0.0, 1.0], 20, 4).splitlines()
    assert lines[0].startswith("1 │")
    assert lines[3].startswith("0 │")
    assert lines[0].rstrip()[-1] == "⠉" or ord(lines[0].rstrip()[-1]) & 0x08, "the last dot is at the top right"
    assert ord(lines[3][3]) & 0x40, "the first dot is at the bottom left"
    assert lines[4].split() == ["1", "2"]


@pytest.mark.parametrize("width", [12, 40, 80])
@pytest.mark.parametrize("height", [2, 5, 10])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_curve_stays_in_its_box_without_gaps(width: int, height: int, ascii_only: bool) -> None:
    values = [math.sin(i / 9) * 1000 for i in range(500)]
    lines = curve(values, width, height, ascii_only=ascii_only).splitlines()
    assert len(lines) == height + 1
    assert max(map(len, lines)) <= width
    columns = [line.ljust(width) for line in lines[:-1]]
    start = lines[0].index("|" if ascii_only else "│") + 1
    assert all(any(line[x] != " " for line in columns) for x in range(start, max(map(len, lines))))
    assert ascii_only == "".join(lines).isascii()


def test_curve_joins_a_jump() -> None:
    lines = curve([0.0] * 20 + [1.0] * 20, 40, 8).splitlines()[:-1]
    assert all(line.partition("│")[2].strip() for line in lines)


@pytest.mark.parametrize("values", [[3.0], [3.0, 3.0], [0.0, 0.0], [None, math.nan, 2.0], [1e-9, 1e9]])
def test_curve_takes_whatever_a_run_gives(values: list[float | None]) -> None:
    assert len(curve(values, 40, 5).splitlines()) == 6


def test_curve_of_nothing_says_so() -> None:
    assert curve([], 40, 5) == curve([None, math.nan], 40, 5) == "(no values yet)"


def test_resample_keeps_the_mean_and_the_ends() -> None:
    assert resample([1, 2, 3, 4], 2) == [1.5, 3.5]
    assert resample([0, 10], 5) == [0, 2.5, 5, 7.5, 10]
    assert len(resample(list(range(1000)), 77)) == 77


def test_a_value_stands_at_its_step_and_gaps_are_bridged() -> None:
    assert course([1, 2, 5], [10.0, 20.0, 50.0]) == [10.0, 20.0, 30.0, 40.0, 50.0]
    assert course([7], [3.0]) == [3.0]
    assert course([], []) == []
