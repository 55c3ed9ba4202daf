"""Feature vectors are compared by their direction; what has none is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.errors import ContractError
from groupwise.memory.vectors import direction, similarities


def test_similarity_is_the_cosine_and_never_below_0() -> None:
    rows = np.stack([direction(row, 2) for row in ([3, 0], [1, 1], [0, 9], [-1, 0])]).astype(float)
    assert similarities(rows, direction([2, 0], 2)) == pytest.approx([1, math.sqrt(0.5), 0, 0])


@given(st.lists(st.floats(-1e308, 1e308), min_size=3, max_size=3).filter(any))
def test_every_direction_has_length_1_and_is_like_itself(vector: list[float]) -> None:
    made = direction(vector, 3)
    assert np.linalg.norm(made.astype(float)) == pytest.approx(1, abs=1e-6)
    (similarity,) = similarities(made[None].astype(float), made)
    assert 1 - 1e-6 <= similarity <= 1


def test_a_direction_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        direction([1, 2], 2)[0] = 5


@pytest.mark.parametrize(
    ("vector", "words"),
    [
        ([1, math.nan], "feature 1 is nan, but features must be finite"),
        ([-math.inf, 0], "feature 0 is -inf"),
        ([0, 0], "all 2 features are 0"),
        ([1, 2, 3], r"features have shape \(3,\), but this memory was opened for vectors of 2"),
        ([[1, 2]], r"features have shape \(1, 2\)"),
    ],
)
def test_what_has_no_direction_is_refused_in_a_sentence(vector: list[float], words: str) -> None:
    with pytest.raises(ContractError, match=words):
        direction(vector, 2)
