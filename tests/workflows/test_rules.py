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
from groupwise.workflows.feasibility import contradictions, insist_feasible
from groupwise.workflows.lower_bounds import best_cycle_time
from groupwise.workflows.pair_rules import PairRules
from groupwise.workflows.places import places_of, relation
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
    assert rules_broken(Sequence((A, Cancellable(B, 0.5, C))), plain) == ["every case"]
    assert rules_broken(Sequence((A, Loop(Sequence((B, C)), 0.5))), plain) == []
    sometimes = wanted(branches=[{"name": "x", "options": {"c": 0.4}}])
    for share, broken in ((0.39, ["every case"]), (0.4, []), (0.41, [])):
        assert rules_broken(Sequence((A, B, Choice((C, Skip()), (share, 1 - share)))), sometimes) == broken
    assert rules_broken(Sequence((A, B, C, Activity("d"))), plain) == ["unknown activity"]


def test_people_are_those_the_requirements_allow() -> None:
    asked = wanted("ab", pools=("desk", "back"), rules={"separate": [("a", "b")]})
    apart = Sequence((Activity("a", Handling(pool="desk")), Activity("b", Handling(pool="back"))))
    assert rules_broken(apart, asked) == []
    assert rules_broken(Sequence((A, B)), asked) == ["separate"]
    assert rules_broken(apart, asked, servers=(("desk", 4),)) == ["staffing"]
    pair = asked.model_copy(
        update={"pools": {**asked.pools, "desk": asked.pools["desk"].model_copy(update={"least": 2})}}
    )
    found = [rules_broken(apart, pair, servers=(("desk", count),)) for count in (1, 2, 3, 4)]
    assert found == [["staffing"], [], [], ["staffing"]]
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
    either = wanted("ab", pools=("desk", "back"), rules={"precedes": [("a", "b")], "deadline": 12.0})
    assert len(contradictions(either)) == 1
    quick = either.pools["back"].model_copy(update={"speed": 2.0})
    assert contradictions(either.model_copy(update={"pools": {**either.pools, "back": quick}})) == []


def test_an_activity_counts_only_for_the_cases_that_earlier_ones_let_pass() -> None:
    """`a` ends half of the cases, but has been done for all of them; `b` fails in a tenth, but only after `a`."""
    asked = wanted("ab", rules={"precedes": [("a", "b")]})
    some = {"a": {"knock_out": 0.5}, "b": {"failure": 0.1}}
    ending = {name: asked.activities[name].model_copy(update=change) for name, change in some.items()}
    seconds, chain = best_cycle_time(asked.model_copy(update={"activities": ending}))
    assert (seconds, chain) == (pytest.approx(10 + 10 * 0.5), ["a", "b"])


def test_demand_that_no_staffing_can_meet_is_reported() -> None:
    asked = wanted("abc", pools=("desk",), demand={"arrivals_per_second": 0.2})
    (found,) = contradictions(asked)
    assert str(found) == (
        "the demand keeps 6 servers of 'desk' busy, but at most 3 are at work on average, even with `most` servers"
    )
    few = wanted("abc", pools=("desk",), demand={"arrivals_per_second": 0.09})
    assert contradictions(few) == []
    # Eight hours on five days are less than a quarter of the week.
    hours = tuple((24.0 * day + 9, 24.0 * day + 17) for day in range(5))
    resting = few.model_copy(update={"pools": {"desk": few.pools["desk"].model_copy(update={"calendar": hours})}})
    (found,) = contradictions(resting)
    assert "keeps 2.7 servers of 'desk' busy, but at most 0.7143 are at work on average" in str(found)


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


NEVER, BEFORE, AFTER, BESIDE = "never both", "before", "after", "beside"


@pytest.mark.parametrize(
    ("root", "found"),
    [
        (Sequence((A, B)), BEFORE),
        (Sequence((B, A)), AFTER),
        (Parallel((A, B)), BESIDE),
        (Choice((A, B), (0.5, 0.5)), NEVER),
        (Loop(A, 0.5, B), BEFORE),
        (Loop(B, 0.5, A), AFTER),
        (Cancellable(A, 0.5, B), BEFORE),
        (Cancellable(B, 0.5, A), AFTER),
        (PartialOrder((A, B, C), frozenset({(0, 2), (2, 1)})), BEFORE),
        (PartialOrder((A, B, C), frozenset({(1, 2), (2, 0)})), AFTER),
        (PartialOrder((A, B, C), frozenset({(0, 2), (1, 2)})), BESIDE),
        (Parallel((Sequence((A, B)), C)), BEFORE),
        (Loop(Choice((A, B), (0.5, 0.5)), 0.5), NEVER),
        (Instances(Parallel((C, Sequence((B, A)))), 2, 2, 2), AFTER),
    ],
)
def test_two_activities_relate_as_the_block_says_where_their_ways_part(root: Block, found: str) -> None:
    places = {place.activity.name: place.path for place in places_of(root)}
    assert relation(root, places["a"], places["b"]) == found
    other = {BEFORE: AFTER, AFTER: BEFORE}.get(found, found)
    assert relation(root, places["b"], places["a"]) == other
    # The same two ways: whether the rules are kept is decided again by one walk over bit masks.
    for pair, order_kept in ((("a", "b"), found in (BEFORE, NEVER)), (("b", "a"), found in (AFTER, NEVER))):
        asked = wanted(rules={"precedes": [pair]})
        assert PairRules(asked).kept(root) is order_kept
        assert ("precedes" in rules_broken(root, asked)) is not order_kept
        apart = wanted(rules={"excludes": [pair]})
        assert PairRules(apart).kept(root) is (found == NEVER)
        assert ("excludes" in rules_broken(root, apart)) is (found != NEVER)


def test_a_pair_of_which_one_is_missing_is_kept() -> None:
    for what in ("precedes", "excludes"):
        asked = wanted(rules={what: [("b", "a")]})
        assert PairRules(asked).kept(Sequence((A, C)))
        assert rules_broken(Sequence((A, C)), asked) == ["must include"]


def test_violations_say_who_and_how() -> None:
    asked = wanted(rules={"precedes": [("a", "b")], "excludes": [("b", "c")]})
    found = [str(one) for one in broken_rules(Design("d", Sequence((B, A, C))), asked)]
    assert found == ["precedes: 'b' comes before 'a'", "excludes: 'b' and 'c' can both happen in one case"]
    beside = broken_rules(Design("d", Parallel((A, B))), wanted("ab", rules={"precedes": [("a", "b")]}))
    assert [(one.words, one.names) for one in beside] == [("'b' does not wait for 'a'", ("a", "b"))]


@pytest.mark.parametrize("seed", range(150))
def test_one_walk_over_bit_masks_decides_as_every_pair_looked_at(seed: int) -> None:
    rng = random.Random(f"masks/{seed}")
    root = random_block(rng, 7)
    names = [f"a{number}" for number in range(7)]
    optional = {"duration": {"mean": 1}, "optional": True}
    for what in ("precedes", "excludes"):
        rules = {what: [rng.sample(names, 2) for _ in range(rng.randint(1, 2))]}
        asked = parse_requirements({"name": "t", "activities": dict.fromkeys(names, optional), "rules": rules})
        assert PairRules(asked).kept(root) is (rules_broken(root, asked) == []), (root, rules)


def test_shares_follow_choices_loops_and_cancellations() -> None:
    d, e, f = (Activity(name) for name in "def")
    broken_off = Cancellable(Instances(d, 2, 3, 1), 0.125, Choice((e, f), (0.5, 0.5)))
    root = Sequence((Choice((A, Loop(B, 0.5, C)), (0.25, 0.75)), broken_off))
    found = {place.activity.name: (place.path, place.share) for place in places_of(root)}
    assert found == {
        "a": ((0, 0), 0.25), "b": ((0, 1, 0), 0.75), "c": ((0, 1, 1), 0.375), "d": ((1, 0, 0), 1.0),
        "e": ((1, 1, 0), 0.0625), "f": ((1, 1, 1), 0.0625),
    }  # fmt: skip
    assert list(found) == list("abcdef")


@pytest.mark.parametrize("seed", range(40))
def test_cases_come_to_an_activity_as_often_as_the_walk_of_the_score_says(seed: int) -> None:
    rng = random.Random(f"shares/{seed}")
    root = random_block(rng, rng.randint(1, 14))
    walked = [(activity.name, share) for activity, share, _ in anatomy(Design("d", root)).runs]
    assert [(place.activity.name, place.share) for place in places_of(root)] == [
        (name, pytest.approx(share)) for name, share in walked
    ]


def quick(root: Block, requirements: Requirements, **rest: Any) -> list[str]:
    """The rules broken according to the quick way, which first confirms that none is."""
    design = Design("d", root, **rest)
    return [one.rule for one in RuleBook(requirements).broken(design, anatomy(design).runs)]


@pytest.mark.parametrize(
    ("root", "servers", "found"),
    [
        (Sequence((Activity("a", Handling(pool="back")), B)), (), []),
        (Sequence((A, Activity("b", Handling(pool="back")))), (), []),
        (Sequence((A, B)), (), ["separate"]),
        (Sequence((Activity("a", Handling(pool="back")), Activity("b", Handling(pool="back")))), (), ["separate"]),
        (Sequence((Activity("a", Handling(pool="desk")), B)), (), ["separate"]),
        (Sequence((Activity("a", Handling(pool="back")), B)), (("desk", 3),), []),
        (Sequence((Activity("a", Handling(pool="back")), B)), (("desk", 4),), ["staffing"]),
        (Sequence((Activity("a", Handling(pool="back")), B)), (("nobody", 1),), ["staffing"]),
        (Sequence((Activity("a", Handling(pool="else")), B)), (), ["pool"]),
        (Sequence((Activity("a", Handling(pool="back")), B, Activity("x"))), (), ["unknown activity"]),
        (B, (), ["must include"]),
        (Choice((Activity("a", Handling(pool="back")), B), (0.5, 0.5)), (), ["every case", "every case"]),
    ],
)
def test_the_quick_way_and_the_long_way_break_the_same_rules(root: Block, servers: Any, found: list[str]) -> None:
    asked = wanted("ab", pools=("desk", "back"), rules={"separate": [("a", "b")]})
    assert rules_broken(root, asked, servers=servers) == found
    assert quick(root, asked, servers=servers) == found


def test_a_deadline_is_kept_at_the_very_second() -> None:
    asked = wanted("a", rules={"deadline": 20.0})
    assert broken_rules(Design("d", A), asked, cycle_time=20.0) == []
    assert len(broken_rules(Design("d", A), asked, cycle_time=20.000001)) == 1
    assert broken_rules(Design("d", A), wanted("a"), cycle_time=1e9) == []


@pytest.mark.parametrize(("missing", "broken"), [(0.0, []), (5e-7, []), (2e-6, ["every case"])])
def test_shares_may_miss_what_is_needed_by_rounding_only(missing: float, broken: list[str]) -> None:
    asked = wanted("ab", branches=[{"name": "x", "options": {"b": 0.4}}])
    share = 0.4 - missing
    root = Sequence((A, Choice((B, Skip()), (share, 1 - share))))
    assert rules_broken(root, asked) == quick(root, asked) == broken
