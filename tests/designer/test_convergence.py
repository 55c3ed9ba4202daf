"""Convergence: four values beside their targets, and phases of runs whose phases are known."""

from __future__ import annotations

import numpy as np
import pytest

from groupwise.designer.generations import Diversity
from groupwise.designer.results.outcome import Generation, convergence_table, generations_to, phase_of, phases


def generation(number: int, mean: float = 0.5, entropy: float = 3.0, loss: float | None = 0.02) -> Generation:
    return Generation(number, 32, 0.7, mean, {"sample": 8, "edit": 24}, Diversity({}, {}), 1.0, entropy, loss)


def test_the_table_has_every_value_beside_its_target() -> None:
    readings = convergence_table([generation(n, mean=0.5 + 0.1 * (n % 2)) for n in range(20)], hit_rate=0.5)
    assert [reading.target.name for reading in readings] == [
        "policy loss", "performance variance", "exploration entropy", "memory hit rate",
    ]  # fmt: skip
    assert [reading.value for reading in readings] == pytest.approx([0.02, 0.0025, 3.0, 0.5])
    assert all(reading.met for reading in readings)


def test_values_on_the_wrong_side_are_not_met_and_what_was_not_measured_is_neither() -> None:
    bad = [generation(n, mean=float(n % 2), entropy=0.5, loss=-0.4) for n in range(10)]
    assert [reading.met for reading in convergence_table(bad, hit_rate=0.1)] == [False] * 4
    alone = convergence_table([generation(0, loss=None)])
    assert [reading.value for reading in alone] == [None, None, 3.0, None]
    assert [reading.met for reading in alone] == [None, None, True, None]


def test_a_run_that_rises_quickly_then_slowly_then_not_at_all_has_three_phases() -> None:
    bests = [*np.linspace(0.2, 0.6, 10), *np.linspace(0.6, 0.8, 50), *[0.8] * 40]
    found = phases(bests)
    assert [phase.name for phase in found] == ["initial", "training", "plateau"]
    assert found[0].last in range(8, 12)
    assert found[2].first in range(55, 60)
    assert found[2].last == 99
    assert sum(phase.gain for phase in found) == pytest.approx(0.6)


def test_a_run_that_still_rises_has_no_plateau_and_one_that_just_began_is_initial() -> None:
    assert phase_of(np.linspace(0, 1, 50).tolist()) == "training"
    assert phase_of([0.1]) == phase_of([]) == "initial"
    assert phase_of([0.5] * 30) == "plateau"
    assert [phase.name for phase in phases([0.5] * 5)] == ["initial"]


def test_generations_to_a_tolerance() -> None:
    assert generations_to([0.1, 0.5, 0.8, 0.9, 0.9], 0.1) == 3
    assert generations_to([0.1, 0.5, 0.8, 0.9, 0.9], 0.0) == 4
