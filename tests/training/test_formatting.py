"""Numbers as a run's log has them and as people read them."""

import math

import numpy as np
import pytest

from groupwise.training.formatting import finite, number, percent, trend


def test_finite_takes_numbers_and_nothing_else() -> None:
    assert [finite(value) for value in (3, 2.5, np.float32(0.5))] == [3.0, 2.5, 0.5]
    assert [finite(v) for v in (None, True, "3", math.nan, -math.inf, 10**400, [1], {})] == [None] * 8


def test_numbers_are_as_short_as_people_like_them() -> None:
    values = (0.0, 0.00123, 0.0999, 0.5, 21.25, 999.4, 999.5, 123456.7, -0.02)
    assert [number(v) for v in values] == ["0", "0.0012", "0.1", "0.5", "21.2", "999", "1,000", "123,457", "-0.02"]
    values = (-12345.6, -999.5, -21.25, -0.1234, 0.1234, 0.09876, -0.09876, 1e-7)
    assert [number(v) for v in values] == [
        "-12,346", "-1,000", "-21.2", "-0.123", "0.123", "0.099", "-0.099", "1e-07",
    ]  # fmt: skip
    assert [percent(share) for share in (0, 0.256, 1)] == ["0%", "26%", "100%"]


def test_trend_is_the_least_squares_line_and_its_error() -> None:
    assert trend([1.0, 3.0, 5.0, 7.0]) == pytest.approx((2.0, 0.0))
    slope, error = trend([0.0, 1.0, 0.0, 1.0])
    # By hand: slope = (-1.5·-.5 - .5·.5 + .5·-.5 + 1.5·.5)/5 = 0.2; residual squares 0.8, /2/5 → 0.2828.
    assert (slope, error) == pytest.approx((0.2, math.sqrt(0.08)))
    assert trend([0.0, 1.0, 2.0]) == pytest.approx((1.0, 0.0))
    assert trend([0.0, 1.0]) == (0.0, math.inf)
