"""The compiled decoder: HEFT to the last bit at its own ranks, and a schedule that keeps every order at any others."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from groupwise.workflows.evaluation.schedule import Schedule, TaskGraph, heft, upward_ranks
from groupwise.workflows.scheduling.decoder import makespans, problem_of, schedule
from groupwise.workflows.scheduling.worlds import SHAPES, random_work

INF = float("inf")
ODD = TaskGraph(
    ("a", "b", "wait", "c", "d"),
    ((2.0, INF), (3.0, 1.0), (INF, INF), (0.0, 0.0), (INF, 4.0)),
    {(0, 2): 1.0, (1, 2): 0.0, (2, 3): 2.0, (2, 4): 2.0, (0, 3): 0.5},
    {2: 1.5},
)


def keeps_order(work: TaskGraph, found: Schedule) -> None:
    """Nothing before what it needs has arrived, and no machine does two things at once."""
    placed = {one.task: one for one in found.placed}
    assert sorted(placed) == sorted(work.names)
    for (a, b), hand in work.after.items():
        earlier, later = placed[work.names[a]], placed[work.names[b]]
        apart = hand if earlier.machine != later.machine and later.machine >= 0 else 0.0
        assert later.start >= earlier.end + apart - 1e-9
    for machine in {one.machine for one in found.placed} - {-1}:
        busy = sorted((one.start, one.end) for one in found.placed if one.machine == machine)
        assert all(end <= start + 1e-9 for (_, end), (start, _) in pairwise(busy))


@pytest.mark.parametrize("work", [*(random_work(seed) for seed in range(40)), ODD])
def test_the_upward_ranks_give_heft(work: TaskGraph) -> None:
    problem = problem_of(work)
    assert schedule(problem, problem.ranks) == heft(work)
    assert makespans(problem, problem.ranks[None])[0] == heft(work).makespan


@pytest.mark.parametrize("work", [*(random_work(seed) for seed in range(100, 110)), ODD])
def test_any_priorities_keep_every_order(work: TaskGraph) -> None:
    problem = problem_of(work)
    tried = np.random.default_rng(0).standard_normal((5, problem.size))
    found = [schedule(problem, row) for row in tried]
    for one in found:
        keeps_order(work, one)
    assert makespans(problem, tried).tolist() == [one.makespan for one in found]


def test_ties_are_broken_as_heft_breaks_them() -> None:
    same = TaskGraph(tuple("abcdef"), ((1.0, 1.0),) * 6, {(5, 0): 0.0, (4, 1): 0.0})
    problem = problem_of(same)
    assert len(set(upward_ranks(same))) == 2
    assert schedule(problem, problem.ranks) == heft(same)


def test_nothing_to_do_takes_no_time() -> None:
    assert makespans(problem_of(TaskGraph((), (), {})), np.zeros((3, 0))).tolist() == [0.0, 0.0, 0.0]


def test_random_work_has_every_shape_and_is_the_same_again() -> None:
    works = [random_work(seed) for seed in range(30)]
    assert works == [random_work(seed) for seed in range(30)]
    assert all(10 <= len(work.names) <= 130 for work in works)
    assert len({len(work.after) / len(work.names) for work in works}) > len(SHAPES)
