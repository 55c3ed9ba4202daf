"""The simulation against what is known exactly, and what blocks mean in it."""

from __future__ import annotations

import math
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pytest

from groupwise.errors import ConfigError
from groupwise.workflows.blocks import (
    Activity,
    Block,
    Cancellable,
    Choice,
    Design,
    Handling,
    Instances,
    Loop,
    Parallel,
    PartialOrder,
    Retry,
    Sequence,
)
from groupwise.workflows.evaluation import evaluate, simulation
from groupwise.workflows.evaluation.encoding import encode
from groupwise.workflows.evaluation.network.solver import plain_times
from groupwise.workflows.evaluation.simulation import Simulated, confidence, simulate, simulate_runs
from groupwise.workflows.requirements import Requirements, parse_requirements

FIXED = {"kind": "fixed", "mean": 10.0}


def asked(activities: dict[str, Any], rate: float | None = None, runs: int = 1, **pools: Any) -> Requirements:
    demand = {"arrivals_per_second": rate} if rate else {"runs": runs}
    return parse_requirements({"name": "test", "activities": activities, "pools": pools, "demand": demand})


def run(
    root: Block, requirements: Requirements, cases: int = 1, seed: int = 0, trace: int = 0, **servers: int
) -> Simulated:
    return simulate(encode(Design("test", root, tuple(servers.items())), requirements), cases, seed, trace)


def erlang_c(servers: int, load: float) -> float:
    terms = [load**k / math.factorial(k) for k in range(servers)]
    last = load**servers / math.factorial(servers) / (1 - load / servers)
    return last / (sum(terms) + last)


@pytest.mark.parametrize(("servers", "rate"), [(1, 0.7), (2, 1.2), (5, 4.0)])
def test_several_servers_wait_as_erlang_says(servers: int, rate: float) -> None:
    requirements = asked({"a": {"duration": {"mean": 1}, "pools": ["p"]}}, rate, p={"most": 9})
    found = run(Activity("a"), requirements, 100_000, p=servers)
    exact = 1 + erlang_c(servers, rate) / (servers - rate)
    low, high = confidence(found.cycle)
    assert low - 0.01 < exact < high + 0.01
    assert (high - low) / exact < 0.15
    assert found.pool_time[0] / found.span / servers == pytest.approx(rate / servers, rel=0.03)


def test_intervals_of_a_busy_queue_cover_the_exact_mean_about_as_often_as_they_claim() -> None:
    requirements = asked({"a": {"duration": {"mean": 1}, "pools": ["p"]}}, 2.7, p={"most": 3})
    exact = 1 + erlang_c(3, 2.7) / 0.3
    found = [confidence(run(Activity("a"), requirements, 40_000, seed, p=3).cycle) for seed in range(40)]
    # 38 are expected; fewer than 34 would have a chance of 1 in 70 if each covered it with 95%.
    assert sum(low <= exact <= high for low, high in found) >= 34


def test_intervals_of_skewed_values_reach_further_up_and_miss_less_often() -> None:
    rng = np.random.default_rng(0)
    covered = symmetric = 0
    for _ in range(400):
        values = rng.lognormal(0.0, 1.8, 400)
        low, high = confidence(values)
        mean, half = values.mean(), 2.093 * values.reshape(20, 20).mean(1).std(ddof=1) / math.sqrt(20)
        covered += low <= math.exp(1.62) <= high
        symmetric += abs(mean - math.exp(1.62)) <= half
    assert symmetric < 350 < 356 < covered, (symmetric, covered)
    values = rng.normal(5.0, 1.0, 20_000)
    low, high = confidence(values)
    assert (low + high) / 2 == pytest.approx(values.mean(), abs=0.1 * (high - low)), "no skew: as far up as down"


@pytest.mark.parametrize(
    ("duration", "scv"),
    [
        ({"kind": "fixed", "mean": 2}, 0),
        ({"kind": "lognormal", "mean": 2, "std": 3}, 2.25),
        ({"kind": "gamma", "mean": 2, "std": 1}, 0.25),
        ({"kind": "gamma", "mean": 2, "std": 2.5}, 1.5625),
        ({"kind": "uniform", "mean": 2, "std": 1}, 0.25),
    ],
)
def test_one_server_waits_as_pollaczek_and_khinchine_say(duration: dict[str, Any], scv: float) -> None:
    rate = 0.3
    found = run(Activity("a"), asked({"a": {"duration": duration, "pools": ["p"]}}, rate, p={}), 100_000)
    exact = 2 + rate * 4 * (1 + scv) / 2 / (1 - 0.6)
    low, high = confidence(found.cycle)
    assert low < exact < high


def test_a_network_of_queues_is_jacksons() -> None:
    """Two stations, the second sends back to the first with probability 0.3: each is an M/M/c queue by itself."""
    rate, again = 0.5, 0.3
    requirements = asked(
        {"a": {"duration": {"mean": 1}, "pools": ["p"]}, "b": {"duration": {"mean": 2}, "pools": ["q"]}},
        rate,
        p={"most": 2},
        q={"most": 2},
    )
    found = run(Loop(Sequence((Activity("a"), Activity("b"))), again), requirements, 100_000, p=1, q=2)
    flow = rate / (1 - again)
    at_a, at_b = 1 / (1 - flow), 2 + erlang_c(2, flow * 2) / (2 / 2 - flow)
    low, high = confidence(found.cycle)
    assert low < (at_a + at_b) / (1 - again) < high


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    requirements = asked({"a": {"duration": {"mean": 1}, "pools": ["p"]}}, 0.5, p={})
    hits = 0
    for seed in range(60):
        low, high = confidence(run(Activity("a"), requirements, 4_000, seed).cycle)
        hits += low < 2.0 < high
    assert hits >= 34


def test_the_same_case_meets_the_same_durations_in_every_design() -> None:
    activities = {name: {"duration": {"mean": 10, "kind": "gamma", "std": 5}} for name in "abc"}
    requirements = asked(activities, 0.01)
    orders = [Sequence((Activity(x), Activity(y), Activity(z))) for x, y, z in ("abc", "cab", "bca")]
    first, *others = [run(order, requirements, 200) for order in orders]
    for other in others:
        assert np.allclose(first.cycle, other.cycle)
    assert not np.allclose(first.cycle, run(orders[0], requirements, 200, seed=1).cycle)


def test_knocked_out_beside_others_lets_them_finish() -> None:
    activities = {
        "check": {"duration": FIXED, "knock_out": 0.999999},
        "long": {"duration": {"kind": "fixed", "mean": 30}},
        "after": {"duration": FIXED},
    }
    requirements = asked(activities)
    beside = Sequence((Parallel((Activity("check"), Activity("long"))), Activity("after")))
    found = run(beside, requirements, 5)
    assert found.cycle.tolist() == [30.0] * 5
    assert found.completed.sum() == 0
    order = PartialOrder((Activity("check"), Activity("after"), Activity("long")), frozenset({(0, 1)}))
    assert run(order, requirements, trace=9).cycle.tolist() == [30.0]
    assert {t.activity for t in run(order, requirements, trace=9).trace} == {"check", "long"}


def test_tries_pauses_and_timeouts() -> None:
    retry = Handling(retry=Retry(2, pause=5, growth=3), delay=7, timeout=4)
    found = run(Activity("a", retry), asked({"a": {"duration": FIXED}}), trace=9)
    assert [(t.start, t.end, t.outcome) for t in found.trace] == [
        (7.0, 11.0, "failed"),
        (16.0, 20.0, "failed"),
        (35.0, 39.0, "failed"),
    ]
    assert found.completed.tolist() == [0]


def test_failures_are_retried_as_often_as_said() -> None:
    requirements = asked({"a": {"duration": FIXED, "failure": 0.5, "cost": 2.0}})
    found = run(Activity("a", Handling(retry=Retry(2))), requirements, 20_000)
    assert found.completed.mean() == pytest.approx(1 - 0.5**3, abs=0.01)
    assert found.cost.mean() == pytest.approx(2 * (1 + 0.5 + 0.25), rel=0.02)


def test_a_broken_off_body_frees_its_server() -> None:
    activities = {"body": {"duration": {"kind": "fixed", "mean": 100}, "pools": ["p"]}, "h": {"duration": FIXED}}
    block = Cancellable(Activity("body"), 0.5, Activity("h"))
    found = run(block, asked(activities, p={}), 4_000, trace=100)
    broken = found.cycle != 100
    assert broken.mean() == pytest.approx(0.5, abs=0.03)
    assert found.cycle[broken].mean() == pytest.approx(50 + 10, rel=0.05)
    assert {t.outcome for t in found.trace} == {"done", "cancelled"}


def test_enough_instances_end_the_others() -> None:
    requirements = asked({"a": {"duration": {"mean": 12}, "pools": ["p"]}}, p={"most": 9})
    found = run(Instances(Activity("a"), 3, 3, 1), requirements, 20_000, p=3)
    assert found.cycle.mean() == pytest.approx(4, rel=0.03)
    assert run(Instances(Activity("a"), 3, 3, 2), requirements, 20_000, p=1).cycle.mean() == pytest.approx(24, rel=0.03)
    doubtful = asked({"a": {"duration": FIXED, "knock_out": 0.5}})
    enough = run(Instances(Activity("a"), 2, 2, 2), doubtful, 20_000)
    assert enough.completed.mean() == pytest.approx(0.25, abs=0.01)


def test_branches_come_as_often_as_said() -> None:
    activities = {"a": {"duration": {"kind": "fixed", "mean": 1}}, "b": {"duration": {"kind": "fixed", "mean": 2}}}
    found = run(Choice((Activity("a"), Activity("b")), (0.3, 0.7)), asked(activities), 20_000)
    assert (found.cycle == 1).mean() == pytest.approx(0.3, abs=0.01)


def test_nested_choices_are_drawn_apart() -> None:
    names = "abcd"
    activities = {name: {"duration": {"kind": "fixed", "mean": 2.0**n}} for n, name in enumerate(names)}
    a, b, c, d = map(Activity, names)
    block = Choice((Choice((Choice((a, b), (0.5, 0.5)), c), (0.5, 0.5)), d), (0.5, 0.5))
    cycle = run(block, asked(activities), 40_000).cycle
    shares = [(cycle == 2.0**n).mean() for n in range(4)]
    assert shares == pytest.approx([0.125, 0.125, 0.25, 0.5], abs=0.01)


@pytest.mark.parametrize(
    ("scheduling", "order"), [("fifo", "abc"), ("priority", "bca"), ("shortest", "cab"), ("due", "acb")]
)
def test_who_is_taken_next(scheduling: Any, order: str) -> None:
    """The pool is busy when a, b and c come; how they are handled decides who follows."""
    means = {"first": 10, "a": 8, "b": 9, "c": 7}
    activities = {name: {"duration": {"kind": "fixed", "mean": mean}, "pools": ["p"]} for name, mean in means.items()}
    due, rank = {"a": 20.0, "b": 90.0, "c": 50.0}, {"a": 0, "b": 5, "c": 3}
    later = tuple(Activity(n, Handling(scheduling=scheduling, priority=rank[n], due=due[n])) for n in "abc")
    found = run(Parallel((Activity("first"), *later)), asked(activities, p={}), trace=9)
    assert "".join(t.activity for t in found.trace[1:]) == order


@pytest.mark.parametrize("scheduling", ["fifo", "priority", "shortest", "due"])
def test_of_equals_the_one_that_came_first_is_taken_next(scheduling: Any) -> None:
    """Each comes a second after the one before it, and the pool is busy until all are there."""
    activities = {name: {"duration": {"kind": "fixed", "mean": 10}, "pools": ["p"]} for name in ("first", *"abcd")}
    delays = {"c": 1.0, "a": 2.0, "d": 3.0, "b": 4.0}
    later = [Activity(n, Handling(scheduling=scheduling, priority=3, due=50.0, delay=delays[n])) for n in "abcd"]
    found = run(Parallel((Activity("first"), *later)), asked(activities, p={}), trace=9)
    assert [t.activity for t in found.trace] == ["first", "c", "a", "d", "b"]


def test_a_pool_rests_outside_its_hours() -> None:
    """Work from 9 to 17 on Monday and Tuesday: begun at 0:00, ten hours end on Tuesday at 11."""
    calendar = [[9, 17], [33, 41]]
    activities = {"a": {"duration": {"kind": "fixed", "mean": 36_000}, "pools": ["p"]}}
    found = run(Activity("a"), asked(activities, p={"calendar": calendar}), 2, trace=2)
    assert found.cycle.tolist() == [35 * 3600.0] * 2
    assert found.trace[0].start == 9 * 3600
    assert found.pool_time[0] == pytest.approx(20 * 3600, rel=1e-6)


@pytest.mark.parametrize("people", [{}, {"Anna": {"pools": ["p"], "skills": ["law"]}}])
def test_nobody_is_busier_than_all_of_their_hours(people: dict[str, Any]) -> None:
    """Work from Monday to Tuesday morning fills every working hour until then, though not those of the whole week."""
    calendar = [[9, 17], [33, 41], [57, 65]]
    work = {"duration": {"kind": "fixed", "mean": 36_000}, "pools": ["p"], "skills": ["law"] if people else []}
    value = {"name": "t", "activities": {"a": work}, "pools": {"p": {"calendar": calendar}}, "people": people}
    runs = parse_requirements({**value, "demand": {"runs": 1}})
    assert evaluate(Design("d", Activity("a")), runs, "simulation", cases=5).utilisation == {"p": pytest.approx(1.0)}
    # Cases that arrive faster than they are done keep everybody busy, however short the measured time is.
    flood = parse_requirements({**value, "demand": {"arrivals_per_second": 1e-3}})
    busy = evaluate(Design("d", Activity("a")), flood, "simulation", cases=300).utilisation["p"]
    assert 0.99 < busy <= 1 + 1e-9


def test_runs_at_once_share_the_servers() -> None:
    requirements = asked({"a": {"duration": FIXED, "pools": ["p"]}}, runs=4, p={"most": 2, "wage": 1.0})
    found = evaluate(Design("d", Activity("a"), (("p", 2),)), requirements, "simulation", cases=8)
    assert found.cycle_time == 15
    assert found.throughput == pytest.approx(0.2)
    assert found.utilisation == {"p": 1.0}
    assert found.cost == pytest.approx(2 * 20 / 4)


def test_intervals_of_runs_at_once_cover_the_exact_mean_and_are_narrow() -> None:
    """The n-th of 400 runs waits for those before: 200.5 services on average, though from 1 to 400 within a batch."""
    requirements = asked({"a": {"duration": {"mean": 1}, "pools": ["p"]}}, runs=400, p={})
    design, covered = Design("d", Activity("a"), (("p", 1),)), 0
    for seed in range(40):
        low, high = evaluate(design, requirements, "measured", seed=seed).interval
        assert 0.01 < (high - low) / 2 / 200.5 < 0.1
        covered += low <= 200.5 <= high
    assert covered >= 34
    # One batch says nothing about others.
    low, high = evaluate(design, requirements, "measured", cases=600).interval
    assert (low, high) == (-math.inf, math.inf)


def test_so_many_runs_at_once_are_simulated_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    requirements = asked({"a": {"duration": {"mean": 1}, "pools": ["p"]}}, runs=60, p={})
    encoded = encode(Design("d", Activity("a"), (("p", 1),)), requirements)
    assert len(simulate_runs(encoded, 60).cycle) == 20 * 60
    monkeypatch.setattr(simulation, "MOST_TRIES", 20 * 60 - 1)
    assert len(simulate_runs(encoded, 60).cycle) == 60


def test_a_trace_is_a_possible_history() -> None:
    activities = {
        "a": {"duration": {"mean": 3}, "pools": ["p"], "failure": 0.2},
        "b": {"duration": {"mean": 4}, "pools": ["p"]},
        "c": {"duration": {"mean": 2}},
    }
    block = Sequence((Parallel((Activity("a", Handling(retry=Retry(3))), Activity("b"))), Activity("c")))
    found = run(block, asked(activities, 0.2, p={"most": 2}), 500, trace=100_000, p=2)
    by_server: dict[int, list[tuple[float, float]]] = {0: [], 1: []}
    for one in found.trace:
        assert one.ready <= one.start <= one.end
        if one.pool:
            by_server[one.server].append((one.start, one.end))
        else:
            assert one.server == -1
    for times in by_server.values():
        times.sort()
        assert all(end <= start for (_, end), (start, _) in pairwise(times))
    waits = [(one.ready, one.start) for one in found.trace if one.pool == "p"]
    steps = sorted([(ready, 0, 1) for ready, _ in waits] + [(start, 1, -1) for _, start in waits])
    lengths = list(accumulate(change for _, _, change in steps))
    assert min(lengths) >= 0
    assert lengths[-1] == 0


def test_a_server_that_never_rests_is_busy_all_the_measured_time_and_no_more() -> None:
    """The queue is worked off long after the last measured arrival, which must not count as utilisation."""
    found = run(Activity("a"), asked({"a": {"duration": FIXED, "pools": ["p"]}}, 1.0, p={}), 50)
    assert found.pool_time[0] == pytest.approx(found.span)


def test_a_loop_lasts_as_long_as_all_its_rounds_at_mean_durations() -> None:
    encoded = encode(
        Design("d", Loop(Activity("a"), 0.8, Activity("b"))), asked({name: {"duration": FIXED} for name in "ab"})
    )
    times = plain_times(encoded.nodes, encoded.links, encoded.weights, encoded.rows)
    assert times[-1] == pytest.approx(10 + 4 * 20)


def test_a_hopeless_overload_is_said_and_still_simulated() -> None:
    requirements = asked({"a": {"duration": FIXED, "pools": ["p"]}}, 0.25, p={"most": 5})
    found = evaluate(Design("d", Activity("a"), (("p", 2),)), requirements, "simulation", cases=3_000)
    assert not found.valid
    assert found.reason == "pool 'p' has a load of 1.25 with 2 servers; it needs at least 3 to keep up"
    assert found.cycle_time > 1_000


def test_nothing_to_simulate_is_refused() -> None:
    with pytest.raises(ConfigError, match="cases is 0 but must be at least 1"):
        run(Activity("a"), asked({"a": {"duration": FIXED}}), 0)


def test_durations_of_nothing_take_no_time() -> None:
    found = run(Activity("a"), asked({"a": {"duration": {"mean": 0}, "pools": ["p"]}}, 1.0, p={}), 100)
    assert found.cycle.max() == 0
