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
from groupwise.workflows.lower_bounds import best_cycle_time, least_work
from groupwise.workflows.requirements import Requirements, parse_requirements


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
