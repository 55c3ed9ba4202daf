"""From an evaluation of a program to what a search makes of it."""

from __future__ import annotations

from groupwise.workflows.code.evaluation import Evaluation
from groupwise.workflows.search.domain import Judged


def judged(evaluation: Evaluation) -> Judged:
    """The share of cases that came out right guides the search.

    How long it took is left out, so that two searches of one seed are the same.
    """
    notes = {"outcome": str(evaluation.outcome), "calls": evaluation.calls, "length": evaluation.length}
    if evaluation.message:
        notes["message"] = evaluation.message
    if evaluation.fault is not None:
        notes["fault"] = str(evaluation.fault)
    return Judged(evaluation.correctness, evaluation.solved, notes)
