"""Fading goes by the last use and by nothing else."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.memory import Experience, MemorySystem
from groupwise.memory.vectors import Decay


def test_a_weight_fades_by_the_factor_per_unit_without_use() -> None:
    weights, used = np.array([1.0, 0.5]), np.array([0, 10])
    assert Decay(0.999).decayed(weights, used, 10) == pytest.approx([0.999**10, 0.5])
    assert Decay(0.5, unit=5).decayed(weights, used, 10) == pytest.approx([0.25, 0.5])


def test_looking_often_does_not_compound_as_the_formula_of_the_founding_document_would(
    memory: MemorySystem, attempt: Callable[..., Experience]
) -> None:
    """`weight = weight · 0.999^(now − used)`, set at every look, would have multiplied 99 + 98 + … powers here."""
    with memory.generation(1):
        memory.learn(attempt(1, 0, 0, 0, split="and"))
    for now in range(2, 101):
        with memory.generation(now):
            (weight,) = memory.recall_patterns({"at": [1, 0, 0, 0]}, {}).weights
    assert weight == pytest.approx(0.999**99)
    assert weight > 0.9 > 0.999 ** sum(range(100))


@given(
    st.lists(st.tuples(st.floats(1e-3, 1.0), st.integers(0, 500)), min_size=1),
    st.integers(500, 2000),
    st.floats(0.9, 1.0),
    st.integers(1, 50),
)
def test_the_rank_orders_like_the_faded_weights(
    things: list[tuple[float, int]], now: int, factor: float, unit: int
) -> None:
    decay = Decay(factor, unit)
    weight, used = (np.array(column) for column in zip(*things, strict=True))
    faded = np.log(weight) + (now - used) / unit * np.log(factor)
    ranks = np.array([decay.rank(w, u) for w, u in things])
    assert faded[np.argmin(ranks)] == pytest.approx(faded.min())
