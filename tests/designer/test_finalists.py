"""Which of the designs that a search found are shown and chosen."""

from __future__ import annotations

import numpy as np

from groupwise.designer.baseline import plain_sequence
from groupwise.designer.finalists import choose_finalists, measured
from groupwise.designer.generations import Candidate
from groupwise.designer.results.explanation import one_line
from groupwise.designer.tasks import PreparedRequirements
from groupwise.workflows.blocks import Activity, Block, Design, Parallel, Sequence
from groupwise.workflows.requirements import parse_requirements

SMALL = ("refund", "restock", "tell")


def candidate(prepared: PreparedRequirements, last: Block) -> Candidate:
    root = Sequence((Activity("wait"), Activity("inspect"), last))
    design, nothing = Design("returns", root, (("desk", 3),)), np.zeros(0, np.int64)
    score = measured(prepared, design)
    return Candidate(design, "edit", 0.0, 0, nothing, nothing, np.zeros(0, np.bool_), len(str(root)), score)


def test_a_design_that_looks_worse_than_another_is_neither_chosen_nor_shown() -> None:
    """Three tasks of ten seconds in parallel save 20 s of six days: 6.01 d at the same cost, but harder to read."""
    prepared = PreparedRequirements.of(
        parse_requirements(
            {
                "name": "returns",
                "activities": {
                    "wait": {"kind": "receive", "duration": {"kind": "fixed", "mean": 500_000}},
                    "inspect": {"duration": {"mean": 400}, "pools": ["desk"]},
                    **{name: {"duration": {"mean": 10}, "pools": ["desk"]} for name in SMALL},
                },
                "pools": {"desk": {"most": 3, "wage": 0.001}},
                "rules": {"precedes": [["wait", "inspect"], *(["inspect", name] for name in SMALL)]},
                "demand": {"arrivals_per_second": 0.004},
                "objective": {"performance": 1, "structure": 0, "maintainability": 0, "resources": 0},
            }
        )
    )
    tasks = tuple(Activity(name) for name in SMALL)
    wide, plain = (candidate(prepared, block) for block in (Parallel(tasks), Sequence(tasks)))
    assert wide.total > plain.total, "by its speed alone the parallel one is better"
    found = choose_finalists(prepared, [wide, plain], plain_sequence(prepared))
    assert one_line(found.best.design.root) == "wait → inspect → refund → restock → tell"
    assert not [one for one in found.front if "∥" in one_line(one.design.root)]
