"""Workflows changed by hand: what an edit does, what it breaks, and what is refused."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from groupwise.errors import ConfigError
from groupwise.workflows import blocks
from groupwise.workflows.blocks import Activity, Design, Loop, Parallel, Sequence
from groupwise.workflows.editing import (
    Assign,
    Chance,
    Edited,
    MoveActivity,
    Rule,
    Staff,
    applied,
    as_written,
    assess,
    chances,
    edit_of,
    in_words,
)
from groupwise.workflows.inspection import Opened, open_workflow
from groupwise.workflows.requirements import parse_requirements
from groupwise.workflows.rules import broken_rules

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import design_truth_cases as truth

LOAN = Path(__file__).parents[2] / "examples" / "workflows" / "loan.yaml"
# Choices that mix several outcomes, or ask only some of the cases: they stay as drawn, and the rules say so.
MIXED = ("customs_of_two_lanes", "laptop_repair", "patients_of_two_funds", "research_grant")
A, B, C = Activity("a"), Activity("b"), Activity("c")
ABC = parse_requirements({
    "name": "abc", "activities": {name: {"duration": {"mean": 60}, "pools": ["desk", "back"]} for name in "abc"},
    "pools": {"desk": {"most": 9}, "back": {"most": 2}},
    "loops": [{"name": "again", "activities": ["b"], "after": "b", "again": 0.5, "most": 2, "give_up": {"ends": True}}],
})  # fmt: skip


@pytest.fixture(scope="module")
def loan() -> Opened:
    return open_workflow(LOAN)


def moved(place: str) -> blocks.Block:
    design = Design("abc", Sequence((A, B, C)))
    return applied(design, ABC, [edit_of({"do": "move", "activity": "c", "place": place, "other": "a"})]).design.root


def test_an_activity_is_moved_before_after_and_beside_another() -> None:
    assert moved("before") == Sequence((C, A, B))
    assert moved("after") == Sequence((A, C, B))
    assert moved("beside") == Sequence((Parallel((A, C)), B))


def test_every_probability_of_requirements_changes_in_the_drawing_too() -> None:
    tried = 0
    for case in truth.read_cases():
        requirements = parse_requirements(case.requirements)
        for name, value in chances(requirements).items():
            if case.name in MIXED or not 0 < value < 1:
                continue
            tried += 1
            edited = applied(case.design, requirements, [Chance(name, 0.8 * value)])
            assert chances(edited.requirements)[name] == pytest.approx(0.8 * value)
            assert not broken_rules(edited.design, edited.requirements), (case.name, name)
    assert tried > 200


def test_results_share_what_another_leaves_and_loops_that_are_given_up_stay_consistent() -> None:
    design = Design("abc", Sequence((A, Loop(B, 0.5), C)))
    edited = applied(design, ABC, [Chance("again is repeated", 0.2)])
    assert edited.design.root == Sequence((A, Loop(B, 0.2), C))
    assert [one.branches["given up"].probability for one in edited.requirements.outcomes] == [pytest.approx(0.2**3)]
    assert "outcomes" not in as_written(edited.requirements) or not as_written(edited.requirements)["outcomes"]
    case = next(one for one in truth.read_cases() if one.name == "consumer_loan")
    changed = applied(case.design, parse_requirements(case.requirements), [])
    for outcome in changed.requirements.outcomes:
        first = next(iter(outcome.branches))
        again = applied(case.design, changed.requirements, [Chance(f"{outcome.name}: {first}", 0.05)]).requirements
        found = next(one for one in again.outcomes if one.name == outcome.name)
        assert sum(part.probability for part in found.branches.values()) == pytest.approx(1)


def test_an_edit_that_breaks_a_rule_scores_0_and_says_which(loan: Opened) -> None:
    assert loan.requirements is not None
    before = assess(Edited(loan.design(), loan.requirements))
    assert before.score is not None
    assert before.score.total > 0.5
    edited = applied(loan.design(), loan.requirements, [MoveActivity("receive application", "after", "pay out loan")])
    found = assess(edited)
    assert found.score is not None
    assert found.score.total == 0
    assert any("comes before 'receive application'" in one.words for one in found.broken)
    busy = assess(applied(loan.design(), loan.requirements, [Staff("approver", 1)]))
    assert busy.performance is not None
    assert before.performance is not None
    assert busy.performance.utilisation["approver"] > before.performance.utilisation["approver"]
    clash = applied(loan.design(), loan.requirements, [Rule("precedes", "sign contract", "receive application")])
    assert (assess(clash).score, len(assess(clash).conflicts)) == (None, 1)


def test_who_does_it_and_how_it_is_said() -> None:
    edits = (Assign("b", "back"), Staff("back", 2), Rule("deadline", seconds=90), Rule("must_include", "a"),
             Rule("separate", "a", "b"), Chance("a fails", 0.25), MoveActivity("c", "beside", "a"))  # fmt: skip
    found = applied(Design("abc", Sequence((A, Loop(B, 0.5), C))), ABC, edits)
    assert {one.name: one.handling.pool for one in blocks.activities(found.design.root)}["b"] == "back"
    assert dict(found.design.servers) == {"back": 2}
    assert (found.requirements.rules.deadline, found.requirements.rules.separate) == (90, (("a", "b"),))
    assert found.requirements.activities["a"].failure == 0.25
    assert in_words(edits) == [
        "b by back", "2 of back", "deadline: 90 s", "must_include: a", "separate: a, b", "a fails: 0.25", "c beside a",
    ]  # fmt: skip


@pytest.mark.parametrize(("edit", "words"), [
    (MoveActivity("d", "after", "a"), "there is no activity 'd'"),
    (MoveActivity("a", "after", "a"), "cannot be moved after itself"),
    (Staff("dsk", 1), r"no pool 'dsk' \(did you mean 'desk'\?\)"), (Staff("desk", 0), "needs at least 1"),
    (Chance("a fail", 0.1), "did you mean 'a fails'"), (Chance("a fails", 1.5), "between 0 and 1"),
    (Chance("a fails", 1.0), "below 1"), (Rule("precede", "a", "b"), "did you mean 'precedes'"),
    (Rule("precedes", "a", "a"), "twice"), (Rule("deadline"), "needs its seconds"), (Rule("chain", "a", "z"), "'z'"),
    (Assign("a", "des"), "did you mean 'desk'"),
])  # fmt: skip
def test_what_cannot_be_edited_is_refused(edit: object, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        applied(Design("abc", Sequence((A, Loop(B, 0.5), C))), ABC, [edit])  # type: ignore[list-item]
