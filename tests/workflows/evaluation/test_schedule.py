"""Schedules of one run: HEFT against its paper, list scheduling against the simulation."""

from __future__ import annotations

import random

import pytest

from groupwise.errors import ConfigError
from groupwise.workflows.blocks import Activity, Choice, Design, DesignError, Parallel, Sequence, activities
from groupwise.workflows.evaluation import evaluate
from groupwise.workflows.evaluation.schedule import (
    Schedule,
    TaskGraph,
    heft,
    list_schedule,
    task_graph_of,
    upward_ranks,
)
from groupwise.workflows.requirements import parse_requirements
from tests.workflows.designs import random_block

# Topcuoglu, Hariri and Wu 2002, figures 2 and 3: what the ten tasks take on three processors, and what is handed on.
TIMES = (
    (14, 16, 9),
    (13, 19, 18),
    (11, 13, 19),
    (13, 8, 17),
    (12, 13, 10),
    (13, 16, 9),
    (7, 15, 11),
    (5, 11, 14),
    (18, 12, 20),
    (21, 7, 16),
)
HANDED = {
    (1, 2): 18,
    (1, 3): 12,
    (1, 4): 9,
    (1, 5): 11,
    (1, 6): 14,
    (2, 8): 19,
    (2, 9): 16,
    (3, 7): 23,
    (4, 8): 27,
    (4, 9): 23,
    (5, 9): 13,
    (6, 8): 15,
    (7, 10): 17,
    (8, 10): 11,
    (9, 10): 13,
}
PAPER = TaskGraph(
    tuple(f"n{number}" for number in range(1, 11)),
    tuple(tuple(float(time) for time in row) for row in TIMES),
    {(a - 1, b - 1): float(hand) for (a, b), hand in HANDED.items()},
)


def test_heft_is_the_published_example() -> None:
    assert upward_ranks(PAPER) == pytest.approx([108, 77, 80, 80, 69, 63.333, 42.667, 35.667, 44.333, 14.667], abs=1e-3)
    found = heft(PAPER)
    assert found.makespan == 80
    assert {one.task: one.machine + 1 for one in found.placed} == {
        "n1": 3, "n2": 1, "n3": 3, "n4": 2, "n5": 3, "n6": 2, "n7": 3, "n8": 1, "n9": 2, "n10": 2,
    }  # fmt: skip


def obeys(work: TaskGraph, found: Schedule) -> bool:
    placed = {one.task: one for one in found.placed}
    for (a, b), hand in work.after.items():
        early, late = placed[work.names[a]], placed[work.names[b]]
        if late.start < early.end + (hand if early.machine != late.machine else 0) - 1e-9:
            return False
    for one in found.placed:
        for other in found.placed:
            same = one.machine == other.machine >= 0 and one.task < other.task
            if same and one.start < other.end - 1e-9 and other.start < one.end - 1e-9:
                return False
    return len(placed) == len(work.names)


@pytest.mark.parametrize("seed", range(20))
def test_schedules_keep_the_order_and_one_task_at_a_time(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randint(2, 20)
    after = {(a, b): rng.uniform(0, 20) for a in range(count) for b in range(a + 1, count) if rng.random() < 0.2}
    rows = tuple(tuple(rng.uniform(1, 30) for _ in range(3)) for _ in range(count))
    work = TaskGraph(tuple(f"t{n}" for n in range(count)), rows, after)
    assert obeys(work, heft(work))
    assert obeys(work, list_schedule(work))


@pytest.mark.parametrize("seed", range(30))
def test_a_schedule_is_the_simulation_of_fixed_durations(seed: int) -> None:
    rng = random.Random(seed)
    block = random_block(rng, rng.randint(2, 15), ("sequence", "parallel", "order"))
    pools = ["p", "q"]
    requirements = parse_requirements({
        "name": "run",
        "activities": {
            a.name: {"duration": {"kind": "fixed", "mean": rng.uniform(1, 9)},
                     "pools": rng.sample(pools, rng.randint(0, 1)), "cpu": rng.uniform(0, 2), "cost": 1.0}
            for a in activities(block)
        },
        "pools": {pool: {"most": 3, "wage": 0.5} for pool in pools},
    })  # fmt: skip
    design = Design("run", block, (("p", rng.randint(1, 3)), ("q", rng.randint(1, 3))))
    planned, simulated = (evaluate(design, requirements, tier) for tier in ("auto", "simulation"))
    assert planned.tier == "schedule"
    for field in ("cycle_time", "waiting", "cost", "cpu", "cpu_peak", "throughput"):
        assert getattr(planned, field) == pytest.approx(getattr(simulated, field), rel=1e-6, abs=1e-6), field
    assert planned.utilisation == pytest.approx(simulated.utilisation)


def test_heft_may_choose_among_pools() -> None:
    requirements = parse_requirements({
        "name": "two",
        "activities": {name: {"duration": {"kind": "fixed", "mean": 10}, "pools": ["slow", "fast"]} for name in "ab"},
        "pools": {"slow": {}, "fast": {"speed": 4.0}},
    })  # fmt: skip
    design = Design("two", Parallel((Activity("a"), Activity("b"))))
    given, machines = task_graph_of(design, requirements)
    assert list_schedule(given).makespan == 20
    assert heft(task_graph_of(design, requirements, any_pool=True)[0]).makespan == 5
    assert machines == ("slow", "fast")


def test_what_cannot_be_scheduled_says_so() -> None:
    with pytest.raises(ConfigError, match="in a cycle: a → b → a"):
        TaskGraph(("a", "b"), ((1.0,), (1.0,)), {(0, 1): 0.0, (1, 0): 0.0})
    with pytest.raises(ConfigError, match="no machine can do 'a'"):
        TaskGraph(("a",), ((float("inf"),),), {})
    requirements = parse_requirements({"name": "r", "activities": {n: {"duration": {"mean": 1}} for n in "ab"}})
    design = Design("d", Choice((Activity("a"), Activity("b")), (0.5, 0.5)))
    with pytest.raises(DesignError, match="a choice cannot be scheduled ahead"):
        evaluate(design, requirements, "schedule")
    assert evaluate(design, requirements).tier == "simulation"


def test_one_after_the_other_on_the_same_machine_hands_nothing_on() -> None:
    work = TaskGraph(("a", "b"), ((5.0, 50.0), (5.0, 4.0)), {(0, 1): 3.0})
    assert heft(work).makespan == 10


def test_a_gap_that_fits_exactly_is_used() -> None:
    """c waits for b until 3, so the first machine is idle from 1 to 3: just enough for d."""
    never = float("inf")
    times = ((1.0, never), (never, 3.0), (5.0, never), (2.0, never))
    assert heft(TaskGraph(("a", "b", "c", "d"), times, {(0, 2): 0.0, (1, 2): 0.0})).makespan == 8


def test_a_sequence_takes_the_sum() -> None:
    requirements = parse_requirements({"name": "r", "activities": {n: {"duration": {"mean": 4}} for n in "ab"}})
    assert evaluate(Design("d", Sequence((Activity("a"), Activity("b")))), requirements).cycle_time == 8


def test_of_equals_the_first_task_gets_the_first_machine() -> None:
    same = TaskGraph(("a", "b", "c"), ((4.0, 4.0),) * 3, {})
    for planned in (heft(same), list_schedule(same)):
        assert [(one.task, one.machine, one.start) for one in planned.placed] == [
            ("a", 0, 0.0), ("b", 1, 0.0), ("c", 0, 4.0),
        ]  # fmt: skip
    # A task of no duration has the rank of its follower, and comes before it all the same.
    nothing = TaskGraph(("later", "earlier"), ((4.0,), (0.0,)), {(1, 0): 0.0})
    assert [one.task for one in heft(nothing).placed] == ["earlier", "later"]


def test_tasks_without_a_machine_wait_for_nobody_but_those_before_them() -> None:
    work = TaskGraph(("a", "wait", "also", "b"), ((5.0,), (), (), (5.0,)), {(0, 1): 9.0, (1, 3): 9.0}, {1: 7.0, 2: 7.0})
    for planned in (heft(work), list_schedule(work)):
        assert {one.task: (one.machine, one.start, one.end) for one in planned.placed} == {
            "a": (0, 0.0, 5.0), "wait": (-1, 5.0, 12.0), "also": (-1, 0.0, 7.0), "b": (0, 21.0, 26.0),
        }  # fmt: skip
    assert upward_ranks(work) == [5 + 9 + 7 + 9 + 5, 7 + 9 + 5, 7, 5]


def test_equal_ends_go_to_the_first_machine_and_equal_ranks_in_the_order_of_the_graph() -> None:
    alike = TaskGraph(("b", "a", "c"), ((2.0, 2.0),) * 3, {})
    for make in (heft, list_schedule):
        placed = [(one.task, one.machine, one.start) for one in make(alike).placed]
        assert placed == [("a", 1, 0.0), ("b", 0, 0.0), ("c", 0, 2.0)], "listed by start, end and name"
    # A task of no duration has the rank of what follows it, and comes first all the same.
    instant = TaskGraph(("late", "early"), ((3.0,), (0.0,)), {(1, 0): 0.0})
    assert upward_ranks(instant) == [3.0, 3.0]
    assert [(one.task, one.start, one.end) for one in heft(instant).placed] == [
        ("early", 0.0, 0.0), ("late", 0.0, 3.0),
    ]  # fmt: skip


def test_work_that_needs_no_machine_waits_for_what_comes_before_and_holds_up_what_follows() -> None:
    never = float("inf")
    times = ((4.0,), (never,), (never,), (1.0,))
    work = TaskGraph(("a", "wait", "walk", "b"), times, {(0, 1): 9.0, (0, 2): 9.0, (1, 3): 2.0}, {1: 5.0, 2: 1.0})
    for make in (heft, list_schedule):
        placed = {one.task: (one.machine, one.start, one.end) for one in make(work).placed}
        # Nothing is handed over to nobody, but what comes from there is.
        assert placed == {"a": (0, 0.0, 4.0), "wait": (-1, 4.0, 9.0), "walk": (-1, 4.0, 5.0), "b": (0, 11.0, 12.0)}
