"""Choices are named after what the requirements say is decided, or else after the activities they lead to."""

from __future__ import annotations

from typing import Any

import pytest

from groupwise.workflows.blocks import Activity, Block, Choice, Design, Loop, Parallel, Sequence, Skip
from groupwise.workflows.document import document_of
from groupwise.workflows.graph import Flow, Graph, Node
from groupwise.workflows.requirements import Requirements, parse_requirements
from groupwise.workflows.titles import percent, titled


def asked(**rest: Any) -> Requirements:
    told = {name: {"duration": {"mean": 1}, **rest.pop(name, {})} for name in "abcdef"}
    return parse_requirements({"name": "r", "activities": told, **rest})


def questions(root: Block, requirements: Requirements | None = None) -> dict[str, set[str]]:
    graph = titled(document_of(Design("d", root), requirements).root, requirements)
    asking = [node for node in graph.nodes if node.silent and node.name and len(graph.out_of(node.id)) > 1]
    return {node.name: {flow.name for flow in graph.out_of(node.id)} for node in asking}


def outcome(name: str, after: str, **branches: Any) -> dict[str, Any]:
    return {"name": name, "after": after, "branches": branches}


A, B, C, D = (Activity(name) for name in "abcd")


def test_outcomes_name_their_branches_even_inside_each_other() -> None:
    known = asked(
        outcomes=[
            outcome("verdict", "a", refund={"probability": 0.6, "activities": ["b"]},
                    other={"probability": 0.4, "activities": ["c", "e"]}),
            outcome("appeal", "c", heard={"probability": 0.2, "activities": ["d"]}, accepted={"probability": 0.8}),
        ]
    )  # fmt: skip
    inner = Sequence((C, Choice((D, Skip()), (0.2, 0.8)), Activity("e")))
    found = questions(Sequence((A, Choice((B, inner), (0.6, 0.4)))), known)
    assert found == {"verdict?": {"refund (60%)", "other (40%)"}, "appeal?": {"heard (20%)", "accepted (80%)"}}


def test_branches_without_work_are_named_where_their_probabilities_fit() -> None:
    """Those who go on after a branch that ends the case are in one way, which then asks about them alone."""
    ends = {"probability": 0.2, "activities": ["b"], "ends": True}
    known = asked(
        outcomes=[
            outcome("verdict", "a", acute=ends, unclear={"probability": 0.3, "activities": ["c"]},
                    harmless={"probability": 0.5}),
        ]
    )  # fmt: skip
    going = Sequence((Choice((C, Skip()), (0.375, 0.625)), D))
    graph = titled(document_of(Design("d", Sequence((A, Choice((B, going), (0.2, 0.8))))), known).root, known)
    said = {flow.name for flow in graph.flows if flow.name}
    assert said == {"acute (20%)", "unclear or harmless (80%)", "unclear (38%)", "harmless (62%)"}


def test_branches_loops_and_knock_outs_ask_their_own_questions() -> None:
    known = asked(
        a={"knock_out": 0.025},
        branches=[{"name": "secured by property", "options": {"b": 0.3}}],
        loops=[{"name": "rework", "activities": ["c"], "after": "c", "again": 0.25, "most": 3, "redo": ["d"]}],
    )
    found = questions(Sequence((A, Choice((B, Skip()), (0.3, 0.7)), Loop(C, 0.25, D))), known)
    assert found == {
        "a passed?": {"yes (98%)", "no (2.5%)"},
        "secured by property?": {"yes (30%)", "no (70%)"},
        "rework?": {"yes, up to 3 times (25%)", "no (75%)"},
    }


def test_without_requirements_activities_give_the_names() -> None:
    root = Sequence(
        (Choice((A, Skip()), (0.5, 0.5)), Choice((B, Parallel((C, D))), (0.1, 0.9)), Loop(Activity("e"), 0.5))
    )
    assert questions(root) == {
        "a needed?": {"yes (50%)", "no (50%)"},
        "b or c?": {"b (10%)", "c (90%)"},
        "e again?": {"yes (50%)", "no (50%)"},
    }


def test_the_first_activities_are_found_behind_several_gateways() -> None:
    inner = Parallel((Choice((C, D), (0.5, 0.5)), Choice((Activity("e"), Activity("f")), (0.5, 0.5))))
    found = questions(Sequence((A, Choice((B, inner), (0.5, 0.5)))))
    assert set(found) == {"b or c?", "c or d?", "e or f?"}
    assert found["b or c?"] == {"b (50%)", "c (50%)"}


def test_a_choice_inside_a_loop_is_not_taken_for_its_way_back() -> None:
    found = questions(Loop(Sequence((A, Choice((B, C), (0.5, 0.5)))), 0.5))
    assert set(found) == {"b or c?", "a again?"}


def test_names_that_a_workflow_has_are_kept() -> None:
    nodes = (Node("s", kind="start"), Node("x", "ok?", split="xor", silent=True), Node("a"), Node("e", kind="end"))
    flows = (Flow("s", "x"), Flow("x", "a", name="go on"), Flow("x", "e"), Flow("a", "e"))
    found = titled(Graph("g", nodes, flows))
    assert found.by_id["x"].name == "ok?"
    assert [flow.name for flow in found.out_of("x")] == ["go on", "end"]


@pytest.mark.parametrize(
    ("share", "said"),
    [
        (0.0, "0%"), (1e-5, "under 0.1%"), (0.00049, "under 0.1%"), (0.001, "0.1%"), (0.005, "0.5%"), (0.01, "1%"),
        (0.025, "2.5%"), (0.07, "7%"), (0.0992, "9.9%"), (0.0996, "10%"), (0.62, "62%"), (0.994, "99%"),
        (0.995, "99.5%"), (0.998, "99.8%"), (0.9995, "over 99.9%"), (0.99999, "over 99.9%"), (1.0, "100%"),
    ],
)  # fmt: skip
def test_a_share_that_is_possible_is_not_called_impossible(share: float, said: str) -> None:
    assert percent(share) == said


@pytest.mark.parametrize(
    ("loop", "asking", "yes"),
    [
        ({"most": None}, "rework?", "yes"),
        ({"most": 1}, "rework?", "yes, once"),
        ({"most": 2}, "rework?", "yes, up to 2 times"),
        ({"name": "once more?", "most": 2}, "once more?", "yes, up to 2 times"),
    ],
)
def test_a_loop_asks_by_its_name_and_says_how_often(loop: dict[str, Any], asking: str, yes: str) -> None:
    known = asked(loops=[{"name": "rework", "activities": ["c"], "after": "c", "again": 0.25, **loop}])
    assert questions(Sequence((A, Loop(C, 0.25))), known) == {asking: {f"{yes} (25%)", "no (75%)"}}


@pytest.mark.parametrize(
    ("options", "root", "found"),
    [
        ({"b": 0.3, "c": 0.2}, Choice((B, C, Skip()), (0.3, 0.2, 0.5)),
         {"needs?": {"b (30%)", "c (20%)", "none of them (50%)"}}),
        ({"b": 0.3, "c": 0.7}, Choice((B, C), (0.3, 0.7)), {"needs?": {"b (30%)", "c (70%)"}}),
        # A fork for one of several options asks about that one.
        ({"b": 0.3, "c": 0.2}, Choice((B, Skip()), (0.3, 0.7)), {"needs: b?": {"yes (30%)", "no (70%)"}}),
        ({"b": 0.3}, Choice((B, Skip()), (0.3, 0.7)), {"needs?": {"yes (30%)", "no (70%)"}}),
        ({"b": 0.3}, Choice((B, C), (0.3, 0.7)), {"needs?": {"yes (30%)", "no (70%)"}}),
        ({"e": 0.3}, Choice((B, C, Skip()), (0.3, 0.2, 0.5)),
         {"b or c?": {"b (30%)", "c (20%)", "none of them (50%)"}}),
        ({"e": 0.3}, Choice((B, C, D), (0.3, 0.2, 0.5)), {"b, c or d?": {"b (30%)", "c (20%)", "d (50%)"}}),
    ],
)  # fmt: skip
def test_a_choice_asks_for_the_branch_that_the_requirements_name(options: Any, root: Block, found: Any) -> None:
    known = asked(branches=[{"name": "needs", "options": options}], **{name: {"optional": True} for name in "bcde"})
    assert questions(Sequence((A, root)), known) == found


@pytest.mark.parametrize(
    ("empty", "answer"),
    [
        ({"late": 0.3}, "late (30%)"),
        ({"late": 0.1, "lost": 0.2}, "late or lost (30%)"),
        # Branches that add up to another share than that of the drawing are named all the same.
        ({"late": 0.2, "lost": 0.2}, "late or lost (30%)"),
    ],
)
def test_branches_without_work_share_the_way_that_is_left(empty: dict[str, float], answer: str) -> None:
    rest = 1 - sum(empty.values())
    branches: Any = {"paid": {"probability": rest, "activities": ["b"]}}
    known = asked(
        outcomes=[outcome("money", "a", **branches, **{name: {"probability": p} for name, p in empty.items()})]
    )
    found = questions(Sequence((A, Choice((B, Skip()), (0.7, 0.3)))), known)
    assert found == {"money?": {"paid (70%)", answer}}


def test_an_outcome_is_not_asked_where_a_way_is_none_of_its_branches() -> None:
    known = asked(outcomes=[outcome("verdict", "a", yes={"probability": 0.5, "activities": ["b"]},
                                    no={"probability": 0.5, "activities": ["c"]})])  # fmt: skip
    assert set(questions(Sequence((A, Choice((B, D), (0.5, 0.5)))), known)) == {"b or d?"}
    assert set(questions(Sequence((A, Choice((B, C), (0.5, 0.5)))), known)) == {"verdict?"}
    # Both ways lead to the same branch: it cannot be what is asked.
    both = asked(outcomes=[outcome("verdict", "a", yes={"probability": 0.5, "activities": ["b", "c"]},
                                   no={"probability": 0.5})])  # fmt: skip
    assert set(questions(Sequence((A, Choice((B, C), (0.5, 0.5)))), both)) == {"b or c?"}
