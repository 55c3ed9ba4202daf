"""The plain sequence that designs are compared with."""

from __future__ import annotations

from pathlib import Path

import pytest

from groupwise.designer.baseline import plain_sequence, with_pools
from groupwise.designer.finalists import measured
from groupwise.designer.tasks import PreparedRequirements
from groupwise.workflows.block_form import lift
from groupwise.workflows.blocks import Choice, walk
from groupwise.workflows.document import document_of
from groupwise.workflows.files import read_workflow, write_workflow
from groupwise.workflows.requirements import parse_requirements

WORK = {"duration": {"mean": 60}, "pools": ["desk"]}
BRANCHES = {
    "pay": {"probability": 0.6, "activities": ["pay"]},
    "check": {"probability": 0.3, "activities": ["check"]},
    "fraud": {"probability": 0.1, "activities": ["refuse"], "ends": True},
}


def test_it_asks_one_question_and_scores_the_same_when_read_back(tmp_path: Path) -> None:
    requirements = parse_requirements({
        "name": "claim", "activities": dict.fromkeys(["sort", "pay", "check", "refuse"], WORK),
        "outcomes": [{"name": "way", "after": "sort", "branches": BRANCHES}],
        "pools": {"desk": {"most": 2}}, "demand": {"arrivals_per_second": 0.005},
    })  # fmt: skip
    prepared = PreparedRequirements.of(requirements)
    design = plain_sequence(prepared).design
    (question,) = (block for block in walk(design.root) if isinstance(block, Choice))
    assert question.probabilities == pytest.approx((0.3, 0.6, 0.1))
    write_workflow(document_of(design, requirements), tmp_path / "claim.bpmn")
    back = with_pools(lift(read_workflow(tmp_path / "claim.bpmn")), requirements)
    shown, written = measured(prepared, design), measured(prepared, back)
    assert shown.total == written.total
    assert shown.performance == written.performance
