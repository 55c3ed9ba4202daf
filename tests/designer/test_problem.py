"""The twelve actions: each does what its words say, whatever is chosen is sound and keeps the rules, and what would not
is not among the candidates."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from groupwise.designer.construction import construct
from groupwise.designer.heuristics import genes_of, plans_of
from groupwise.designer.plans import DecisionBatch
from groupwise.designer.problem import ACTIONS, DISCIPLINES, HEADS, DesignProblem, Head, Ints
from groupwise.designer.tasks import Drafter, PreparedRequirements, random_requirements
from groupwise.workflows.blocks import Activity, Choice, Design, Parallel, Sequence, Skip, activities, walk
from groupwise.workflows.differences import compare_workflows
from groupwise.workflows.files import read_workflow, write_workflow
from groupwise.workflows.requirements import Requirements, parse_requirements
from groupwise.workflows.rules import broken_rules
from groupwise.workflows.soundness.check import check_design


def action_of(head: int, choice: int) -> str:
    """The name of the action that a choice belongs to."""
    if head in (Head.KEEP, Head.NEXT):
        return "element"
    if head == Head.PLACE:
        return "parallelism" if choice else "synchronisation"
    return HEADS[head]


def shop(**rules: object) -> Requirements:
    """Requirements in which every action has something to decide."""
    return parse_requirements(
        {
            "name": "shop",
            "activities": {
                "take order": {"duration": {"kind": "fixed", "mean": 10}, "pools": ["clerk", "desk"]},
                "check stock": {
                    "duration": {"kind": "lognormal", "mean": 20, "std": 40},
                    "pools": ["clerk", "robot"],
                    "failure": 0.2,
                },
                "pack box": {"duration": {"kind": "lognormal", "mean": 30, "std": 60}, "pools": ["clerk"]},
                "wrap gift": {"duration": {"kind": "fixed", "mean": 5}},
                "print card": {"duration": {"kind": "fixed", "mean": 5}},
                "send news": {"duration": {"kind": "fixed", "mean": 5}, "optional": True},
            },
            "pools": {
                "clerk": {"least": 1, "most": 6},
                "desk": {"least": 1, "most": 1},
                "robot": {"least": 1, "most": 2, "kind": "machine"},
            },
            "rules": {"precedes": [["take order", "pack box"]], "deadline": 1000, **rules},
            "branches": [{"name": "present", "options": {"wrap gift": 0.3, "print card": 0.2}}],
            "demand": {"arrivals_per_second": 0.005},
        }
    )


class Take:
    """Takes the first legal candidate of everything, but for some heads another if it may; keeps what it was asked."""

    def __init__(self, **choices: int) -> None:
        self.choices = {HEADS.index(name): choice for name, choice in choices.items()}
        self.asked: list[DecisionBatch] = []

    def __call__(self, question: DecisionBatch) -> Ints:
        self.asked.append(question)
        legal = question.legal
        wanted = self.choices.get(question.head, 0) % legal.shape[-1]
        return np.where(legal[..., wanted], wanted, legal.argmax(-1))


def made(requirements: Requirements, **choices: int) -> Design:
    problem = DesignProblem(requirements)
    design = Drafter(problem)(construct(problem, Take(**choices), 1))[0]
    assert check_design(design).sound
    assert not broken_rules(design, requirements)
    return design


def task(design: Design, name: str) -> Activity:
    return next(activity for activity in activities(design.root) if activity.name == name)


def names(design: Design) -> list[str]:
    return [activity.name for activity in activities(design.root)]


def forks(design: Design) -> list[tuple[float, ...]]:
    return [block.probabilities for block in walk(design.root) if isinstance(block, Choice)]


TAKEN: dict[str, tuple[dict[str, int], Callable[[Design], object], object, object]] = {
    # action: what is taken, what is looked at, and what that is without and with it
    "element": ({"keep": 1}, lambda design: "send news" in names(design), False, True),
    "branching": ({"branching": 1}, lambda design: len(forks(design)), 1, 2),
    "allocation": ({"allocation": 1}, lambda design: task(design, "take order").handling.pool, "clerk", "desk"),
    "timing": (
        {"scheduling": DISCIPLINES.index("due"), "timing": 1},
        lambda design: task(design, "pack box").handling.due, None, 500.0,
    ),
    "parallelism": ({"place": 2}, lambda design: any(isinstance(b, Parallel) for b in walk(design.root)), False, True),
    "timeout": ({"type": 1, "timeout": 1}, lambda design: task(design, "check stock").handling.timeout, None, 40.0),
    # Fewer than two retries would lose more than 2% of its cases.
    "retry": ({"retry": 3}, lambda design: task(design, "check stock").handling.retry.most, 2, 3),
    "staffing": ({"staffing": 2}, lambda design: dict(design.servers)["clerk"], 1, 3),
    "type": ({"type": 1}, lambda design: task(design, "check stock").handling.pool, "clerk", "robot"),
    "constraint": (
        {"scheduling": DISCIPLINES.index("priority"), "constraint": 1},
        lambda design: task(design, "pack box").handling.priority, 0, 1,
    ),
    "scheduling": ({"scheduling": 1}, lambda design: task(design, "pack box").handling.scheduling, "fifo", "shortest"),
}  # fmt: skip


def test_there_are_twelve_in_three_families() -> None:
    assert {action.name for action in ACTIONS} == {*TAKEN, "synchronisation"}  # which has a test of its own
    assert len(ACTIONS) == 12
    assert {action.family for action in ACTIONS} == {"structural", "temporal", "resource"}
    heads = {action_of(head, choice) for head in range(len(HEADS)) for choice in (0, 1)}
    assert heads == {action.name for action in ACTIONS}


@pytest.mark.parametrize("name", TAKEN)
def test_an_action_does_what_its_words_say(name: str) -> None:
    choices, look, without, with_it = TAKEN[name]
    assert (look(made(shop())), look(made(shop(), **choices))) == (without, with_it)


def test_the_next_activity_is_any_that_precedence_lets() -> None:
    assert names(made(shop()))[0] == "take order"
    assert names(made(shop(), next=1))[0] == "check stock"
    assert names(made(shop(), next=2))[0] == "take order"  # 'pack box' may not be first


def test_synchronisation_waits_for_all_lanes_that_are_open() -> None:
    problem = DesignProblem(shop())

    class ThenJoin(Take):
        def __call__(self, question: DecisionBatch) -> Ints:
            found = super().__call__(question)
            last = question.head == Head.PLACE and question.slots[0] == problem.staffing - 1
            return np.zeros_like(found) if last and question.legal[..., 0].all() else found

    design = Drafter(problem)(construct(problem, ThenJoin(place=2), 1))[0]
    assert isinstance(design.root, Sequence)
    assert isinstance(design.root.parts[0], Parallel)
    assert check_design(design).sound


def test_a_choice_keeps_the_shares_of_the_requirements() -> None:
    assert forks(made(shop())) == [pytest.approx((0.3, 0.2, 0.5))]
    assert sorted(forks(made(shop(), branching=1))) == [pytest.approx((0.2, 0.8)), pytest.approx((0.3, 0.7))]
    empty = [block.parts[-1] for block in walk(made(shop()).root) if isinstance(block, Choice)]
    assert empty == [Skip()]


def legal(requirements: Requirements, head: int, subject: int, **choices: int) -> list[int]:
    """The candidates of a decision, after the first legal ones (or `choices`) before it."""
    taking = Take(**choices)
    construct(DesignProblem(requirements), taking, 1)
    for question in taking.asked:
        for place, about in enumerate(question.subjects[0].tolist()):
            if question.head == head and about == subject:
                return np.flatnonzero(question.legal[0, place]).tolist()
    raise AssertionError(f"{HEADS[head]} about {subject} was never asked")


def test_what_is_illegal_is_no_candidate() -> None:
    order, stock, pack, news = 0, 1, 2, 5
    pools = {"clerk": 6, "desk": 7, "robot": 8}
    assert legal(shop(), Head.KEEP, news) == [0, 1]
    assert legal(shop(excludes=[["send news", "pack box"]]), Head.KEEP, news) == [0]
    assert legal(shop(), Head.ALLOCATION, stock) == [0]  # people were decided on
    assert legal(shop(), Head.ALLOCATION, stock, type=1) == [1]
    assert legal(shop(separate=[["check stock", "pack box"]]), Head.ALLOCATION, stock) == [1]  # the clerks pack
    assert legal(shop(), Head.CONSTRAINT, pack) == [0]
    assert legal(shop(), Head.CONSTRAINT, pack, scheduling=DISCIPLINES.index("priority")) == [0, 1]
    assert legal(shop(), Head.SCHEDULING, pools["clerk"]) == [0, 1, 2, 3]
    assert legal(shop(deadline=None), Head.SCHEDULING, pools["clerk"]) == [0, 1, 2]  # nothing is due
    assert legal(shop(), Head.STAFFING, pools["robot"]) == [0, 1]  # two at most
    assert legal(shop(), Head.NEXT, -1) == [order, stock, 4]  # not 'pack box', and the branch as one choice
    assert legal(shop(), Head.BRANCHING, 3) == [0, 1]
    asked = Take()
    construct(DesignProblem(shop(deadline=None)), asked, 1)
    heads = {question.head for question in asked.asked}
    assert Head.TIMING not in heads
    assert {Head.RETRY, Head.TIMEOUT, Head.TYPE} <= heads


def test_people_are_never_cut_off_in_their_work() -> None:
    assert legal(shop(), Head.TIMEOUT, 1, type=1) == [0, 1, 2, 3], "the robot checks the stock"
    assert legal(shop(), Head.TIMEOUT, 1) == [0], "a clerk does"
    assert (Head.TIMEOUT, 2) not in DesignProblem(shop()).slots, "only clerks pack"


def test_an_activity_waits_for_predecessors_in_several_lanes() -> None:
    """What comes after two lanes can only wait for all of them."""
    value = shop(precedes=[["take order", "pack box"], ["check stock", "pack box"]])
    taking = Take(place=2)
    construct(DesignProblem(value), taking, 1)
    places = [question for question in taking.asked if question.head == Head.PLACE]
    pack = next(question for question in places if question.subjects[0, 0] == 2)
    assert np.flatnonzero(pack.legal[0, 0]).tolist() == [0]


def test_whatever_is_chosen_is_sound_and_keeps_the_rules(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    for number in range(200):
        requirements = random_requirements(number, size=5 + number % 12)
        prepared = PreparedRequirements.of(requirements)
        keys = rng.random((2, genes_of(prepared.problem)))
        for design in prepared.drafter(plans_of(prepared.problem, keys)):
            assert check_design(design).sound, number
            assert not broken_rules(design, requirements), number
        if number % 20 == 0:
            for suffix in ("yawl", "bpmn"):
                path = tmp_path / f"design.{suffix}"
                write_workflow(design, path)
                assert compare_workflows(read_workflow(path), design).same, (number, suffix)
