"""What the benchmark of programs rests on: evaluations that count, statistics, problems of the test split."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from groupwise.programs.learning.product import check
from groupwise.programs.problems import generate

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))

import code_workflows as benchmark

PROBLEM = generate("word_problems", 3, "train", 1)
NEVER = np.inf


def program(operator: str) -> str:
    return f"def solve(x, y):\n    a = {operator}(x, y)\n    return a"


def test_equal_programs_cost_one_evaluation() -> None:
    right = PROBLEM.gold
    wrong = next(text for text in map(program, ("rest", "mul", "sub")) if text != right)
    other_names = wrong.replace("a = ", "quantity = ").replace("return a", "return quantity")
    assert benchmark.first_solved(PROBLEM, iter([wrong, wrong, other_names, right]), 2) == 2
    assert benchmark.first_solved(PROBLEM, iter([wrong, program("nonsense"), right]), 2) is None


def test_how_many_evaluations_a_share_takes() -> None:
    ours = np.array([[1.0, 1.0, 4.0, NEVER]])
    theirs = np.array([[8.0, 64.0, NEVER, NEVER]])
    assert benchmark.needed(ours, 0.5) == 1
    assert benchmark.saved(ours, theirs) == 64, "both reach one half: with 1 evaluation, and with 64"
    assert benchmark.points(ours, theirs) == pytest.approx(50)


def test_an_interval_holds_the_value_and_keeps_pairs_together() -> None:
    rng = np.random.default_rng(1)
    theirs = rng.choice([4.0, NEVER], (3, 40))
    low, high = benchmark.bootstrapped(benchmark.points, theirs, theirs, repetitions=100)
    assert (low, high) == (0, 0), "against itself there is no difference in any draw"
    ours = np.minimum(theirs, rng.choice([2.0, NEVER], (3, 40)))
    low, high = benchmark.bootstrapped(benchmark.points, ours, theirs, repetitions=300)
    assert 0 < low < benchmark.points(ours, theirs) < high


def test_every_arm_is_a_run_that_can_be_made() -> None:
    from groupwise.config import load_config

    for changes in benchmark.ARM_SETTINGS.values():
        check(load_config(benchmark.SETTINGS, ["task.options.start=somewhere", *changes]))


def test_seeds_are_judged_on_problems_of_their_own() -> None:
    pytest.importorskip("reasoning_gym")
    first, second = ({problem.id for problem in benchmark.problems_of(seed, 1)} for seed in (0, 1))
    assert len(first) == 12
    assert not first & second
    assert all("/test/" in name for name in first)
