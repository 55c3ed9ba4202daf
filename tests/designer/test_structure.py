"""Where outcomes and loops are placed, and what no tree of blocks can express."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from groupwise.designer.construction import construct
from groupwise.designer.pipeline import Designer
from groupwise.designer.plans import AFTER_CHECKS, BESIDE_WAITING, STAGED, WIDEST, DecisionBatch
from groupwise.designer.policy import load_policy
from groupwise.designer.problem import DesignProblem, Ints
from groupwise.designer.results.explanation import one_line
from groupwise.designer.tasks import Drafter
from groupwise.errors import ConfigError
from groupwise.workflows import broken_rules, evaluate, lift, score
from groupwise.workflows.blocks import Choice, activities, walk
from groupwise.workflows.document import document_of
from groupwise.workflows.feasibility import contradictions
from groupwise.workflows.files.bpmn import read, write
from groupwise.workflows.places import places_of, relation
from groupwise.workflows.requirements import Requirements, parse_requirements


def asked(outcomes: list[dict[str, Any]], **rest: Any) -> Requirements:
    one = {"duration": {"mean": 60}, "pools": ["desk"]}
    known = {name: one for name in ("ask", "judge", "treat", "review", "ward", "intensive", "repeat", "discharge")}
    return parse_requirements(
        {
            "name": "clinic",
            "activities": known,
            "pools": {"desk": {"most": 9, "wage": 0.01}},
            "demand": {"arrivals_per_second": 0.003},
            "outcomes": outcomes,
            **rest,
        }
    )


ADMITTED = {
    "name": "diagnosis",
    "after": "judge",
    "branches": {
        "acute": {"probability": 0.2, "activities": ["treat", "review"]},
        "unclear": {"probability": 0.3, "activities": ["repeat"]},
        "harmless": {"probability": 0.5},
    },
}


def result(good_ends: bool) -> dict[str, Any]:
    good = {"probability": 0.9, "activities": ["ward"], "ends": good_ends}
    bad = {"probability": 0.1, "activities": ["intensive"], "ends": True}
    return {"name": "result", "after": "review", "branches": {"good": good, "bad": bad}}


def test_a_branch_whose_outcomes_all_end_the_case_is_kept_apart_from_those_who_go_on() -> None:
    rules = {"precedes": [["ask", "judge"], ["treat", "review"], ["judge", "discharge"], ["repeat", "discharge"]]}
    required = asked([ADMITTED, result(good_ends=True)], rules=rules)
    outcome = Designer(load_policy()).design(required, evaluations=8)
    assert outcome.best.score is not None
    assert outcome.best.score.broken == ()
    ways = {
        frozenset(one.name for one in activities(part))
        for block in walk(outcome.best.design.root)
        if isinstance(block, Choice)
        for part in block.parts
    }
    assert any("treat" in way for way in ways)
    assert not any({"treat", "discharge"} <= way for way in ways)
    where = {place.activity.name: place for place in places_of(outcome.best.design.root)}
    assert relation(outcome.best.design.root, where["treat"].path, where["discharge"].path) == "never both"


@pytest.mark.parametrize(
    ("outcomes", "rest"),
    [
        (
            [ADMITTED, result(good_ends=False)],
            {"rules": {"precedes": [["treat", "review"], ["ward", "discharge"], ["repeat", "discharge"]]}},
        ),
        (
            [ADMITTED],
            {"rules": {"precedes": [["repeat", "discharge"], ["treat", "discharge"], ["discharge", "review"]]}},
        ),
        (
            [ADMITTED, result(good_ends=False)],
            {
                "rules": {"precedes": [["repeat", "discharge"], ["treat", "discharge"], ["discharge", "review"]]},
                "loops": [{"name": "again", "activities": ["ward"], "after": "ward", "again": 0.2}],
            },
        ),
        (
            [{**result(good_ends=False), "after": "treat"}],
            {"loops": [{"name": "again", "activities": ["treat", "review", "ward", "intensive"], "after": "review",
                        "again": 0.2, "most": 2, "redo": ["repeat"]}],
             "rules": {"precedes": [["treat", "review"]]}},
        ),
        (
            [{"name": "answer", "after": "ask", "branches": {"some": {"probability": 0.7},
                                                             "none": {"probability": 0.3, "ends": True}}}],
            {"loops": [{"name": "again", "activities": ["judge"], "after": "judge", "again": 0.4, "redo": ["ask"]}],
             "rules": {"precedes": [["judge", "discharge"]]}},
        ),
        (
            [ADMITTED],
            {"loops": [{"name": "again", "activities": ["judge"], "after": "judge", "again": 0.4, "most": 2,
                        "redo": ["ask"], "give_up": {"activities": ["ward"]}}],
             "rules": {"precedes": [["judge", "discharge"]]}},
        ),
        (
            [{"name": "first", "after": "ask", "branches": {"on": {"probability": 0.4, "activities": ["ward"]},
                                                            "over": {"probability": 0.6, "ends": True}}},
             {"name": "second", "after": "judge", "branches": {"on": {"probability": 0.7},
                                                               "over": {"probability": 0.3, "ends": True}}}],
            {"rules": {"precedes": [["ask", "judge"], ["judge", "treat"], ["treat", "ward"]]}},
        ),
        (
            [{"name": "first", "after": "ask", "branches": {"on": {"probability": 0.4, "activities": ["ward"]},
                                                            "over": {"probability": 0.6, "ends": True}}},
             {"name": "second", "after": "judge", "branches": {"on": {"probability": 0.7},
                                                               "over": {"probability": 0.3, "ends": True}}}],
            {"rules": {"precedes": [["ask", "treat"], ["treat", "judge"], ["review", "ward"]]},
             "loops": [{"name": "again", "activities": ["treat", "judge"], "after": "judge", "again": 0.3}]},
        ),
        (
            [ADMITTED],
            {"loops": [{"name": "again", "activities": ["judge"], "after": "judge", "again": 0.4, "redo": ["ask"]}],
             "rules": {"precedes": [["ask", "judge"], ["judge", "discharge"]]}},
        ),
    ],
    ids=["ends inside a branch", "asked again", "both", "ends inside a round", "ends between two rounds", "given up",
         "the rest of a branch waits for another end", "an end before a loop with one", "back to the next round"],
)  # fmt: skip
def test_every_plan_for_ends_and_repeated_outcomes_keeps_the_rules_and_comes_back_from_its_drawing(
    outcomes: list[dict[str, Any]], rest: dict[str, Any]
) -> None:
    required = asked(outcomes, **rest)
    problem, rng = DesignProblem(required), np.random.default_rng(1)
    assert problem.limits == ()
    freedom = np.arange(24) // 6
    plans = construct(problem, lambda ask: (rng.random(ask.legal.shape) * ask.legal).argmax(-1), 24, freedom=freedom)
    for design in Drafter(problem)(plans):
        assert broken_rules(design, required) == []
        again = lift(document_of(design, required))
        assert one_line(again.root) == one_line(design.root)
        assert score(again, required, evaluate(again, required)).total == pytest.approx(
            score(design, required, evaluate(design, required)).total
        )


def test_a_case_that_went_one_way_goes_the_same_way_later() -> None:
    rules = {"precedes": [["repeat", "discharge"], ["treat", "discharge"], ["discharge", "review"]]}
    outcome = Designer(load_policy()).design(asked([ADMITTED], rules=rules), evaluations=8)
    forks = [one for one in walk(outcome.best.design.root) if isinstance(one, Choice) and one.outcome]
    assert [one.outcome for one in forks] == ["diagnosis", "diagnosis"]
    where = {place.activity.name: place for place in places_of(outcome.best.design.root)}
    assert relation(outcome.best.design.root, where["repeat"].path, where["review"].path) == "never both"
    assert where["review"].share == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("outcomes", "rest", "said"),
    [
        (
            [ADMITTED],
            {"loops": [{"name": "again", "activities": ["ask", "treat"], "after": "treat", "again": 0.2}]},
            "the loop 'again' is partly in branch 'acute' of 'diagnosis' and partly outside",
        ),
        (
            [ADMITTED, result(good_ends=False)],
            {
                "loops": [
                    {
                        "name": "again",
                        "activities": ["judge", "treat", "review", "repeat"],
                        "after": "review",
                        "again": 0.2,
                    }
                ]
            },
            "'result' is decided in branch 'acute' of 'diagnosis', inside the loop 'again'",
        ),
    ],
)
def test_what_no_tree_of_blocks_can_express_is_said_before_the_search(
    outcomes: list[dict[str, Any]], rest: dict[str, Any], said: str
) -> None:
    required = asked(outcomes, **rest)
    assert said in DesignProblem(required).limits[0]
    with pytest.raises(ConfigError, match="cannot be designed"):
        Designer(load_policy()).begin(required)


WHERE = ("always", "optional", "own choice", "shared choice", "branch", "other branch", "other outcome", "loop", "redo")


def paired(rule: str, places: tuple[str, str]) -> Requirements:
    """Requirements with a rule about two activities at some places."""
    ways: list[list[str]] = [[], [], [], [], []]
    options: list[dict[str, float]] = [{}, {}, {}]
    names = ("ask", "judge", "intensive", "one", "other", "repeat")
    told: dict[str, dict[str, Any]] = {name: {"duration": {"mean": 60}} for name in names}
    for number, (name, place) in enumerate(zip(("one", "other"), places, strict=True)):
        told[name]["optional"] = place == "optional"
        if place in WHERE[4:]:
            ways[WHERE.index(place) - 4].append(name)
        elif "choice" in place:
            options[number if place == "own choice" else 2][name] = 0.4
    yes: list[dict[str, Any]] = [{"probability": 0.4, "activities": ways[n]} for n in (0, 2)]
    no: list[dict[str, Any]] = [{"probability": 0.6, "activities": some} for some in (["intensive", *ways[1]], [])]
    outcomes = [
        {"name": name, "after": "judge", "branches": {"yes": yes[n], "no": no[n]}}
        for n, name in enumerate(("lane", "kind"))
    ]
    loop = {"name": "again", "activities": [*ways[3], "repeat"], "after": "repeat", "again": 0.3, "redo": ways[4]}
    branches = [{"name": f"choice {n}", "options": some} for n, some in enumerate(options) if some]
    rules = {rule: [["one", "other"]]}
    return asked(outcomes, activities=told, loops=[loop], branches=branches, rules=rules)


@pytest.mark.parametrize("rule", ["coexist", "response", "chain", "excludes", "precedes"])
def test_a_rule_about_two_activities_is_kept_by_some_design_or_refused_with_a_sentence(rule: str) -> None:
    rng, refused = np.random.default_rng(2), 0
    for places in product(WHERE, WHERE):
        required = paired(rule, places)
        problem = DesignProblem(required)
        if contradictions(required) or problem.limits:
            refused += 1
            continue
        plans = construct(problem, lambda ask: (rng.random(ask.legal.shape) * ask.legal).argmax(-1), 8)
        assert any(not broken_rules(design, required) for design in Drafter(problem)(plans)), places
    assert (refused == 0) == (rule == "precedes")


def test_what_is_decided_separately_cannot_be_promised_together() -> None:
    (said,) = DesignProblem(paired("coexist", ("own choice", "branch"))).limits
    assert said == (
        "no design can promise that a case has both 'one' and 'other' or neither, because a case may need one of them "
        "without the other: list both in one branch of an outcome"
    )


def test_a_choice_beside_an_outcome_comes_back_from_its_file() -> None:
    required = paired("precedes", ("own choice", "branch"))
    problem, rng = DesignProblem(required), np.random.default_rng(1)
    plans = construct(problem, lambda ask: (rng.random(ask.legal.shape) * ask.legal).argmax(-1), 4)
    for design in Drafter(problem)(plans):
        assert lift(read(write(document_of(design, required)))).root == lift(document_of(design, required)).root


def test_the_examples_have_no_such_limits() -> None:
    from groupwise.workflows.requirements import read_requirements

    for path in sorted((Path(__file__).parents[2] / "examples" / "workflows").glob("*.yaml")):
        assert DesignProblem(read_requirements(path)).limits == ()


def freed(freedom: int) -> str:
    """One after the other as listed, without what this freedom leaves out."""
    desk = {"duration": {"mean": 60}, "pools": ["desk"]}
    value = {
        "name": "hiring",
        "activities": {
            "read letter": {**desk, "knock_out": 0.4},
            "wait for references": {"kind": "receive", "duration": {"mean": 6000}},
            "interview": desk,
            "test": desk,
            "decide": desk,
        },
        "pools": {"desk": {"most": 9, "wage": 0.01}},
        "rules": {"precedes": [["wait for references", "decide"], ["interview", "decide"], ["test", "decide"]]},
        "demand": {"arrivals_per_second": 0.003},
    }
    problem = DesignProblem(parse_requirements(value))

    def in_turn(ask: DecisionBatch) -> Ints:
        return np.asarray(ask.legal.argmax(-1))

    plans = construct(problem, in_turn, 1, freedom=np.array([freedom]))
    return one_line(Drafter(problem)(plans)[0].root)


@pytest.mark.parametrize(
    ("freedom", "design"),
    [
        (STAGED, "read letter → wait for references → interview → test → decide"),
        (WIDEST, "((interview ∥ test ∥ wait for references) → decide ∥ read letter)"),
        (AFTER_CHECKS, "read letter → (interview ∥ test ∥ wait for references) → decide"),
        (BESIDE_WAITING, "read letter → (interview → test ∥ wait for references) → decide"),
    ],
)
def test_less_waits_where_rules_allow_it_and_a_freedom_asks_for_it(freedom: int, design: str) -> None:
    assert freed(freedom) == design


@pytest.mark.parametrize(
    ("before", "freedom", "design"),
    [
        (
            "treat",
            WIDEST,
            (
                "(ask ∥ judge) → [treat → [– 90% | intensive → ■ 10%] 40% | – 60%] → (repeat ∥ [review 38% | – 62%]) "
                "→ discharge"
            ),
        ),
        (
            "review",
            WIDEST,
            "(ask ∥ judge) → [– 60% | treat → [– 90% | intensive → ■ 10%] → review 40%] → repeat → discharge",
        ),
    ],
)
def test_work_behind_an_end_in_a_branch_may_be_done_beside_other_work(before: str, freedom: int, design: str) -> None:
    lane = {
        "name": "lane",
        "after": "judge",
        "branches": {"long": {"probability": 0.4, "activities": ["treat", "review"]}, "short": {"probability": 0.6}},
    }
    check = {
        "name": "check",
        "after": "treat",
        "branches": {
            "fine": {"probability": 0.9},
            "bad": {"probability": 0.1, "activities": ["intensive"], "ends": True},
        },
    }
    needed = ("ask", "judge", "treat", "review", "repeat", "intensive", "discharge")
    rules = {"precedes": [[before, "repeat"], ["repeat", "discharge"], ["review", "discharge"], ["ask", "treat"]]}
    value = asked([lane, check], rules=rules).model_dump(mode="json")
    value["activities"] = {name: value["activities"][name] for name in needed}
    problem = DesignProblem(parse_requirements(value))
    plans = construct(problem, lambda ask: np.asarray(ask.legal.argmax(-1)), 1, freedom=np.array([freedom]))
    (found,) = Drafter(problem)(plans)
    assert not broken_rules(found, problem.requirements)
    assert one_line(found.root) == design
