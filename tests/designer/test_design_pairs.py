"""Pairs of designs with a known better one: every file loads, and its figures follow from textbook formulas."""

from __future__ import annotations

import math
import sys
from collections import Counter
from pathlib import Path

import pytest

from groupwise.workflows import contradictions, parse_requirements
from groupwise.workflows.blocks import Activity, Design, Parallel
from groupwise.workflows.rules import broken_rules

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import design_pairs

PAIRS = design_pairs.read_pairs()


def test_there_are_forty_pairs_to_tune_on_and_forty_to_report_and_both_halves_have_every_kind() -> None:
    assert Counter(pair.half for pair in PAIRS) == {"tune": 40, "report": 40}
    kinds = [{pair.kind for pair in PAIRS if pair.half == half} for half in ("tune", "report")]
    assert kinds[0] == kinds[1]
    assert len(kinds[0]) == 40
    # Neither letter can be guessed.
    assert 30 <= sum(pair.better == "a" for pair in PAIRS) <= 50


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.name)
def test_both_designs_keep_the_rules_and_the_figures_are_those_of_the_formulas(pair: design_pairs.DesignPair) -> None:
    assert contradictions(pair.requirements) == []
    assert pair.a != pair.b
    assert pair.better in ("a", "b")
    assert pair.reason
    assert pair.source
    for letter, design in (("a", pair.a), ("b", pair.b)):
        assert broken_rules(design, pair.requirements) == []
        assert design_pairs.plain_figures(design, pair.requirements) == (
            pytest.approx(pair.figures[letter], rel=1e-3) if pair.figures else None
        )


def test_the_plain_figures_of_simple_queues_are_the_closed_forms() -> None:
    activity = {"duration": {"mean": 60}, "pools": ["desk"]}
    pools = {"desk": {"most": 3, "wage": 0.01}}
    demand = {"arrivals_per_second": 1 / 40}
    asked = parse_requirements({"name": "q", "activities": {"serve": activity}, "pools": pools, "demand": demand})
    found = design_pairs.plain_figures(Design("d", Activity("serve"), (("desk", 2),)), asked)
    # M/M/2 with load 0.75: W = s / (1 − ρ²).
    assert found is not None
    assert found["time"] == pytest.approx(60 / (1 - 0.75**2))
    assert found["cost"] == pytest.approx(2 * 0.01 * 40)
    overloaded = design_pairs.plain_figures(Design("d", Activity("serve"), (("desk", 1),)), asked)
    assert overloaded is not None
    assert overloaded["time"] == math.inf


def test_the_slower_of_two_exponential_tasks_takes_half_as_long_again() -> None:
    both = {name: {"duration": {"mean": 60}} for name in "ab"}
    asked = parse_requirements({"name": "p", "activities": both, "demand": {"arrivals_per_second": 0.001}})
    found = design_pairs.plain_figures(Design("d", Parallel((Activity("a"), Activity("b")))), asked)
    assert found is not None
    assert found["time"] == pytest.approx(90, rel=1e-3)
