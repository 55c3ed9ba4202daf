"""Parts over time: what is told of them, and an alarm that speaks when one is gamed and is silent when none is."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.rewards.function import attempt_of
from groupwise.rewards.statistics import ALARM_WINDOW, MOST_PARTS, PartStatistics, RunningMoments, find_gamed, trends
from groupwise.types import Failed, Failure, Group, Score, ScoredGroup, Task

BLANK = attempt_of([])
LOST = Failed(Failure("reward", "raised", "lost"))


def group(*scores):
    return ScoredGroup(Group("g", Task("t"), (BLANK,) * len(scores)), scores)


def rows(table, weights):
    names = [f"p{n}" for n in range(table.shape[1])]
    return group(*(Score(float(row @ weights), dict(zip(names, map(float, row), strict=True))) for row in table))


def course(rng, steps, drift, groups=2, size=6, weights=(0.4, 0.2, 0.2, 0.2)):
    """Steps of groups of four parts: each attempt and group has noise of its own, and `drift(step)` moves them all."""
    weights = np.array(weights)
    mixing = np.eye(4)
    mixing[1, 0] = -0.8  # whoever has more of p0 has less of p1
    for step in range(steps):
        level = 0.5 + drift(step)
        yield [
            rows(level + 0.05 * rng.normal(size=4) + 0.1 * rng.normal(size=(size, 4)) @ mixing.T, weights)
            for _ in range(groups)
        ]


def alarms(steps):
    statistics, found = PartStatistics(), []
    for step, groups in enumerate(steps):
        statistics.see(groups)
        found += [(step, hint) for hint in statistics.hints()]
    return found


@given(st.lists(st.lists(st.floats(-100, 100), max_size=8), max_size=6))
@settings(max_examples=60)
def test_running_values_equal_those_of_all_at_once(parts):
    running, whole = RunningMoments(), np.array([value for part in parts for value in part])
    for part in parts:
        running.see(np.array(part))
    assert running.count == len(whole)
    if len(whole):
        assert (running.mean, running.std) == pytest.approx((whole.mean(), whole.std()), abs=1e-6)
        assert (running.lowest, running.highest) == (whole.min(), whole.max())


def test_the_table_tells_the_course_of_each_part_so_far():
    statistics = PartStatistics()
    for step in range(ALARM_WINDOW + 10):
        statistics.see(
            [group(Score(0.5, {"a": float(step), "b": 1.0}), Score(0.7, {"a": float(step), "b": 0.0}), LOST)]
        )
    table = statistics.table()
    assert list(table) == ["total", "a", "b"]
    last = ALARM_WINDOW + 9
    assert table["a"] == pytest.approx(
        {"count": 2 * ALARM_WINDOW + 20, "mean": last / 2, "std": np.arange(last + 1).std(), "min": 0, "max": last,
         "recent": last - (ALARM_WINDOW - 1) / 2}
    )  # fmt: skip
    assert table["b"]["std"] == 0.5


def test_correlations_are_those_within_groups_and_not_between_them():
    statistics = PartStatistics()
    # Within a group a and b go against each other; groups with more of a have more of b.
    low = group(Score(0.0, {"a": 0.0, "b": 1.0, "c": 5.0}), Score(0.0, {"a": 1.0, "b": 0.0, "c": 5.0}))
    high = group(Score(0.0, {"a": 10.0, "b": 11.0, "c": 5.0}), Score(0.0, {"a": 11.0, "b": 10.0, "c": 5.0}))
    statistics.see([low, high])
    assert statistics.correlations() == {("a", "b"): -1.0}
    assert statistics.metrics() == {
        "reward/part_std/a": pytest.approx(np.std([0, 1, 10, 11])),
        "reward/part_std/b": pytest.approx(np.std([0, 1, 10, 11])),
        "reward/part_std/c": 0.0,
        "reward/correlation/a~b": -1.0,
    }


@pytest.mark.parametrize("groups", [[], [group()], [group(LOST)], [group(Score(1.0))], [group(Score(1.0, {"a": 1.0}))]])
def test_without_two_parts_there_is_nothing_to_tell(groups):
    statistics = PartStatistics()
    for _ in range(ALARM_WINDOW + 1):
        statistics.see(groups)
    assert statistics.metrics() == {}
    assert statistics.hints() == ()


def test_parts_may_come_and_go_and_only_so_many_are_followed():
    statistics = PartStatistics()
    statistics.see([group(Score(1.0, {"a": 1.0, "b": 0.0}))])
    statistics.see([group(Score(1.0, {"b": 1.0, "c": 0.5}), Score(1.0))])
    statistics.see([group(LOST)])
    assert statistics.table()["c"]["count"] == 1
    statistics.see([group(Score(1.0, {"b": 1.0, "c": 0.5}), Score(1.0))])
    assert statistics.metrics()["reward/part_std/c"] == 0.25, "over both attempts, 0 where there is none"
    statistics.see([group(LOST)])
    assert statistics.table()["b"]["mean"] == pytest.approx(2 / 3)
    assert "reward/part_std/a" not in statistics.metrics()
    statistics.see([group(Score(1.0, {f"n{n:03}": 1.0 for n in range(50)}))])
    assert len(statistics.parts) == MOST_PARTS


def test_parts_of_a_reward_that_stands_in_for_another_do_not_hide_each_other():
    """A judge's fallback has parts of its own: each group tells of the parts it has."""
    statistics = PartStatistics()
    judged = group(Score(1.0, {"a": 0.0, "b": 1.0}), Score(1.0, {"a": 1.0, "b": 0.0}))
    stood_in = group(Score(1.0, {"c": 0.0, "d": 0.0}), Score(1.0, {"c": 1.0, "d": 1.0}))
    for _ in range(2):
        statistics.see([judged, stood_in])
    assert statistics.correlations() == pytest.approx({("a", "b"): -1.0, ("c", "d"): 1.0})


@pytest.mark.filterwarnings("error")
def test_parts_beyond_all_measure_do_no_harm():
    statistics = PartStatistics()
    for _ in range(ALARM_WINDOW + 1):
        statistics.see([group(*(Score(1.0, {"a": a, "b": 0.5}) for a in (1e308, -1e308, math.inf, math.nan, 0.0)))])
        assert all(map(math.isfinite, statistics.metrics().values()))
        assert statistics.hints() == ()


def test_parts_that_jump_between_huge_and_small_do_no_harm():
    """The gap between two means is squared, and 1e300 squared is beyond any float."""
    statistics = PartStatistics()
    for a in (1e300, 0.0, -1e300):
        statistics.see([group(Score(1.0, {"a": a, "b": 0.5}), Score(0.0, {"a": a, "b": 0.1}))])
    assert statistics.table()["a"]["max"] == 1e300


def test_trends_are_least_squares_worked_out_by_hand():
    # 0, 1, 2, 3, 5: slope 1.2 and residuals 0.2, 0, -0.2, -0.4, 0.4, so se = sqrt(0.4 / 3 / 10).
    change, t = trends(np.array([[0.0, 1, 7], [1, 1, 8], [2, 1, np.nan], [3, 1, 8], [5, 1, 9]]))
    assert change[:2].tolist() == pytest.approx([4.8, 0.0])
    assert t.tolist() == pytest.approx([1.2 / math.sqrt(0.4 / 3 / 10), 0.0, 0.0])


def test_each_condition_of_the_alarm_is_needed():
    time = np.linspace(0, 1, ALARM_WINDOW)[:, None]
    noise = 0.01 * np.random.default_rng(0).normal(size=(ALARM_WINDOW, 3))
    names, stds = ["total", "x", "y"], np.full(3, 0.2)

    def found(total=0.1, x=0.4, y=-0.4, r=-0.5, spread=1.0, names=names):
        return find_gamed(names, 0.5 + time * [total, x, y] + noise, stds * spread, {("x", "y"): r})

    (alarm,) = found()
    assert (alarm.rising, alarm.falling) == ("x", "y")
    assert (alarm.rise, alarm.fall, alarm.gain) == pytest.approx((0.4, 0.4, 0.1), abs=0.02)
    assert found(total=-0.1) == found(x=0.0) == found(y=0.0) == found(y=0.4) == found(r=0.0) == []
    assert found(spread=10.0) == []
    assert find_gamed(["total", "x", "x.y"], 0.5 + time * [0.1, 0.4, -0.4] + noise, stds, {("x", "x.y"): -0.5}) == []


def test_a_part_gamed_at_anothers_cost_raises_the_alarm_once_with_names_and_numbers():
    def stuffing(step):
        return np.array([1.0, -0.8, 0.0, 0.0]) * min(0.5, 0.01 * step)

    for seed in range(5):
        ((step, hint),) = alarms(course(np.random.default_rng(seed), 60, stuffing))
        assert ALARM_WINDOW - 1 <= step < ALARM_WINDOW + 15
        assert hint.code == "part_gamed"
        assert hint.message.startswith("p0 rose by 0.")
        assert "p1 fell by 0." in hint.message
        assert "geometric_mean" in hint.remedy


def test_noise_and_honest_learning_raise_no_alarm():
    """1,200 steps here; `benchmarks/gaming_alarm.py` counts the false alarms of many more."""
    courses = {"noise": lambda step: np.zeros(4), "learning": lambda step: np.full(4, 0.002 * step)}
    for name, drift in courses.items():
        for seed in range(5):
            assert alarms(course(np.random.default_rng(seed), 120, drift)) == [], name


def test_a_trade_that_costs_more_than_it_brings_is_no_gaming():
    assert alarms(course(np.random.default_rng(0), 60, lambda step: np.array([0.5, -1.2, 0, 0]) * 0.01 * step)) == []


def test_a_pair_may_alarm_again_after_a_quiet_window():
    def twice(step):
        return np.array([1.0, -0.8, 0.0, 0.0]) * (0.012 * step if step < 50 else 0.6 + 0.012 * max(0, step - 150))

    found = alarms(course(np.random.default_rng(1), 210, twice))
    assert len(found) == 2
    assert found[1][0] > 150


def test_the_state_goes_through_json_and_continues_exactly():
    def stuffing(step):
        return np.array([1.0, -0.8, 0.0, 0.0]) * 0.01 * step

    steps = list(course(np.random.default_rng(2), 70, stuffing))
    whole, first, second = PartStatistics(), PartStatistics(), PartStatistics()
    unbroken = [(whole.see(groups), whole.hints(), whole.metrics())[1:] for groups in steps]
    broken = [(first.see(groups), first.hints(), first.metrics())[1:] for groups in steps[:35]]
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    broken += [(second.see(groups), second.hints(), second.metrics())[1:] for groups in steps[35:]]
    assert broken == unbroken
    assert sum(len(hints) for hints, _ in unbroken) == 1
    assert second.table() == whole.table()
