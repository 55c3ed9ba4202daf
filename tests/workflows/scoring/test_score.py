"""The score: its parts by hand, its gates, its scales, and that it cannot be had cheaply."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from groupwise.errors import ConfigError
from groupwise.workflows.blocks import Activity, Cancellable, Choice, Design, Handling, Parallel, Sequence, Skip
from groupwise.workflows.evaluation import evaluate
from groupwise.workflows.evaluation.performance import Performance
from groupwise.workflows.requirements import Requirements, Weights, parse_requirements
from groupwise.workflows.scoring import DesignScore, ScorePart, score, score_batch
from groupwise.workflows.scoring.measures import GROUPS, MEASURES, verb_and_object

A, B, C = (Activity(name) for name in ("check claim", "assess claim", "pay claim"))
LINE = Design("line", Sequence((A, B, C)), (("desk", 2),))
WIDE = Design("wide", Sequence((Parallel((A, B)), C)), (("desk", 2),))


def asked(**rest: Any) -> Requirements:
    activity = {"duration": {"mean": 10}, "pools": ["desk"], "cost": 1, "cpu": 2, "memory": 100}
    return parse_requirements(
        {
            "name": "claims",
            "activities": {one.name: activity for one in (A, B, C)},
            "pools": {"desk": {"most": 4, "wage": 0.1, "kind": "machine"}},
            "rules": {"precedes": [(A.name, C.name), (B.name, C.name)], "deadline": 1000},
            "demand": {"arrivals_per_second": 0.05},
            **rest,
        }
    )


# 2 servers, 30 s of work per case at 0.05 cases per second: 1.5 of them busy
MEASURED = Performance(
    "analytic", 60.0, (60.0, 60.0), waiting=30.0, throughput=0.05, cost=7.0, utilisation={"desk": 0.75}, cpu=3.0,
    memory=150.0, completed=1.0, capacity=0.0667,
)  # fmt: skip


def shares(found: DesignScore) -> dict[str, float]:
    return {m.name: share for m, (_, share, _) in zip(MEASURES, found.measured, strict=True)}


def test_every_part_is_what_its_formula_says() -> None:
    found = score(LINE, asked(), MEASURED)
    assert shares(found) == pytest.approx(
        {
            "cycle time": 20 / 60,
            "cost": 1.0,  # 3 for the activities, and two servers, the fewest that keep up, at 0.1 for every 20 s
            "memory": 1.0,  # 150 / 0.05 = 3000 byte-seconds, as three activities of 10 s with 100 bytes need
            "CPU utilisation": 3 / 4,
            "throughput": 1.0,
            "cyclomatic complexity": 1.0,
            "control-flow complexity": 1.0,
            "fan-in and fan-out": 1.0,
            "connectivity": 1.0,
            "path coverage": 1.0,
            "readability": (1 / (1 + (5 / 50) ** 2) + 1 + 1 + 1 + 1) / 5,
            "modularity": 1.0,
            "documentation": 0.0,
            "testability": 1.0,
            "utilisation": 0.75 / 0.8,
            "cost efficiency": 6 / 7,  # three activities: 1 each, and 10 s at 0.1
            "scalability": 1 - 0.75,
            "contention": 0.5,  # 30 s of waiting beside 30 s of work
        }
    )
    parts = {name: [(m.weight, shares(found)[m.name]) for m in MEASURES if m.group == name] for name in GROUPS}
    expected = {name: sum(w * share for w, share in some) / sum(w for w, _ in some) for name, some in parts.items()}
    assert dict(zip(GROUPS, found.groups, strict=True)) == pytest.approx(expected)
    weights = (0.4, 0.25, 0.2, 0.15)
    assert found.total == pytest.approx(sum(w * expected[g] for w, g in zip(weights, GROUPS, strict=True)))


def test_the_tree_of_parts_adds_up_and_is_json() -> None:
    found = score(WIDE, asked(), MEASURED)
    tree = found.explain()
    leaves = [leaf for group in tree.parts for leaf in group.parts]
    assert sum(leaf.weight for leaf in leaves) == pytest.approx(1)
    assert sum(leaf.weight * (leaf.share or 0) for leaf in leaves) == pytest.approx(found.total)
    assert all(leaf.words and leaf.scale for leaf in leaves)
    assert json.loads(json.dumps(found.as_dict()))["score"] == found.total
    assert "a case takes 60 s on average" in {leaf.words for leaf in leaves}


def test_a_broken_rule_names_itself_and_there_is_no_score() -> None:
    found = score(Design("d", Sequence((C, A, B))), asked(), MEASURED)
    assert found.total == 0
    assert [violation.rule for violation in found.broken] == ["precedes", "precedes"]
    assert "hard rules are broken" in found.explain().words
    late = score(LINE, asked(), replace(MEASURED, cycle_time=2000.0))
    assert (late.total, late.broken[0].rule) == (0, "deadline")


def test_weights_come_from_the_objective_or_the_caller() -> None:
    only = Weights(performance=0, structure=1, maintainability=0, resources=0)
    assert score(LINE, asked(objective=only.model_dump()), MEASURED).total == 1
    assert score(LINE, asked(), MEASURED, only).total == 1
    assert score(LINE, asked(objective="pareto"), MEASURED).total == score(LINE, asked(), MEASURED).total
    with pytest.raises(ConfigError, match="every weight of the score is 0"):
        score(LINE, asked(), MEASURED, Weights(performance=0, structure=0, maintainability=0, resources=0))


def test_what_the_requirements_do_not_tell_does_not_count() -> None:
    bare = parse_requirements({"name": "t", "activities": {one.name: {"duration": {"mean": 10}} for one in (A, B, C)}})
    idle = replace(MEASURED, utilisation={}, cost=0.0, cpu=0.0, memory=0.0, waiting=0.0, capacity=math.inf)
    quick = replace(idle, cycle_time=10.0, throughput=0.1)
    found = score(Design("line", LINE.root), bare, quick)
    assert found.groups[3] is None
    assert found.groups[0] == 1
    leaves = [leaf for group in found.explain().parts for leaf in group.parts]
    assert sum(leaf.weight for leaf in leaves) == pytest.approx(1)


def test_fault_11_a_score_does_not_depend_on_the_batch_it_is_in() -> None:
    few = [MEASURED, replace(MEASURED, cycle_time=80.0)]
    more = [*few, replace(MEASURED, cycle_time=800.0)]
    alone, beside = (score_batch([LINE] * len(batch), asked(), batch) for batch in (few, more))
    assert [one.total for one in alone] == [one.total for one in beside[:2]]
    wrong = [score_batch([LINE] * len(batch), asked(), batch, normalization="zscore")[1] for batch in (few, more)]
    assert abs(wrong[0].total - wrong[1].total) > 0.1, "a z-score changes with the rest of its batch"


def test_z_scores_are_relative_to_their_batch_and_equal_parts_count_nothing() -> None:
    slow = replace(MEASURED, cycle_time=80.0)
    found = score_batch([LINE, LINE], asked(), [MEASURED, slow], normalization="zscore")
    assert [one.relative[0] for one in found] == pytest.approx([1.0, -1.0], abs=1e-12)
    assert [one.relative[1:] for one in found] == [(0.0, 0.0, 0.0)] * 2
    assert [one.total for one in found] == pytest.approx([0.4, -0.4])
    broken = Design("d", Sequence((C, A, B)))
    worst = score_batch([LINE, broken, WIDE], asked(), [MEASURED] * 3, normalization="zscore")
    assert min(worst, key=lambda one: one.total) is worst[1]
    assert score_batch([LINE], asked(), [MEASURED])[0] == score(LINE, asked(), MEASURED)


def test_giving_up_is_no_way_to_be_fast() -> None:
    hasty = replace(MEASURED, cycle_time=1.0, completed=0.01, cost=0.1)
    found = shares(score(LINE, asked(), hasty))
    assert [found[name] for name in ("cycle time", "throughput", "cost", "cost efficiency")] == pytest.approx(
        [0.01**3] * 4
    )


def test_breaking_everything_off_is_none_either() -> None:
    broken_off = Design("d", Cancellable(LINE.root, 0.99), LINE.servers)
    quick = replace(MEASURED, cycle_time=1.0, cost=0.1, waiting=0.0)
    assert score(broken_off, asked(), quick).total < score(LINE, asked(), MEASURED).total
    assert shares(score(broken_off, asked(), quick))["cycle time"] == pytest.approx(0.01)


def test_a_design_that_cannot_keep_up_has_no_score() -> None:
    overrun = replace(MEASURED, capacity=0.04, cycle_time=500.0, throughput=0.04)
    found = score(LINE, asked(rules={}), overrun)
    assert (found.total, found.broken[0].rule) == (0, "overload")
    assert found.broken[0].words == "0.05 cases arrive per second, but only 0.04 can be handled"
    told = score(Design("d", LINE.root, (("desk", 1),)), asked(rules={}))
    assert told.broken[0].words == "pool 'desk' has a load of 1.50 with 1 server; it needs at least 2 to keep up"
    batch = asked(rules={}, demand={"runs": 3})
    assert score(Design("d", LINE.root, (("desk", 1),)), batch).total > 0, "runs that start at once have all the time"


def test_larger_limits_and_empty_words_earn_nothing() -> None:
    """What requirements allow but a design does not use must not count for it."""
    plain = score(LINE, asked(), MEASURED).total
    pools = {"desk": {"most": 1000, "wage": 0.1, "kind": "machine"}}
    assert score(LINE, asked(pools=pools), MEASURED).total == plain
    activity = {"duration": {"mean": 10}, "pools": ["desk"], "cost": 1, "cpu": 2, "memory": 100}
    for words in ("x y z", "to do later", "check claim assess claim", "does what its name says, like all of them"):
        told = {one.name: {**activity, "documentation": words} for one in (A, B, C)}
        assert score(replace(LINE, documentation="tbd tbd tbd"), asked(activities=told), MEASURED).total == plain
    said = {
        one.name: {**activity, "documentation": f"Compare {one.name} with the policy it names."} for one in (A, B, C)
    }
    assert score(LINE, asked(activities=said), MEASURED).total > plain


@pytest.mark.parametrize("kind", ["person", "machine"])
def test_cutting_people_off_saves_no_time(kind: str) -> None:
    activity = {"duration": {"kind": "lognormal", "mean": 10, "std": 30}, "pools": ["desk"]}
    pools = {"desk": {"most": 4, "wage": 0.1, "kind": kind}}
    requirements = asked(activities={one.name: activity for one in (A, B, C)}, pools=pools, rules={})
    hasty = Design("d", Sequence((Activity(A.name, Handling(timeout=60.0)), B, C)), (("desk", 3),))
    patient = Design("d", LINE.root, (("desk", 3),))
    assert evaluate(hasty, requirements).cycle_time < 0.97 * evaluate(patient, requirements).cycle_time
    quick, slow = (shares(score(design, requirements))["cycle time"] for design in (hasty, patient))
    assert (quick > slow) is (kind == "machine"), "work of people counts as if it were waited for"


def test_parallel_work_is_worth_its_gateways_and_useless_gateways_are_not() -> None:
    """A tenth less time outweighs the split and join it takes; the same time does not."""
    faster, same = replace(MEASURED, cycle_time=54.0), MEASURED
    assert score(WIDE, asked(), faster).total > score(LINE, asked(), MEASURED).total
    assert score(WIDE, asked(), same).total < score(LINE, asked(), MEASURED).total


def test_coverage_counts_what_cases_need_and_get() -> None:
    options = [{"name": "paid", "options": {C.name: 0.5}}]
    fits = Design("d", Sequence((A, B, Choice((C, Skip()), (0.5, 0.5)))))
    assert shares(score(fits, asked(branches=options), MEASURED))["path coverage"] == 1


@pytest.mark.parametrize(
    ("label", "right"),
    [
        ("check claim", True),
        ("checkClaim", True),
        ("implement_change", True),
        ("claim", False),
        ("verification of claim", False),
        ("processing order", False),
    ],
)
def test_labels_have_a_verb_and_an_object(label: str, right: bool) -> None:
    assert verb_and_object(label) is right


def test_parts_know_where_they_come_from() -> None:
    tree = score(LINE, asked(), MEASURED).explain()
    assert isinstance(tree, ScorePart)
    cycle = tree.parts[0].parts[0]
    assert (cycle.name, cycle.value, cycle.unit) == ("cycle time", 60.0, "s")
    assert cycle.scale == "1 at 20 s, the lower bound for any design; half at twice that"


def test_only_work_on_machines_keeps_their_cores_busy() -> None:
    person = {"pools": {"desk": {"most": 4, "kind": "machine"}, "clerk": {"most": 4}}}
    activities = {
        one.name: {"duration": {"mean": 10}, "pools": ["desk", "clerk"], "cpu": 2.0, "memory": 100.0}
        for one in (A, B, C)
    }
    requirements = asked(activities=activities, **person)
    by_clerks = Design("clerks", Sequence(tuple(Activity(one.name, Handling(pool="clerk")) for one in (A, B, C))))
    measured = replace(MEASURED, utilisation={"desk": 0.0, "clerk": 0.75})
    assert shares(score(by_clerks, requirements, measured))["CPU utilisation"] == 0.0
    # it counts all the same: designs are compared by the same measures
    place = [measure.name for measure in MEASURES].index("CPU utilisation")
    assert score(by_clerks, requirements, measured).measured[place][0] == 0.0


def test_work_that_need_not_be_done_is_no_way_to_be_busy() -> None:
    activities = {
        "check claim": {"duration": {"mean": 10}, "pools": ["desk"], "knock_out": 0.5},
        "assess claim": {"duration": {"mean": 40}, "pools": ["desk"]},
    }
    requirements = asked(activities=activities, rules={}, demand={"arrivals_per_second": 0.01})
    early, late = (Design("d", Sequence(parts), (("desk", 2),)) for parts in ((A, B), (B, A)))
    busy = [shares(score(design, requirements))["utilisation"] for design in (early, late)]
    # 10 s, and 40 for the half that passes, at 0.01 a second by 2 servers: 15% of them have to be busy, not 25%
    assert busy == pytest.approx([0.15 / 0.8, 0.15 / 0.8])
    assert score(early, requirements).total > score(late, requirements).total


def test_cores_are_busy_as_far_as_servers_are_and_as_their_work_uses_them() -> None:
    """Two servers of `farm` with four cores each, one of `node` with two; half of the cases need the second."""
    kinds = {"farm": "machine", "node": "machine", "clerk": "person"}
    seconds, cores = {"a": 10, "b": 30, "c": 20, "d": 5}, {"a": 4.0, "b": 1.0, "c": 2.0, "d": 3.0}
    where = {"a": "farm", "b": "farm", "c": "node", "d": "clerk"}
    requirements = parse_requirements(
        {
            "name": "cores",
            "activities": {n: {"duration": {"mean": seconds[n]}, "cpu": cores[n], "pools": [where[n]]} for n in where},
            "pools": {name: {"kind": kind, "most": 4} for name, kind in kinds.items()},
            "branches": [{"name": "some", "options": {"b": 0.5}}],
            "demand": {"arrivals_per_second": 0.02},
        }
    )
    a, b, c, d = (Activity(name) for name in "abcd")
    design = Design("d", Sequence((a, Choice((b, Skip()), (0.5, 0.5)), c, d)), (("farm", 2),))
    measured = replace(MEASURED, throughput=0.02, utilisation={"farm": 0.5, "node": 0.25, "clerk": 0.1})
    # On the farm 10 s of four cores and 15 s of one, 2.2 on average; 50 s of work are needed, and 67.5 s were done.
    busy = (0.5 * 2 * 2.2 + 0.25 * 1 * 2) / (2 * 4 + 1 * 2)
    assert shares(score(design, requirements, measured))["CPU utilisation"] == pytest.approx(busy * 50 / 67.5)


def test_servers_of_every_pool_count_and_pools_that_the_design_does_not_name_have_their_fewest() -> None:
    pools = {"desk": {"least": 0, "most": 4}, "back": {"least": 3, "most": 4}}
    activity = {"duration": {"mean": 10}, "pools": ["desk", "back"]}
    requirements = asked(activities={one.name: activity for one in (A, B, C)}, pools=pools, rules={})
    measured = replace(MEASURED, utilisation={"desk": 0.9, "back": 0.3}, throughput=0.05)
    # 0.9 of one server and 0.9 of three are busy, which is 36 s of work for every case, of which 30 are needed.
    found = shares(score(Design("d", LINE.root), requirements, measured))
    assert found["utilisation"] == pytest.approx(1.8 / 4 * 30 / 36 / 0.8)
    assert found["scalability"] == pytest.approx(0.1)
    assert found["contention"] == pytest.approx(1.8 / (1.8 + 30 * 0.05))
    named = Design("d", LINE.root, (("desk", 2), ("back", 4)))
    assert shares(score(named, requirements, measured))["utilisation"] == pytest.approx(3 / 6 * 30 / 60 / 0.8)


@pytest.mark.parametrize("waiting", [60.0, 61.0, 600.0])
def test_a_case_waits_no_longer_than_it_takes(waiting: float) -> None:
    found = shares(score(LINE, asked(), replace(MEASURED, waiting=waiting)))
    assert found["contention"] == pytest.approx(1.5 / (1.5 + 60 * 0.05))


def test_the_shape_of_a_choice_that_nobody_asked_for() -> None:
    """start → a → split → b | c | d → join → end: 8 nodes, 9 flows, Σ (fan-in · fan-out)² = 22."""
    names = ("check claim", "b", "c", "d")
    activities = {name: {"duration": {"mean": 10}, "optional": name != names[0]} for name in names}
    requirements = parse_requirements({"name": "t", "activities": activities})
    idle = replace(MEASURED, utilisation={})
    a, b, c, d = (Activity(name) for name in names)
    found = shares(score(Design("d", Sequence((a, Choice((b, c, d), (0.1, 0.3, 0.6))))), requirements, idle))
    assert {name: found[name] for name in found if name in (*STRUCTURE, "readability", "testability")} == pytest.approx(
        {
            "cyclomatic complexity": 1 / (1 + (2 / 9) ** 2),
            "control-flow complexity": 1 / (1 + (3 / 20) ** 2),
            "fan-in and fan-out": 1 / (1 + ((math.sqrt(22 / 8) - 1) / 4) ** 2),
            "connectivity": 1 / (1 + (1 / 8) ** 2),
            "path coverage": 1.0,
            "readability": (1 / (1 + (8 / 50) ** 2) + 1 / 4 + 1 / (1 + (1 / 5) ** 2) + 1 / (1 + (1 / 5) ** 2) + 1) / 5,
            # Two more ways than one, and the rarest activity is done in one of ten cases.
            "testability": (1 / (1 + (2 / 9) ** 2) + 1 / 2) / 2,
        }
    )


STRUCTURE = ("cyclomatic complexity", "control-flow complexity", "fan-in and fan-out", "connectivity", "path coverage")


def test_the_worse_figure_counts_with_and_without_timeouts_for_people() -> None:
    pools = {"desk": {"most": 4, "wage": 0.1}}
    activity = {"duration": {"mean": 10}, "pools": ["desk"]}
    requirements = asked(activities={one.name: activity for one in (A, B, C)}, pools=pools, rules={})
    hasty = replace(LINE, root=Sequence((Activity(A.name, Handling(timeout=600.0)), B, C)))
    patient = evaluate(LINE, requirements)
    rising, falling = ("cycle_time", "waiting", "cost"), ("throughput", "completed", "capacity")
    better = {**{name: getattr(patient, name) / 2 for name in rising}, **{n: getattr(patient, n) * 2 for n in falling}}
    worse = {**{name: getattr(patient, name) * 2 for name in rising}, "throughput": patient.throughput / 2,
             "completed": 0.5, "capacity": patient.capacity * 0.9}  # fmt: skip
    for given, expected in ((better, patient), (worse, replace(patient, **worse))):
        found = score(hasty, requirements, replace(patient, **given)).performance
        assert found is not None
        assert {name: getattr(found, name) for name in worse} == {name: getattr(expected, name) for name in worse}
    for name, value in worse.items():
        alone = score(hasty, requirements, replace(patient, **{**better, name: value})).performance
        assert getattr(alone, name) == value
    # Without a timeout what was measured counts as it is.
    assert score(LINE, requirements, replace(patient, **better)).performance == replace(patient, **better)


def test_a_score_explains_itself_in_words() -> None:
    one = score(Design("d", Sequence((A, C, B)), LINE.servers), asked(), MEASURED).explain()
    assert one.words == "1 hard rule is broken, so the score is 0"
    assert [(part.name, part.words) for part in one.parts] == [("precedes", "'pay claim' comes before 'assess claim'")]
    assert (one.share, one.weight) == (0.0, 1.0)
    tree = score(LINE, asked(), MEASURED).explain()
    assert (tree.words, [part.words for part in tree.parts]) == (
        "the weighted mean of its parts",
        ["the weighted mean of its measures"] * 4,
    )
    batch = [MEASURED, replace(MEASURED, cycle_time=80.0)]
    told = [one.explain() for one in score_batch([LINE, LINE], asked(), batch, normalization="zscore")]
    assert [one.words for one in told] == ["weighted z-scores within its batch"] * 2
    assert [one.parts[0].words for one in told] == ["z-score +1.000 in its batch", "z-score -1.000 in its batch"]
    bare = parse_requirements({"name": "t", "activities": {A.name: {"duration": {"mean": 10}}}})
    idle = replace(MEASURED, utilisation={}, cost=0.0, memory=0.0, waiting=0.0)
    groups = score(Design("line", A), bare, idle).explain().parts
    assert (groups[3].words, groups[3].weight, groups[3].share) == ("nothing to measure", 0.0, None)
    cost = next(leaf for leaf in groups[0].parts if leaf.name == "cost")
    assert (cost.words, cost.weight, cost.share) == ("not specified in the requirements", 0.0, None)


def test_memory_is_held_as_long_as_cases_take_and_for_ever_if_none_is_done() -> None:
    assert shares(score(LINE, asked(), replace(MEASURED, memory=300.0)))["memory"] == pytest.approx(0.5)
    assert shares(score(LINE, asked(), replace(MEASURED, throughput=0.0)))["memory"] == 0
