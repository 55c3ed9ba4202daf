"""Requirements near and far from those that were trained on."""

from __future__ import annotations

import pytest

from groupwise.designer.familiarity import (
    TRAINED_RANGES,
    RequirementStatistics,
    details,
    far_outside,
    notes,
    numbers_of,
    training_distance,
)
from groupwise.designer.problem import DesignProblem
from groupwise.designer.tasks import random_requirements


def test_worlds_are_within_what_is_said_of_training() -> None:
    found = [numbers_of(DesignProblem(random_requirements(number))) for number in range(150)]
    for span in TRAINED_RANGES:
        values = [one[span.name] for one in found]
        low, high = span.trained
        assert 0.9 * low <= min(values), span.name
        assert max(values) <= 1.1 * high, span.name
        assert not any(map(span.far, values)), span.name


@pytest.mark.parametrize(
    ("size", "load", "words"),
    [
        (150, 0.5, None),
        (260, 0.5, "activities: 260 (training: 5 to 40)"),
        (12, 0.001, "load (share of total capacity): 0.0006"),
    ],
)
def test_what_is_far_is_told(size: int, load: float, words: str | None) -> None:
    problem = DesignProblem(random_requirements(3, size, load))
    found = far_outside(problem)
    if words is None:
        assert not found
    else:
        assert words in notes(problem)[0]


def test_a_single_run_is_far_whatever_its_times_are() -> None:
    world = random_requirements(3, 12)
    once = world.model_copy(update={"demand": world.demand.model_copy(update={"arrivals_per_second": None})})
    assert far_outside(DesignProblem(once)) == ("a single run (training: cases that keep arriving)",)
    four = once.model_copy(update={"demand": once.demand.model_copy(update={"runs": 4})})
    assert far_outside(DesignProblem(four)) == ("4 runs that start at once (training: cases that keep arriving)",)


def test_requirements_like_those_of_training_are_familiar_whatever_their_size() -> None:
    strange = [
        size
        for size in (5, 12, 60, 150)
        for seed in range(15)
        if training_distance(DesignProblem(random_requirements(seed, size))).unfamiliar
    ]
    assert len(strange) <= 3, "one in a hundred, more or less"


def test_what_differs_as_a_whole_is_told_though_no_number_is_far() -> None:
    world = random_requirements(3, 30)
    alike = {name: one.model_copy(update={"failure": 0.02, "cpu": 4.0}) for name, one in world.activities.items()}
    problem = DesignProblem(world.model_copy(update={"activities": alike}))
    assert not far_outside(problem)
    assert "cpu (activities)" in training_distance(problem).features
    (note,) = notes(problem)
    assert note.startswith("These requirements differ from the policy's training data (mainly ")
    assert "CPU demand" in note
    assert note.endswith("so heuristic designs were tried as well.")
    assert "cpu (activities)" in details(problem)[0]


def test_familiar_is_what_99_in_100_are() -> None:
    problems = [DesignProblem(random_requirements(seed, 8)) for seed in range(300)]
    known = RequirementStatistics.of(problems[:200], problems[200:])
    assert known.limit > 0
    assert known.shares(known.mean) == pytest.approx(0)
