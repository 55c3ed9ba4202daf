"""The benchmark of promises: how its claims are counted."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from groupwise.workflows.blocks import Activity, Design, Sequence

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import design_truth as benchmark
import design_truth_cases as truth

HAND = {"cycle_time": 100.0, "cost": 10.0, "completed": 1.0}


def found(promised: float, yawl: float = 100.0, status: int = 0, **rest: Any) -> dict[str, Any]:
    referee = {"bpmn": HAND, "yawl": {**HAND, "cycle_time": yawl}}
    own = {"status": status, "promised": promised, "referee": referee, "hand": HAND, "rejected": [], "faults": []}
    return {**own, "parallel": True, **rest}


@pytest.mark.parametrize(
    ("hand", "dominated"),
    [((90.0, 10.0), True), ((100.0, 9.0), True), ((90.0, 11.0), False), ((99.0, 10.0), False), ((110.0, 9.0), False)],
)
def test_a_design_is_dominated_if_the_other_is_clearly_better_in_one_and_not_worse_in_the_other(
    hand: tuple[float, float], dominated: bool
) -> None:
    other = {"cycle_time": hand[0], "cost": hand[1], "completed": 1.0}
    assert benchmark.dominates(other, HAND) == dominated
    assert not benchmark.dominates({**other, "completed": 0.9}, HAND), "it is quicker because it gives up"


def test_claims_count_promises_successes_and_what_was_not_designed() -> None:
    design = Design("d", Sequence((Activity("a"), Activity("b"))))
    cases = [truth.TruthCase(name, {}, design, parallel=name in "ab") for name in "abcde"]
    claims = benchmark.claims_of(
        cases,
        {
            "a": found(105),
            "b": found(105, yawl=130, parallel=False),
            "c": found(50, rejected=["yawl"]),
            "d": found(100, status=1, faults=["'b' follows 'a'"]),
            "e": {"status": 2, "said": "cannot be designed", "hand": HAND},
        },
    )
    assert claims == {
        "requirements": 5,
        "designed": 4,
        "within_10_percent": 0.5,
        "false_successes": 1,
        "legal": 0.6,
        "not_worse_than_hand": 1.0,
        "parallel_found": 0.5,
    }
    assert not benchmark.is_parallel(design.root)
