"""Labels that do not overlap and lines that stay light."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.reporting.canvas import POINTS, spread_apart, thin


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_labels_are_moved_apart_and_stay_on_the_figure(heights: list[float]) -> None:
    moved = spread_apart(sorted(heights), 0.1)
    assert all(b - a >= 0.1 - 1e-9 for a, b in pairwise(moved))
    assert min(moved) >= -1e-9
    assert max(moved) <= 1 + 1e-9


def test_labels_with_room_stay_where_their_lines_end() -> None:
    assert spread_apart([0.1, 0.5, 0.9], 0.1) == [0.1, 0.5, 0.9]
    assert spread_apart([0.5, 0.5], 0.1) == pytest.approx([0.45, 0.55])


def test_thinning_keeps_short_series_and_the_mean_of_long_ones() -> None:
    assert thin(([1, 2], [3.0, 4.0])) == ([1, 2], [3.0, 4.0])
    steps, values = thin((list(range(6000)), [float(i % 10) for i in range(6000)]))
    assert len(steps) == len(values) == POINTS
    assert set(values) == {4.5}
