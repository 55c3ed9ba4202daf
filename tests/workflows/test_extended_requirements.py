"""Outcomes, loops, people and Declare's rules: read, checked, and refused where they would be ignored."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from groupwise.errors import ConfigError
from groupwise.workflows import contradictions
from groupwise.workflows.case_flow import CaseFlow, data_order, order_of
from groupwise.workflows.duties import (
    able,
    able_of,
    at_work,
    bound,
    colourable,
    hours,
    impossible,
    is_human,
    on_duty,
    shared,
    shift_notes,
)
from groupwise.workflows.requirements import Requirements, parse_requirements, read_requirements

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import design_truth_cases as truth

DECISION = {
    "name": "decision",
    "after": "ask",
    "branches": {
        "yes": {"probability": 0.75, "activities": ["offer"]},
        "no": {"probability": 0.25, "activities": ["refuse"], "ends": True},
    },
}
SIGNATURE = {
    "name": "signature",
    "after": "offer",
    "branches": {"signed": {"probability": 0.8, "activities": ["sign"]}, "lost": {"probability": 0.2, "ends": True}},
}
AGAIN = {"name": "again", "activities": ["ask"], "after": "ask", "again": 0.5, "most": 2, "redo": ["mend"]}


def stated(names: str, pools: dict[str, Any] | None = None, **parts: Any) -> dict[str, Any]:
    known = pools if pools is not None else {"desk": {"most": 9}}
    one = {"duration": {"mean": 60}, "pools": list(known)}
    return {"name": "test", "activities": {name: dict(one) for name in names.split()}, "pools": known, **parts}


def asked(names: str, pools: dict[str, Any] | None = None, **parts: Any) -> Requirements:
    return parse_requirements(stated(names, pools, **parts))


def said(requirements: Requirements) -> list[str]:
    return [str(found) for found in contradictions(requirements)]


@pytest.mark.parametrize("case", truth.read_cases(), ids=lambda case: case.name)
def test_requirements_of_process_owners_are_read_and_can_be_met(case: truth.TruthCase) -> None:
    requirements = parse_requirements(case.requirements)
    assert contradictions(requirements) == []
    assert parse_requirements(requirements.model_dump(mode="json", exclude_defaults=True)) == requirements


def test_the_activity_that_decides_about_another_round_may_stand_anywhere_in_its_list() -> None:
    for names in (["check", "repair"], ["repair", "check"]):
        loop = {"name": "rework", "activities": names, "after": "check", "again": 0.2}
        assert said(asked("repair check", loops=[loop])) == []


def test_yes_and_no_are_names_of_branches(tmp_path: Path) -> None:
    text = "{yes: {probability: 0.5, activities: [b]}, no: {probability: 0.5}}"
    (tmp_path / "r.yaml").write_text(
        "name: r\nactivities: {a: {duration: {mean: 1}}, b: {duration: {mean: 1}}}\n"
        f"outcomes: [{{name: o, after: a, branches: {text}}}]\n"
    )
    assert list(read_requirements(tmp_path / "r.yaml").outcomes[0].branches) == ["yes", "no"]


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        (
            {"outcomes": [{**DECISION, "branches": {"x": {"probability": 0.7}, "y": {"probability": 0.2}}}]},
            "the probabilities of 'decision' add up to 0.9, not 1: 'x' 0.7, 'y' 0.2",
        ),
        ({"outcomes": [{**DECISION, "after": "nothing"}]}, "'nothing', which is not in activities"),
        (
            {"outcomes": [DECISION, {**DECISION, "name": "other"}]},
            "two branches: 'yes' of 'decision' and 'yes' of 'other'",
        ),
        (
            {
                "outcomes": [
                    {
                        "name": "result",
                        "after": "ask",
                        "branches": {
                            "good": {"probability": 0.5, "activities": ["offer", "sign"]},
                            "bad": {"probability": 0.5},
                        },
                    },
                    SIGNATURE,
                ]
            },
            "'sign' is in two branches: 'good' of 'result' and 'signed' of 'signature'; list it only in the inner one",
        ),
        (
            {"loops": [{**AGAIN, "most": None, "give_up": {"activities": ["refuse"]}}]},
            "'again' says what happens on giving up, but not after how many repetitions",
        ),
        (
            {"loops": [{**AGAIN, "give_up": {"activities": ["shrug"]}}]},
            "give_up of loop 'again' names 'shrug', which is not in activities",
        ),
        ({"outcomes": [{**DECISION, "after": "offer"}]}, "decided before itself: 'decision' → 'decision'"),
        ({"outcomes": [DECISION, {**SIGNATURE, "name": "decision"}]}, "two outcomes have the same name"),
        ({"loops": [{**AGAIN, "after": "offer"}]}, "decided after 'offer', which is not one of its activities"),
        ({"loops": [{**AGAIN, "redo": ["ask"]}]}, "'ask' is both in the loop 'again' and between its rounds"),
        ({"people": {"Anna": {"pools": ["bar"]}}}, "'Anna' is in the pool 'bar', which is not in pools"),
        ({"people": {"Anna": {"pools": ["desk"], "calendar": [[8, 8]]}}}, "a shift must end after it starts"),
        ({"rules": {"response": [["ask", "x"]]}}, "'x', which is not in activities"),
    ],
)
def test_a_mistake_is_one_sentence(parts: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as error:
        asked("ask offer refuse sign mend", **parts)
    assert words in error.value.message


def test_events_and_skills_are_checked_where_they_are_written() -> None:
    wait = {"kind": "receive", "duration": {"mean": 1}, "pools": ["desk"]}
    with pytest.raises(ConfigError, match="waiting for an event needs nobody, but pools are 'desk'"):
        parse_requirements({**stated("a"), "activities": {"wait": wait}})
    skilled = {"duration": {"mean": 1}, "pools": ["desk"], "skills": ["welding"]}
    with pytest.raises(ConfigError, match="needs the skill 'welding', but its pools have no people"):
        parse_requirements({**stated("a"), "activities": {"weld": skilled}})


def test_shares_follow_nested_branches_and_branches_that_end_the_case() -> None:
    requirements = asked("ask offer refuse sign mend file", outcomes=[DECISION, SIGNATURE], loops=[AGAIN])
    flow = CaseFlow(requirements)
    assert flow.ended == pytest.approx(0.25 + 0.75 * 0.2)
    wanted = {"ask": 1.0, "offer": 0.75, "refuse": 0.25, "sign": 0.6, "mend": 0.5, "file": 0.6}
    assert flow.shares == pytest.approx(wanted)
    # Twice again at most: 1 + 0.5 + 0.25 rounds.
    assert flow.rounds["ask"] == pytest.approx(1.75)
    assert flow.shares["mend"] * flow.rounds["mend"] == pytest.approx(0.75)
    assert flow.never_both("sign", "refuse") == "decision"
    assert flow.never_both("offer", "sign") is None


def test_data_orders_activities_but_not_those_that_take_turns_or_come_round_again() -> None:
    activities = {
        "draft": {"duration": {"mean": 1}, "writes": ["text"]},
        "review": {"duration": {"mean": 1}, "reads": ["text"], "writes": ["notes"]},
        "correct": {"duration": {"mean": 1}, "reads": ["notes"], "writes": ["text"]},
        "log": {"duration": {"mean": 1}, "reads": ["book"], "writes": ["book"]},
        "count": {"duration": {"mean": 1}, "reads": ["book"], "writes": ["book"]},
    }
    loop = {"name": "l", "activities": ["draft", "review"], "after": "review", "again": 0.2, "redo": ["correct"]}
    requirements = parse_requirements({"name": "t", "activities": activities, "loops": [loop]})
    assert set(data_order(requirements)) == {("draft", "review", "text"), ("review", "correct", "notes")}
    assert contradictions(requirements) == []
    without = parse_requirements({"name": "t", "activities": activities})
    assert said(without) == [
        (
            "'review' would have to come before itself: review → correct → review "
            "('correct' reads 'notes', which 'review' writes; 'review' reads 'text', which 'correct' writes)"
        )
    ]


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        (
            {"rules": {"precedes": [["sign", "file"]], "response": [["file", "ask"], ["ask", "sign"]]}},
            ("'sign' would have to come before itself: sign → file → ask → sign "
            "('sign' precedes 'file'; 'ask' follows 'file'; 'sign' follows 'ask')"),
        ),
        (
            {"outcomes": [DECISION], "rules": {"precedes": [["offer", "ask"]]}},
            ("'offer' would have to come before itself: offer → ask → offer "
            "('offer' precedes 'ask'; 'ask' decides about 'offer')"),
        ),
        (
            {"outcomes": [DECISION], "rules": {"coexist": [["offer", "refuse"]]}},
            ("'offer' and 'refuse' never happen in the same case "
            "(a case has both 'offer' and 'refuse' or neither; 'decision' has one result per case)"),
        ),
        (
            {"rules": {"coexist": [["ask", "sign"], ["sign", "file"]], "not_coexist": [["ask", "file"]]}},
            ("a case can do only one of these, but together they are needed more often: "
            "'ask' in 1, 'file' in 1 of the cases ('ask' excludes 'file')"),
        ),
        (
            {"outcomes": [DECISION], "rules": {"response": [["refuse", "file"]]}},
            ("'file' cannot follow 'refuse', because branch 'no' of 'decision' ends the case "
            "('file' follows 'refuse'; 'decision' has one result per case)"),
        ),
        (
            {
                "outcomes": [
                    {**DECISION, "branches": {k: {"probability": 0.5, "ends": True} for k in ("a", "b")}},
                ],
                "rules": {"precedes": [["ask", "sign"], ["sign", "file"], ["mend", "file"]]},
            },
            ("'sign' is never done, because every branch of 'decision' ends the case "
            "('ask' precedes 'sign'; 'decision' has one result per case)"),
        ),
        (
            {"outcomes": [{**DECISION, "branches": {"x": {"probability": 0.5, "activities": ["offer"]},
                                                     "y": {"probability": 0.5}}}],
             "rules": {"response": [["ask", "offer"]]}},
            "'ask' is done in 1 of the cases, but 'offer' only in 0.5 ('offer' follows 'ask')",
        ),
        (
            {"rules": {"chain": [["ask", "sign"], ["ask", "file"]]}},
            ("'sign' and 'file' cannot both come directly after 'ask' "
            "('sign' comes directly after 'ask'; 'file' comes directly after 'ask')"),
        ),
        (
            {"rules": {"chain": [["ask", "sign"]], "precedes": [["ask", "file"], ["file", "sign"]]}},
            ("'file' would have to come between 'ask' and 'sign' "
            "('sign' comes directly after 'ask'; 'ask' precedes 'file'; 'file' precedes 'sign')"),
        ),
    ],
)  # fmt: skip
def test_the_smallest_set_that_contradicts_itself_is_named(parts: dict[str, Any], words: str) -> None:
    assert said(asked("ask offer refuse sign mend file", **parts))[:1] == [words]


@pytest.mark.parametrize(
    ("rule", "pair", "contradicts"),
    [
        ("coexist", ["file", "offer"], True),
        ("coexist", ["offer", "file"], True),
        ("response", ["file", "offer"], True),
        ("response", ["offer", "file"], False),
        ("chain", ["offer", "file"], False),
        ("precedes", ["file", "offer"], False),
    ],
)
def test_what_every_case_needs_cannot_belong_to_what_some_cases_have(
    rule: str, pair: list[str], contradicts: bool
) -> None:
    branches = {"x": {"probability": 0.5, "activities": ["offer"]}, "y": {"probability": 0.5}}
    words = "'file' is done in 1 of the cases, but 'offer' only in 0.5"
    parts = stated("ask offer file", outcomes=[{**DECISION, "branches": branches}], rules={rule: [pair]})
    assert [text.partition(" (")[0] for text in said(parse_requirements(parts))] == [words] * contradicts
    parts["activities"]["file"]["optional"] = True
    assert said(parse_requirements(parts)) == []


def test_optional_activities_may_exclude_each_other_although_they_belong_together() -> None:
    parts = stated("ask offer sign", rules={"coexist": [["offer", "sign"]], "excludes": [["offer", "sign"]]})
    for name in ("offer", "sign"):
        parts["activities"][name]["optional"] = True
    assert contradictions(parse_requirements(parts)) == []
    parts["rules"]["must_include"] = ["offer"]
    assert said(parse_requirements(parts)) == [
        (
            "'offer' and 'sign' never happen in the same case "
            "(a case has both 'offer' and 'sign' or neither; 'offer' excludes 'sign'; 'offer' must be included)"
        )
    ]


ONE = {"desk": {"most": 1}}
TWO = {"desk": {"most": 2}}


def test_duties_are_separated_and_bound_person_by_person() -> None:
    pair = {"different_people": [["a", "b"]]}
    assert contradictions(asked("a b", TWO, rules=pair)) == []
    assert said(asked("a b", ONE, rules=pair)) == [
        "nobody can be found for 'a', 'b', which only desk 1 may do ('a' and 'b' are done by different people)"
    ]
    people = {"Anna": {"pools": ["desk"]}, "Bert": {"pools": ["desk"]}}
    ring = {"different_people": [["a", "b"], ["b", "c"], ["a", "c"], ["c", "d"]]}
    (found,) = said(asked("a b c d", TWO, people=people, rules=ring))
    assert found.startswith("nobody can be found for 'a', 'b', 'c', which only Anna, Bert may do")
    assert found.count("different people") == 3
    bound = {"same_person": [["a", "b"], ["b", "c"]], "different_people": [["a", "c"], ["a", "d"]]}
    (found,) = said(asked("a b c d", TWO, people=people, rules=bound))
    assert "('a' and 'c' are done by different people; 'a' and 'b' are done by the same person; 'b' and 'c'" in found


def test_skills_decide_who_can_be_found() -> None:
    parts = stated(
        "weld paint", TWO, people={"Anna": {"pools": ["desk"], "skills": ["welding"]}, "Bert": {"pools": ["desk"]}}
    )
    parts["activities"]["weld"]["skills"] = ["welding"]
    assert said(parse_requirements(parts)) == []
    parts["rules"] = {"same_person": [["weld", "paint"]], "different_people": [["weld", "paint"]]}
    assert len(said(parse_requirements(parts))) == 1
    parts["rules"] = {}
    parts["activities"]["weld"]["skills"] = ["welding", "climbing"]
    assert said(parse_requirements(parts)) == ["nobody in 'desk' has the skills for 'weld': 'welding' and 'climbing'"]
    parts["activities"]["weld"]["skills"] = parts["activities"]["paint"]["skills"] = ["welding"]
    assert said(parse_requirements(parts)) == [
        "'Bert' can do nothing: every activity of the pools needs skills 'Bert' lacks ('weld', 'paint')"
    ]


def test_a_calendar_in_which_nobody_works_and_people_who_cannot_do_all_the_work_are_found() -> None:
    pools = {"night": {"most": 1, "calendar": [[0, 6]]}}
    by_day = {"Anna": {"pools": ["night"], "calendar": [[8, 16]]}}
    assert said(asked("a", pools, people=by_day))[0] == (
        "nobody works in 'night': no hours of 'Anna' are hours of the pool"
    )
    half = {"Anna": {"pools": ["desk"], "calendar": [[0, 84]]}}
    assert said(asked("a", ONE, people=half, demand={"arrivals_per_second": 0.8 / 60})) == [
        "the demand keeps 0.8 servers of 'desk' busy, but at most 0.5 are at work on average, even with `most` servers"
    ]
    # A loop of two more rounds at most doubles nothing but the work of its body.
    loop = {"name": "l", "activities": ["a"], "after": "a", "again": 0.5, "most": 2}
    busy = {"demand": {"arrivals_per_second": 0.7 / 60}}
    assert said(asked("a", ONE, **busy)) == []
    assert "keeps 1.225 servers" in said(asked("a", ONE, loops=[loop], **busy))[0]


def test_a_deadline_counts_what_data_and_loops_make_a_case_wait_for() -> None:
    parts = stated(
        "a b", rules={"deadline": 130.0}, loops=[{"name": "l", "activities": ["b"], "after": "b", "again": 0.5}]
    )
    assert said(parse_requirements(parts)) == []
    parts["activities"]["a"]["writes"] = parts["activities"]["b"]["reads"] = ["x"]
    assert said(parse_requirements(parts)) == [
        (
            "every design takes at least 3 min, because of a → b, but only 2.167 min are allowed "
            "('b' reads 'x', which 'a' writes; a case takes at most 2.167 min)"
        )
    ]


def test_people_are_able_by_pool_and_by_every_skill() -> None:
    people = {
        "Anna": {"pools": ["desk"], "skills": ["law", "tax"]},
        "Bert": {"pools": ["desk", "back"], "skills": ["law"]},
    }
    parts = stated("a b c d", {"desk": {"most": 2}, "back": {"most": 1}, "free": {"most": 2}}, people=people)
    for name, pools, skills in (
        ("a", ["desk"], []), ("b", ["desk"], ["law", "tax"]), ("c", ["back", "desk"], ["law"]), ("d", ["free"], []),
    ):  # fmt: skip
        parts["activities"][name] |= {"pools": pools, "skills": skills}
    requirements = parse_requirements(parts)
    found = {name: able(requirements, name) for name in "abcd"}
    assert found == {"a": ("Anna", "Bert"), "b": ("Anna",), "c": ("Bert", "Anna"), "d": ("free 1", "free 2")}
    assert shared(requirements, bound("abcd", [("a", "b"), ("c", "d")])) == {"a": ["Anna"], "c": []}


def test_whoever_is_bound_to_the_same_is_bound_together() -> None:
    assert bound("abcde", [("a", "b"), ("c", "d"), ("d", "b")]) == {**dict.fromkeys("abcd", "c"), "e": "e"}
    assert bound("ab", []) == {"a": "a", "b": "b"}


@pytest.mark.parametrize(
    ("own", "shared_hours", "hours_"),
    [
        ([], [], 168.0),
        ([[0, 10]], [], 10.0),
        ([], [[5, 9]], 4.0),
        ([[0, 10]], [[5, 20]], 5.0),
        ([[0, 5]], [[5, 9]], 0.0),
        ([[0, 10], [20, 30]], [[5, 25]], 10.0),
    ],
)
def test_hours_of_a_person_count_while_the_pool_works(own: Any, shared_hours: Any, hours_: float) -> None:
    people = {"Anna": {"pools": ["desk"], "calendar": own}}
    requirements = asked("a", {"desk": {"most": 1, "calendar": shared_hours}}, people=people)
    assert hours(requirements, "desk", requirements.people["Anna"]) == hours_
    assert at_work(requirements, ["desk"]) == pytest.approx(hours_ / 168)


def test_whoever_is_in_two_pools_is_at_work_once() -> None:
    people = {"Anna": {"pools": ["desk", "back"]}, "Bert": {"pools": ["desk"], "calendar": [[0, 84]]}}
    pools = {
        "desk": {"most": 2},
        "back": {"most": 1, "calendar": [[0, 42]]},
        "free": {"most": 3, "calendar": [[0, 84]]},
    }
    requirements = asked("a", pools, people=people)
    wanted = {("desk",): 1.5, ("back",): 0.25, ("desk", "back"): 1.5, ("back", "desk"): 1.5, ("free",): 1.5,
              ("free", "desk"): 3.0}  # fmt: skip
    assert {some: at_work(requirements, some) for some in wanted} == pytest.approx(wanted)


def test_unnamed_people_are_counted_up_to_twenty() -> None:
    requirements = asked("a", {"desk": {"most": 30}})
    assert able(requirements, "a") == tuple(f"desk {number}" for number in range(1, 21))


def test_data_that_is_written_orders_all_who_read_it_and_nobody_else() -> None:
    activities = {
        "a": {"duration": {"mean": 1}, "writes": ["x", "y"]},
        "b": {"duration": {"mean": 1}, "reads": ["x"], "writes": ["x"]},
        "c": {"duration": {"mean": 1}, "reads": ["x", "z"]},
        "d": {"duration": {"mean": 1}, "reads": ["y"], "writes": ["y"]},
    }
    found = set(data_order(parse_requirements({"name": "t", "activities": activities})))
    assert found == {("a", "b", "x"), ("a", "c", "x"), ("b", "c", "x"), ("a", "d", "y")}


def test_where_an_activity_stands_among_the_outcomes() -> None:
    flow = CaseFlow(asked("ask offer refuse sign mend file", outcomes=[DECISION, SIGNATURE]))
    assert flow.context("sign") == (("signature", "signed"), ("decision", "yes"))
    assert (flow.context("refuse"), flow.context("ask")) == ((("decision", "no"),), ())
    assert flow.branch(("signature", "lost")).ends
    assert flow.share("sign") == pytest.approx(0.6)
    assert flow.ends == pytest.approx({"decision": 0.25, "signature": 0.15})
    assert flow.never_both("refuse", "sign") == "decision"
    assert flow.never_both("sign", "file") is None
    assert flow.never_both("sign", "sign") is None
    assert CaseFlow(asked("ask")).ended == 0
    # What comes before the decision by a rule is done by every case; what need not is done by those that go on.
    ordered = CaseFlow(asked("ask offer refuse mend file", outcomes=[DECISION], rules={"precedes": [["mend", "ask"]]}))
    assert ordered.shares == pytest.approx({"ask": 1.0, "offer": 0.75, "refuse": 0.25, "mend": 1.0, "file": 0.75})


def test_whoever_works_in_one_of_their_pools_works_in_all_of_them() -> None:
    people = {"Anna": {"pools": ["desk"]}, "Bert": {"pools": ["desk", "back"]}, "Cleo": {"pools": ["back"]}}
    pools = {"desk": {"least": 0, "most": 2}, "back": {"least": 0, "most": 2}, "free": {"least": 2, "most": 30}}
    requirements = asked("a", pools, people=people)
    # Pools that the design does not name have their fewest servers, and at least one.
    assert on_duty(requirements, {}) == {"desk": ["Anna", "Bert"], "back": ["Bert"], "free": ["free 1", "free 2"]}
    assert on_duty(requirements, {"desk": 1, "back": 0, "free": 3}) == {
        "desk": ["Anna"], "back": [], "free": ["free 1", "free 2", "free 3"],
    }  # fmt: skip
    assert on_duty(requirements, {"desk": 2, "back": 0})["back"] == ["Bert"]
    assert len(on_duty(requirements, {"free": 25})["free"]) == 20


def test_nobody_without_a_name_has_a_skill() -> None:
    parts = stated("a b", {"desk": {"most": 2}, "free": {"most": 2}}, people={"Anna": {"pools": ["desk"]}})
    parts["people"]["Anna"]["skills"] = ["law"]
    parts["activities"]["b"]["skills"] = ["law"]
    requirements = parse_requirements(parts)
    working = on_duty(requirements, {"desk": 1, "free": 2})
    found = {(name, pool): able_of(requirements, name, pool, working) for name in "ab" for pool in ("desk", "free")}
    assert found == {
        ("a", "desk"): ["Anna"], ("a", "free"): ["free 1", "free 2"], ("b", "desk"): ["Anna"], ("b", "free"): [],
    }  # fmt: skip


@pytest.mark.parametrize(("attempts", "found"), [(1, True), (2, True), (3, False), (20_000, False)])
def test_colours_are_assumed_to_suffice_if_too_many_would_have_to_be_tried(attempts: int, found: bool) -> None:
    """Nobody, then the first of the two: after both attempts it is known that the second has no colour."""
    options = {"a": ["red"], "b": ["red"]}
    assert colourable("ab", options, [("a", "b")], attempts) is found
    assert colourable("ab", {"a": ["red"], "b": ["red", "blue"]}, [("a", "b")]) is True
    assert colourable("ab", options, []) is True
    assert colourable("ab", options, [("a", "a")]) is False
    assert colourable("", {}, []) is True


def test_a_pool_works_if_one_of_its_people_does() -> None:
    pools = {"night": {"most": 2, "calendar": [[0, 6]]}}
    people = {"Anna": {"pools": ["night"], "calendar": [[6, 16]]}, "Bert": {"pools": ["night"], "calendar": [[5, 7]]}}
    assert impossible(asked("a", pools, people=people)) == []
    people["Bert"]["calendar"] = [[6, 7]]
    assert impossible(asked("a", pools, people=people)) == [
        "nobody works in 'night': no hours of 'Anna', 'Bert' are hours of the pool"
    ]


@pytest.mark.parametrize(
    ("kind", "pool", "human"),
    [
        ("human", None, True), ("human", "machine", True), ("decision", "machine", True), ("receive", None, True),
        ("service", None, False), ("service", "machine", False), ("service", "person", True),
        ("send", "machine", False), (None, None, False), (None, "machine", False), (None, "person", True),
    ],
)  # fmt: skip
def test_people_do_what_is_theirs_by_its_kind_or_its_pool(kind: str | None, pool: str | None, human: bool) -> None:
    pools = {"machine": {"kind": "machine"}, "person": {"kind": "person"}}
    activity = {"kind": kind, "duration": {"mean": 1}, "pools": [] if kind == "receive" else list(pools)}
    requirements = parse_requirements({"name": "t", "activities": {"a": activity}, "pools": pools})
    assert is_human(requirements, "a", pool) is human


def optional(parts: dict[str, Any], names: str) -> Requirements:
    """The requirements with these activities optional."""
    for name in names.split():
        parts["activities"][name]["optional"] = True
    return parse_requirements(parts)


@pytest.mark.parametrize("pair", [["a", "b"], ["b", "a"]])
def test_what_belongs_together_is_needed_together_whichever_is_named_first(pair: list[str]) -> None:
    rules = {"coexist": [pair], "excludes": [["a", "b"]]}
    first, second = pair
    assert said(optional(stated("a b", rules=rules), "b")) == [
        (
            "'a' and 'b' never happen in the same case "
            f"(a case has both {first!r} and {second!r} or neither; 'a' excludes 'b')"
        )
    ]


@pytest.mark.parametrize(("rule", "contradicts"), [("coexist", True), ("response", False), ("chain", False)])
def test_only_what_belongs_together_is_asked_for_backwards(rule: str, contradicts: bool) -> None:
    rules = {"response": [["a", "b"]], "excludes": [["b", "c"]]}
    rules[rule] = [*rules.get(rule, []), ["c", "a"]]
    found = said(optional(stated("a b c", rules=rules), "b c"))
    assert [text.partition(" (")[0] for text in found] == [
        "'a' asks for 'c' and 'b', which never happen in the same case"
    ] * contradicts


def test_branches_that_all_end_the_case_may_have_work_of_their_own() -> None:
    ends = {name: {"probability": 0.5, "activities": [name], "ends": True} for name in ("offer", "refuse")}
    assert said(asked("ask offer refuse", outcomes=[{**DECISION, "branches": ends}])) == []


@pytest.mark.parametrize(("change", "contradicts"), [({}, True), ({"optional": True}, False), ({"pools": []}, False)])
@pytest.mark.parametrize("rule", ["different_people", "separate"])
@pytest.mark.parametrize("changed", ["a", "b"])
def test_only_work_that_somebody_must_do_needs_people(rule: str, change: Any, contradicts: bool, changed: str) -> None:
    parts = stated("a b", ONE, rules={rule: [["a", "b"]]})
    parts["activities"][changed] |= change
    assert bool(said(parse_requirements(parts))) is contradicts


@pytest.mark.parametrize(
    ("chain", "words"),
    [
        ([["ask", "sign"], ["ask", "file"]], "'sign' and 'file' cannot both come directly after 'ask'"),
        ([["sign", "ask"], ["file", "ask"]], "'sign' and 'file' cannot both come directly before 'ask'"),
        ([["ask", "sign"], ["sign", "file"]], ""),
        ([["ask", "sign"], ["ask", "sign"]], ""),
    ],
)
def test_one_place_is_for_one_activity(chain: list[list[str]], words: str) -> None:
    parts = stated("ask sign file", rules={"chain": chain})
    found = said(parse_requirements(parts))
    assert [text.partition(" (")[0] for text in found] == ([words] if words else [])
    for name in ("ask", "sign", "file"):
        some = stated("ask sign file", rules={"chain": chain})
        assert said(optional(some, name)) == [], "what need not be there needs no place"


def test_only_what_is_needed_comes_between() -> None:
    rules = {"chain": [["ask", "sign"]], "precedes": [["ask", "file"], ["file", "sign"]]}
    assert len(said(asked("ask sign file", rules=rules))) == 1
    assert said(optional(stated("ask sign file", rules=rules), "file")) == []


TYPE = {
    "name": "type",
    "after": "ask",
    "branches": {"yes": {"probability": 0.25, "activities": ["offer"]}, "no": {"probability": 0.75}},
    "again": [{"after": "sign", "branches": {"yes": ["mend"], "no": ["refuse"]}}],
}


def test_work_after_a_result_is_asked_for_again_belongs_to_its_branch_and_waits_for_both_activities() -> None:
    found = asked("ask offer refuse sign mend", outcomes=[TYPE])
    assert found.outcomes[0].branches["yes"].activities == ("offer", "mend")
    assert {("ask", "mend"), ("sign", "mend"), ("ask", "refuse"), ("sign", "refuse")} <= {*order_of(found)}
    assert CaseFlow(found).shares["mend"] == pytest.approx(0.25)
    # Written and read again, it is the same.
    assert parse_requirements(found.model_dump(mode="json")) == found


def test_asking_again_for_what_was_not_decided_is_one_sentence() -> None:
    again = [{"after": "sign", "branches": {"yess": ["mend"]}}]
    with pytest.raises(ConfigError, match="'type' is asked for 'yess' again, which is not a branch"):
        asked("ask offer sign mend", outcomes=[{**TYPE, "again": again}])


def test_an_end_in_every_round_leaves_fewer_cases_than_one_end() -> None:
    branches = {"good": {"probability": 0.9, "activities": ["sign"]},
                "bad": {"probability": 0.1, "activities": ["refuse"], "ends": True}}  # fmt: skip
    decided = {"name": "d", "after": "ask", "branches": branches}
    loop = {"name": "l", "activities": ["ask", "sign", "refuse"], "after": "sign", "again": 0.5, "most": 1}
    rules = {"precedes": [["sign", "file"]]}
    flow = CaseFlow(asked("ask sign refuse file", outcomes=[decided], loops=[loop], rules=rules))
    assert flow.ended == pytest.approx(0.1 * 1.5)
    assert flow.shares["file"] == pytest.approx(1 - 0.15)


def test_a_loop_may_be_given_up_by_the_cases_that_its_limit_leaves() -> None:
    requirements = asked("ask mend refuse sign", loops=[{**AGAIN, "give_up": {"activities": ["refuse"]}}])
    flow = CaseFlow(requirements)
    # Three rounds at most, each asked for again by half of the cases.
    assert flow.share("refuse") == pytest.approx(0.5**3)
    assert flow.ends == {"again in the end": pytest.approx(0.5**3)}
    assert flow.comes_after_loop(flow.outcome["again in the end"], "mend")
    assert parse_requirements(requirements.model_dump(mode="json")).outcomes == requirements.outcomes


@pytest.mark.parametrize(
    ("day", "night", "noted"),
    [
        ([[8, 20]], [[20, 32]], True),
        ([[8, 20]], [[8, 20]], False),
        ([[8, 20]], [[10, 12]], False),
        ([[8, 20]], [], False),
    ],
)
def test_pools_that_relieve_each_other_are_noted_because_a_design_chooses_one(
    day: list[list[int]], night: list[list[int]], noted: bool
) -> None:
    shared = {"duration": {"mean": 60}, "pools": ["day", "night"]}
    value = {
        "name": "desk",
        "activities": {"greet": shared, "guide": shared, "file": {"duration": {"mean": 60}, "pools": ["night"]}},
        "pools": {"day": {"calendar": day}, "night": {"calendar": night}},
    }
    found = shift_notes(parse_requirements(value))
    assert len(found) == noted
    assert all(note.startswith("'greet' is done by one of 'day', 'night', which the design chooses") for note in found)
