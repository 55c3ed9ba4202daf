"""Which tier judges a design."""

from __future__ import annotations

from groupwise.errors import ConfigError
from groupwise.workflows.blocks import Design
from groupwise.workflows.evaluation import CASES, TierChoice, analytic, schedule, simulation
from groupwise.workflows.evaluation.encoding import encode
from groupwise.workflows.evaluation.performance import Performance
from groupwise.workflows.requirements import Requirements


def judge(design: Design, requirements: Requirements, tier: TierChoice, seed: int, cases: int | None) -> Performance:
    """What `evaluate` promises."""
    known = ("auto", "analytic", "simulation", "schedule")
    if tier not in known:
        raise ConfigError(f"tier is {tier!r} but must be one of {', '.join(known)}")
    encoded = encode(design, requirements)
    if tier == "schedule" or (tier == "auto" and schedule.is_one_run(design, requirements)):
        return schedule.schedule_design(design, requirements)[1]
    if tier != "simulation":
        found = analytic.analyse(encoded)
        if tier == "analytic" or found.valid:
            return found
    count = cases if cases is not None else CASES if encoded.catalogue.arrivals is not None else CASES // 10
    simulated = simulation.simulate(encoded, count, seed)
    return simulation.performance_of(encoded, simulated, analytic.capacity_of(encoded), analytic.overload(encoded))
