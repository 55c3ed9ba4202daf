"""Cases that a design loses through failed tries, against counting by hand and against the simulation."""

from __future__ import annotations

from typing import Any

import pytest

from groupwise.workflows import evaluate, parse_requirements, score
from groupwise.workflows.blocks import (
    Activity,
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
    Skip,
)
from groupwise.workflows.requirements import Requirements
from groupwise.workflows.scoring.lost_cases import LostCases, passing


def asked(**more: Any) -> Requirements:
    plain = {"duration": {"mean": 60}, "pools": ["desk"]}
    known = {
        "check": {**plain, "knock_out": 0.2},
        "fetch": {**plain, "failure": 0.1},
        "send": {**plain, "failure": 0.3},
        "file": plain,
    }
    pools = {"desk": {"most": 9, "wage": 0.01, "kind": "machine"}}
    return parse_requirements(
        {"name": "r", "activities": known, "pools": pools, "demand": {"arrivals_per_second": 0.001}, **more}
    )


def tried(name: str, retries: int) -> Activity:
    return Activity(name, Handling(retry=Retry(retries)))


@pytest.mark.parametrize(
    ("root", "kept"),
    [
        (Sequence((Activity("check"), Activity("file"))), 1.0),
        (Sequence((Activity("check"), Activity("fetch"))), 0.9),
        (Sequence((Activity("fetch"), Activity("check"))), 0.9),
        (Parallel((Activity("fetch"), tried("send", 1))), 0.9 * 0.91),
        (Choice((Activity("send"), Skip()), (0.5, 0.5)), 0.85),
        (Choice((Activity("check"), Activity("fetch")), (0.5, 0.5)), (0.5 * 0.8 + 0.5 * 0.9) / (0.5 * 0.8 + 0.5)),
        (Loop(Activity("fetch"), 0.5), 0.9 * 0.5 / (1 - 0.5 * 0.9)),
    ],
)
def test_the_share_that_is_kept_is_counted_without_knock_outs(root: Any, kept: float) -> None:
    design = Design("d", root, (("desk", 5),))
    assert LostCases(asked()).kept(design, 1.0) == pytest.approx(kept)
    with_knock_outs = evaluate(design, asked(), "simulation", cases=20_000).completed
    none = {name: one.model_copy(update={"failure": 0.0}) for name, one in asked().activities.items()}
    possible = evaluate(design, asked().model_copy(update={"activities": none}), "simulation", cases=20_000).completed
    assert with_knock_outs / possible == pytest.approx(kept, abs=0.01)


def test_a_timeout_loses_the_cases_that_take_longer() -> None:
    design = Design("d", Activity("file", Handling(timeout=60.0)), (("desk", 5),))
    # Exponential: a try takes longer than its mean with probability 1/e.
    assert LostCases(asked()).kept(design, 1.0) == pytest.approx(1 - 0.36788, abs=1e-4)


def test_what_the_tree_does_not_show_is_taken_from_the_measured_cases() -> None:
    design = Design("d", Sequence((Activity("check"), Activity("file"))), (("desk", 5),))
    assert LostCases(asked()).kept(design, 0.4) == pytest.approx(0.5)
    assert LostCases(asked()).kept(design, 0.79) == 1.0, "the noise of a simulation"


def test_retries_are_worth_their_time() -> None:
    required = asked()
    names = ("check", "fetch", "send", "file")
    careless = Design("d", Sequence(tuple(Activity(name) for name in names)), (("desk", 3),))
    careful = Design("d", Sequence(tuple(tried(name, 3) for name in names)), (("desk", 3),))
    assert score(careful, required).total > score(careless, required).total + 0.03


def test_it_does_not_matter_for_this_when_the_world_ends_a_case() -> None:
    early = Design("d", Sequence((Activity("check"), tried("fetch", 3), Activity("file"))), (("desk", 3),))
    late = Design("d", Sequence((tried("fetch", 3), Activity("file"), Activity("check"))), (("desk", 3),))
    required = asked(activities={k: v for k, v in asked().model_dump()["activities"].items() if k != "send"})
    cases = LostCases(required)
    assert cases.kept(early, 1.0) == pytest.approx(cases.kept(late, 1.0))
    assert score(early, required).total > score(late, required).total


A, B = Activity("a"), Activity("b")


@pytest.mark.parametrize(
    ("block", "share"),
    [
        (A, 0.8),
        (Skip(), 1.0),
        (Sequence((A, B)), 0.4),
        (Parallel((A, B)), 0.4),
        (PartialOrder((A, B, Skip()), frozenset({(0, 1)})), 0.4),
        (Choice((A, B), (0.25, 0.75)), 0.25 * 0.8 + 0.75 * 0.5),
        # One round, or another after the work between: 0.8 · 0.75 · Σ (0.25 · 0.8 · 0.5)ⁿ
        (Loop(A, 0.25, B), 0.8 * 0.75 * sum((0.25 * 0.8 * 0.5) ** n for n in range(60))),
        (Cancellable(A, 0.25, B), 0.75 * 0.8 + 0.25 * 0.5),
        (Instances(A, 3, 5, 2), 0.8**3),
        (Sequence((Choice((A, Skip()), (0.5, 0.5)), Loop(B, 0.5))), 0.9 * 0.5 * 0.5 / (1 - 0.25)),
    ],
)
def test_cases_come_through_a_block_as_its_kind_says(block: Any, share: float) -> None:
    assert passing(block, lambda one: {"a": 0.8, "b": 0.5}[one.name]) == pytest.approx((share, 0.0))


def test_a_try_is_lost_by_its_error_or_by_its_timeout_and_a_retry_tries_both_again() -> None:
    fixed = {"duration": {"kind": "fixed", "mean": 60}, "pools": ["desk", "fast"], "failure": 0.25}
    pools = {"desk": {}, "fast": {"speed": 2.0}}
    cases = LostCases(parse_requirements({"name": "r", "activities": {"a": fixed, "b": fixed}, "pools": pools}))

    def lost(**handling: Any) -> float:
        return cases.lost(Activity("a", Handling(**handling)))

    assert (lost(), lost(retry=Retry(1)), lost(retry=Retry(2))) == pytest.approx((0.25, 0.25**2, 0.25**3))
    # A fixed duration is over at the timeout itself; the first pool is the one that is meant without another.
    assert (lost(timeout=60.0), lost(timeout=59.0), lost(timeout=59.0, pool="desk")) == (0.25, 1.0, 1.0)
    assert (lost(timeout=30.0, pool="fast"), lost(timeout=29.0, pool="fast")) == (0.25, 1.0)
    assert lost(timeout=59.0, retry=Retry(3)) == 1.0
    varied = {**fixed, "duration": {"mean": 60}}
    cases = LostCases(parse_requirements({"name": "r", "activities": {"a": varied}, "pools": pools}))
    late = 2.718281828459045**-1
    assert lost(timeout=60.0) == pytest.approx(1 - 0.75 * (1 - late), abs=1e-6)
    assert lost(timeout=30.0, pool="fast", retry=Retry(1)) == pytest.approx((1 - 0.75 * (1 - late)) ** 2, abs=1e-6)


@pytest.mark.parametrize(("completed", "kept"), [(0.72, 0.9), (0.701, 0.9), (0.699, 0.699 / 0.8), (1.0, 0.9)])
def test_measured_cases_count_if_fewer_are_completed_than_chance_explains(completed: float, kept: float) -> None:
    design = Design("d", Sequence((Activity("check"), Activity("fetch"))), (("desk", 5),))
    assert LostCases(asked()).kept(design, completed) == pytest.approx(kept)
