"""Cases that end early are drawn as paths, soundly, and the design that is read from them is the one that was drawn."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from groupwise.workflows.block_form import lift
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
    Retry,
    Sequence,
    Skip,
    activities,
)
from groupwise.workflows.document import Document, document_of, to_graphs
from groupwise.workflows.endings import Endings, deciders, role_of, without_endings
from groupwise.workflows.evaluation import evaluate
from groupwise.workflows.graph import Graph
from groupwise.workflows.requirements import Requirements, parse_requirements
from groupwise.workflows.scoring.lost_cases import LostCases, passing
from groupwise.workflows.soundness.check import check_document, check_graph
from tests.workflows.designs import FLAT, random_design

A, B, C = Activity("a"), Activity("b"), Activity("c")


def asked(**changes: dict[str, Any]) -> Requirements:
    plain = {name: {"duration": {"kind": "fixed", "mean": 10}} for name in "abcd"}
    rest = {name: value for name, value in changes.items() if name not in plain}
    told = {name: {**value, **changes.get(name, {})} for name, value in plain.items()}
    return parse_requirements({"name": "r", "activities": told, **rest})


def graph_of(root: Block, requirements: Requirements) -> Graph:
    return document_of(Design("d", root), requirements).root


def ends_of(graph: Graph) -> list[str]:
    return sorted(node.name for node in graph.nodes if role_of(node) == "end")


def random_requirements(rng: random.Random, design: Design) -> Requirements:
    told = {
        one.name: {
            "duration": {"mean": 60},
            "pools": ["clerk", "desk"],
            "knock_out": rng.choice([0, 0, 0.2]),
            "failure": rng.choice([0, 0, 0.3]),
        }
        for one in activities(design.root)
    }
    pools = {"clerk": {"most": 9}, "desk": {"most": 9}}
    return parse_requirements({"name": "r", "activities": told, "pools": pools})


@pytest.mark.parametrize("seed", range(40))
def test_endings_are_sound_and_leave_the_design_as_it_was(seed: int) -> None:
    rng = random.Random(seed)
    design = random_design(rng, rng.randint(1, 14))
    plain = lift(Document(design.name, to_graphs(design), None, design.servers))
    drawn = document_of(design, random_requirements(rng, design))
    assert lift(drawn) == plain == lift(document_of(design))
    assert all(verdict.sound for verdict in check_document(drawn).values())
    bare = without_endings(drawn.root)
    assert bare == without_endings(bare)


def test_a_knock_out_and_a_failure_have_ends_of_their_own() -> None:
    requirements = asked(a={"knock_out": 0.2}, b={"failure": 0.5})
    graph = graph_of(Sequence((A, Activity("b", Handling(retry=Retry(2))), C)), requirements)
    assert ends_of(graph) == ["b failed", "ended after a"]
    gate = next(node for node in graph.nodes if role_of(node) == "gate")
    assert deciders(gate) == ["a"]
    assert {role_of(flow): flow.probability for flow in graph.out_of(gate.id)} == {"exit": 0.2, "": 0.8}
    assert {flow.target: flow.probability for flow in graph.out_of("b")} == {"fails_1": 0.125, "c": 0.875}


def test_other_branches_are_finished_before_a_case_ends() -> None:
    requirements = asked(a={"knock_out": 0.2}, b={"knock_out": 0.5})
    graph = graph_of(Sequence((Parallel((Sequence((A, C)), B)), Activity("d"))), requirements)
    gates = [node for node in graph.nodes if role_of(node) == "gate"]
    # After a, c is passed over; b is the last of its branch and needs no gate; after the join both decide.
    assert [deciders(gate) for gate in gates] == [["a"], ["a", "b"]]
    merge = next(node for node in graph.nodes if role_of(node) == "merge")
    assert {flow.source for flow in graph.into(merge.id)} == {"c", gates[0].id}
    assert [flow.probability for flow in graph.out_of(gates[1].id)] == [pytest.approx(0.4), pytest.approx(0.6)]
    assert ends_of(graph) == ["ended early"]


def test_a_branch_that_ends_the_case_has_its_own_end_and_no_join() -> None:
    outcome = {"name": "verdict", "after": "a", "branches": {
        "yes": {"probability": 0.7, "activities": ["b", "c"]},
        "no": {"probability": 0.3, "activities": ["d"], "ends": True},
    }}  # fmt: skip
    requirements = asked(outcomes=[outcome])
    root = Sequence((A, Choice((Sequence((B, C)), Activity("d")), (0.7, 0.3))))
    graph = graph_of(root, requirements)
    assert ends_of(graph) == ["no"]
    assert [node.id for node in graph.nodes if len(graph.into(node.id)) > 1] == [graph.end.id]
    assert lift(graph).root == root


def test_an_empty_branch_that_ends_the_case_is_a_flow_to_its_end() -> None:
    outcome = {"name": "fit", "after": "a", "branches": {
        "fit": {"probability": 0.7, "activities": ["b"]}, "unfit": {"probability": 0.3, "ends": True}
    }}  # fmt: skip
    root = Sequence((A, Choice((Sequence((B, C)), Skip()), (0.7, 0.3))))
    graph = graph_of(root, asked(outcomes=[outcome]))
    assert ends_of(graph) == ["unfit"]
    assert {flow.target for flow in graph.out_of("xor_split_1")} == {"b", "ended_1"}
    assert lift(graph) == lift(document_of(Design("d", root)))


def test_empty_branches_and_loops_have_no_gateways_that_do_nothing() -> None:
    root = Sequence(
        (Choice((A, Skip()), (0.5, 0.5)), Loop(B, 0.2), PartialOrder((C, Activity("d")), frozenset({(0, 1)})))
    )
    graph = document_of(Design("d", root)).root
    idle = [n for n in graph.nodes if n.silent and len(graph.into(n.id)) == len(graph.out_of(n.id)) == 1]
    assert idle == []


@pytest.mark.parametrize(
    ("root", "limit"),
    [
        (Sequence((A, B)), None),
        (Choice((A, B), (0.25, 0.75)), None),
        (Loop(A, 0.5, B), None),
        (Loop(A, 0.5, B), 2),
        (Parallel((A, B)), None),
        (PartialOrder((A, B, C), frozenset({(0, 2), (1, 2)})), None),
        (Instances(A, 1, 3, 1), None),
        (Cancellable(A, 0.25, B), None),
    ],
)
def test_the_chance_to_end_a_case_is_the_one_that_is_simulated(root: Block, limit: int | None) -> None:
    loops = [{"name": "l", "activities": ["a"], "after": "a", "again": 0.5, "most": limit, "redo": ["b"]}]
    requirements = asked(
        a={"knock_out": 0.2, "failure": 0.3}, b={"knock_out": 0.4}, demand={"arrivals_per_second": 0.001},
        loops=loops if limit else [],
    )  # fmt: skip
    found = evaluate(Design("d", root), requirements, "simulation", seed=3, cases=20_000)
    assert 1 - Endings(requirements).lost(root) == pytest.approx(found.completed, abs=0.012)


def test_a_limit_of_a_loop_counts_its_repetitions() -> None:
    loop = {"name": "l", "activities": ["a"], "after": "a", "again": 0.9, "most": 1}
    found = Endings(asked(a={"knock_out": 0.1}, loops=[loop])).lost(Loop(A, 0.9))
    assert found == pytest.approx(0.1 + 0.9 * 0.9 * 0.1)


@pytest.mark.parametrize(("least", "most", "enough"), [(1, 1, 1), (2, 2, 2), (2, 4, 2), (3, 3, 1), (2, 3, 1)])
def test_copies_end_a_case_if_too_few_of_them_end_well(least: int, most: int, enough: int) -> None:
    """Every way in which each of the copies may end, for each number of copies, which are equally likely."""
    lost = []
    for number in range(least, most + 1):
        ways = product((True, False), repeat=number)
        lost.append(sum(0.75 ** sum(way) * 0.25 ** (number - sum(way)) for way in ways if sum(way) < enough))
    found = Endings(asked(a={"knock_out": 0.25})).lost(Instances(A, least, most, enough))
    assert found == pytest.approx(sum(lost) / len(lost))


def test_the_last_try_fails_by_an_error_or_its_timeout_at_the_speed_of_its_pool() -> None:
    pools = {"slow": {}, "fast": {"speed": 2.0}}
    requirements = asked(a={"failure": 0.25, "pools": ["slow", "fast"]}, b={"failure": 1e-10}, pools=pools)
    endings = Endings(requirements)

    def failure(**handling: Any) -> float:
        return endings.failure(Activity("a", Handling(**handling)))

    assert (failure(), failure(retry=Retry(1)), failure(retry=Retry(2))) == (0.25, 0.0625, 0.015625)
    # Ten seconds at the first pool, five at the fast one; whatever takes as long as its timeout is in time.
    assert (failure(timeout=10.0), failure(timeout=9.0), failure(timeout=9.0, retry=Retry(3))) == (0.25, 1.0, 1.0)
    assert (failure(timeout=5.0, pool="fast"), failure(timeout=4.0, pool="fast")) == (0.25, 1.0)
    assert endings.failure(B) == 0.0, "too rare to be drawn"
    assert endings.failure(C) == endings.knock_out(C) == endings.failure(Activity("unknown")) == 0.0
    assert endings.lost(A) == 0.25
    assert Endings(asked(a={"failure": 0.25, "knock_out": 0.5})).lost(A) == pytest.approx(1 - 0.75 * 0.5)
    assert endings.deciding((Sequence((A, B)), C)) == ["a"]


def test_a_branch_that_ends_the_case_is_not_led_into_the_join_of_parallel_work() -> None:
    branches = {
        "yes": {"probability": 0.5, "activities": ["b"]},
        "no": {"probability": 0.5, "activities": ["c"], "ends": True},
    }
    requirements = asked(outcomes=[{"name": "verdict", "after": "a", "branches": branches}])
    work = Parallel((Activity("b"), Activity("d")))
    drawn = graph_of(Sequence((A, Choice((work, C), (0.5, 0.5)))), requirements)
    assert ends_of(drawn) == ["no"]
    (last,) = [node for node in drawn.nodes if (node.silent, node.join) == (True, "and")]
    assert {flow.target for flow in drawn.out_of(last.id)} == {drawn.end.id}, "the workflow ends with parallel work"
    bare = without_endings(drawn)
    assert ends_of(bare) == []
    assert check_graph(bare).sound


def test_the_parts_of_a_choice_that_end_a_case_are_known_by_their_branches() -> None:
    branches = {
        "yes": {"probability": 0.5, "activities": ["b"]},
        "no": {"probability": 0.2, "activities": ["c"], "ends": True},
        "lost": {"probability": 0.2, "ends": True},
        "late": {"probability": 0.1, "ends": True},
    }

    def ended_by(*parts: Block, **changed: Any) -> list[str]:
        known = {name: {**told, **changed.get(name, {})} for name, told in branches.items()}
        requirements = asked(outcomes=[{"name": "verdict", "after": "a", "branches": known}])
        return Endings(requirements).ended_by(Choice(parts, (1 / len(parts),) * len(parts)))

    assert ended_by(B, C, Skip()) == ["", "no", "lost or late"]
    assert ended_by(B, Skip()) == ["", "lost or late"]
    assert ended_by(Skip(), Sequence((Activity("d"), C)), B) == ["lost or late", "", ""], "d does not end the case"
    # Some of those without work go on, so the way of all of them does.
    assert ended_by(B, C, Skip(), late={"ends": False}) == ["", "no", ""]
    # If every way ended the case, nothing would be left of it.
    assert ended_by(C, Skip()) == ["", ""]
    assert ended_by(B, Activity("d")) == ["", ""]
    assert ended_by(Activity("d"), Skip()) == ["", ""]


def test_a_damaged_mark_names_nobody() -> None:
    graph = graph_of(Sequence((A, B)), asked(a={"knock_out": 0.2}))
    gate = next(node for node in graph.nodes if role_of(node) == "gate")
    (extra,) = gate.extras
    for text, names in (("", []), ("[", []), ('"a"', []), ("{}", []), ('["a", 3]', ["a", "3"])):
        attributes = tuple((name, text if name == "of" else value) for name, value in extra.attributes)
        assert deciders(replace(gate, extras=(replace(extra, attributes=attributes),))) == names
    assert deciders(graph.by_id["b"]) == []


@pytest.mark.parametrize("seed", range(40))
def test_the_score_and_the_drawing_lose_the_same_cases(seed: int) -> None:
    """Two formulas for one chance: the cases that come through a design, and those that it ends."""
    rng = random.Random(f"lost/{seed}")
    design = random_design(rng, rng.randint(1, 12), FLAT)
    requirements = random_requirements(rng, design)
    endings, cases = Endings(requirements), LostCases(requirements)
    for one in activities(design.root):
        assert endings.failure(one) == pytest.approx(cases.lost(one), abs=1e-9)
    through, ended = passing(design.root, lambda one: 1 - endings.lost(one))
    assert (1 - endings.lost(design.root), 0.0) == pytest.approx((through, ended))
