"""A share of `benchmarks/design_score.py`, by formulas where they hold."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from groupwise.workflows import score

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import design_pairs
import design_score

QUICK = ("exam_grading", "insurance_claim")


def test_the_better_design_of_a_pair_scores_higher_in_four_of_five_pairs() -> None:
    pairs = [pair for pair in design_pairs.read_pairs("report") if pair.figures]
    agreed = []
    for pair in pairs:
        a, b = (score(design, pair.requirements).total for design in (pair.a, pair.b))
        agreed.append((a > b) == (pair.better == "a"))
    assert len(pairs) >= 30
    assert sum(agreed) / len(pairs) >= 0.8


def test_tricks_gain_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [one for one in design_score.honest_designs() if one[0] in QUICK]
    monkeypatch.setattr(design_score, "total", lambda design, requirements: score(design, requirements).total)
    gained = design_score.gains(iter(found))
    assert {trick: len(gains) for trick, gains in gained.items()} == dict.fromkeys(design_score.TRICKS, len(QUICK))
    assert max(gain for gains in gained.values() for gain in gains.values()) <= 0
