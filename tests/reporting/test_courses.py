from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from groupwise.errors import ConfigError, ContractError
from groupwise.reporting.comparison import Course, read_courses

COURSE = Course("a", "CartPole-v1", "CartPole-v1", 3, (0, 50, 95, 100), (10.0, 20.0, 30.0, 40.0), 1.5, 1.25)


def test_a_course_survives_json() -> None:
    assert Course.from_dict(json.loads(json.dumps(COURSE.to_dict()))) == COURSE


def test_final_is_the_mean_of_the_last_tenth() -> None:
    assert COURSE.final == 35.0
    assert replace(COURSE, steps=(0,), scores=(7.0,)).final == 7.0


def test_scores_lie_on_lines_between_evaluations_and_are_held_after_the_last() -> None:
    np.testing.assert_allclose(COURSE.at([0, 25, 97.5, 1000]), [10, 15, 35, 40])


def test_a_threshold_is_reached_at_an_evaluation_or_never() -> None:
    assert COURSE.first_reach(20.0) == 50
    assert COURSE.first_reach(40.1) is None


def test_evaluations_that_are_not_numbers_are_left_out() -> None:
    course = Course.from_dict({**COURSE.to_dict(), "scores": [10.0, None, float("nan"), 40.0]})
    assert course.steps == (0, 100)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"steps": (0, 50)}, "2 steps and 4 scores"),
        ({"steps": (), "scores": ()}, "0 steps"),
        ({"steps": (0, 50, 50, 100)}, "do not increase"),
        ({"scores": (1.0, 2.0, float("inf"), 3.0)}, "not finite"),
    ],
)
def test_a_broken_course_is_refused_by_name(change: dict[str, tuple[float, ...]], words: str) -> None:
    with pytest.raises(ContractError, match=f"seed 3.*{words}"):
        replace(COURSE, **change)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("steps", "late"), [((0, 89, 90, 100), 2), ((0, 91, 99, 100), 3), ((0, 10, 20, 100), 1), ((97, 98, 99, 100), 4)]
)
def test_the_last_tenth_begins_at_nine_tenths_of_the_last_step(steps: tuple[int, ...], late: int) -> None:
    course = replace(COURSE, steps=steps)
    assert course.budget == 100
    assert course.final == pytest.approx(np.mean(COURSE.scores[-late:]))


def test_scores_before_the_first_evaluation_are_those_of_the_first() -> None:
    np.testing.assert_allclose(replace(COURSE, steps=(10, 50, 95, 100)).at([0, 10, 30]), [10, 10, 15])


def test_a_threshold_is_reached_the_first_time_even_if_it_is_lost_again() -> None:
    course = replace(COURSE, scores=(0.0, 9.0, 3.0, 9.0))
    assert [course.first_reach(threshold) for threshold in (-1.0, 0.0, 3.0, 9.0, 9.1)] == [0, 0, 50, 50, None]


def test_courses_are_read_from_their_file_and_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "courses.json"
    other = replace(COURSE, algorithm="b", environment="suite", seed=4)
    path.write_text(json.dumps([COURSE.to_dict(), other.to_dict()]))
    assert read_courses(path) == [COURSE, other]
    for content in ("{", "[1]", "3", '[{"steps": []}]', json.dumps([{**COURSE.to_dict(), "scores": [1.0]}])):
        path.write_text(content)
        with pytest.raises(ConfigError, match=r"courses\.json"):
            read_courses(path)
