"""Requirements near and far from those that were trained on."""

from __future__ import annotations

import pytest

from groupwise.workflows.designer.problem import Problem
from groupwise.workflows.designer.range import SPANS, far_outside, note, numbers_of
from groupwise.workflows.designer.worlds import random_requirements


def test_worlds_are_within_what_is_said_of_training() -> None:
    found = [numbers_of(Problem(random_requirements(number))) for number in range(150)]
    for span in SPANS:
        values = [one[span.name] for one in found]
        low, high = span.trained
        assert 0.9 * low <= min(values), span.name
        assert max(values) <= 1.1 * high, span.name
        assert not any(map(span.far, values)), span.name


@pytest.mark.parametrize(
    ("size", "load", "words"),
    [(150, 0.5, None), (260, 0.5, "activities: 260 (trained: 5 to 40)"), (12, 0.001, "share of all capacity")],
)
def test_what_is_far_is_told(size: int, load: float, words: str | None) -> None:
    found = far_outside(Problem(random_requirements(3, size, load)))
    if words is None:
        assert not found
    else:
        assert words in note(found)


def test_a_single_run_is_far_whatever_its_times_are() -> None:
    world = random_requirements(3, 12)
    once = world.model_copy(update={"demand": world.demand.model_copy(update={"arrivals_per_second": None})})
    assert far_outside(Problem(once)) == ("a single run (trained: cases that keep arriving)",)
