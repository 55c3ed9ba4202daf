"""Rules about whole cases: each is broken by a small design, and the judge of the benchmark agrees on many more."""

from __future__ import annotations

import random
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import groupwise.workflows.blocks as blocks
from groupwise.workflows.blocks import Activity, Block, Choice, Design, Finish, Handling, Loop, Parallel, Sequence, Skip
from groupwise.workflows.requirements import Requirements, parse_requirements
from groupwise.workflows.rules import RuleBook, broken_rules
from groupwise.workflows.scoring import anatomy

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import design_truth_cases as truth

ASK, OFFER, SIGN, REFUSE, FILE, MEND = (Activity(name) for name in ("ask", "offer", "sign", "refuse", "file", "mend"))
DECIDED = {
    "name": "decision",
    "after": "ask",
    "branches": {
        "yes": {"probability": 0.7, "activities": ["offer", "sign"]},
        "no": {"probability": 0.3, "activities": ["refuse"]},
    },
}


def asked(names: str, **more: Any) -> Requirements:
    pools = more.get("pools", {})
    activities = {name: {"duration": {"mean": 10}, "pools": list(pools)[:1]} for name in names.split()}
    for name, told in more.pop("told", {}).items():
        activities[name] |= told
    return parse_requirements({"name": "test", "activities": activities, **more})


def rules_broken(root: Block, requirements: Requirements, servers: tuple[tuple[str, int], ...] = ()) -> list[str]:
    """What is broken, which the quick check must agree with."""
    design = Design("test", root, servers)
    found = [str(violation) for violation in broken_rules(design, requirements)]
    assert bool(RuleBook(requirements).broken(design, anatomy(design).runs)) == bool(found)
    return found


def split(yes: Block, no: Block, share: float = 0.7) -> Block:
    return Choice((yes, no), (share, 1 - share))


def line(*parts: Block) -> Block:
    return Sequence(parts)


@pytest.mark.parametrize(
    ("root", "words"),
    [
        (line(ASK, split(line(OFFER, SIGN), REFUSE)), ""),
        (line(split(line(OFFER, SIGN), REFUSE), ASK), "'offer' does not wait for 'ask', which decides about it"),
        (line(ASK, split(OFFER, REFUSE), split(SIGN, Skip())), "'sign' and 'refuse' are in different branches"),
        (line(ASK, split(line(OFFER, SIGN), REFUSE, 0.6)), "'offer' is done in 0.6 of the cases, but must be"),
        (line(ASK, split(line(OFFER, SIGN), REFUSE, 0.8)), "'sign' is done in 0.8 of the cases, but branch 'yes'"),
    ],
)
def test_an_outcome_is_decided_once_and_its_branches_hold_all_of_their_activities(root: Block, words: str) -> None:
    found = rules_broken(root, asked("ask offer sign refuse", outcomes=[DECIDED]))
    assert any(words in one for one in found) if words else not found


@pytest.mark.parametrize(
    ("root", "words"),
    [
        (line(ASK, split(line(OFFER, SIGN, FILE), REFUSE)), ""),
        (Parallel((line(ASK, split(line(OFFER, SIGN), REFUSE)), FILE)), ""),
        (line(FILE, ASK, split(line(OFFER, SIGN), REFUSE)), ""),
        (line(ASK, split(line(OFFER, SIGN), REFUSE), FILE), "'file' is done although 'decision' may have ended"),
        (line(ASK, split(line(OFFER, SIGN), line(REFUSE, FILE))), "'file' is done although 'decision' may have ended"),
        (line(ASK, split(line(OFFER, SIGN), REFUSE), split(FILE, Skip())), "although 'decision' may have ended"),
    ],
)
def test_nothing_but_its_own_branch_follows_an_outcome_that_ends_the_case(root: Block, words: str) -> None:
    ending: Any = {**DECIDED, "branches": {**DECIDED["branches"]}}  # type: ignore[dict-item]
    ending["branches"]["no"] = {**ending["branches"]["no"], "ends": True}
    found = rules_broken(root, asked("ask offer sign refuse file", outcomes=[ending]))
    assert any(words in one for one in found) if words else not found


@pytest.mark.parametrize(
    ("root", "words"),
    [
        (Loop(line(ASK, SIGN), 0.2, MEND), ""),
        (Loop(line(ASK, SIGN), 0.3, MEND), "nothing repeats 'ask', 'sign' with probability 0.2"),
        (line(ASK, Loop(SIGN, 0.2, MEND)), "nothing repeats 'ask', 'sign'"),
        (line(Loop(line(ASK, SIGN), 0.2), MEND), "nothing repeats 'ask', 'sign'"),
        (line(ASK, SIGN, MEND), "with 'mend' between two rounds, as 'rework' asks"),
        (Loop(line(SIGN, ASK), 0.2, MEND), "'ask' may not be done when 'sign' decides about another round of 'rework'"),
        (
            Loop(line(Loop(ASK, 0.5), SIGN), 0.2, MEND),
            "the design repeats 'ask', which the requirements do not ask for",
        ),
    ],
)
def test_a_loop_repeats_exactly_what_is_asked_for(root: Block, words: str) -> None:
    loop = {"name": "rework", "activities": ["ask", "sign"], "after": "sign", "again": 0.2, "most": 3, "redo": ["mend"]}
    found = rules_broken(root, asked("ask sign mend", loops=[loop]))
    assert any(words in one for one in found) if words else not found


@pytest.mark.parametrize("order", [line(ASK, SIGN), line(SIGN, ASK), Parallel((ASK, SIGN))])
def test_a_reader_waits_for_the_writer(order: Block) -> None:
    told = {"ask": {"writes": ["form"]}, "sign": {"reads": ["form"]}}
    found = rules_broken(order, asked("ask sign", told=told))
    assert found == ([] if order == line(ASK, SIGN) else ["data: 'sign' may read 'form' before 'ask' has written it"])


MAYBE = {"offer": {"optional": True}, "file": {"optional": True}}


@pytest.mark.parametrize(
    ("rule", "root", "words"),
    [
        ("coexist", line(ASK, OFFER, FILE), ""),
        ("coexist", ASK, ""),
        ("coexist", line(ASK, OFFER), "'offer' is there without 'file'"),
        ("coexist", line(ASK, split(OFFER, Skip()), FILE), "one of 'offer' and 'file' without the other"),
        ("coexist", line(ASK, split(line(OFFER, FILE), Skip())), ""),
        ("response", line(OFFER, ASK, FILE), ""),
        ("response", line(ASK, FILE), ""),
        ("response", line(ASK, OFFER), "'file' does not follow 'offer'"),
        ("response", line(FILE, ASK, OFFER), "'file' comes before 'offer'"),
        ("response", line(OFFER, ASK, split(FILE, Skip())), "'file' does not always follow 'offer'"),
        ("response", line(ASK, split(OFFER, FILE)), "'file' does not follow 'offer'"),
        ("chain", line(ASK, OFFER, FILE), ""),
        ("response", line(ASK, split(OFFER, Skip()), split(FILE, Skip())), "'file' does not always follow 'offer'"),
        ("response", line(ASK, split(line(OFFER, split(FILE, Finish())), Skip())), ""),
        ("response", line(ASK, Loop(OFFER, 0.2, FILE)), "'file' does not always follow 'offer'"),
        ("response", line(ASK, Loop(FILE, 0.2, OFFER)), "'file' comes before 'offer'"),
        ("chain", line(OFFER, FILE, ASK), ""),
        ("chain", line(OFFER, ASK, FILE), "'file' does not come directly after 'offer'"),
        ("chain", line(OFFER, Parallel((FILE, ASK))), "'file' does not come directly after 'offer'"),
        ("chain", Parallel((line(OFFER, FILE), ASK)), ""),
        ("not_coexist", line(ASK, split(OFFER, FILE)), ""),
        ("not_coexist", line(ASK, OFFER, FILE), "'offer' and 'file' can both happen in one case"),
    ],
)
def test_rules_about_what_belongs_together(rule: str, root: Block, words: str) -> None:
    found = rules_broken(root, asked("ask offer file", told=MAYBE, rules={rule: [["offer", "file"]]}))
    assert any(words in one for one in found) if words else not found


@pytest.mark.parametrize(
    ("answers", "words"), [((("yes",), ("no",)), ""), ((("no",), ("yes",)), "'sign' does not follow 'offer'")]
)
def test_what_follows_may_be_in_a_later_part_of_the_same_outcome(
    answers: tuple[tuple[str, ...], ...], words: str
) -> None:
    again = Choice((SIGN, Skip()), (0.7, 0.3), "decision", answers)
    root = line(ASK, Choice((OFFER, REFUSE), (0.7, 0.3), "decision", (("yes",), ("no",))), FILE, again)
    found = rules_broken(
        root, asked("ask offer sign refuse file", outcomes=[DECIDED], rules={"response": [["offer", "sign"]]})
    )
    assert any(words in one for one in found) if words else not found


def test_what_is_done_between_two_rounds_is_followed_by_the_next_one() -> None:
    loop = {"name": "rework", "activities": ["sign"], "after": "sign", "again": 0.2, "redo": ["mend"]}
    required = asked("sign mend", loops=[loop], rules={"response": [["mend", "sign"]]})
    assert not rules_broken(Loop(SIGN, 0.2, MEND), required)


def told_in_full(root: Block, requirements: Requirements) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(one.rule, one.words, one.names) for one in broken_rules(Design("test", root), requirements)]


@pytest.mark.parametrize(
    ("rule", "root", "found"),
    [
        ("coexist", line(ASK, OFFER), ("coexist", "'offer' is there without 'file'", ("offer", "file"))),
        ("coexist", line(FILE, ASK), ("coexist", "'file' is there without 'offer'", ("offer", "file"))),
        (
            "coexist",
            line(ASK, OFFER, split(Skip(), FILE)),
            ("coexist", "a case may have one of 'offer' and 'file' without the other", ("offer", "file")),
        ),
        # Equally often, but not in the same cases.
        (
            "coexist",
            line(ASK, split(OFFER, Skip(), 0.5), split(FILE, Skip(), 0.5)),
            ("coexist", "a case may have one of 'offer' and 'file' without the other", ("offer", "file")),
        ),
        ("response", line(ASK, OFFER), ("response", "'file' does not follow 'offer'", ("offer", "file"))),
        (
            "response",
            line(OFFER, ASK, split(Skip(), FILE)),
            ("response", "'file' does not always follow 'offer'", ("offer", "file")),
        ),
        ("chain", line(ASK, OFFER), ("chain", "'file' does not come directly after 'offer'", ("offer", "file"))),
        # Second in a block of its own, whose number there is the next one.
        (
            "chain",
            line(OFFER, Parallel((ASK, FILE))),
            ("chain", "'file' does not come directly after 'offer'", ("offer", "file")),
        ),
        (
            "chain",
            line(OFFER, split(ASK, FILE)),
            ("chain", "'file' does not come directly after 'offer'", ("offer", "file")),
        ),
    ],
)
def test_a_broken_rule_about_two_names_both_and_says_how(rule: str, root: Block, found: tuple[str, ...]) -> None:
    told = {name: {"optional": True} for name in ("ask", "offer", "file")}
    assert told_in_full(root, asked("ask offer file", told=told, rules={rule: [["offer", "file"]]})) == [found]


@pytest.mark.parametrize(("missing", "broken"), [(0.0, False), (5e-7, False), (2e-6, True), (0.1, True)])
def test_a_branch_is_taken_as_often_as_it_must_be_although_another_outcome_may_end_cases(
    missing: float, broken: bool
) -> None:
    """Any order of the two outcomes is allowed, so the offer is needed by 0.35 only; after the first, by 0.7."""
    other = {
        "name": "other",
        "after": "file",
        "branches": {"go": {"probability": 0.5}, "over": {"probability": 0.5, "ends": True}},
    }
    first = {**DECIDED, "branches": {"yes": {"probability": 0.7, "activities": ["offer"]}, "no": {"probability": 0.3}}}
    requirements = asked("ask offer file", outcomes=[first, other])
    share = 0.7 - missing
    found = told_in_full(line(ASK, Choice((OFFER, Skip()), (share, 1 - share)), FILE), requirements)
    words = f"'offer' is done in {share:.4g} of the cases, but branch 'yes' of 'decision' is taken in 0.7"
    assert found == ([("outcome", words, ("offer",))] if broken else [])


@pytest.mark.parametrize(("share", "broken"), [(0.7, False), (0.7000005, False), (0.700002, True), (1.0, True)])
def test_only_as_many_cases_go_on_as_an_outcome_without_work_of_its_own_lets_pass(share: float, broken: bool) -> None:
    ends = {"yes": {"probability": 0.7}, "no": {"probability": 0.3, "ends": True}}
    requirements = asked("ask file", outcomes=[{**DECIDED, "branches": ends}])
    later = Choice((FILE, Skip()), (share, 1 - share)) if share < 1 else FILE
    found = told_in_full(line(ASK, later), requirements)
    words = "'file' is done although 'decision' may have ended the case"
    assert found == ([("outcome", words, ("file", "ask"))] if broken else [])


def test_two_loops_of_the_same_activities_are_two() -> None:
    """Each loop of the requirements is found in a loop of its own in the design."""
    one = {"name": "one", "activities": ["ask"], "after": "ask", "again": 0.2}
    requirements = asked("ask", loops=[one, {**one, "name": "two"}])
    assert told_in_full(Loop(Loop(ASK, 0.2), 0.2), requirements) == []
    assert told_in_full(Loop(ASK, 0.2), requirements) == [
        ("loop", "nothing repeats 'ask' with probability 0.2, as 'two' asks", ("ask",))
    ]
    assert told_in_full(Loop(Loop(Loop(ASK, 0.2), 0.2), 0.2), requirements) == [
        ("loop", "the design repeats 'ask', which the requirements do not ask for", ("ask",))
    ]


@pytest.mark.parametrize(("off", "kept"), [(0.0, True), (4e-10, True), (-4e-10, True), (2e-9, False), (-2e-9, False)])
def test_a_loop_is_repeated_as_often_as_asked_but_for_rounding(off: float, kept: bool) -> None:
    loop = {"name": "one", "activities": ["ask"], "after": "ask", "again": 0.2}
    assert (told_in_full(Loop(ASK, 0.2 + off), asked("ask", loops=[loop])) == []) is kept


PEOPLE = {"Anna": {"pools": ["desk"]}, "Ben": {"pools": ["desk", "back"], "skills": ["law"]}}
POOLS = {"desk": {"least": 1, "most": 2}, "back": {"least": 1, "most": 1}}


@pytest.mark.parametrize(
    ("rules", "told", "desk", "words"),
    [
        ({}, {}, 1, ""),
        ({"different_people": [["ask", "sign"]]}, {}, 2, ""),
        ({"same_person": [["ask", "sign"]]}, {}, 1, ""),
        ({"different_people": [["ask", "sign"], ["sign", "file"], ["ask", "file"]]}, {}, 2, "too few people"),
        ({"same_person": [["ask", "sign"]], "different_people": [["ask", "sign"]]}, {}, 2, "too few people"),
        ({}, {"ask": {"skills": ["law"]}}, 2, ""),
        ({}, {"ask": {"skills": ["art"]}}, 2, "nobody at work in 'desk' has the skills for 'ask': 'art'"),
        ({"same_person": [["ask", "sign"]]}, {"ask": {"pools": ["back"]}}, 2, ""),
    ],
)  # fmt: skip
def test_there_are_people_for_everything(rules: Any, told: Any, desk: int, words: str) -> None:
    requirements = asked("ask sign file", pools=POOLS, people=PEOPLE, rules=rules, told=told)
    found = rules_broken(line(ASK, SIGN, FILE), requirements, (("desk", desk), ("back", 1)))
    assert any(words in one for one in found) if words else not found


def test_one_unnamed_server_is_one_person() -> None:
    rules = {"different_people": [["ask", "sign"]]}
    requirements = asked(
        "ask sign", pools={"desk": {"most": 3}, "back": {}}, rules=rules, told={"sign": {"pools": ["desk", "back"]}}
    )
    assert rules_broken(line(ASK, SIGN), requirements, (("desk", 2),)) == []
    assert rules_broken(line(ASK, SIGN), requirements, (("desk", 1),)) == [
        "people: too few people are at work for different people to do 'ask', 'sign'"
    ]
    elsewhere = Activity("sign", Handling("back"))
    assert rules_broken(line(ASK, elsewhere), requirements, (("desk", 1),)) == []


def paths(block: Block, path: tuple[int, ...] = ()) -> list[tuple[tuple[int, ...], Block]]:
    return [(path, block), *(one for n, part in enumerate(blocks.children(block)) for one in paths(part, (*path, n)))]


def changed(root: Block, rng: random.Random) -> Block:
    """The tree with one mistake: two activities swapped, an order changed, or a loop or activity left out."""
    places = paths(root)
    what = rng.choice(("swap", "beside", "order", "odds", "once", "drop"))
    wanted = {"swap": Activity, "drop": Activity, "beside": Sequence, "order": Sequence, "odds": Choice, "once": Loop}
    some: list[Any] = [one for one in places if isinstance(one[1], wanted[what])]
    if len(some) < 2:
        return root
    (path, block), (other_path, other) = rng.sample(some, 2)
    new: dict[tuple[int, ...], Block] = {path: Skip()}
    if what == "swap":
        new = {path: other, other_path: block}
    elif what == "beside":
        new = {path: Parallel(block.parts)}
    elif what == "order":
        new = {path: Sequence(tuple(rng.sample(block.parts, len(block.parts))))}
    elif what == "odds":
        new = {path: replace(block, probabilities=block.probabilities[::-1])}
    elif what == "once":
        new = {path: block.body}
    return blocks.tidied(_put(root, (), new))


def _put(block: Block, path: tuple[int, ...], new: dict[tuple[int, ...], Block]) -> Block:
    if path in new:
        return new[path]
    inside = tuple(_put(part, (*path, n), new) for n, part in enumerate(blocks.children(block)))
    if isinstance(block, Loop):
        return replace(block, body=inside[0], redo=inside[1])
    return replace(block, parts=inside) if inside else block  # type: ignore[arg-type]


def test_the_judge_of_the_benchmark_agrees_about_changed_designs() -> None:
    counted: Counter[bool] = Counter()
    for case in truth.read_cases():
        book, rng = RuleBook(parse_requirements(case.requirements)), random.Random(case.name)
        for _ in range(12):
            try:
                design = replace(case.design, root=changed(case.design.root, rng))
            except blocks.DesignError:
                # A mistake that no tree can have: an end beside other work, or something behind an end.
                continue
            broken = book.broken(design, anatomy(design).runs)
            faults = truth.faults(replace(case, design=design))
            assert bool(broken) == bool(faults), (case.name, [str(one) for one in broken], faults)
            counted[bool(faults)] += 1
    assert min(counted[True], counted[False]) > 100
