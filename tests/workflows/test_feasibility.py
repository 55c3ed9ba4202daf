"""Feasibility against brute force: chains, cliques, colourings, least work and pools that cannot keep up."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import combinations, pairwise, permutations, product
from typing import Any

import pytest

from groupwise.errors import ConfigError
from groupwise.workflows.blocks import Activity, Block, Design, Loop, Sequence
from groupwise.workflows.evaluation import evaluate
from groupwise.workflows.feasibility import contradictions, insist_feasible, overloads
from groupwise.workflows.lower_bounds import best_cycle_time, busy_times, least_wages, least_work, shortest_times
from groupwise.workflows.requirements import Requirements, parse_requirements
from groupwise.workflows.rules import needs


def asked(activities: dict[str, dict[str, Any]], pools: dict[str, Any] | None = None, **parts: Any) -> Requirements:
    stated = {name: {"duration": {"mean": 10}, **more} for name, more in activities.items()}
    return parse_requirements({"name": "test", "activities": stated, "pools": pools or {}, **parts})


def kinds(requirements: Requirements) -> list[list[str]]:
    return [[statement.rule for statement in found.statements] for found in contradictions(requirements)]


@pytest.mark.parametrize("seed", range(40))
def test_the_best_cycle_time_is_that_of_the_longest_chain(seed: int) -> None:
    rng = random.Random(seed)
    names = "abcdef"[: rng.randint(1, 6)]
    means = {name: rng.randint(1, 9) for name in names}
    speed = {name: rng.choice([1.0, 2.0]) for name in names}
    pairs = [(a, b) for a, b in combinations(names, 2) if rng.random() < 0.4]
    activities = {
        n: {"duration": {"mean": means[n]}, "pools": ["one"] if speed[n] == 1 else ["one", "two"]} for n in names
    }
    requirements = asked(activities, {"one": {}, "two": {"speed": 2.0}}, rules={"precedes": pairs})
    chains = [
        chain for size in range(1, len(names) + 1) for chain in permutations(names, size)
        if all(step in pairs for step in pairwise(chain))
    ]  # fmt: skip
    seconds, chain = best_cycle_time(requirements)
    assert seconds == pytest.approx(max(sum(means[n] / speed[n] for n in one) for one in chains))
    assert sum(means[n] / speed[n] for n in chain) == pytest.approx(seconds)
    assert tuple(chain) in chains
    # The deadline is compared with it, and may be met to the second.
    for deadline, late in ((seconds, False), (seconds * 0.999, True), (seconds * 1.001, False)):
        rules = requirements.rules.model_copy(update={"deadline": deadline})
        assert bool(contradictions(requirements.model_copy(update={"rules": rules}))) is late


def test_what_must_come_later_or_instead_ends_no_case_before() -> None:
    ending: dict[str, Any] = {"wait": {}, "pay": {"failure": 0.1}, "refuse": {"knock_out": 0.5}}
    outcome = {"name": "o", "after": "wait", "branches": {
        "yes": {"probability": 0.5, "activities": ["pay"]}, "no": {"probability": 0.5, "activities": ["refuse"]},
    }}  # fmt: skip
    assert best_cycle_time(asked(ending, outcomes=[outcome])) == (pytest.approx(10 + 5), ["wait", "refuse"])
    # What may come first may end cases, also if a design need not have it.
    ending["look"] = {"knock_out": 0.2, "optional": True}
    assert best_cycle_time(asked(ending, outcomes=[outcome]))[0] == pytest.approx(0.8 * 15)
    # Only servers that are needed for certain count: half of the cases may be over before the second activity.
    pools = {"desk": {"least": 1, "most": 1}}
    work = {"a": {"pools": ["desk"]}, "b": {"pools": ["desk"], "failure": 0.5}}
    for rules, busy in (({}, False), ({"precedes": [("a", "b")]}, True)):
        requirements = asked(work, pools, rules=rules, demand={"arrivals_per_second": 0.06})
        assert bool(overloads(requirements)) is busy


@pytest.mark.parametrize("seed", range(12))
def test_no_design_beats_the_best_cycle_time(seed: int) -> None:
    """Activities that end cases, with and without a loop, in every order that the rules allow."""
    rng = random.Random(seed)
    names = "abcd"
    activities = {
        n: {"duration": {"kind": "fixed", "mean": rng.randint(1, 9)}, "failure": rng.choice([0, 0.2, 0.5]),
            "knock_out": rng.choice([0, 0.3])}
        for n in names
    }  # fmt: skip
    pairs = [(a, b) for a, b in combinations(names, 2) if rng.random() < 0.4]
    loop = {"name": "l", "activities": ["b", "c"], "after": "c", "again": 0.6, "most": rng.choice([None, 2])}
    loops = [loop] if rng.random() < 0.7 else []
    requirements = asked(activities, rules={"precedes": pairs}, loops=loops, demand={"arrivals_per_second": 1})
    best, _ = best_cycle_time(requirements)

    def times() -> Iterator[float]:
        for order in permutations(names):
            parts: list[Block] = [Activity(n) for n in order]
            if loops:
                place = order.index("b")
                if order[place + 1 : place + 2] != ("c",):
                    continue
                parts[place : place + 2] = [Loop(Sequence((Activity("b"), Activity("c"))), 0.6)]
            if all(order.index(a) < order.index(b) for a, b in pairs):
                yield evaluate(Design("test", Sequence(tuple(parts))), requirements, "analytic").cycle_time

    assert 0 < best <= min(times()) + 1e-9


def hours_closed(calendar: list[list[int]], start: float) -> float:
    """From an hour of the week to the next at which a shift is on, hour by hour."""
    opened = [any(begin <= hour < end for begin, end in calendar) for hour in range(168)]
    first = int(start)
    more = next(more for more in range(168) if opened[(first + more) % 168])
    return more - (start - first) if more else 0.0


CALENDARS = [
    [[9, 17]], [[0, 168]], [[0, 8], [160, 168]], [[160, 168], [0, 8]], [[9, 113]], [[100, 160], [3, 20]],
    [[8, 12], [12, 16]], [[8, 20], [10, 12], [19, 30]], [[167, 168]], [[0, 1]],
]  # fmt: skip


@pytest.mark.parametrize("calendar", CALENDARS)
def test_a_case_waits_until_its_pool_opens_on_average_over_the_week(calendar: list[list[int]]) -> None:
    # In the middle of every hour, which is the mean over the hour: within one, the wait falls evenly.
    every = [hours_closed(calendar, hour + 0.5) for hour in range(168)]
    mean, monday = 3600 * sum(every) / len(every), 3600 * hours_closed(calendar, 0)
    work = {"a": {"pools": ["desk"]}, "b": {"pools": ["desk"]}}
    for demand, wait in (({"arrivals_per_second": 0.001}, mean), ({"runs": 3}, monday)):
        requirements = asked(work, {"desk": {"calendar": calendar}}, demand=demand, rules={"precedes": [["a", "b"]]})
        assert best_cycle_time(requirements)[0] == pytest.approx(wait + 20)
    # Whoever may do it and opens sooner does not let it wait.
    both = {"a": {"pools": ["desk", "night"]}}
    pools = {"desk": {"calendar": calendar}, "night": {}}
    assert best_cycle_time(asked(both, pools, demand={"arrivals_per_second": 0.001}))[0] == pytest.approx(10)


@pytest.mark.parametrize("seed", range(30))
def test_the_least_work_is_that_of_the_best_order(seed: int) -> None:
    rng = random.Random(seed)
    names = "abcd"[: rng.randint(1, 4)]
    activities = {
        n: {"duration": {"mean": rng.randint(1, 50)}, "knock_out": rng.choice([0.0, 0.1, 0.5]), "pools": ["one", "two"]}
        for n in names
    }
    branches = [{"name": "some", "options": {names[0]: 0.25}}] if rng.random() < 0.5 else []
    requirements = asked(activities, {"one": {}, "two": {"speed": 4.0}}, branches=branches)
    share = {n: 0.25 if branches and n == names[0] else 1.0 for n in names}

    def work(order: tuple[str, ...]) -> float:
        total, left = 0.0, 1.0
        for name in order:
            total += left * share[name] * activities[name]["duration"]["mean"] / 4
            left *= 1 - share[name] * activities[name]["knock_out"]
        return total

    assert least_work(requirements) == pytest.approx(min(work(order) for order in permutations(names)))


def test_work_that_needs_nobody_is_no_work() -> None:
    assert least_work(asked({"a": {}})) == 0
    assert least_work(asked({"a": {"pools": ["p"]}, "b": {}}, {"p": {}})) == 10


@pytest.mark.parametrize("seed", range(60))
def test_activities_exclude_each_other_only_if_their_shares_fit_into_one(seed: int) -> None:
    rng = random.Random(seed)
    names = "abcde"
    share = {n: rng.choice([0.2, 0.25, 0.4, 0.5, 1.0]) for n in names}
    branches = [{"name": n, "options": {n: share[n]}} for n in names if share[n] < 1]
    pairs = [pair for pair in combinations(names, 2) if rng.random() < 0.5]
    requirements = asked({n: {} for n in names}, branches=branches, rules={"excludes": pairs})
    cliques = [
        some for size in range(2, 6) for some in combinations(names, size)
        if all(pair in pairs for pair in combinations(some, 2)) and sum(share[n] for n in some) > 1 + 1e-9
    ]  # fmt: skip
    found = contradictions(requirements)
    assert bool(found) is bool(cliques)
    for one in found:
        # No statement of it could be dropped: what is left of the rules agrees.
        for dropped in one.statements:
            rest = [statement.names for statement in one.statements if statement != dropped]
            assert not contradictions(asked({n: {} for n in names}, branches=branches, rules={"excludes": rest}))


@pytest.mark.parametrize("seed", range(60))
def test_duties_are_separable_exactly_if_some_assignment_separates_them(seed: int) -> None:
    rng = random.Random(seed)
    names, pools = "abcd", ("one", "two", "three")
    options = {n: rng.sample(pools, rng.randint(1, 3)) for n in names}
    pairs = [pair for pair in combinations(names, 2) if rng.random() < 0.6]
    requirements = asked(
        {n: {"pools": options[n]} for n in names}, {pool: {} for pool in pools}, rules={"separate": pairs}
    )
    choices = (dict(zip(names, some, strict=True)) for some in product(*(options[n] for n in names)))
    possible = any(all(given[a] != given[b] for a, b in pairs) for given in choices)
    assert bool(contradictions(requirements)) is not possible
    people = {f"{pool} {n}": {"pools": [pool]} for pool in pools for n in range(1)}
    by_person = asked(
        {n: {"pools": options[n]} for n in names},
        {pool: {} for pool in pools},
        people=people,
        rules={"different_people": pairs},
    )
    assert bool(contradictions(by_person)) is not possible


@pytest.mark.parametrize(("rate", "found"), [(0.29, 0), (0.3, 0), (0.31, 1)])
def test_a_pool_may_be_busy_all_the_time_but_no_longer(rate: float, found: int) -> None:
    assert (
        len(overloads(asked({"a": {"pools": ["p"]}}, {"p": {"most": 3}}, demand={"arrivals_per_second": rate})))
        == found
    )


def test_pools_that_are_too_few_together_are_named_once() -> None:
    pools = {"q": {"most": 2}, "p": {"most": 2}, "r": {"most": 9}}
    shared = asked({"a": {"pools": ["q", "p"]}, "b": {"pools": ["r"]}}, pools, demand={"arrivals_per_second": 0.5})
    assert overloads(shared) == [
        "the demand keeps 5 servers of 'p', 'q' busy, but at most 4 are at work on average, even with `most` servers"
    ]
    # Each pool is enough for its own work; together with the work that both may do, they are not.
    three = {"a": {"pools": ["p"]}, "b": {"pools": ["q"]}, "c": {"pools": ["p", "q"]}}
    assert overloads(asked(three, pools, demand={"arrivals_per_second": 0.1})) == []
    assert overloads(asked(three, pools, demand={"arrivals_per_second": 0.134})) == [
        "the demand keeps 4.02 servers of 'p', 'q' busy, but at most 4 are at work on average, even with `most` servers"
    ]
    # One pool that fails by itself is named without the others, and two that fail are both named.
    found = overloads(asked(three, pools, demand={"arrivals_per_second": 0.21}))
    assert [words.split(" busy")[0] for words in found] == [
        f"the demand keeps 2.1 servers of {p}" for p in ("'p'", "'q'")
    ]
    assert overloads(asked(three, pools)) == [], "without arrivals nothing is asked for"


def test_contradictions_of_their_own_are_all_found_and_each_is_as_small_as_it_can_be() -> None:
    rules = {
        "precedes": [["a", "b"], ["b", "a"], ["c", "d"], ["d", "e"], ["e", "c"], ["a", "e"]],
        "separate": [["a", "b"]],
    }
    requirements = asked({n: {"pools": ["p"]} for n in "abcde"}, {"p": {}}, rules=rules)
    assert kinds(requirements) == [["precedes"] * 2, ["precedes"] * 3, ["separate"]]
    with pytest.raises(ConfigError) as error:
        insist_feasible(requirements)
    assert error.value.message == (
        "test: 'a' would have to come before itself: a → b → a ('a' precedes 'b'; 'b' precedes 'a') (and 2 more)"
    )
    assert error.value.hint == "Remove or change one of the rules."
    insist_feasible(asked({"a": {}}))
    busy = asked({"a": {"pools": ["p"]}}, {"p": {}}, demand={"arrivals_per_second": 1.0})
    with pytest.raises(ConfigError) as error:
        insist_feasible(busy)
    assert error.value.hint == "Change the pools, people or demand."
    assert "more)" not in error.value.message


DESK = {"desk": {"least": 0, "most": 4, "wage": 0.1}}


@pytest.mark.parametrize(
    ("desk", "demand", "wages"),
    [
        ({}, {"arrivals_per_second": 0.05}, 0.1),
        # Busy all the time is not enough to keep up.
        ({}, {"arrivals_per_second": 0.1}, 0.2),
        ({}, {"arrivals_per_second": 0.25}, 0.3),
        ({}, {"arrivals_per_second": 0.9}, 0.4),
        ({"least": 3}, {"arrivals_per_second": 0.05}, 0.3),
        ({"speed": 2.0}, {"arrivals_per_second": 0.1}, 0.1),
        # Open half of the week: twice the servers, paid for half of it.
        ({"calendar": [[0, 84]]}, {"arrivals_per_second": 0.06}, 0.1),
        ({}, {"runs": 5}, 0.1),
        ({"least": 2}, {"runs": 5}, 0.2),
    ],
)
def test_the_least_wages_pay_the_fewest_servers_that_keep_up(desk: dict[str, Any], demand: Any, wages: float) -> None:
    pools = {"desk": {**DESK["desk"], **desk}}
    assert least_wages(asked({"a": {"pools": ["desk"]}}, pools, demand=demand)) == pytest.approx(wages)


def test_only_work_that_one_pool_must_do_needs_its_servers() -> None:
    pools = {**DESK, "back": {"least": 0, "most": 4, "wage": 1.0}}
    demand = {"arrivals_per_second": 0.25}
    assert least_wages(asked({"a": {"pools": ["desk", "back"]}}, pools, demand=demand)) == 0
    both = {"a": {"pools": ["desk"]}, "b": {"pools": ["desk"]}, "c": {"pools": ["back"]}}
    assert least_wages(asked(both, {**pools, "desk": {"most": 9, "wage": 0.1}}, demand=demand)) == pytest.approx(
        0.6 + 3
    )


def test_people_are_paid_for_their_own_hours_and_once() -> None:
    pools = {"desk": {"least": 1, "most": 2, "wage": 0.1}, "back": {"least": 1, "most": 1, "wage": 5.0}}
    people = {"Anna": {"pools": ["desk", "back"], "calendar": [[0, 84]]}, "Bert": {"pools": ["desk"]}}
    work = {"a": {"pools": ["desk"]}}
    for rate, wages in ((0.05, 0.05), (0.15, 0.15)):
        found = least_wages(asked(work, pools, people=people, demand={"arrivals_per_second": rate}))
        assert found == pytest.approx(wages)


LOOP = {"name": "l", "activities": ["a"], "after": "a", "again": 0.5}


@pytest.mark.parametrize(
    ("parts", "times"),
    [
        ({}, {"a": 20.0, "b": 10.0}),
        ({"most": 1}, {"a": 15.0, "b": 10.0}),
        ({"redo": ["b"]}, {"a": 20.0, "b": 10.0}),
        ({"redo": ["b"], "most": 1}, {"a": 15.0, "b": 5.0}),
        ({"redo": ["b"], "most": 2}, {"a": 17.5, "b": 7.5}),
    ],
)
def test_rounds_of_a_loop_are_counted_to_the_last(parts: dict[str, Any], times: dict[str, float]) -> None:
    requirements = asked({"a": {}, "b": {}}, loops=[{**LOOP, **parts}])
    assert busy_times(requirements, needs(requirements)) == pytest.approx(times)
    first = {"a": 10.0, "b": 5.0 if "redo" in parts else 10.0}
    assert shortest_times(requirements, needs(requirements)) == pytest.approx(first)


def rounds_drawn(most: int | None) -> tuple[float, float]:
    """Rounds and repetitions of a loop that is repeated with 0.5 where 0.8 of the cases pass each round."""
    rounds = again = 0.0
    alive = 1.0
    for number in range(200):
        rounds += alive
        if number == most:
            break
        alive *= 0.8 * 0.5
        again += alive
    return rounds, again


@pytest.mark.parametrize("most", [None, 1, 2, 5])
@pytest.mark.parametrize("ending", [{"knock_out": 0.2}, {"failure": 0.2}])
def test_whoever_is_out_does_not_come_round_again(most: int | None, ending: dict[str, float]) -> None:
    loop = {**LOOP, "redo": ["b"], "most": most}
    requirements = asked({"a": ending, "b": {}}, loops=[loop])
    rounds, again = rounds_drawn(most)
    assert busy_times(requirements, needs(requirements)) == pytest.approx({"a": 10 * rounds, "b": 10 * again})
    outcome = {
        "name": "o", "after": "a", "branches": {"go": {"probability": 0.8}, "over": {"probability": 0.2, "ends": True}},
    }  # fmt: skip
    decided = asked({"a": {}, "b": {}}, loops=[loop], outcomes=[outcome])
    assert busy_times(decided, needs(decided))["a"] == pytest.approx(10 * rounds)


def test_an_outer_round_is_passed_only_through_all_rounds_inside() -> None:
    loops = [{**LOOP, "name": "inner"}, {**LOOP, "name": "outer", "activities": ["a", "b"], "after": "b"}]
    requirements = asked({"a": {"knock_out": 0.2}, "b": {}}, loops=loops)
    # A round of the inner loop is passed with 0.8 and repeated with 0.5; one of the outer has two of those on average.
    inner, outer = 1 / (1 - 0.5 * 0.8), 1 / (1 - 0.5 * 0.8**2)
    found = busy_times(requirements, needs(requirements))
    assert found == pytest.approx({"a": 10 * inner * outer, "b": 10 * 0.8**2 * outer})


@pytest.mark.parametrize(("optional", "seconds"), [(False, 10.0), (True, 5.0)])
def test_what_ends_cases_comes_later_only_through_what_every_design_has(optional: bool, seconds: float) -> None:
    free = {"duration": {"mean": 0}}
    activities = {"a": {}, "between": {**free, "optional": optional}, "last": {**free, "knock_out": 0.5}}
    rules = {"precedes": [["a", "between"], ["between", "last"]]}
    assert best_cycle_time(asked(activities, rules=rules))[0] == pytest.approx(seconds)


def test_of_equally_long_chains_the_last_by_name_is_told() -> None:
    names = ("b", "c", "a")
    assert best_cycle_time(asked({name: {} for name in names})) == (10.0, ["c"])
    rules = {"precedes": [["a", "d"], ["c", "d"], ["b", "d"]]}
    assert best_cycle_time(asked({name: {} for name in (*names, "d")}, rules=rules)) == (20.0, ["c", "d"])
    assert best_cycle_time(asked({"a": {"optional": True}})) == (0.0, [])


def test_a_case_waits_once_for_the_pool_that_opens_last_and_only_where_it_comes_there() -> None:
    pools = {"early": {"calendar": [[1, 168]]}, "late": {"calendar": [[2, 168]]}}
    work = {"a": {"pools": ["early"]}, "b": {"pools": ["late"]}, "c": {}}
    rules = {"precedes": [["c", "a"], ["a", "b"]]}
    assert best_cycle_time(asked(work, pools, rules=rules)) == (30 + 7200, ["c", "a", "b"])
    swapped = {"precedes": [["c", "b"], ["b", "a"]]}
    assert best_cycle_time(asked(work, pools, rules=swapped)) == (30 + 7200, ["c", "b", "a"])
    some = [{"name": "some", "options": {"b": 0.25}}]
    found = best_cycle_time(asked(work, {**pools, "early": {}}, rules=rules, branches=some))
    assert found == (20 + 0.25 * (7200 + 10), ["c", "a", "b"])


def test_checks_that_cost_no_time_come_first() -> None:
    desk = {"pools": ["desk"]}
    for check in ({"duration": {"mean": 0}, **desk}, {"duration": {"mean": 50}}):
        found = least_work(asked({"a": desk, "check": {**check, "knock_out": 0.5}}, DESK))
        assert found == pytest.approx(5)


@pytest.mark.parametrize(("more", "found"), [(7, 1), (8, 0)])
def test_pools_are_too_few_together_as_long_as_all_their_unions_can_be_tried(more: int, found: int) -> None:
    """Each two of three pools have work for 1.4 servers, which two can do; all three have work for 4.2."""
    pairs = {"pq": ["p", "q"], "qr": ["q", "r"], "pr": ["p", "r"]}
    work = {name: {"pools": some, "duration": {"mean": 14}} for name, some in pairs.items()}
    work |= {f"a{number}": {"pools": [f"s{number}"], "duration": {"mean": 1}} for number in range(more)}
    pools = {pool: {} for one in work.values() for pool in one["pools"]}
    assert len(overloads(asked(work, pools, demand={"arrivals_per_second": 0.1}))) == found


@pytest.mark.parametrize(
    ("most", "listed"), [(5, "p 1, p 2, p 3, p 4, p 5, q 1"), (6, "p 1, p 2, p 3, p 4, p 5, p 6 …")]
)
def test_of_many_people_the_first_six_are_named(most: int, listed: str) -> None:
    pools = {"p": {"most": most}, "q": {}}
    requirements = asked({"a": {"pools": ["p"]}, "b": {"pools": ["q"]}}, pools, rules={"same_person": [["a", "b"]]})
    (found,) = contradictions(requirements)
    assert found.words == f"nobody can be found for 'a', 'b', which only {listed} may do"
