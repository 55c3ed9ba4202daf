"""Graphs with one seeded defect: none is missed, their originals all pass, and a second opinion agrees."""

from __future__ import annotations

from collections import Counter
from functools import cache

from groupwise.workflows.soundness.check import Soundness, check_graph
from tests.workflows.soundness.defects import Case, cases
from tests.workflows.soundness.oracle import TooManyMarkings, defects


@cache
def judged() -> list[tuple[Case, Soundness]]:
    return [(case, check_graph(case.graph)) for case in cases()]


def test_no_seeded_defect_is_missed() -> None:
    missed = [(case.name, found) for case, found in judged() if found.verdict != "unsound"]
    assert not missed
    wrong = [(case.name, found) for case, found in judged() if found.rule not in case.rules]
    assert not wrong
    count = Counter(case.defect for case, _ in judged())
    assert count.total() >= 300
    assert min(count.values()) >= 30, count
    assert len(count) == 5
    sizes = [sum(not task.silent for task in case.graph.tasks) for case, _ in judged()]
    assert min(sizes) <= 6
    assert max(sizes) >= 40


def test_the_sound_originals_all_pass() -> None:
    failed = [(case.name, found) for case, _ in judged() if not (found := check_graph(case.original)).sound]
    assert not failed


def test_a_second_opinion_agrees() -> None:
    confirmed = Counter[str]()
    for case, found in judged():
        for graph, sound in ((case.graph, False), (case.original, True)):
            if len(graph.nodes) > 30:
                continue
            try:
                broken = defects(graph, limit=200)
            except TooManyMarkings:
                continue
            confirmed["sound" if sound else case.defect] += 1
            assert bool(broken) != sound, (case.name, found)
            assert sound or broken & set(case.rules), (case.name, broken)
    assert min(confirmed.values()) >= 15, confirmed
    assert confirmed.total() >= 300, confirmed
