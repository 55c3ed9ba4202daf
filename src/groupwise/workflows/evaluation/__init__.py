"""How a design performs, in three tiers that agree: formulas, simulation, and a schedule for one run.

    evaluate(design, requirements).cycle_time

`simulation` says what blocks mean, `analytic` for which designs the formulas hold.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from groupwise.workflows.blocks import Design
from groupwise.workflows.evaluation.performance import Performance
from groupwise.workflows.requirements import Requirements

__all__ = ["CASES", "Performance", "evaluate"]

TierChoice: TypeAlias = Literal["auto", "analytic", "simulation", "schedule"]
CASES = 10_000


def evaluate(
    design: Design, requirements: Requirements, tier: TierChoice = "auto", seed: int = 0, cases: int | None = None
) -> Performance:
    """How the design performs under these requirements.

    "auto" takes a schedule for one run of a graph of tasks, the formulas where they hold, and simulates otherwise. The
    simulation measures `cases` cases (10,000 unless told; 1,000 of runs at once); with the same `seed`, designs meet
    the same arrivals and durations.
    """
    from groupwise.workflows.evaluation.tiers import judge  # compiled code: not before it is needed

    return judge(design, requirements, tier, seed, cases)
