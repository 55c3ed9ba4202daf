"""One evaluation of a design: how it performs, and its score."""

from __future__ import annotations

from groupwise.workflows.blocks import Design
from groupwise.workflows.designer.tasks import Prepared
from groupwise.workflows.evaluation import TierChoice, evaluate
from groupwise.workflows.requirements import Requirements
from groupwise.workflows.scoring import Score

CASES = 400


def tier_of(requirements: Requirements) -> TierChoice:
    """Formulas where cases arrive; the schedule of one run in which nothing is left to chance; else what there is."""
    if requirements.demand.arrivals_per_second is not None:
        return "analytic"
    chance = any(one.failure or one.knock_out for one in requirements.activities.values()) or requirements.branches
    closed = any(pool.calendar for pool in requirements.pools.values())
    return "auto" if chance or closed or requirements.demand.runs > 1 else "schedule"


def judge(prepared: Prepared, design: Design, seed: int = 0) -> Score:
    """One evaluation: how the design performs, by formulas where cases arrive and by a schedule of runs; scored."""
    requirements = prepared.problem.requirements
    performance = evaluate(design, requirements, tier_of(requirements), seed=seed % 2**31, cases=CASES)
    return prepared.scorer(design, performance)
