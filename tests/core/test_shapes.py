"""The checks that open every function: what passes, what is refused, and in which words."""

from __future__ import annotations

from math import nan

import pytest
import torch

from groupwise.core.shapes import (
    as_columns,
    at_least_float32,
    check_choice,
    check_positive,
    check_rank,
    check_shape,
)


def test_a_rank_may_be_one_of_several() -> None:
    for ranks in ((2,), (1, 2), (2, 3)):
        check_rank("x", torch.ones(2, 3), *ranks)
    with pytest.raises(ValueError, match=r"^x has shape \(2, 3\), but must have 1 or 3 dimension\(s\)$"):
        check_rank("x", torch.ones(2, 3), 1, 3)


def test_a_shape_may_be_one_of_several_and_what_is_not_given_fits() -> None:
    check_shape("x", None, (2,))
    for shapes in (((2, 3),), ((2,), (2, 3)), ((2, 3), (2,))):
        check_shape("x", torch.ones(2, 3), *shapes)
    for wrong in (torch.ones(3, 2), torch.ones(2), torch.ones(1, 3), torch.ones(2, 3, 1)):
        with pytest.raises(ValueError, match=r"^x has shape .*, but must have \(2, 3\) or \(4,\)$"):
            check_shape("x", wrong, (2, 3), (4,))


def test_a_choice_is_one_of_those_named() -> None:
    check_choice("x", "b", ("a", "b"))
    check_choice("x", "b", iter(("a", "b")))
    with pytest.raises(ValueError, match=r"^x is 'c'; it must be one of a, b$"):
        check_choice("x", "c", iter(("a", "b")))


@pytest.mark.parametrize("value", [0, 0.0, -1, -1e-9, nan])
def test_what_is_not_above_zero_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match=f"^x is {value}; it must be above 0$"):
        check_positive("x", value)


def test_a_number_above_zero_and_any_tensor_pass() -> None:
    for value in (1, 1e-300, torch.tensor(1.0), torch.tensor(-1.0), torch.zeros(2)):
        check_positive("x", value)


def test_one_value_per_row_becomes_a_column() -> None:
    assert as_columns(torch.arange(3)).tolist() == [[0], [1], [2]]
    assert as_columns(torch.ones(2, 3)).shape == (2, 3)


@pytest.mark.parametrize(
    ("given", "wide"),
    [
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
        (torch.int64, torch.float32),
    ],
)
def test_only_what_is_narrower_than_float32_is_widened(given: torch.dtype, wide: torch.dtype) -> None:
    assert at_least_float32(torch.ones(2, dtype=given)).dtype == wide
