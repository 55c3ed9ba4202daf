"""The formulas against exact results, against the simulation, and where they say they do not hold."""

from __future__ import annotations

import math
import random
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from groupwise.workflows.blocks import (
    Activity,
    Block,
    Cancellable,
    Choice,
    Design,
    DesignError,
    Handling,
    Instances,
    Loop,
    Parallel,
    PartialOrder,
    Retry,
    Sequence,
    Skip,
)
from groupwise.workflows.evaluation import Performance, evaluate
from groupwise.workflows.evaluation.durations import moments
from groupwise.workflows.requirements import Duration, Requirements, parse_requirements
from tests.workflows.designs import random_block
from tests.workflows.evaluation.worlds import random_world, taken_by

INSIDE = ("sequence", "parallel", "choice", "order", "loop", "cancellable")


def asked(activities: dict[str, Any], rate: float | None = 1e-6, **pools: Any) -> Requirements:
    demand = {"arrivals_per_second": rate} if rate else {}
    return parse_requirements({"name": "test", "activities": activities, "pools": pools, "demand": demand})


def analysed(root: Block, requirements: Requirements, **servers: int) -> Performance:
    return evaluate(Design("test", root, tuple(servers.items())), requirements, "analytic")


def plain(**means: float) -> Requirements:
    return asked({name: {"duration": {"mean": mean}} for name, mean in means.items()})


A, B, C = Activity("a"), Activity("b"), Activity("c")


@pytest.mark.parametrize(
    ("block", "exact"),
    [
        (Sequence((A, B)), 30),
        (Choice((A, Skip()), (0.25, 0.75)), 2.5),
        (Loop(A, 0.5, B), 10 + 1 * 30),
        (Parallel((A, B)), 10 + 20 - 1 / (1 / 10 + 1 / 20)),
        (Parallel((A, B, C)), 10 + 20 + 30 - 20 / 3 - 7.5 - 12 + 1 / (1 / 10 + 1 / 20 + 1 / 30)),
        (PartialOrder((A, B), frozenset({(1, 0)})), 30),
        (Instances(A, 3, 3, 3), 10 * (1 + 1 / 2 + 1 / 3)),
        (Cancellable(A, 0.5, B), 0.5 * 10 + 0.5 * (10 * math.exp(-1) + 20)),
    ],
)
def test_blocks_take_what_they_take(block: Block, exact: float) -> None:
    assert analysed(block, plain(a=10, b=20, c=30)).cycle_time == pytest.approx(exact, rel=0.01)


@pytest.mark.parametrize("scv", [0.0, 0.25, 2.0])
def test_one_server_is_exact(scv: float) -> None:
    duration = {"kind": "gamma", "mean": 2, "std": 2 * math.sqrt(scv)}
    found = analysed(A, asked({"a": {"duration": duration, "pools": ["p"]}}, 0.3, p={}))
    assert found.cycle_time == pytest.approx(2 + 0.3 * 4 * (1 + scv) / 2 / 0.4, rel=1e-6)
    assert found.utilisation == {"p": pytest.approx(0.6)}
    assert found.valid


def test_a_batch_at_one_server_is_exact() -> None:
    """Three at once at M^X/G/1: the last waits for the queue and the two before it."""
    rate, mean = 0.01, 20.0
    found = analysed(Instances(A, 3, 3, 3), asked({"a": {"duration": {"mean": mean}, "pools": ["p"]}}, rate, p={}))
    share = 3 * rate * mean
    queue = (share * mean + share * mean) / (1 - share)
    assert found.waiting == pytest.approx(3 * (queue + mean), rel=0.01)


def one_of(scheduling: Any, **priorities: int) -> Block:
    """One of some activities, each as likely as the others, at a pool that takes them so."""
    parts = [Activity(n, Handling(scheduling=scheduling, priority=p)) for n, p in priorities.items()]
    return Choice(tuple(parts), (1 / len(parts),) * len(parts))


@pytest.mark.parametrize(
    ("block", "order"),
    [
        (one_of("priority", a=3, b=2, c=1), "abc"),
        (one_of("priority", a=1, b=5, c=2), "bca"),
        (one_of("shortest", a=1, b=5, c=2), "cab"),
    ],
)
def test_turns_at_one_server_are_exact(block: Block, order: str) -> None:
    """M/M/1 without putting work aside: W_k = W_0 / (1 − σ_(k−1)) / (1 − σ_k) (Cobham 1954)."""
    rate, means = 0.04, {"a": 20.0, "b": 30.0, "c": 10.0}
    requirements = asked({n: {"duration": {"mean": mean}, "pools": ["p"]} for n, mean in means.items()}, rate, p={})
    residual, before, exact = sum(rate / 3 * mean**2 for mean in means.values()), 0.0, 0.0
    for name in order:
        upto = before + rate / 3 * means[name]
        exact += residual / (1 - before) / (1 - upto) / 3
        before = upto
    found = analysed(block, requirements)
    assert found.waiting == pytest.approx(exact, rel=1e-9)
    assert found.valid


@pytest.mark.parametrize("servers", [1, 3])
def test_turns_only_hand_the_waiting_on(servers: int) -> None:
    """Kleinrock's conservation law: Σ ρ_k W_k is the same in any order; with equal means so is the mean wait."""
    requirements = asked({n: {"duration": {"mean": 20}, "pools": ["p"]} for n in "abc"}, 0.04 * servers, p={"most": 9})
    fifo = analysed(one_of("fifo", a=3, b=2, c=1), requirements, p=servers)
    found = analysed(one_of("priority", a=3, b=2, c=1), requirements, p=servers)
    assert found.waiting == pytest.approx(fifo.waiting, rel=1e-9)


def test_where_all_have_the_same_turn_it_is_fifo() -> None:
    for number in range(6):
        design, requirements = some_world(number)
        same = evaluate(taken_by("priority", design, lambda: 4), requirements, "analytic")
        assert same == evaluate(design, requirements, "analytic")


def test_one_overtakes_those_of_its_own_case() -> None:
    """Of two at once at a busy server the later one goes first, unless the other found it free."""
    requirements = asked({n: {"duration": {"mean": m}, "pools": ["p"]} for n, m in (("a", 40), ("b", 10))}, 0.014, p={})
    design = Design("d", Parallel((Activity("a", Handling(scheduling="shortest")), B)))
    simulated = evaluate(design, requirements, "simulation", cases=40_000).waiting
    assert evaluate(design, requirements).waiting == pytest.approx(simulated, rel=0.05)
    assert analysed(Parallel((A, B)), requirements).waiting > 1.2 * simulated


def test_retries_and_knock_outs_are_counted() -> None:
    activities = {"a": {"duration": {"mean": 10}, "failure": 0.5, "cost": 3.0, "knock_out": 0.2}}
    found = analysed(Activity("a", Handling(retry=Retry(1, pause=4))), asked(activities))
    assert found.completed == pytest.approx(0.75 * 0.8)
    assert found.cycle_time == pytest.approx(15 + 0.5 * 4)
    assert found.cost == pytest.approx(4.5)


def test_servers_are_paid_while_staffed() -> None:
    requirements = asked({"a": {"duration": {"mean": 1}, "pools": ["p"]}}, 0.5, p={"most": 3, "wage": 2.0})
    assert analysed(A, requirements, p=3).cost == pytest.approx(3 * 2.0 / 0.5)


def test_overload_names_the_pool_and_the_servers_it_needs() -> None:
    requirements = asked({"a": {"duration": {"mean": 10}, "pools": ["p"]}}, 0.25, p={"most": 9})
    found = analysed(A, requirements, p=2)
    assert not found.valid
    assert found.cycle_time == math.inf
    assert found.capacity == pytest.approx(0.2)
    assert found.throughput == pytest.approx(0.2)
    assert found.reason == "pool 'p' has a load of 1.25 with 2 servers; it needs at least 3 to keep up"
    assert analysed(A, requirements, p=3).valid


def test_a_pool_that_is_busy_all_the_time_needs_one_server_more() -> None:
    requirements = asked({"a": {"duration": {"mean": 10}, "pools": ["p"]}}, 0.1, p={"most": 9})
    found = analysed(A, requirements, p=1)
    assert found.reason == "pool 'p' has a load of 1.00 with 1 server; it needs at least 2 to keep up"
    assert analysed(A, requirements, p=2).valid


@pytest.mark.parametrize("tier", ["analytic", "simulation"])
def test_work_that_takes_exactly_as_long_as_its_timeout_is_in_time(tier: Any) -> None:
    requirements = asked({"a": {"duration": {"kind": "fixed", "mean": 10}}}, 0.01)
    found = evaluate(Design("d", Activity("a", Handling(timeout=10))), requirements, tier, cases=20)
    assert (found.completed, found.cycle_time) == (1.0, pytest.approx(10))


def test_outside_its_class_it_says_why_and_the_simulation_decides() -> None:
    activity = {"a": {"duration": {"mean": 1}, "pools": ["p"]}}
    outside: list[tuple[Block, Requirements, str]] = [
        (A, asked(activity, 0.01, p={"calendar": [[9, 17]]}), "has working hours"),
        (Activity("a", Handling(scheduling="due")), asked(activity, 0.1, p={}), "by due time"),
        (Instances(A, 2, 3, 1), asked(activity, 0.1, p={}), "of 3 instances some are cancelled once 1 are done"),
        (Instances(Sequence((A, Skip())), 2, 2, 2), asked(activity, 0.1, p={}), "contain more than one activity"),
    ]
    for block, requirements, reason in outside:
        found = analysed(block, requirements)
        assert not found.valid
        assert reason in found.reason
        assert evaluate(Design("d", block), requirements, cases=200).tier == "simulation"
    inside: list[tuple[Block, Requirements]] = [
        (A, asked(activity, 0.1, p={})),
        (Instances(A, 2, 2, 2), asked(activity, 0.1, p={})),
        # Only a pool that something uses can be closed.
        (A, asked(activity, 0.1, p={}, q={"calendar": [[9, 17]]})),
    ]
    for block, requirements in inside:
        assert evaluate(Design("d", block), requirements).tier == "analytic"


def test_what_a_design_gets_wrong_is_named() -> None:
    requirements = asked({"a": {"duration": {"mean": 1}, "pools": ["p"]}, "b": {"duration": {"mean": 1}}}, p={}, q={})
    with pytest.raises(DesignError, match="'c' is not an activity of 'test', which has a, b"):
        analysed(C, requirements)
    with pytest.raises(DesignError, match="'a' is assigned to the pool 'q', but only p may do it"):
        analysed(Activity("a", Handling(pool="q")), requirements)
    with pytest.raises(DesignError, match="'b' is assigned to the pool 'q', but it does not need a pool"):
        analysed(Activity("b", Handling(pool="q")), requirements)
    with pytest.raises(DesignError, match="pool 'p' has 4 servers in the design; allowed: 1 to 1"):
        analysed(A, requirements, p=4)
    with pytest.raises(DesignError, match="the design staffs 'r', but the pools of 'test' are p, q"):
        analysed(A, requirements, r=1)


def test_durations_of_nothing_take_no_time() -> None:
    found = analysed(Parallel((A, B)), asked({n: {"duration": {"mean": 0}, "pools": ["p"]} for n in "ab"}, 1.0, p={}))
    assert (found.cycle_time, found.waiting, found.valid) == (0, 0, True)


@pytest.mark.parametrize("kind", ["exponential", "normal", "lognormal", "uniform", "gamma"])
@pytest.mark.parametrize("timeout", [math.inf, 9.0])
def test_moments_are_those_of_samples(kind: Any, timeout: float) -> None:
    rng = np.random.default_rng(7)
    duration = Duration(kind=kind, mean=10, std=10 if kind == "exponential" else 5)
    sample = {
        "exponential": lambda: rng.exponential(10, 400_000),
        "normal": lambda: np.maximum(rng.normal(10, 5, 400_000), 0),
        "lognormal": lambda: rng.lognormal(math.log(10) - math.log(1.25) / 2, math.sqrt(math.log(1.25)), 400_000),
        "uniform": lambda: rng.uniform(10 - 5 * math.sqrt(3), 10 + 5 * math.sqrt(3), 400_000),
        "gamma": lambda: rng.gamma(4, 2.5, 400_000),
    }[kind]() / 2.0  # fmt: skip
    mean, scv, late = moments(duration, 2.0, timeout / 2)
    cut = np.minimum(sample, timeout / 2)
    assert mean == pytest.approx(cut.mean(), rel=0.01)
    assert scv == pytest.approx(cut.var() / cut.mean() ** 2, rel=0.03)
    assert late == pytest.approx((sample > timeout / 2).mean(), abs=0.005)


def test_knock_outs_go_by_rejection_per_time() -> None:
    """Van der Aalst 2001: independent checks take least when ordered by rejection per time, the highest first."""
    rng = random.Random(5)
    checks = {n: {"duration": {"mean": rng.uniform(5, 50)}, "knock_out": rng.uniform(0.05, 0.6)} for n in "abcd"}
    requirements = asked(checks, 0.001)
    rule = sorted(checks, key=lambda n: -checks[n]["knock_out"] / checks[n]["duration"]["mean"])
    designs = {order: Design("k", Sequence(tuple(map(Activity, order)))) for order in permutations("abcd")}
    for tier in ("analytic", "simulation"):
        times = {o: evaluate(d, requirements, tier, cases=20_000).cycle_time for o, d in designs.items()}  # type: ignore[arg-type]
        assert min(times, key=lambda order: times[order]) == tuple(rule), tier


def some_world(number: int) -> tuple[Design, Requirements]:
    rng = random.Random(f"accuracy/{number}")
    block = random_block(rng, rng.randint(4, 20), INSIDE)
    return random_world(rng, block, rng.uniform(0.3, 0.8))


def errors(count: int, cases: int, scheduling: str) -> list[float]:
    found = []
    for number in range(count):
        design, requirements = some_world(number)
        rng = random.Random(number)
        design = taken_by(scheduling, design, lambda rng=rng: rng.randrange(4))  # type: ignore[misc]
        formula = evaluate(design, requirements, "analytic")
        assert formula.valid
        simulated = evaluate(design, requirements, "simulation", seed=number, cases=cases)
        assert formula.completed == pytest.approx(simulated.completed, abs=0.03)
        found.append(abs(formula.cycle_time / simulated.cycle_time - 1))
    return found


@pytest.mark.parametrize(("scheduling", "median"), [("fifo", 0.05), ("shortest", 0.06), ("priority", 0.06)])
def test_formulas_and_simulation_agree(scheduling: str, median: float) -> None:
    """The short form of benchmarks/workflow_accuracy.py."""
    found = errors(24, 8_000, scheduling)
    assert np.median(found) < median
    assert np.percentile(found, 90) < 0.2
