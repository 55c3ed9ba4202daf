"""Designs as arrays: rows by hand, shifts, staffing, and caches that keep requirements and handlings apart."""

from __future__ import annotations

import gc
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from groupwise.workflows.blocks import (
    Activity,
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
from groupwise.workflows.evaluation.array_format import (
    ACTIVITY,
    CANCELLABLE,
    CHOICE,
    INSTANCES,
    LOOP,
    ORDER,
    PARALLEL,
    ROW,
    SEQUENCE,
    SKIP,
)
from groupwise.workflows.evaluation.encoding import Encoded, catalogue_of, encode
from groupwise.workflows.requirements import Requirements, parse_requirements

A, B, C, D = (Activity(name) for name in "abcd")


def asked(names: str = "abcd", pools: dict[str, Any] | None = None, **more: Any) -> Requirements:
    one = {"duration": {"mean": 10}, "pools": list(pools or {})}
    return parse_requirements(
        {"name": "test", "activities": {name: {**one, **more} for name in names}, "pools": pools or {}}
    )


def numbers(encoded: Encoded, activity: Activity) -> dict[str, float]:
    return dict(zip(ROW, encoded.rows[encoded.catalogue.row(activity)].tolist(), strict=True))


def test_a_row_has_everything_about_an_activity() -> None:
    stated = {"duration": {"kind": "gamma", "mean": 10, "std": 5}, "pools": ["slow", "fast"], "failure": 0.25,
              "knock_out": 0.125, "cost": 3, "cpu": 2, "memory": 64}  # fmt: skip
    pools = {"slow": {}, "fast": {"speed": 4.0}}
    requirements = parse_requirements(
        {"name": "t", "activities": {"b": {"duration": {"mean": 1}}, "a": stated}, "pools": pools}
    )
    handled = Activity("a", Handling("fast", 7, "shortest", Retry(3, 2.0, 1.5), None, 6.0, 90.0))
    wanted = {
        "number": 1, "pool": 1, "mean": 2.5, "scv": 0.25, "failed": 0.25, "retries": 3, "pause": 2, "growth": 1.5,
        "delay": 6, "knock_out": 0.125, "cost": 3, "cpu": 2, "memory": 64, "distribution": 5, "nominal": 2.5,
        "std": 1.25, "failure": 0.25, "timeout": math.inf, "scheduling": 2, "priority": 7, "due": 90,
    }  # fmt: skip
    encoded = encode(Design("d", Sequence((B, handled))), requirements)
    assert numbers(encoded, handled) == pytest.approx(wanted)
    # Without words on it: the first pool that may, nothing due, first in first out; nobody if there is no pool.
    plain = numbers(encode(Design("d", A), requirements), A)
    assert plain == pytest.approx({
        **wanted, "pool": 0, "mean": 10, "nominal": 10, "std": 5, "retries": 0, "pause": 0, "growth": 2, "delay": 0,
        "scheduling": 0, "priority": 0, "due": math.inf,
    })  # fmt: skip
    assert numbers(encode(Design("d", B), requirements), B)["pool"] == -1
    # A timeout fails those that are late, beside those that fail by themselves.
    certain = parse_requirements(
        {"name": "t", "activities": {"a": {**stated, "duration": {"kind": "fixed", "mean": 10}}}, "pools": pools}
    )
    late = Activity("a", Handling(timeout=4.0))
    row = numbers(encode(Design("d", late), certain), late)
    assert (row["mean"], row["nominal"], row["failed"], row["failure"], row["timeout"]) == (4, 10, 1, 0.25, 4)
    assert row["distribution"] == 0


def test_every_block_comes_after_what_it_contains() -> None:
    order = PartialOrder((A, B, C), frozenset({(2, 0), (0, 1)}))
    root = Sequence((Loop(Choice((order, Skip()), (0.25, 0.75)), 0.5), Cancellable(Instances(D, 1, 3, 1), 0.125)))
    encoded = encode(Design("d", root), asked())
    kinds = encoded.nodes[:, 0].tolist()
    assert kinds == [ACTIVITY] * 3 + [ORDER, SKIP, CHOICE, SKIP, LOOP, ACTIVITY, INSTANCES, SKIP, CANCELLABLE, SEQUENCE]
    links, weights = encoded.links.tolist(), encoded.weights.tolist()
    assert len(links) == len(weights)

    def inside(number: int) -> list[int]:
        first, count = encoded.nodes[number, 2:].tolist()
        return links[first : first + count]

    assert [inside(number) for number in (3, 5, 7, 9, 11, 12)] == [[0, 1, 2], [3, 4], [5, 6], [8], [9, 10], [7, 11]]
    # An order is sorted: c, a, b, with its two edges.
    rows = [int(encoded.rows[encoded.nodes[number, 1], 0]) for number in range(3)]
    assert rows == [2, 0, 1]
    detail = encoded.nodes[3, 1]
    assert links[detail : detail + 5] == [2, 0, 1, 1, 2]
    detail = encoded.nodes[9, 1]
    assert links[detail : detail + 3] == [1, 3, 1]
    assert [weights[encoded.nodes[number, 2]] for number in (5, 7, 11)] == [0.25, 0.5, 0.125]
    assert weights[encoded.nodes[5, 2] + 1] == 0.75
    assert encode(Design("d", Parallel((A, B))), asked()).nodes[-1].tolist() == [PARALLEL, 0, 0, 2]


def test_the_edges_of_an_order_are_sorted_by_their_later_end() -> None:
    edges = {(0, 3), (1, 2), (0, 1), (2, 3)}
    encoded = encode(Design("d", PartialOrder((A, B, C, D), frozenset(edges))), asked())
    detail = encoded.nodes[-1, 1]
    assert encoded.links[detail : detail + 9].tolist() == [4, 0, 1, 1, 2, 0, 3, 2, 3]


@pytest.mark.parametrize(
    ("calendar", "shifts"),
    [
        ([], []),
        ([[9, 17]], [[9, 17]]),
        ([[33, 41], [9, 17]], [[9, 17], [33, 41]]),
        ([[9, 12], [12, 17]], [[9, 17]]),
        ([[9, 12], [12.5, 17]], [[9, 12], [12.5, 17]]),
        ([[9, 17], [10, 12]], [[9, 17]]),
        ([[9, 17], [10, 20], [20, 21]], [[9, 21]]),
    ],
)
def test_shifts_are_sorted_and_merged_where_they_touch(calendar: Any, shifts: list[list[float]]) -> None:
    pools = {"p": {"calendar": calendar, "wage": 2.0}, "q": {"wage": 3.0}}
    catalogue = catalogue_of(asked(pools=pools))
    assert (catalogue.shifts[0] / 3600).tolist() == shifts
    assert len(catalogue.shifts[1]) == 0
    share = sum(end - start for start, end in shifts) / 168 if shifts else 1.0
    assert catalogue.open_shares.tolist() == pytest.approx([share, 1.0])
    assert catalogue.staffed_wages.tolist() == pytest.approx([2 * share, 3.0])
    assert catalogue.with_shifts == bool(shifts)


def test_a_pool_has_the_servers_the_design_gives_it_or_the_fewest_allowed() -> None:
    catalogue = catalogue_of(asked(pools={"p": {"least": 2, "most": 4}, "q": {"least": 0, "most": 3}}))
    assert catalogue.servers(()).tolist() == [2, 1]
    assert catalogue.servers((("q", 3),)).tolist() == [2, 3]
    assert catalogue.servers((("p", 4),)).tolist() == [4, 1], "another staffing is not that of the last call"
    assert catalogue.servers((("q", 3),)).tolist() == [2, 3]
    for count in (1, 5):
        with pytest.raises(DesignError, match=f"pool 'p' has {count} servers in the design; allowed: 2 to 4"):
            catalogue.servers((("p", count),))
    assert catalogue.servers((("p", 2), ("q", 1))).tolist() == [2, 1]


def test_rows_are_shared_by_what_is_handled_alike_and_by_nothing_else() -> None:
    catalogue = catalogue_of(asked(pools={"p": {}, "q": {}}))
    plain = catalogue.row(Activity("a"))
    assert catalogue.row(Activity("a")) == plain
    assert catalogue.row(Activity("b")) != plain
    one = catalogue.row(Activity("a", Handling(delay=5.0)))
    assert catalogue.row(Activity("a", Handling(delay=5.0))) == one
    others = [Handling(delay=6.0), Handling(pool="q"), Handling(priority=1), Handling(due=9.0), Handling(timeout=9.0)]
    rows = [catalogue.row(Activity("a", handling)) for handling in others]
    assert len({plain, one, *rows}) == 7
    assert catalogue.row(Activity("b", Handling(delay=5.0))) not in {plain, one, *rows}


def test_more_ways_of_handling_than_there_was_room_for_keep_their_rows() -> None:
    requirements = asked()
    activities = [Activity("a", Handling(delay=float(number))) for number in range(1, 200)]
    early = encode(Design("d", activities[0]), requirements)
    rows = [catalogue_of(requirements).row(one) for one in activities]
    assert len(set(rows)) == 199
    delay = ROW.index("delay")
    assert [catalogue_of(requirements).rows[row, delay] for row in rows] == [float(n) for n in range(1, 200)]
    assert early.rows[early.nodes[0, 1], delay] == 1.0


def test_activities_that_are_gone_do_not_lend_their_rows_to_others() -> None:
    catalogue = catalogue_of(asked())
    delay = ROW.index("delay")
    for number in range(1, 300):
        activity = Activity("a", Handling(delay=float(number)))
        row = catalogue.row(activity)
        assert catalogue.rows[row, delay] == number
        del activity
        gc.collect(0)


def test_requirements_have_a_catalogue_each() -> None:
    first, second = asked(cost=1), asked(cost=2)
    assert catalogue_of(first) is catalogue_of(first)
    assert catalogue_of(first) is not catalogue_of(second)
    for number in range(20):
        made = asked(cost=number)
        assert numbers(encode(Design("d", A), made), A)["cost"] == number
        del made


def test_a_pool_serves_as_its_first_activity_asks_that_asks_for_anything() -> None:
    requirements = asked(pools={"p": {}, "q": {}})
    ways = {"a": ("p", "fifo"), "b": ("p", "due"), "c": ("q", "fifo"), "d": ("p", "shortest")}
    parts = tuple(Activity(name, Handling(pool=pool, scheduling=how)) for name, (pool, how) in ways.items())  # type: ignore[arg-type]
    encoded = encode(Design("d", Sequence(parts)), requirements)
    assert encoded.disciplines().tolist() == [3, 0]
    assert not encoded.catalogue.only_fifo
    back = encode(Design("d", Sequence(parts[::-1])), requirements)
    assert back.disciplines().tolist() == [2, 0]
    alone = asked(pools={"p": {}})
    assert encode(Design("d", A), alone).catalogue.only_fifo
    nobody = asked()
    free = encode(Design("d", replace(A, handling=Handling(scheduling="due"))), nobody)
    assert free.disciplines().tolist() == []
    assert np.array_equal(free.servers, [])


@pytest.mark.parametrize(("used", "staff", "paid"), [
    ("", {}, [0, 1, 0]), ("p", {}, [1, 1, 0]), ("r", {}, [0, 1, 1]), ("q", {}, [0, 1, 0]), ("pr", {}, [1, 1, 1]),
    ("", {"r": 2}, [0, 1, 2]), ("r", {"p": 3, "q": 2}, [3, 2, 1]),
])  # fmt: skip
def test_servers_are_paid_where_they_are_needed_used_or_named(
    used: str, staff: dict[str, int], paid: list[int]
) -> None:
    requirements = asked(pools={"p": {"least": 0, "most": 3}, "q": {"most": 3}, "r": {"least": 0, "most": 3}})
    parts = [Activity(name, Handling(pool=pool)) for name, pool in zip("abc", used, strict=False)]
    always = Activity("d", Handling(pool="q"))
    design = Design("d", Sequence((Skip(), always, *parts)), tuple(staff.items()))
    encoded = encode(design, requirements)
    assert encoded.paid.tolist() == paid
    assert encoded.servers.tolist() == [staff.get(pool, 1) for pool in "pqr"], "whether paid or not"


def test_a_pool_there_is_not_is_refused_with_those_there_are() -> None:
    for pools, known in (({"p": {}, "q": {}}, "p, q"), ({}, "none")):
        with pytest.raises(DesignError, match=f"the design staffs 'x', but the pools of 'test' are {known}"):
            encode(Design("d", A, (("x", 1),)), asked(pools=pools))
