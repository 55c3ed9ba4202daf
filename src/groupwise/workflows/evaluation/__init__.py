"""How a design performs, in three tiers that agree: formulas, simulation, and a schedule for one run.

    evaluate(design, requirements).cycle_time

In the order data flows:

    durations         moments of a duration at a pool's speed, with a timeout
    staffing          who works: servers of pools, or people by name where it matters who does what
    unfolding         choices of one outcome as a single choice, so that they decide alike
    encoding          a design and its requirements as flat arrays, which both compiled tiers read; see `array_format`
    analytic          first tier: queueing formulas, in microseconds, for the designs they cover; `network/` has them
    simulation        second tier: discrete-event simulation of any design, and what blocks mean; `engine/` runs it
    schedule          third tier: one run of a task graph on machines, list scheduling and HEFT
    recorded_runs     what a recorded run took beyond its tasks, as overhead per task
    performance       what every tier returns
    numba_compiler    the one place that asks for Numba, and where compiled code is cached; compile_progress
                      says how far it is

Open `simulation` first to learn what a design means, `analytic` to learn which designs the formulas cover.
"""

from typing import Literal, TypeAlias, get_args

from groupwise.errors import ConfigError
from groupwise.workflows.blocks import Design
from groupwise.workflows.evaluation.performance import Performance
from groupwise.workflows.requirements import Requirements

__all__ = ["CASES", "Performance", "evaluate"]

TierChoice: TypeAlias = Literal["auto", "measured", "analytic", "simulation", "schedule"]
TIERS = get_args(TierChoice)
CASES = 10_000


def evaluate(
    design: Design, requirements: Requirements, tier: TierChoice = "auto", seed: int = 0, cases: int | None = None
) -> Performance:
    """How the design performs under these requirements.

    "auto" uses a schedule for one run of a task graph, the formulas where they cover the design, and otherwise the
    simulation; "measured" does without the formulas, and is what people are shown. A simulation measures `cases`
    cases. By default it measures 10,000 cases, and more as long as the interval of the cycle time is wider than 4% on
    either side (see `simulate_precisely`); or 1,000 runs that start at once, and at least 20 such batches. With the
    same `seed`, all designs see the same arrivals and durations.
    """
    # These need Numba and load compiled code, so they are imported only when something is evaluated.
    from groupwise.workflows.evaluation import analytic, schedule, simulation
    from groupwise.workflows.evaluation.encoding import encode

    if tier not in TIERS:
        raise ConfigError(f"tier is {tier!r} but must be one of {', '.join(TIERS)}")
    encoded = encode(design, requirements)
    if tier == "schedule" or (tier in ("auto", "measured") and schedule.is_one_run(design, requirements)):
        return schedule.schedule_design(design, requirements)[1]
    if tier in ("auto", "analytic"):
        found = analytic.analyse(encoded)
        if tier == "analytic" or found.valid:
            return found
    if cases is not None:
        simulated = simulation.simulate(encoded, cases, seed)
    elif encoded.catalogue.arrivals is None:
        simulated = simulation.simulate_runs(encoded, CASES // 10, seed)
    else:
        simulated = simulation.simulate_precisely(encoded, CASES, seed)
    return simulation.performance_of(encoded, simulated, analytic.capacity_of(encoded), analytic.overload(encoded))
