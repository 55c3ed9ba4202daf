"""Gaussian processes against numbers worked out by hand, and the mixture on worlds it can and cannot tell apart."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from groupwise.control.papers.gpmixture import Kernel, ProcessMixture, log_density, predict


def test_one_point_by_hand() -> None:
    """s² = 4, ν² = 1, ℓ² = ½, so k(0, 1) = 4/e: μ(0) = 4/5 · 5 = 4, σ²(0) = 5 − 16/5; μ(1) = 4/e."""
    mean, variance = predict(
        Kernel(math.sqrt(0.5), 2.0, 1.0), np.zeros((1, 1)), np.array([[5.0]]), np.array([[0.0], [1.0]])
    )
    assert mean[:, 0] == pytest.approx([4.0, 4 / math.e])
    assert variance == pytest.approx([1.8, 5 - (4 / math.e) ** 2 / 5])


def test_two_points_with_no_noise_to_speak_of_are_remembered() -> None:
    seen = np.array([[0.0, 0.0], [1.0, 2.0]])
    mean, variance = predict(Kernel(1.0, 1.0, 1e-4), seen, np.array([[1.0, 2.0], [3.0, 4.0]]), seen)
    assert mean == pytest.approx(np.array([[1.0, 2.0], [3.0, 4.0]]), abs=1e-6)
    assert variance == pytest.approx([0.0, 0.0], abs=1e-6)


def test_nothing_seen_is_the_prior() -> None:
    mean, variance = predict(Kernel(1.0, 3.0, 1.0), np.zeros((0, 2)), np.zeros((0, 1)), np.ones((2, 2)))
    assert mean.tolist() == [[0.0], [0.0]]
    assert variance.tolist() == [10.0, 10.0]


def test_density_by_hand() -> None:
    """Two numbers, each one standard deviation off: −½(2) − ln 2π."""
    assert log_density(np.array([1.0, -1.0]), np.zeros(2), 1.0) == pytest.approx(-1 - math.log(2 * math.pi))


def test_answers_must_fit_points() -> None:
    with pytest.raises(ValueError, match="2 answers for 1 points"):
        predict(Kernel(), np.zeros((1, 1)), np.zeros((2, 1)), np.zeros((1, 1)))


def names(worlds: Any, stickiness: float = 1e4) -> tuple[list[int], ProcessMixture]:
    """What a mixture calls each step of a walk through worlds, in which the answer is the world's own line."""
    rng = np.random.default_rng(0)
    mixture = ProcessMixture(Kernel(1.0, 2.0, 0.1), stickiness=stickiness)
    called = []
    for slope in worlds:
        point = rng.uniform(-2, 2, 1)
        called.append(mixture.see(point, slope * point + 0.05 * rng.normal(size=1)))
    return called, mixture


def test_a_world_that_returns_is_recognised() -> None:
    """Whatever the first step after a change is called (near 0 all lines meet), the rest of a visit has one name."""
    visits = np.repeat([2.0, -2.0, 2.0, -2.0], 25)
    called, mixture = names(visits)
    usual = [max(set(visit), key=visit.count) for visit in np.split(np.array(called), 4) for visit in [visit.tolist()]]
    assert usual[0] == usual[2] != usual[1] == usual[3]
    assert sum(name == usual[step // 25] for step, name in enumerate(called)) >= 94
    assert mixture.expect(np.array([1.0])) == pytest.approx([-2.0], abs=0.2)


def test_one_world_is_one_task() -> None:
    called, mixture = names([1.0] * 60)
    assert set(called) == {0}
    assert len(mixture) == 1


def test_a_process_remembers_its_capacity() -> None:
    mixture = ProcessMixture(Kernel(), capacity=5)
    for number in range(9):
        mixture.see(np.array([float(number)]), np.array([0.0]))
    assert mixture.seen[0].ravel().tolist() == [4.0, 5.0, 6.0, 7.0, 8.0]
    assert mixture.sizes == [9]
