"""Which tier answers, with how many cases, and the numbers that tiers derive from their measurements."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from groupwise.errors import ConfigError
from groupwise.workflows.blocks import (
    Activity,
    Block,
    Cancellable,
    Choice,
    Design,
    DesignError,
    Finish,
    Handling,
    Instances,
    Loop,
    Parallel,
    PartialOrder,
    Sequence,
    Skip,
    activities,
)
from groupwise.workflows.evaluation import evaluate, simulation
from groupwise.workflows.evaluation.analytic import analyse, capacity_of, loads, overload
from groupwise.workflows.evaluation.encoding import encode
from groupwise.workflows.evaluation.schedule import (
    PlacedTask,
    TaskGraph,
    heft,
    is_one_run,
    list_schedule,
    schedule_design,
    task_graph_of,
    upward_ranks,
)
from groupwise.workflows.evaluation.simulation import (
    Simulated,
    confidence,
    interval_of,
    performance_of,
    simulate,
    simulate_precisely,
    student,
)
from groupwise.workflows.requirements import Requirements, parse_requirements

A, B, C = (Activity(name) for name in "abc")
FIXED = {"kind": "fixed", "mean": 10.0}
DESK: dict[str, Any] = {"duration": FIXED, "pools": ["desk"]}


def asked(demand: dict[str, Any] | None = None, pools: dict[str, Any] | None = None, **activities: Any) -> Requirements:
    return parse_requirements({
        "name": "test", "activities": activities or {n: {"duration": FIXED} for n in "abc"}, "pools": pools or {},
        "demand": demand or {},
    })  # fmt: skip


def measured(requirements: Requirements, root: Block = A, cases: int = 1, trace: int = 0, **servers: int) -> Simulated:
    return simulate(encode(Design("d", root, tuple(servers.items())), requirements), cases, trace=trace)


def test_a_tier_answers_where_it_is_asked_or_where_it_holds() -> None:
    steady = asked({"arrivals_per_second": 0.001})
    for tier in ("analytic", "simulation", "schedule"):
        assert evaluate(Design("d", A), steady, tier, cases=20).tier == tier  # type: ignore[arg-type]
    assert evaluate(Design("d", A), steady).tier == "analytic"
    assert evaluate(Design("d", A), asked()).tier == "schedule"
    assert evaluate(Design("d", A), asked({"runs": 2}), cases=4).tier == "simulation"
    assert evaluate(Design("d", A), asked(), "analytic").tier == "analytic", "asked for, though it leaves out waiting"
    tiers = "auto, measured, analytic, simulation, schedule"
    with pytest.raises(ConfigError, match=f"tier is 'fast' but must be one of {tiers}"):
        evaluate(Design("d", A), steady, "fast")  # type: ignore[arg-type]


def test_as_many_cases_are_simulated_as_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[tuple[int, int]] = []
    real = simulation.simulate

    def watched(encoded: Any, cases: int, seed: int = 0, trace: int = 0) -> Simulated:
        counts.append((cases, seed))
        return real(encoded, min(cases, 20), seed, trace)

    monkeypatch.setattr(simulation, "simulate", watched)
    for demand in ({"arrivals_per_second": 0.001}, {"runs": 2}):
        evaluate(Design("d", A), asked(demand), "simulation")
        evaluate(Design("d", A), asked(demand), "simulation", seed=3, cases=7)
    assert counts == [(10_000, 0), (7, 3), (1_000, 0), (7, 3)]


@pytest.mark.parametrize(
    ("root", "demand", "change", "one"),
    [
        (Sequence((A, Skip(), Parallel((B, C)))), {}, {}, True),
        (PartialOrder((A, B), frozenset({(0, 1)})), {"runs": 1}, {}, True),
        (A, {"runs": 2}, {}, False),
        (A, {"arrivals_per_second": 1.0}, {}, False),
        (Choice((A, B), (0.5, 0.5)), {}, {}, False),
        (Loop(A, 0.5), {}, {}, False),
        (Cancellable(A, 0.5), {}, {}, False),
        (Instances(A, 2, 2, 2), {}, {}, False),
        (Sequence((B, A)), {}, {"failure": 0.1}, False),
        (Sequence((B, A)), {}, {"knock_out": 0.1}, False),
        (B, {}, {"knock_out": 0.1}, True),
        (Activity("a", Handling(timeout=99.0)), {}, {}, False),
        (Activity("a", Handling(delay=1.0)), {}, {}, False),
        (Activity("a", Handling(scheduling="due")), {}, {}, False),
        (Activity("a", Handling(priority=5, due=9.0)), {}, {}, True),
        (Sequence((B, Activity("a", Handling(timeout=99.0)), C)), {}, {}, False),
        (Parallel((B, Activity("a", Handling(delay=1.0)))), {}, {}, False),
    ],
)
def test_a_schedule_is_for_one_run_without_chance(root: Block, demand: Any, change: Any, one: bool) -> None:
    activities = {name: {"duration": FIXED, **(change if name == "a" else {})} for name in "abc"}
    requirements = asked(demand, **activities)
    assert is_one_run(Design("d", root), requirements) is one


def test_pools_with_hours_are_not_scheduled() -> None:
    pools = {"desk": {}, "night": {"calendar": [[0, 8]]}}
    assert is_one_run(Design("d", A), asked(pools={"desk": {}}, a=DESK))
    found = schedule_design(Design("d", A), asked(pools=pools, a=DESK))[1]
    assert not found.valid
    assert found.reason == "a schedule needs a single run, no chance events, no calendars and FIFO queues"


def test_measurements_become_a_performance() -> None:
    """By hand: 20 cases, two pools of which one works half of the week, and half of the measured time."""
    pools = {"desk": {"most": 4, "wage": 3.0, "calendar": [[0, 84]]}, "back": {"most": 2, "wage": 1.0}}
    encoded = encode(Design("d", A, (("desk", 4),)), asked({"arrivals_per_second": 0.5}, pools, a=DESK))
    cycle = np.arange(20.0)
    completed, busy = np.array([1] * 15 + [0] * 5), np.array([50.0, 20.0])
    found = Simulated(cycle, cycle / 2, cycle / 4, completed, np.zeros(0), 100.0, busy, 2.0, 3.0, 4.0, 5.0)
    found = replace(found, start=84 * 3600 - 50.0)
    made = performance_of(encoded, found, capacity=9.0)
    assert (made.tier, made.cycle_time, made.waiting, made.throughput) == ("simulation", 9.5, 4.75, 0.5)
    assert made.cost == pytest.approx((4 * 0.5 * 3 + 1) / 0.5 + 9.5 / 4)
    assert made.utilisation == pytest.approx({"desk": 50 / (4 * 0.5 * 100), "back": 0.2})
    assert (made.cpu, made.memory, made.cpu_peak, made.memory_peak) == (2, 3, 4, 5)
    assert (made.completed, made.capacity, made.valid, made.reason) == (0.75, 9.0, True, "")
    assert made.percentiles == pytest.approx({q: np.percentile(cycle, q) for q in (50, 90, 95, 99)})
    slow = performance_of(encoded, found, capacity=0.25, reason="too few")
    assert (slow.throughput, slow.valid, slow.reason) == (0.25, False, "too few")
    assert slow.cost == pytest.approx(7 / 0.25 + 9.5 / 4)


def test_unknown_peaks_are_equal_and_anything_else_is_compared() -> None:
    one = analyse(encode(Design("d", A), asked({"arrivals_per_second": 0.001})))
    assert math.isnan(one.cpu_peak)
    assert one == replace(one)
    for change in (
        {"cycle_time": 1.0},
        {"cpu_peak": 1.0},
        {"reason": "x"},
        {"valid": False},
        {"utilisation": {"p": 1}},
    ):
        assert one != replace(one, **change)  # type: ignore[arg-type]
    assert one != "a performance"


def test_what_does_not_fit_starts_over_with_more_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """1,500 runs at once at one server end one after the other; the first 1,024 places are too few for them."""
    requirements = asked({"runs": 1500}, {"desk": {}}, a=DESK)
    found = measured(requirements, cases=1500)
    assert found.cycle.tolist() == [10.0 * (number + 1) for number in range(1500)]
    assert found.waiting.tolist() == [10.0 * number for number in range(1500)]
    monkeypatch.setattr(simulation, "LARGEST", 4096)
    assert len(measured(requirements, cases=1500).cycle) == 1500
    monkeypatch.setattr(simulation, "LARGEST", 4095)
    with pytest.raises(ConfigError, match="more than 4,095 things are in progress at once"):
        measured(requirements, cases=1500)


@pytest.mark.parametrize(("cases", "runs", "batches"), [(1, 3, 1), (3, 3, 1), (4, 3, 2), (7, 3, 3)])
def test_runs_are_simulated_in_whole_batches(cases: int, runs: int, batches: int) -> None:
    found = measured(asked({"runs": runs}, {"desk": {}}, a=DESK), cases=cases)
    assert found.cycle.tolist() == [10.0, 20.0, 30.0] * batches
    assert found.makespans.tolist() == [30.0] * batches
    assert (found.span, found.pool_time.tolist()) == (30.0 * batches, [30.0 * batches])


def test_cases_arrive_at_random_times_and_those_of_the_warm_up_are_not_measured() -> None:
    found = measured(asked({"arrivals_per_second": 0.01}, a={"duration": FIXED}), cases=10, trace=12)
    assert len(found.cycle) == 10
    starts = [one.start for one in found.trace if one.case in (2, 11)]
    assert found.span == pytest.approx(starts[1] - starts[0]), "from the first measured arrival to the last"
    many = measured(asked({"arrivals_per_second": 0.01}, a={"duration": FIXED}), cases=20_000)
    assert many.span / 20_000 == pytest.approx(100, rel=0.02)


def test_use_is_measured_over_the_window_and_peaks_at_once() -> None:
    used = {"duration": FIXED, "cpu": 2.0, "memory": 7.0}
    found = measured(asked(a=used, b={**used, "cpu": 1.0}, c=used), Sequence((Parallel((A, B)), C)), cases=2)
    assert (found.cpu, found.memory) == pytest.approx(((20 + 10 + 20) / 20, 210 / 20))
    assert (found.cpu_peak, found.memory_peak) == (3.0, 14.0)


def test_loads_and_capacity_are_those_of_the_working_hours() -> None:
    pools = {"desk": {"most": 4, "calendar": [[0, 42]]}, "back": {"most": 4}}
    back = {"duration": FIXED, "pools": ["back"]}
    root = Sequence((A, B))
    encoded = encode(
        Design("d", root, (("desk", 4), ("back", 2))), asked({"arrivals_per_second": 0.05}, pools, a=DESK, b=back)
    )
    assert loads(encoded) == pytest.approx({"desk": 0.05 * 10 * 4 / 4, "back": 0.25})
    assert capacity_of(encoded) == pytest.approx(0.1)
    assert overload(encoded) == ""
    found = analyse(encoded)
    assert (found.capacity, found.throughput) == pytest.approx((0.1, 0.05))
    assert found.utilisation == pytest.approx({"desk": 0.5, "back": 0.25})
    assert found.reason == "pool 'desk' has working hours"
    busy = encode(
        Design("d", root, (("desk", 2), ("back", 1))), asked({"arrivals_per_second": 0.1}, pools, a=DESK, b=back)
    )
    assert overload(busy) == "pool 'desk' has a load of 2.00 with 2 servers; it needs at least 5 to keep up"
    assert analyse(busy).utilisation == {"desk": 1.0, "back": 1.0}
    assert capacity_of(encode(Design("d", C), asked(c={"duration": FIXED}))) == math.inf


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        (Instances(A, 2, 2, 2), ""),
        (Instances(A, 2, 2, 1), "of 2 instances some are cancelled once 1 are done"),
        (Instances(A, 2, 3, 2), "of 3 instances some are cancelled once 2 are done"),
        (Instances(Sequence((A, B)), 2, 2, 2), "its multiple instances contain more than one activity"),
    ],
)
def test_the_formulas_hold_for_copies_of_one_activity_that_are_all_waited_for(block: Block, reason: str) -> None:
    found = analyse(encode(Design("d", block), asked({"arrivals_per_second": 0.001})))
    assert (found.reason, found.valid) == (reason, not reason)


def test_a_list_schedule_by_hand() -> None:
    """Two machines: a and b start at once, c waits for both and is handed over, d is ready first but listed last."""
    never = math.inf
    work = TaskGraph(
        ("a", "b", "c", "d", "e"),
        ((4.0, 9.0), (never, 3.0), (2.0, 5.0), (1.0, 1.0), (7.0, 7.0)),
        {(0, 2): 10.0, (1, 2): 1.0, (1, 3): 2.0, (3, 4): 0.0},
        {4: 6.0},
    )
    assert list_schedule(work).placed == (
        PlacedTask("b", 1, 0.0, 3.0),
        PlacedTask("a", 0, 0.0, 4.0),
        PlacedTask("d", 1, 3.0, 4.0),
        PlacedTask("c", 0, 4.0, 6.0),
        PlacedTask("e", -1, 4.0, 10.0),
    )
    assert list_schedule(work).makespan == 10.0
    # rank(t) = mean over the machines that can + the longest of what follows with its handing over
    assert upward_ranks(work) == [6.5 + 13.5, 3 + max(1 + 3.5, 2 + 7), 3.5, 7.0, 6.0]
    assert list_schedule(TaskGraph((), (), {})).makespan == heft(TaskGraph((), (), {})).makespan == 0.0


def test_a_scheduled_run_adds_up() -> None:
    """a then b and c at two desks with one wage each, and d that nobody does."""
    pools = {"desk": {"most": 2, "wage": 0.5}, "back": {"wage": 0.25}}
    one = {**DESK, "cost": 2.0, "cpu": 1.0, "memory": 4.0}
    root = Sequence((A, Parallel((B, C, Activity("d")))))
    requirements = asked(None, pools, a=one, b=one, c=one, d={"duration": {"mean": 15}, "cpu": 3.0})
    for count, span, waiting, used in ((2, 25.0, 0.0, 30 / 50), (1, 30.0, 10.0, 1.0)):
        schedule, found = schedule_design(Design("d", root, (("desk", count),)), requirements)
        assert (found.cycle_time, found.interval, schedule.makespan) == (span, (span, span), span)
        assert found.waiting == waiting
        assert found.throughput == pytest.approx(1 / span)
        assert found.cost == pytest.approx((count * 0.5 + 0.25) * span + 6)
        assert found.utilisation == pytest.approx({"desk": used, "back": 0.0})
        assert found.cpu == pytest.approx((30 + 45) / span)
        assert found.memory == pytest.approx(120 / span)
        assert (found.cpu_peak, found.memory_peak) == ((5.0, 8.0) if count == 2 else (4.0, 4.0))
        assert found.capacity == pytest.approx(count / 30)
        assert (found.completed, found.valid) == (1.0, True)
    free = schedule_design(Design("d", Activity("d")), requirements)[1]
    assert (free.capacity, free.throughput) == (math.inf, pytest.approx(1 / 15))
    nothing = schedule_design(Design("d", A), asked(a={"duration": {"mean": 0}}))[1]
    assert (nothing.cycle_time, nothing.throughput, nothing.cpu) == (0.0, math.inf, 0.0)


def test_a_task_graph_has_every_server_and_every_wait() -> None:
    pools = {"desk": {"most": 2}, "fast": {"speed": 2.0}}
    both = {"duration": FIXED, "pools": ["desk", "fast"]}
    requirements = asked(None, pools, a=both, b=both, c={"duration": FIXED}, d=DESK)
    order = PartialOrder((Activity("d"), Skip(), C), frozenset({(0, 1), (1, 2)}))
    root = Sequence((Parallel((A, Activity("b", Handling(pool="fast")))), order))
    graph, machines = task_graph_of(Design("d", root, (("desk", 2),)), requirements)
    assert machines == ("desk", "desk", "fast")
    never = math.inf
    assert graph.names == ("a", "b", "d", "c")
    assert graph.durations == ((10, 10, never), (never, never, 5), (10, 10, never), (never,) * 3)
    assert graph.alone == {3: 10.0}
    assert set(graph.after) == {(0, 2), (1, 2), (2, 3)}
    free, _ = task_graph_of(Design("d", root, (("desk", 2),)), requirements, any_pool=True)
    assert free.durations == ((10, 10, 5), (never, never, 5), (10, 10, never), (never,) * 3)


@pytest.mark.parametrize("freedom", [3.0, 4.5, 10.0, 19.0, 100.0])
def test_students_quantile_is_scipys(freedom: float) -> None:
    assert student(freedom) == pytest.approx(stats.t(freedom).ppf(0.975), rel=0.015 if freedom < 4 else 2e-3)


@pytest.mark.parametrize("count", [1, 2, 19, 20, 21, 400])
@pytest.mark.parametrize("drift", [0.0, 1.0, 50.0])
def test_the_interval_is_students_over_as_many_batches_as_are_independent(count: int, drift: float) -> None:
    """Twenty batches; a correlation r between neighbours, without its bias, leaves 20 (1 − r) / (1 + r), at least 4.

    The quantiles are moved by the skewness of the batches (Willink 2005).
    """
    values = np.random.default_rng(count).exponential(size=count) + drift * np.arange(count) / count
    found, mean = confidence(values), values.mean()
    if count == 1:
        assert found == (mean, mean)
    elif count < 20:
        assert found == (-math.inf, math.inf)
    else:
        means = np.array([batch.mean() for batch in np.array_split(values, 20)])
        lag = np.sum((means[1:] - means.mean()) * (means[:-1] - means.mean())) / np.sum((means - means.mean()) ** 2)
        r = np.clip(lag + (1 + 3 * lag) / 20, 0, 0.8)
        alone = max(20 * (1 - r) / (1 + r), 4)
        quantile, bias = stats.t(alone - 1).ppf(0.975), stats.skew(means, bias=False) / 6 / math.sqrt(alone)
        low, high = (
            mean - (np.cbrt(1 + 6 * bias * (z - bias)) - 1) / (2 * bias) * means.std(ddof=1) / math.sqrt(alone)
            for z in (quantile, -quantile)
        )
        assert (mean - found[0], found[1] - mean) == pytest.approx((mean - low, high - mean), rel=0.02)


def test_values_that_are_all_the_same_are_known_exactly() -> None:
    assert confidence(np.full(100, 7.0)) == (7.0, 7.0)
    assert confidence(np.arange(100.0), batches=5) == (-math.inf, math.inf), "five runs are no twenty batches"


def test_cases_are_added_until_the_mean_is_known_well(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    real = simulation.simulate

    def watched(encoded: Any, cases: int, seed: int = 0, trace: int = 0) -> Simulated:
        counts.append(cases)
        assert seed == 5
        return real(encoded, cases, seed, trace)

    monkeypatch.setattr(simulation, "simulate", watched)
    rate = {"arrivals_per_second": 0.001}
    steady, varied = (
        encode(Design("d", Sequence((A, B))), asked(rate, a={"duration": one}, b={"duration": FIXED}))
        for one in (FIXED, {"kind": "lognormal", "mean": 10.0, "std": 15.0})
    )
    assert len(simulate_precisely(steady, 100, 5).cycle) == 100
    assert counts == [100]
    counts.clear()
    found = simulate_precisely(varied, 100, 5)
    low, high = interval_of(varied, found)
    assert high - low <= 2 * 0.04 * found.cycle.mean()
    assert counts == [100 * 4**power for power in range(len(counts))]
    assert len(counts) > 1
    # Beyond so many cases, or tries of its two activities, the last result is taken as it is.
    for limit, allowed in (("MOST_CASES", 400), ("MOST_TRIES", 800)):
        for value, wanted in ((allowed, [100, 400]), (allowed - 1, [100])):
            counts.clear()
            with monkeypatch.context() as patch:
                patch.setattr(simulation, limit, value)
                simulate_precisely(varied, 100, 5)
            assert counts == wanted, (limit, value)


def traced(root: Block, requirements: Requirements, **servers: int) -> list[tuple[int, str, float, float, str]]:
    found = measured(requirements, root, trace=50, **servers)
    return [(one.case, one.activity, one.start, one.end, one.outcome) for one in found.trace]


def test_tries_follow_their_blocks_to_the_second() -> None:
    """Durations 10, 20, 30: a, then b and c at once, then d after both; e as soon as b has ended."""
    times = {"a": 10, "b": 20, "c": 30, "d": 10, "e": 5}
    requirements = asked(**{n: {"duration": {"kind": "fixed", "mean": mean}} for n, mean in times.items()})
    d, e = Activity("d"), Activity("e")
    order = PartialOrder((B, C, d, e), frozenset({(0, 2), (1, 2), (0, 3)}))
    assert traced(Sequence((A, order)), requirements) == [
        (0, "a", 0.0, 10.0, "done"),
        (0, "b", 10.0, 30.0, "done"),
        (0, "e", 30.0, 35.0, "done"),
        (0, "c", 10.0, 40.0, "done"),
        (0, "d", 40.0, 50.0, "done"),
    ]


def test_copies_are_cancelled_once_enough_are_done_and_their_server_is_free() -> None:
    """Three copies at two desks: the first two end in the same second, and the third has hardly begun."""
    requirements = asked({"runs": 1}, {"desk": {"most": 2}}, a=DESK, b=DESK)
    root = Sequence((Instances(A, 3, 3, 2), B))
    assert traced(root, requirements, desk=2) == [
        (0, "a", 0.0, 10.0, "done"),
        (0, "a", 0.0, 10.0, "done"),
        (0, "a", 10.0, 10.0, "cancelled"),
        (0, "b", 10.0, 20.0, "done"),
    ]
    one = traced(Sequence((Instances(A, 2, 2, 1), B)), requirements, desk=2)
    assert sorted(outcome for _, name, _, _, outcome in one if name == "a") == ["cancelled", "done"]
    assert one[-1] == (0, "b", 10.0, 20.0, "done")


def test_a_shift_that_ends_while_work_is_under_way_is_made_up_in_the_next() -> None:
    hour = 3600.0
    pools = {"desk": {"calendar": [[9, 12], [13, 17], [33, 41]]}}
    for hours, end in ((3, 12.0), (4, 14.0), (7, 17.0), (7.5, 33.5), (15, 41.0), (16, 168 + 10.0)):
        work = {"duration": {"kind": "fixed", "mean": hours * hour}, "pools": ["desk"]}
        found = traced(A, asked({"runs": 1}, pools, a=work))
        assert found == [(0, "a", 9 * hour, pytest.approx(end * hour), "done")], hours


def test_who_is_waiting_when_a_body_is_cancelled_waits_no_longer() -> None:
    """Nobody can begin `slow` before the body is cancelled; the time until then counts as waiting."""
    long = {"duration": {"kind": "fixed", "mean": 1000}, "pools": ["desk"]}
    requirements = asked({"runs": 2}, {"desk": {}}, a=long, b={"duration": FIXED})
    found = measured(requirements, Cancellable(A, 0.999999, B), cases=2, trace=9)
    first = next(one for one in found.trace if one.activity == "a")
    assert first.outcome == "cancelled"
    assert found.waiting[0] == 0
    assert 0 < found.waiting[1] <= 1000
    assert found.cycle[0] == pytest.approx(first.end + 10)


def staffed(root: Block, **knocked: float) -> tuple[Design, Requirements]:
    """A design in which nobody waits, and requirements with the chance of each activity to end the case."""
    names = [one.name for one in activities(root)]
    loop = {"name": "l", "activities": ["b", "c"], "after": "b", "again": 0.5, "most": 2}
    value = {
        "name": "world",
        "activities": {
            name: {"duration": {"kind": "fixed", "mean": 10.0 * 2**place}, "knock_out": knocked.get(name, 0.0)}
            for place, name in enumerate(names)
        },
        "loops": [loop] if "c" in names else [],
        "demand": {"arrivals_per_second": 0.001},
    }
    return Design("d", root), parse_requirements(value)


def test_an_end_counts_as_completed_and_nothing_behind_it_is_done() -> None:
    ended = Choice((Sequence((Activity("c"), Finish())), Skip()), (0.25, 0.75))
    design, asked = staffed(Sequence((Activity("a"), Loop(Sequence((Activity("b"), ended)), 0.5), Activity("d"))))
    # Rounds: 1 + 0.375 + 0.375². Of each, a quarter ends; of the last, nobody repeats.
    rounds = 1 + 0.375 + 0.375**2
    through = rounds * 0.75 - (rounds - 1)
    exact = 10 + rounds * (20 + 0.25 * 40) + through * 80
    found = evaluate(design, asked, "analytic")
    assert found.cycle_time == pytest.approx(exact)
    assert found.completed == pytest.approx(1.0)
    seen = evaluate(design, asked, "simulation", cases=20_000)
    assert seen.cycle_time == pytest.approx(exact, rel=0.02)
    assert seen.completed == 1.0


def test_choices_of_one_outcome_decide_alike_in_formulas_and_in_the_simulation() -> None:
    first = Choice((Activity("a"), Skip()), (0.5, 0.5), "o", (("x",), ("y",)))
    later = Choice((Activity("e"), Activity("f")), (0.5, 0.5), "o", (("x",), ("y",)))
    # Half of the cases with x end at `a`, so those who come to the second choice are mostly y.
    design, asked = staffed(Sequence((first, Activity("d"), later)), a=0.5)
    a, d, e, f = (asked.activities[name].duration.mean for name in "adef")
    exact = 0.5 * (a + 0.5 * (d + e)) + 0.5 * (d + f)
    assert evaluate(design, asked, "analytic").cycle_time == pytest.approx(exact)
    measured = simulation.simulate(encode(design, asked), 4_000)
    assert {round(time) for time in measured.cycle} == {round(a), round(a + d + e), round(d + f)}
    assert measured.cycle.mean() == pytest.approx(exact, rel=0.03)


def test_an_outcome_in_a_loop_is_decided_anew_in_every_round() -> None:
    first = Choice((Activity("a"), Skip()), (0.5, 0.5), "o", (("x",), ("y",)))
    later = Choice((Activity("e"), Skip()), (0.5, 0.5), "o", (("x",), ("y",)))
    design, asked = staffed(Loop(Sequence((first, Activity("d"), later)), 0.5))
    a, d, e = (asked.activities[name].duration.mean for name in "ade")
    assert (a, d, e) == (10, 20, 40)
    times = simulation.simulate(encode(design, asked), 2_000).cycle
    # Two rounds of different results add up to what no single result gives.
    assert any(round(time) == round(2 * d + a + e) for time in times)
    assert not any(round(time) == round(d + a) for time in times)


def test_outcomes_that_multiply_beyond_measure_are_refused() -> None:
    forks = [Choice((Activity(f"a{n}"), Skip()), (0.5, 0.5), f"o{n}", (("x",), ("y",))) for n in range(14)]
    later = [Choice((Activity(f"b{n}"), Skip()), (0.5, 0.5), f"o{n}", (("x",), ("y",))) for n in range(14)]
    design, asked = staffed(Sequence((*forks, *later)))
    with pytest.raises(DesignError, match="too many outcomes are asked about again"):
        encode(design, asked)
