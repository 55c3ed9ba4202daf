"""Who does what: skills, hours and duties of people in the simulation, limits of loops, and pools that nobody uses."""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest

from groupwise.workflows.blocks import Activity, Block, Choice, Design, DesignError, Loop, Parallel, Sequence, Skip
from groupwise.workflows.evaluation import evaluate
from groupwise.workflows.evaluation.analytic import capacity_of, overload
from groupwise.workflows.evaluation.encoding import encode
from groupwise.workflows.evaluation.performance import SimulatedTry
from groupwise.workflows.evaluation.simulation import confidence, simulate
from groupwise.workflows.evaluation.staffing import MOST_GROUPS, Roster, busiest, common_shifts, open_time, shifts_of
from groupwise.workflows.requirements import Requirements, parse_requirements

FIXED = {"kind": "fixed", "mean": 10.0}
TWO = Sequence((Activity("check"), Activity("approve")))
MANY = 400


def asked(
    activities: dict[str, Any], people: dict[str, Any] | None = None, rate: float = 0.01, **more: Any
) -> Requirements:
    value = {"name": "test", "activities": activities, "people": people or {}, **more}
    return parse_requirements({**value, "demand": {"arrivals_per_second": rate}})


def tries(root: Block, requirements: Requirements, **servers: int) -> dict[int, dict[str, list[SimulatedTry]]]:
    """What happened in each of the first cases, by activity."""
    design = Design("test", root, tuple(servers.items()))
    found: dict[int, dict[str, list[SimulatedTry]]] = defaultdict(lambda: defaultdict(list))
    for one in simulate(encode(design, requirements), MANY, seed=3, trace=3 * MANY).trace:
        found[one.case][one.activity].append(one)
    return found


def office(rate: float = 0.05, **rules: Any) -> Requirements:
    """Two activities of one desk of three, without names."""
    work = {"duration": {"mean": 10.0}, "pools": ["desk"]}
    return asked({"check": work, "approve": work}, rate=rate, pools={"desk": {"most": 3}}, rules=rules)


def test_different_people_never_include_the_same_server() -> None:
    pair: Any = [["check", "approve"]]
    free, kept = (tries(TWO, office(**rules), desk=3) for rules in ({}, {"different_people": pair}))
    same = [one["check"][0].server == one["approve"][0].server for one in free.values() if one["approve"]]
    assert 0.2 < np.mean(same) < 0.9
    apart = [one["check"][0].server != one["approve"][0].server for one in kept.values() if one["approve"]]
    assert len(apart) > MANY
    assert all(apart)


def test_the_same_person_goes_on_and_is_waited_for() -> None:
    found = tries(TWO, office(same_person=[["check", "approve"]]), desk=3)
    both = [one for one in found.values() if one["approve"]]
    assert all(one["check"][0].server == one["approve"][0].server for one in both)
    # Somebody else was free, but the case waited.
    assert any(one["approve"][0].start > one["approve"][0].ready for one in both)


def test_separate_duties_take_longer_and_bound_ones_longer_still() -> None:
    pair = [["check", "approve"]]
    rules: Any = ({}, {"different_people": pair}, {"same_person": pair})
    design = Design("test", TWO, (("desk", 3),))
    free, apart, bound = (evaluate(design, office(0.13, **one), "simulation", cases=20_000).cycle_time for one in rules)
    assert free < apart < bound


def test_only_people_with_the_skills_do_it_and_the_first_of_the_file_is_asked_first() -> None:
    work = {"duration": FIXED, "pools": ["desk"]}
    people = {who: {"pools": ["desk"], "skills": skills} for who, skills in
              {"Anna": [], "Ben": ["law"], "Cleo": ["law", "tax"]}.items()}  # fmt: skip
    activities = {"check": work, "approve": {**work, "skills": ["law"]}, "sign": {**work, "skills": ["law", "tax"]}}
    requirements = asked(activities, people, rate=0.03, pools={"desk": {"least": 3, "most": 3}})
    root = Sequence((Activity("check"), Activity("approve"), Activity("sign")))
    found = tries(root, requirements, desk=3)
    by = {name: {one.server for case in found.values() for one in case[name]} for name in activities}
    assert by == {"check": {0, 1, 2}, "approve": {1, 2}, "sign": {2}}
    assert found[0]["check"][0].server == 0
    assert found[0]["approve"][0].server == 1


def test_work_that_nobody_present_may_do_is_passed_over_and_keeps_its_place() -> None:
    work = {"duration": FIXED, "pools": ["desk"]}
    people = {"Anna": {"pools": ["desk"]}, "Ben": {"pools": ["desk"], "skills": ["law"]}}
    quick = {**work, "duration": {"kind": "fixed", "mean": 1.0}}
    activities = {"plain": quick, "legal": {**work, "skills": ["law"]}}
    requirements = asked(activities, people, rate=0.09, pools={"desk": {"least": 2, "most": 2}})
    found = tries(Parallel((Activity("legal"), Activity("plain"))), requirements, desk=2)
    legal = [one for case in sorted(found) for one in found[case]["legal"]]
    plain = [one for case in sorted(found) for one in found[case]["plain"]]
    for some in (legal, plain):
        assert [one.start for one in some] == sorted(one.start for one in some)
    # While legal work waits for Ben, Anna takes plain work that came later.
    assert any(one.start > other.start for one in legal for other in plain if one.case < other.case)


def test_people_work_in_all_of_their_pools_but_at_one_thing_at_a_time() -> None:
    people = {"Anna": {"pools": ["front", "back"]}, "Ben": {"pools": ["back"]}}
    activities = {"ask": {"duration": {"mean": 10.0}, "pools": ["front"]},
                  "file": {"duration": {"mean": 10.0}, "pools": ["back"]}}  # fmt: skip
    pools = {"front": {"wage": 2.0}, "back": {"least": 2, "most": 2, "wage": 1.0}}
    requirements = asked(activities, people, rate=0.05, pools=pools)
    root = Parallel((Activity("ask"), Activity("file")))
    found = tries(root, requirements, front=1, back=2)
    anna = sorted(
        (one.start, one.end) for case in found.values() for some in case.values() for one in some if one.server == 0
    )
    assert {name for case in found.values() for name, some in case.items() for one in some if one.server == 0} == {
        "ask",
        "file",
    }
    assert all(end <= start for (_, end), (start, _) in pairwise(anna))
    # Anna is paid once, by her first pool: 2 and 1 per second for 20 seconds between two cases.
    cost = evaluate(Design("test", root, (("front", 1), ("back", 2))), requirements, "simulation", cases=1_000).cost
    assert cost == pytest.approx(3.0 / 0.05)


def test_people_rest_outside_their_own_hours_while_others_work() -> None:
    people = {"Anna": {"pools": ["desk"], "calendar": [[8, 12]]}, "Ben": {"pools": ["desk"], "calendar": [[10, 20]]}}
    pools = {"desk": {"least": 2, "most": 2, "calendar": [[8, 16]]}}
    work = {"check": {"duration": {"kind": "fixed", "mean": 1800.0}, "pools": ["desk"]}}
    found = tries(Activity("check"), asked(work, people, rate=8 / (168 * 3600), pools=pools), desk=2)
    hours = {0: (8, 12), 1: (10, 16)}
    starts = [(one.server, one.start / 3600 % 168) for case in found.values() for one in case["check"]]
    assert {server for server, _ in starts} == {0, 1}
    assert all(hours[server][0] <= hour < hours[server][1] for server, hour in starts)


def test_the_first_people_of_the_file_work_where_a_pool_has_fewer_servers() -> None:
    people = {who: {"pools": ["desk"], "skills": ["any"]} for who in ("Anna", "Ben", "Cleo")}
    work = {"check": {"duration": {"mean": 10.0}, "pools": ["desk"], "skills": ["any"]}}
    requirements = asked(work, people, rate=0.15, pools={"desk": {"least": 1, "most": 3}})
    found = tries(Activity("check"), requirements, desk=2)
    assert {one.server for case in found.values() for one in case["check"]} == {0, 1}


@pytest.mark.parametrize(("most", "again"), [(1, 0.5), (2, 0.9), (3, 0.3), (None, 0.5)])
def test_a_loop_repeats_at_most_as_often_as_its_limit(most: int | None, again: float) -> None:
    loop = {
        "name": "again",
        "activities": ["work", "test"],
        "after": "test",
        "again": again,
        "most": most,
        "redo": ["mend"],
    }
    activities = {name: {"duration": FIXED} for name in ("work", "test", "mend")}
    requirements = asked(activities, loops=[loop])
    root = Loop(Sequence((Activity("work"), Activity("test"))), again, Activity("mend"))
    found = tries(root, requirements)
    rounds = [len(case["work"]) for case in list(found.values())[:100]]
    assert max(rounds) == (most + 1 if most else max(rounds))
    repeated = sum(again**n for n in range(1, (most or 99) + 1))
    exact = 20 + 30 * repeated
    cycle = simulate(encode(Design("test", root), requirements), 40_000, seed=1).cycle
    low, high = confidence(cycle)
    assert low - 0.1 < exact < high + 0.1
    assert evaluate(Design("test", root), requirements, "analytic").cycle_time == pytest.approx(exact)


def test_only_the_loop_of_the_requirements_has_their_limit() -> None:
    loop = {"name": "again", "activities": ["work"], "after": "work", "again": 0.9, "most": 1}
    requirements = asked({name: {"duration": FIXED} for name in ("work", "more")}, loops=[loop])
    other = Loop(Sequence((Activity("work"), Activity("more"))), 0.5)
    assert evaluate(Design("test", other), requirements, "analytic").cycle_time == pytest.approx(40)
    inside = Choice((Loop(Activity("work"), 0.9), Skip()), (0.5, 0.5))
    assert evaluate(Design("test", inside), requirements, "analytic").cycle_time == pytest.approx(0.5 * 19)


def test_a_pool_that_nothing_uses_costs_nothing_if_it_may_be_empty() -> None:
    pools = {"clerk": {"least": 0, "most": 3, "wage": 5.0}, "robot": {"most": 3, "wage": 1.0}}
    work = {"check": {"duration": {"mean": 10.0}, "pools": ["robot", "clerk"]}}
    for least, cost in ((0, 100.0), (1, 600.0)):
        pools["clerk"]["least"] = least
        requirements = asked(work, rate=0.01, pools=pools)
        for tier in ("analytic", "simulation"):
            found = evaluate(Design("test", Activity("check"), (("robot", 1),)), requirements, tier, cases=500)
            assert found.cost == pytest.approx(cost)
    # A design that names the servers has them.
    pools["clerk"]["least"] = 0
    named = Design("test", Activity("check"), (("robot", 1), ("clerk", 2)))
    assert evaluate(named, asked(work, rate=0.01, pools=pools), "analytic").cost == pytest.approx(1100)


def test_the_capacity_of_shared_people_is_that_of_their_busiest_group() -> None:
    people = {"Anna": {"pools": ["front", "back"]}, "Ben": {"pools": ["back"]}}
    activities = {
        "ask": {"duration": FIXED, "pools": ["front"]},
        "file": {"duration": {"kind": "fixed", "mean": 20.0}, "pools": ["back"]},
    }
    requirements = asked(activities, people, rate=0.05, pools={"front": {}, "back": {"least": 2, "most": 2}})
    design = Design("test", Sequence((Activity("ask"), Activity("file"))), (("front", 1), ("back", 2)))
    encoded = encode(design, requirements)
    # 30 seconds of work for two people, although the pools alone would allow 0.1 cases a second.
    assert capacity_of(encoded) == pytest.approx(2 / 30)
    assert overload(encoded) == ""
    busy = encode(
        design,
        requirements.model_copy(
            update={"demand": requirements.demand.model_copy(update={"arrivals_per_second": 0.08})}
        ),
    )
    assert overload(busy) == "only 'Anna', 'Ben' can do 'ask', 'file', which would keep them busy 1.20 times over"


def test_the_busiest_group_is_found_among_all_sets() -> None:
    rng = np.random.default_rng(1)
    for _ in range(50):
        hours = rng.uniform(0.2, 1, 4).tolist()
        groups = [
            (frozenset(np.flatnonzero(rng.random(4) < 0.5).tolist()) or frozenset({0}), float(rng.random()))
            for _ in range(5)
        ]
        worst = 0.0
        for size in range(1, 5):
            for some in combinations(range(4), size):
                work = sum(seconds for who, seconds in groups if who <= set(some))
                worst = max(worst, work / sum(hours[who] for who in some))
        assert busiest(groups, hours)[0] == pytest.approx(worst)


@pytest.mark.parametrize(
    ("own", "shared", "hours"),
    [
        ((), (), []),
        (((8, 12),), (), [[8, 12]]),
        ((), ((8, 12),), [[8, 12]]),
        (((8, 12), (13, 17)), ((10, 15),), [[10, 12], [13, 15]]),
        (((13, 17), (8, 13)), ((0, 168),), [[8, 17]]),
        (((8, 12),), ((0, 8), (12, 20)), None),
    ],
)
def test_common_shifts(own: Any, shared: Any, hours: list[list[float]] | None) -> None:
    found = common_shifts(own, shared)
    assert (None if found is None else (found / 3600).tolist()) == hours


def test_whoever_is_never_there_while_the_pool_works_does_nothing_and_costs_nothing() -> None:
    work = {"check": {"duration": FIXED, "pools": ["desk"]}, "approve": {"duration": FIXED, "pools": ["desk"]}}
    desk = {"wage": 1.0, "calendar": [[0, 84]]}
    there, never = {"pools": ["desk"], "calendar": [[0, 42]]}, {"pools": ["desk"], "calendar": [[84, 168]]}
    alone = asked(work, {"Anna": there}, pools={"desk": desk})
    both = asked(work, {"Anna": there, "Ben": never}, pools={"desk": {**desk, "most": 2}})
    one, two = (Design("test", TWO, (("desk", count),)) for count in (1, 2))
    assert evaluate(one, alone, "simulation", cases=200) == evaluate(two, both, "simulation", cases=200)


def test_a_design_that_nobody_at_work_can_carry_out_is_refused() -> None:
    people = {"Anna": {"pools": ["desk"]}, "Ben": {"pools": ["desk"], "skills": ["law"]}}
    plain = {"duration": FIXED, "pools": ["desk"]}
    work = {"check": {**plain, "skills": ["law"]}, "approve": plain}
    requirements = asked(work, people, pools={"desk": {"least": 1, "most": 2}})
    with pytest.raises(DesignError, match="nobody at work in 'desk' has the skills for 'check': 'law'"):
        evaluate(Design("test", TWO, (("desk", 1),)), requirements)
    assert evaluate(Design("test", TWO, (("desk", 2),)), requirements).valid


def test_cases_that_can_never_end_are_reported() -> None:
    with pytest.raises(DesignError, match="of 400 cases never end, because nobody there may do what comes next"):
        evaluate(Design("test", TWO, (("desk", 1),)), office(0.01, different_people=[["check", "approve"]]), cases=400)


@pytest.mark.parametrize("demand", [{"arrivals_per_second": 0.01}, {"runs": 3}])
def test_a_simulation_ends_although_its_cases_never_do_and_people_come_and_go(demand: dict[str, Any]) -> None:
    # Somebody always comes to work later, but only Anna may approve, and she has checked every case.
    people = {
        "Anna": {"pools": ["desk"], "skills": ["law"], "calendar": [[8, 12]]},
        "Ben": {"pools": ["desk"], "skills": ["night"], "calendar": [[20, 24]]},
    }
    one = {"duration": FIXED, "pools": ["desk"], "skills": ["law"]}
    work = {"check": one, "approve": one, "patrol": {**one, "skills": ["night"]}}
    value = {"name": "test", "activities": work, "people": people, "pools": {"desk": {"most": 2}}, "demand": demand}
    requirements = parse_requirements({**value, "rules": {"different_people": [["check", "approve"]]}})
    root = Sequence((*TWO.parts, Activity("patrol")))
    with pytest.raises(DesignError, match="cases never end, because nobody there may do what comes next"):
        evaluate(Design("test", root, (("desk", 2),)), requirements)


@pytest.mark.parametrize(
    ("root", "ben", "both"),
    [
        # Ten seconds each: what Ben alone can do, and what both can do, in seconds per case.
        (Sequence((Activity("legal"), Activity("plain"))), 10, 10),
        (Choice((Activity("legal"), Activity("plain")), (0.8, 0.2)), 8, 2),
        (Choice((Activity("plain"), Activity("legal")), (0.8, 0.2)), 2, 8),
        (Loop(Activity("legal"), 0.75, Activity("plain")), 40, 30),
        (Loop(Activity("plain"), 0.75, Activity("legal")), 30, 40),
        (Sequence((Loop(Activity("legal"), 0.5), Activity("plain"))), 20, 10),
    ],
)
def test_the_capacity_of_people_with_skills_counts_branches_and_rounds(root: Block, ben: float, both: float) -> None:
    people = {"Anna": {"pools": ["desk"]}, "Ben": {"pools": ["desk"], "skills": ["law"]}}
    work = {"duration": FIXED, "pools": ["desk"]}
    requirements = asked({"legal": {**work, "skills": ["law"]}, "plain": work}, people, pools={"desk": {"most": 2}})
    encoded = encode(Design("test", root, (("desk", 2),)), requirements)
    assert capacity_of(encoded) == pytest.approx(1 / max(ben, (ben + both) / 2))


def test_without_arrivals_nobody_is_busy_and_nothing_waits() -> None:
    work = {"check": {"duration": FIXED, "pools": ["desk"]}, "approve": {"duration": FIXED, "pools": ["desk"]}}
    value = {"name": "test", "activities": work, "pools": {"desk": {"most": 2, "wage": 0.5}}, "demand": {"runs": 3}}
    found = evaluate(Design("test", TWO, (("desk", 2),)), parse_requirements(value), "analytic")
    assert (found.cycle_time, found.waiting, found.utilisation) == (20, 0, {"desk": 0.0})
    # As if the pools were always at their limit: two servers, 20 seconds of work a case, at 0.5 each.
    assert (found.throughput, found.capacity, found.cost) == (0.1, 0.1, pytest.approx(1.0 / 0.1))
    assert (found.valid, found.reason) == (False, "runs start at once instead of arriving, so waiting is left out")


def able(rules: dict[str, Any], skills: dict[str, list[str]], *pools: tuple[str, str]) -> dict[str, set[str]]:
    """Who may do each activity of a design, where Anna knows law and Ben and Cleo do not."""
    people = {"Anna": {"pools": ["desk"], "skills": ["law"]}, "Ben": {"pools": ["desk", "back"]},
              "Cleo": {"pools": ["back"]}}  # fmt: skip
    work = {name: {"duration": FIXED, "pools": ["desk", "back"], "skills": skills.get(name, [])} for name in "abc"}
    limits = {"desk": {"least": 2, "most": 2}, "back": {"least": 2, "most": 2}}
    roster = Roster(asked(work, people, rules=rules, pools=limits))
    workers, numbers = roster.workers(np.array([2, 2])), {"desk": 0, "back": 1}
    found = roster.able(workers, {"abc".index(name): numbers[pool] for name, pool in pools})
    return {"abc"[activity]: {workers[number].name for number in who} for activity, who in found.items()}


DESK = (("a", "desk"), ("b", "desk"))


@pytest.mark.parametrize(
    ("rules", "skills", "pools", "found"),
    [
        ({}, {}, DESK, {"a": "Anna Ben", "b": "Anna Ben"}),
        ({}, {"a": ["law"]}, DESK, {"a": "Anna", "b": "Anna Ben"}),
        # What only Anna can do is left to her, and she does not do the other work of it where somebody else can.
        ({"different_people": [["a", "b"]]}, {"a": ["law"]}, DESK, {"a": "Anna", "b": "Ben"}),
        ({"different_people": [["b", "a"]]}, {"a": ["law"]}, DESK, {"a": "Anna", "b": "Ben"}),
        ({"different_people": [["a", "b"]]}, {"a": ["law"], "b": ["law"]}, DESK, {"a": "Anna", "b": "Anna"}),
        ({"different_people": [["a", "b"]]}, {}, DESK, {"a": "Anna Ben", "b": "Anna Ben"}),
        # Whoever begins can do everything that the same person must do, also through another activity.
        ({"same_person": [["a", "b"]]}, {"b": ["law"]}, DESK, {"a": "Anna", "b": "Anna"}),
        ({"same_person": [["a", "b"]]}, {}, (("a", "desk"), ("b", "back")), {"a": "Ben", "b": "Ben"}),
        (
            {"same_person": [["a", "b"], ["b", "c"]]},
            {},
            (("a", "desk"), ("b", "back"), ("c", "back")),
            {"a": "Ben", "b": "Ben", "c": "Ben"},
        ),
        # What the design does not have binds nobody.
        ({"same_person": [["a", "b"], ["b", "c"]]}, {"b": ["law"]}, (("a", "desk"), ("c", "back")),
         {"a": "Anna Ben", "c": "Ben Cleo"}),
    ],
)  # fmt: skip
def test_who_may_do_what_follows_from_skills_and_duties(rules: Any, skills: Any, pools: Any, found: Any) -> None:
    assert able(rules, skills, *pools) == {name: set(who.split()) for name, who in found.items()}


@pytest.mark.parametrize(("groups", "load"), [(12, 2.25), (13, 2.25)])
def test_many_groups_are_tried_one_by_one_and_all_together(groups: int, load: float) -> None:
    """Work of 0.9 for every two neighbours in a ring, who are there for 0.4 each: together 0.9 for 0.4."""
    ring = [(frozenset({number, (number + 1) % groups}), 0.9) for number in range(groups)]
    found, chosen = busiest(ring, [0.4] * groups)
    assert (found, sorted(chosen)) == (pytest.approx(load), list(range(groups)))
    alone = [*ring[:-1], (frozenset({groups - 1, 0}), 9.0)]
    assert busiest(alone, [0.4] * groups) == (pytest.approx(9.0 / 0.8), (groups - 1,))
    assert busiest([], []) == (0.0, ())
    assert busiest([(frozenset({0}), 1.0)], [0.0]) == (np.inf, (0,))


@pytest.mark.parametrize("calendar", [(), ((9, 17),), ((0, 1), (20, 30), (167, 168)), ((30, 40), (9, 17), (12, 20))])
def test_time_at_work_is_counted_hour_by_hour(calendar: Any) -> None:
    hours = [any(start <= hour < end for start, end in calendar) or not calendar for hour in range(168)]
    times = np.array([0.0, 9.0, 12.5, 17.0, 168.0, 168.5, 180.0, 2 * 168 + 35.25]) * 3600
    found = open_time(shifts_of(calendar), times)
    wanted = []
    for time in times / 3600:
        whole = int(time)
        wanted.append(sum(hours[hour % 168] for hour in range(whole)) + (time - whole) * hours[whole % 168])
    assert (found / 3600).tolist() == pytest.approx(wanted)


PEOPLE = {
    "Anna": {"pools": ["back", "front"], "skills": ["law"], "calendar": [[8, 12]]},
    "Ben": {"pools": ["back"], "skills": ["law", "tax"]},
    "Cleo": {"pools": ["front"]},
}
POOLS = {
    "front": {"most": 2, "wage": 3.0},
    "robot": {"most": 3, "wage": 1.0, "kind": "machine", "calendar": [[0, 84]]},
    "back": {"most": 2, "wage": 5.0, "calendar": [[10, 20]]},
}


def staffed(counts: dict[str, int]) -> Any:
    work = {name: {"duration": FIXED, "pools": [name]} for name in POOLS}
    requirements = asked(work, PEOPLE, pools=POOLS)
    return encode(Design("test", Sequence(tuple(map(Activity, POOLS))), tuple(counts.items())), requirements)


@pytest.mark.parametrize(("counts", "names"), [
    ({"front": 1, "back": 1, "robot": 2}, ["Anna", "robot 1", "robot 2"]),
    ({"front": 1, "back": 2, "robot": 1}, ["Anna", "Ben", "robot 1"]),
    ({"front": 2, "back": 1, "robot": 1}, ["Anna", "Cleo", "robot 1"]),
    ({"front": 2, "back": 2, "robot": 3}, ["Anna", "Ben", "Cleo", "robot 1", "robot 2", "robot 3"]),
])  # fmt: skip
def test_a_pool_has_its_first_people_who_work_in_all_of_their_pools(counts: dict[str, int], names: list[str]) -> None:
    workers = staffed(counts).workers
    assert [worker.name for worker in workers] == names
    by_name = {worker.name: worker for worker in workers}
    anna, robot = by_name["Anna"], by_name["robot 1"]
    # Her own hours while her first pool works, which is also the one that pays her.
    assert (anna.pools, (anna.shifts / 3600).tolist(), anna.wage) == ((2, 0), [[10, 12]], 5.0)
    assert anna.skills == {"law"}
    assert (robot.pools, (robot.shifts / 3600).tolist(), robot.wage) == ((1,), [[0, 84]], 1.0)
    assert (robot.hours, anna.hours, robot.skills) == (0.5, pytest.approx(2 / 168), frozenset())


def test_the_time_and_the_wages_of_people_are_added_up_by_pool() -> None:
    encoded = staffed({"front": 2, "back": 2, "robot": 3})
    anna, ben = 2 / 168, 10 / 168
    assert encoded.staffed.tolist() == pytest.approx([anna + 1, 3 * 0.5, anna + ben])
    assert encoded.wages == pytest.approx(5 * (anna + ben) + 3 + 3 * 0.5)
    # Until Monday at 11 and until Tuesday at 0:00.
    until = encoded.staffed_until(np.array([11.0, 24.0]) * 3600) / 3600
    assert until.tolist() == pytest.approx([(1 + 11) + (2 + 24), 3 * 11 + 3 * 24, (1 + 1) + (2 + 10)])


@pytest.mark.parametrize(("rules", "able"), [
    ({}, {"a": "ABC", "b": "AB", "c": "B", "d": "ABC", "e": "B"}),
    ({"same_person": [["a", "b"]]}, {"a": "AB", "b": "AB", "c": "B", "d": "ABC", "e": "B"}),
    # Through b, whoever begins a must be able to do c.
    ({"same_person": [["a", "b"], ["b", "c"]]}, {"a": "B", "b": "B", "c": "B", "d": "ABC", "e": "B"}),
    # Ben alone can do c, so whatever another person must do is left to others.
    ({"different_people": [["c", "d"]]}, {"a": "ABC", "b": "AB", "c": "B", "d": "AC", "e": "B"}),
    ({"different_people": [["d", "c"], ["b", "c"]]}, {"a": "ABC", "b": "A", "c": "B", "d": "AC", "e": "B"}),
    # Nobody but him can do either c or e, so they stay with him.
    ({"different_people": [["c", "e"]]}, {"a": "ABC", "b": "AB", "c": "B", "d": "ABC", "e": "B"}),
    ({"different_people": [["a", "d"]]}, {"a": "ABC", "b": "AB", "c": "B", "d": "ABC", "e": "B"}),
])  # fmt: skip
def test_who_may_do_what_follows_from_skills_and_rules(rules: dict[str, Any], able: dict[str, str]) -> None:
    people = {"A": ["law"], "B": ["law", "tax"], "C": []}
    skills = {"a": [], "b": ["law"], "c": ["tax", "law"], "d": [], "e": ["tax"]}
    requirements = asked(
        {name: {"duration": FIXED, "pools": ["desk"], "skills": needed} for name, needed in skills.items()},
        {who: {"pools": ["desk"], "skills": known} for who, known in people.items()},
        pools={"desk": {"most": 3}}, rules=rules,
    )  # fmt: skip
    roster = Roster(requirements)
    workers = roster.workers(np.array([3]))
    found = roster.able(workers, dict.fromkeys(range(5), 0))
    assert {
        name: "".join(workers[n].name for n in sorted(found[number])) for number, name in enumerate("abcde")
    } == able
    # A rule about an activity that the design does not have changes nothing.
    partly = roster.able(workers, {0: 0, 3: 0})
    assert {number: len(who) for number, who in partly.items()} == {0: 3, 3: 3}


def test_a_design_is_refused_where_nobody_can_do_all_that_one_person_must() -> None:
    work = {name: {"duration": FIXED, "pools": ["desk"], "skills": [name]} for name in ("check", "approve")}
    people = {"Anna": {"pools": ["desk"], "skills": ["check"]}, "Ben": {"pools": ["desk"], "skills": ["approve"]},
              "Cleo": {"pools": ["desk"], "skills": ["check", "approve"]}}  # fmt: skip
    rules = {"same_person": [["check", "approve"]]}
    requirements = asked(work, people, pools={"desk": {"most": 3}}, rules=rules)
    words = "nobody at work in 'desk' has the skills for 'check': 'check', and may also do 'approve'"
    with pytest.raises(DesignError, match=words):
        encode(Design("test", TWO, (("desk", 2),)), requirements)
    assert encode(Design("test", TWO, (("desk", 3),)), requirements).able == {0: {2}, 1: {2}}


def test_all_sets_of_groups_are_tried_up_to_a_number_and_beyond_it_each_and_all() -> None:
    """Three groups of two people each out of three are the worst together; the others hardly have to work."""
    three = [(frozenset(pair), 1.0) for pair in ((0, 1), (1, 2), (0, 2))]
    few = [(frozenset({number}), 0.01) for number in range(3, MOST_GROUPS)]
    hours = [1.0] * 20
    assert busiest([*three, *few], hours) == (pytest.approx(1.0), (0, 1, 2))
    assert busiest([*three, *few, (frozenset({18}), 0.0)], hours)[0] == pytest.approx(1.0), "no work is no group"
    assert busiest([*three, *few, (frozenset({0, 1}), 0.5)], hours) == (pytest.approx(3.5 / 3), (0, 12, 1, 2))
    assert busiest([*three, *few, (frozenset({18}), 0.01)], hours) == (pytest.approx(0.5), (0,))
    pairs = [(frozenset(pair), 1.0) for pair in combinations(range(6), 2)]  # fifteen
    assert busiest(pairs, hours) == (pytest.approx(15 / 6), tuple(range(15)))
    assert busiest([], hours) == (0.0, ())
    assert busiest([(frozenset({0}), 1.0)], [0.0])[0] == np.inf


def test_people_who_cannot_keep_up_are_said_to_and_their_cases_are_measured_as_far_as_they_end() -> None:
    requirements = office(1.0, same_person=[["check", "approve"]])
    found = evaluate(Design("test", TWO, (("desk", 1),)), requirements, "simulation", cases=200)
    assert not found.valid
    assert "busy 20.00 times over" in found.reason or "load of 20.00" in found.reason
    assert found.cycle_time > 100


# Two of three may sign; whoever prepared or checked must not.
SIGNING = {"prepare": [], "check": [], "sign": ["signature"]}


@pytest.mark.parametrize(
    ("apart", "skills"),
    [
        ([["prepare", "sign"], ["check", "sign"]], {"Anna": ["signature"], "Ben": ["signature"], "Cleo": []}),
        (
            [["prepare", "sign"], ["check", "sign"], ["prepare", "check"]],
            {"Anna": ["signature"], "Ben": ["signature"], "Cleo": []},
        ),
    ],
)
def test_nobody_takes_work_that_leaves_a_later_duty_without_anybody(
    apart: list[list[str]], skills: dict[str, list[str]]
) -> None:
    work = {"duration": {"mean": 10.0}, "pools": ["desk"]}
    activities = {name: {**work, "skills": some} for name, some in SIGNING.items()}
    people = {who: {"pools": ["desk"], "skills": some} for who, some in skills.items()}
    requirements = asked(activities, people, rate=0.04, pools={"desk": {"most": 3}}, rules={"different_people": apart})
    found = tries(Sequence(tuple(map(Activity, SIGNING))), requirements, desk=3)
    whole = [one for one in found.values() if one["sign"]]
    assert len(whole) >= MANY
    for one in whole:
        by = {name: one[name][0].server for name in SIGNING}
        assert all(by[a] != by[b] for a, b in apart)
    # Both signatories also do other work, as far as the other one is left.
    assert {one["prepare"][0].server for one in whole} >= {0, 2}


def test_three_duties_of_three_people_are_shared_out_with_all_three_in_mind() -> None:
    work = {"duration": {"mean": 10.0}, "pools": ["desk"]}
    skills = {"order": [], "receive": ["goods"], "pay": ["goods"]}
    activities = {name: {**work, "skills": some} for name, some in skills.items()}
    # Anna could do anything, but only Ben and Anna can receive and pay, so Cleo has to order.
    people = {who: {"pools": ["desk"], "skills": some} for who, some in
              {"Anna": ["goods"], "Ben": ["goods"], "Cleo": []}.items()}  # fmt: skip
    apart = [["order", "receive"], ["receive", "pay"], ["order", "pay"]]
    requirements = asked(activities, people, rate=0.02, pools={"desk": {"most": 3}}, rules={"different_people": apart})
    found = tries(Sequence(tuple(map(Activity, skills))), requirements, desk=3)
    whole = [one for one in found.values() if one["pay"]]
    assert len(whole) >= MANY
    assert {one["order"][0].server for one in whole} == {2}
