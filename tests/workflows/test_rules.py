"""Hard rules: every violation is named; rules that contradict each other are named in the smallest set."""

from __future__ import annotations

import random
from typing import Any

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
    Sequence,
    Skip,
)
from groupwise.workflows.feasibility import best_cycle_time, contradictions, insist_feasible
from groupwise.workflows.requirements import Requirements, parse_requirements
from groupwise.workflows.rules import RuleBook, broken_rules
from groupwise.workflows.scoring import anatomy
from tests.workflows.designs import random_block

A, B, C = (Activity(name) for name in "abc")
PAIRS = ("precedes", "excludes", "separate")


def wanted(names: str = "abc", seconds: float = 10, pools: tuple[str, ...] = (), **rest: Any) -> Requirements:
    activities = {name: {"duration": {"mean": seconds}, "pools": pools} for name in names}
    known = {pool: {"most": 3} for pool in pools}
    return parse_requirements({"name": "test", "activities": activities, "pools": known, **rest})


def rules_broken(root: Block, requirements: Requirements, **rest: Any) -> list[str]:
    return [violation.rule for violation in broken_rules(Design("d", root, **rest), requirements)]


@pytest.mark.parametrize(
    ("root", "kept"),
    [
        (Sequence((A, B, C)), True),
        (Sequence((B, A, C)), False),
        (Parallel((A, B, C)), False),
        (PartialOrder((A, B, C), frozenset({(0, 2), (2, 1)})), True),
        (PartialOrder((A, B, C), frozenset({(0, 2)})), False),
        (Sequence((C, Loop(Sequence((A, B)), 0.2))), True),
        (Sequence((Sequence((C, A)), Instances(B, 2, 3, 1))), True),
    ],
)
def test_precedence_is_read_from_the_block_where_two_ways_part(root: Block, kept: bool) -> None:
    assert rules_broken(root, wanted(rules={"precedes": [("a", "b")]})) == ([] if kept else ["precedes"])


def test_activities_of_one_choice_exclude_each_other_and_no_others_do() -> None:
    split = {"branches": [{"name": "which", "options": {"a": 0.5, "b": 0.5}}], "rules": {"excludes": [("a", "b")]}}
    assert rules_broken(Sequence((C, Choice((A, B), (0.5, 0.5)))), wanted(**split)) == []
    assert rules_broken(Sequence((C, A, B)), wanted(**split)) == ["excludes"]
    assert "excludes" in rules_broken(Sequence((C, Cancellable(A, 0.5, B))), wanted(**split))


def test_what_every_case_needs_cannot_be_made_rare() -> None:
    plain = wanted()
    assert rules_broken(Sequence((A, B)), plain) == ["must include"]
    assert rules_broken(Sequence((A, B, Choice((C, Skip()), (0.01, 0.99)))), plain) == ["every case"]
    assert rules_broken(Sequence((A, Loop(B, 0.5, C))), plain) == ["every case"]
    assert rules_broken(Sequence((A, B, C, Activity("d"))), plain) == ["unknown activity"]


def test_people_are_those_the_requirements_allow() -> None:
    asked = wanted("ab", pools=("desk", "back"), rules={"separate": [("a", "b")]})
    apart = Sequence((Activity("a", Handling(pool="desk")), Activity("b", Handling(pool="back"))))
    assert rules_broken(apart, asked) == []
    assert rules_broken(Sequence((A, B)), asked) == ["separate"]
    assert rules_broken(apart, asked, servers=(("desk", 4),)) == ["staffing"]
    assert "pool" in rules_broken(Sequence((Activity("a", Handling(pool="nobody")), B)), asked)


def test_a_deadline_is_compared_with_the_cycle_time() -> None:
    asked, design = wanted("a", rules={"deadline": 20.0}), Design("d", A)
    assert broken_rules(design, asked, cycle_time=19.0) == []
    (late,) = broken_rules(design, asked, cycle_time=21.5)
    assert str(late) == "deadline: a case takes 21.5 s on average, but only 20 s are allowed"


def named(requirements: Requirements) -> list[set[str]]:
    return [{str(statement) for statement in found.statements} for found in contradictions(requirements)]


def test_the_smallest_ring_of_precedence_is_named() -> None:
    ring = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a"), ("c", "b"), ("a", "e")]
    found = named(wanted("abcde", rules={"precedes": ring}))
    assert found[0] == {"'b' precedes 'c'", "'c' precedes 'b'"}
    assert not any("'a' precedes 'e'" in some for some in found)


def test_exclusions_that_cannot_hold_are_named_with_what_forces_them() -> None:
    optional = {n: {"duration": {"mean": 1}, "optional": True} for n in "abc"}
    rules = {"excludes": [("a", "b"), ("b", "c")], "must_include": ["a", "b"]}
    asked = parse_requirements({"name": "t", "activities": optional, "rules": rules})
    assert named(asked) == [{"'a' excludes 'b'", "'a' must be included", "'b' must be included"}]
    branches = [{"name": "one", "options": {"a": 0.4}}, {"name": "two", "options": {"b": 0.5}}]
    assert named(wanted("ab", branches=branches, rules={"excludes": [("a", "b")]})) == []
    branches[0]["options"] = {"a": 0.6}
    assert named(wanted("ab", branches=branches, rules={"excludes": [("a", "b")]})) == [{"'a' excludes 'b'"}]


def test_duties_that_cannot_be_separated_are_named() -> None:
    pairs = [("a", "b"), ("b", "c"), ("a", "c")]
    assert named(wanted(pools=("one", "two"), rules={"separate": pairs[:2]})) == []
    (found,) = contradictions(wanted(pools=("one", "two"), rules={"separate": pairs}))
    assert len(found.statements) == 3
    assert "only 'one', 'two' may do them" in str(found)
    assert len(named(wanted(pools=("one",), rules={"separate": pairs[:1]}))) == 1


def test_an_infeasible_deadline_tells_the_best_achievable_and_the_chain() -> None:
    asked = wanted("abcd", rules={"precedes": [("a", "b"), ("b", "c"), ("d", "c")], "deadline": 25.0})
    assert best_cycle_time(asked) == (30.0, ["a", "b", "c"])
    (found,) = contradictions(asked)
    assert {str(s) for s in found.statements} == {"'a' precedes 'b'", "'b' precedes 'c'", "a case takes at most 25 s"}
    assert "every design takes at least 30 s, because of a → b → c" in str(found)
    with pytest.raises(ConfigError, match="but only 25 s are allowed"):
        insist_feasible(asked)


def test_faster_pools_and_branches_make_more_possible() -> None:
    asked = wanted(
        "ab", pools=("desk",), rules={"precedes": [("a", "b")]}, branches=[{"name": "x", "options": {"b": 0.5}}]
    )
    assert best_cycle_time(asked)[0] == 15.0
    faster = asked.model_copy(update={"pools": {"desk": asked.pools["desk"].model_copy(update={"speed": 2.0})}})
    assert best_cycle_time(faster)[0] == 7.5


def test_demand_that_no_staffing_can_meet_is_reported() -> None:
    asked = wanted("abc", pools=("desk",), demand={"arrivals_per_second": 0.2})
    (found,) = contradictions(asked)
    assert str(found) == (
        "the demand keeps 6 servers of 'desk' busy, but at most 3 are at work on average, even with `most` servers"
    )
    assert contradictions(wanted("abc", pools=("desk",), demand={"arrivals_per_second": 0.09})) == []


@pytest.mark.parametrize("seed", range(60))
def test_the_quick_answer_is_that_of_every_rule_looked_at(seed: int) -> None:
    rng = random.Random(seed)
    design = Design("d", random_block(rng, 8), (("one", rng.choice([1, 2, 3, 3, 4])),))
    names = [f"a{number}" for number in range(8)]
    pairs = {what: [rng.sample(names, 2) for _ in range(rng.choice([0, 0, 0, 1]))] for what in PAIRS}
    activity = {"duration": {"mean": 1}, "pools": ["one", "two"], "optional": rng.random() < 0.9}
    pools = {"one": {"most": 3}, "two": {}}
    asked = parse_requirements(
        {"name": "t", "activities": dict.fromkeys(names, activity), "pools": pools, "rules": pairs}
    )
    book = RuleBook(asked)
    assert book.broken(design, anatomy(design).runs) == book.broken(design)
