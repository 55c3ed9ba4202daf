"""Requirements with hand-made designs: every design is legal, its pools keep up, and the checks can tell."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from groupwise.workflows.blocks import Activity, Block, Choice, Design, Loop, Parallel, Sequence, Skip
from tests.workflows.files.samples import needs_data

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import design_truth_cases as truth

CASES = truth.read_cases()


def test_the_cases_cover_what_process_owners_ask_for() -> None:
    counts: Counter[str] = Counter()
    for case in CASES:
        stated, rules = case.requirements, case.requirements.get("rules", {})
        nested = truth.branch_of(stated)
        counts["cases"] += 1
        counts["parallel"] += case.parallel
        counts["calendars"] += any(pool.get("calendar") for pool in stated["pools"].values())
        counts["deadline"] += "deadline" in rules
        counts["loops"] += "loops" in stated
        counts["nested"] += any(outcome["after"] in nested for outcome in stated.get("outcomes", ()))
        counts["by person"] += "different_people" in rules or "same_person" in rules
        counts["events"] += any(one["kind"] == "receive" for one in stated["activities"].values())
        counts["data"] += bool(truth.data_pairs(stated))
    least = {"cases": 52, "parallel": 20, "calendars": 40, "deadline": 20, "loops": 20, "nested": 10, "by person": 20}
    assert {name: counts[name] for name in least if counts[name] < least[name]} == {}
    assert counts["events"] >= 30
    assert counts["data"] >= 40


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_hand_made_design_and_its_chain_are_legal_and_keep_up(
    case: truth.TruthCase,
) -> None:
    assert truth.faults(case) == []
    assert max(truth.loads(case.requirements, case.design).values()) < 0.8
    chain = truth.chain_of(case.design.root)
    if case.parallel:
        assert truth.path_time(case.requirements, case.design.root) < truth.path_time(case.requirements, chain)
    assert truth.faults(replace(case, design=replace(case.design, root=chain))) == []


@needs_data
def test_cases_derived_from_files_are_legal_and_parallel() -> None:
    found = truth.derived_cases()
    assert len(found) >= 12
    for case in found:
        assert truth.faults(case) == [], case.name
        assert case.parallel


STATED: dict[str, Any] = {
    "name": "test",
    "activities": {name: {"duration": {"mean": 60}} for name in ("ask", "offer", "sign", "refuse", "file", "mend")},
    "outcomes": [
        {
            "name": "answer",
            "after": "ask",
            "branches": {
                "yes": {"probability": 0.75, "activities": ["offer", "sign"]},
                "no": {"probability": 0.25, "activities": ["refuse"], "ends": True},
            },
        }
    ],
    "loops": [{"name": "again", "activities": ["ask"], "after": "ask", "again": 0.2, "redo": ["mend"]}],
    "rules": {"precedes": [["offer", "sign"]], "response": [["offer", "file"]]},
}
ASK = Loop(Activity("ask"), 0.2, Activity("mend"))
OFFER, SIGN, REFUSE, FILE = (Activity(name) for name in ("offer", "sign", "refuse", "file"))
LEGAL = Sequence((ASK, Choice((Sequence((OFFER, SIGN, FILE)), REFUSE), (0.75, 0.25))))


def found_in(root: Block, **changes: Any) -> list[str]:
    return truth.faults(truth.TruthCase("test", {**STATED, **changes}, Design("d", root), False))


def test_a_legal_design_has_no_faults() -> None:
    assert found_in(LEGAL) == []


@pytest.mark.parametrize(
    ("root", "said"),
    [
        (Sequence((ASK, Choice((Sequence((OFFER, SIGN)), REFUSE), (0.75, 0.25)), FILE)), "ended the case"),
        (Sequence((ASK, Choice((Sequence((OFFER, SIGN, FILE)), REFUSE), (0.5, 0.5)))), "0.5 of the cases, not 0.75"),
        (Sequence((ASK, Choice((Sequence((SIGN, OFFER, FILE)), REFUSE), (0.75, 0.25)))), "precedes"),
        (Sequence((ASK, Choice((Parallel((OFFER, SIGN, FILE)), REFUSE), (0.75, 0.25)))), "precedes"),
        (Sequence((Choice((Sequence((OFFER, SIGN, FILE)), REFUSE), (0.75, 0.25)), ASK)), "does not wait for 'ask'"),
        (Sequence((FILE, ASK, Choice((Sequence((OFFER, SIGN)), REFUSE), (0.75, 0.25)))), "response"),
        (Sequence((Loop(Activity("ask"), 0.3, Activity("mend")), *LEGAL.parts[1:])), "no loop in the design"),
        (Sequence((Activity("ask"), Activity("mend"), *LEGAL.parts[1:])), "no loop in the design"),
        (
            Sequence((ASK, Choice((OFFER, Sequence((REFUSE, Activity("x")))), (0.75, 0.25)), SIGN, FILE)),
            "unknown ['x']",
        ),
        (
            Sequence((ASK, Choice((OFFER, REFUSE), (0.75, 0.25)), Choice((SIGN, Skip()), (0.75, 0.25)), FILE)),
            "not always both done",
        ),
    ],
)
def test_a_design_that_breaks_its_requirements_is_found_out(root: Block, said: str) -> None:
    assert any(said in fault for fault in found_in(root))


def test_data_orders_activities_and_duties_are_told_apart_by_person() -> None:
    activities = {
        "write": {"duration": {"mean": 1}, "writes": ["text"], "pools": ["desk"]},
        "read": {"duration": {"mean": 1}, "reads": ["text"], "pools": ["desk"]},
    }
    people = {"Anna": {"pools": ["desk"]}}
    stated = {"name": "t", "activities": activities, "pools": {"desk": {}}, "people": people}
    both = Parallel((Activity("write"), Activity("read")))
    design = Design("d", both, (("desk", 1),))
    assert truth.faults(truth.TruthCase("t", stated, design, False)) == ["'read' reads what 'write' has not written"]
    asked = {**stated, "rules": {"different_people": [["write", "read"]]}}
    in_turn = replace(design, root=Sequence(both.parts))
    assert truth.faults(truth.TruthCase("t", asked, in_turn, False)) == ["only {'Anna'} could do 'write' and 'read'"]
