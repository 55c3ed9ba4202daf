"""Self-correction: what was predicted against what was achieved, what that costs, and what is predicted from then on.

Predicted is what the formulas say of a design. Achieved is what a simulation of it says, or what was measured of it in
the world. Three named losses tell how far apart they are and what the design and its policy add:

    performance   mean of ((achieved − predicted) / predicted)² over what was measured
    structural    c / (c + 20) of the control-flow complexity c: a half at 20
    exploration   minus the entropy of the policy over whole designs, in nats

What a measurement tells is kept as a `Correction`: durations and money by factors, for every set of requirements with
the same activities. The next prediction, and the next design, are made with it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from groupwise.designer.features import features_of
from groupwise.designer.memory import situation
from groupwise.designer.problem import DesignProblem
from groupwise.designer.tasks import tier_of
from groupwise.errors import ConfigError
from groupwise.memory import MemorySystem
from groupwise.workflows.blocks import Design
from groupwise.workflows.evaluation import Performance, evaluate
from groupwise.workflows.event_logs import read_events
from groupwise.workflows.process_mining import estimate
from groupwise.workflows.requirements import RequiredActivity, Requirements
from groupwise.workflows.scoring.design_metrics import anatomy

LEAST, MOST = 0.05, 20.0
"""Factors beyond these are taken for a mistake in the measurement."""
STEPS = 40
SLOWEST = 0.3
"""The least weight of a new measurement, however many there were."""
HALF = 20.0
NOTICED = 0.005
"""Factors nearer to 1 are not spoken of."""
CASES = 2_000


@dataclass(frozen=True, slots=True)
class LossWeights:
    performance: float = 1.0
    structural: float = 0.1
    exploration: float = 0.01


WEIGHTS = LossWeights()


@dataclass(frozen=True, slots=True)
class Losses:
    """The three losses and their weighted sum."""

    performance: float
    structural: float
    exploration: float
    weights: LossWeights = WEIGHTS

    @property
    def total(self) -> float:
        weights = self.weights
        return (
            weights.performance * self.performance
            + weights.structural * self.structural
            + weights.exploration * self.exploration
        )


@dataclass(frozen=True, slots=True)
class Correction:
    """By what factors durations and money differ from what the requirements state, and formulas from simulations."""

    durations: Mapping[str, float] = field(default_factory=dict)
    cost: float = 1.0
    formulas: float = 1.0
    observations: int = 0

    def applied(self, requirements: Requirements) -> Requirements:
        """The requirements as they are believed to be."""
        if not self.changes(requirements):
            return requirements
        activities = {name: self._activity(name, one) for name, one in requirements.activities.items()}
        pools = {
            name: pool.model_copy(update={"wage": pool.wage * self.cost}) for name, pool in requirements.pools.items()
        }
        return requirements.model_copy(update={"activities": activities, "pools": pools})

    def changes(self, requirements: Requirements) -> bool:
        factors = [self.durations.get(name, 1.0) for name in requirements.activities]
        return self.cost != 1.0 or any(factor != 1.0 for factor in factors)

    def _activity(self, name: str, activity: RequiredActivity) -> RequiredActivity:
        factor, duration = self.durations.get(name, 1.0), activity.duration
        std = None if duration.std is None else duration.std * factor
        longer = duration.model_copy(update={"mean": duration.mean * factor, "std": std})
        return activity.model_copy(update={"duration": longer, "cost": activity.cost * self.cost})

    def words(self) -> str:
        """What it says, in one sentence."""
        told = []
        if self.durations:
            least, most = min(self.durations.values()), max(self.durations.values())
            span = f"{least:.2f}" if most - least < 0.005 else f"{least:.2f} to {most:.2f}"
            told.append(f"durations are taken as {span} times those stated")
        if abs(self.cost - 1) >= NOTICED:
            told.append(f"money as {self.cost:.2f} times what is stated")
        times = "measurement" if self.observations == 1 else "measurements"
        return f"{' and '.join(told) or 'nothing is corrected'}, after {self.observations} {times}"


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing that was predicted and came otherwise."""

    what: str
    predicted: float
    achieved: float

    @property
    def error(self) -> float:
        """Relative to the prediction."""
        return (self.achieved - self.predicted) / self.predicted if self.predicted else math.inf

    def __str__(self) -> str:
        off = f"{abs(self.error):.1%} {'more' if self.error >= 0 else 'less'}"
        return f"{self.what} was predicted as {self.predicted:.4g} and is {self.achieved:.4g}: {off}"


@dataclass(frozen=True, slots=True)
class ErrorAnalysis:
    """What was mispredicted, by how much, what it costs, and what is predicted otherwise from now on."""

    mistakes: tuple[Mistake, ...]
    losses: Losses
    correction: Correction
    adjusted: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        losses = self.losses
        told = (
            f"losses: performance {losses.performance:.4f}, structural {losses.structural:.4f}, "
            f"exploration {losses.exploration:.4f}, together {losses.total:.4f}"
        )
        return [*map(str, self.mistakes), told, *(self.adjusted or ("nothing was adjusted",))]


@dataclass(frozen=True, slots=True)
class MeasuredPerformance:
    """What the world says: seconds a case took on average, what it cost, and seconds of single activities."""

    cycle_time: float | None = None
    cost: float | None = None
    durations: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        given = {"cycle time": self.cycle_time, "cost": self.cost, **self.durations}
        if all(value is None for value in given.values()):
            raise ConfigError("nothing was measured", hint="Give a cycle time, a cost or a log.")
        for name, value in given.items():
            if value is not None and not 0 < value < math.inf:
                raise ConfigError(f"the measured {name} is {value}, and must be above 0 and finite")


def predict(design: Design, requirements: Requirements, correction: Correction | None = None) -> Performance:
    """What the formulas say, corrected."""
    known = correction or Correction()
    found = evaluate(design, known.applied(requirements), tier_of(requirements), cases=CASES)
    return replace(found, cycle_time=found.cycle_time * known.formulas)


def check_by_simulation(
    design: Design, requirements: Requirements, known: Correction | None = None, *, entropy: float = 0.0, seed: int = 0
) -> ErrorAnalysis:
    """Predicted against simulated. Where they differ it is the formulas that are wrong, and not the durations."""
    known = known or Correction()
    predicted = predict(design, requirements, known)
    achieved = evaluate(design, known.applied(requirements), "simulation", seed=seed, cases=CASES)
    mistakes = _mistakes(predicted, achieved.cycle_time, achieved.cost)
    adjusted: tuple[str, ...] = ()
    correction = known
    if mistakes and math.isfinite(mistakes[0].error):
        ratio = _bounded(known.formulas * achieved.cycle_time / predicted.cycle_time)
        correction = replace(known, formulas=ratio)
        adjusted = (f"what the formulas say of the cycle time is taken {ratio:.3f} times from now on",)
    return ErrorAnalysis(mistakes, _losses(design, mistakes, entropy), correction, adjusted)


def learn_from(
    design: Design,
    requirements: Requirements,
    measured: MeasuredPerformance,
    known: Correction | None = None,
    *,
    entropy: float = 0.0,
) -> ErrorAnalysis:
    """Predicted against measured. Durations are changed until the prediction meets the measurement.

    Single durations that were measured are believed; a cycle time changes the others, all by one factor. The first
    measurement counts in full, later ones by 1/n and at least 0.3 of their logarithm.
    """
    known = known or Correction()
    predicted = predict(design, requirements, known)
    mistakes = _mistakes(predicted, measured.cycle_time, measured.cost)
    mistakes += tuple(
        Mistake(f"the time of {name!r}", known.durations.get(name, 1.0) * stated, measured.durations[name])
        for name, activity in requirements.activities.items()
        if name in measured.durations and (stated := activity.duration.mean) > 0
    )
    weight = max(1 / (known.observations + 1), SLOWEST)
    durations = _durations(design, requirements, measured, known, weight)
    cost = known.cost
    then = predict(design, requirements, replace(known, durations=durations)).cost
    if measured.cost is not None and then > 0:
        cost = _bounded(known.cost * (measured.cost / then) ** weight)
    correction = Correction(durations, cost, known.formulas, known.observations + 1)
    return ErrorAnalysis(mistakes, _losses(design, mistakes, entropy), correction, (correction.words(),))


def _durations(
    design: Design, requirements: Requirements, measured: MeasuredPerformance, known: Correction, weight: float
) -> dict[str, float]:
    stated = {name: one.duration.mean for name, one in requirements.activities.items() if one.duration.mean > 0}
    factors = {name: known.durations.get(name, 1.0) for name in stated}
    seen = [name for name in stated if name in measured.durations]
    for name in seen:
        ratio = measured.durations[name] / (stated[name] * factors[name])
        factors[name] = _bounded(factors[name] * ratio**weight)
    rest = [name for name in stated if name not in measured.durations]
    if measured.cycle_time is None or not rest:
        return factors

    def cycle_time(factor: float) -> float:
        longer = {**factors, **{name: factors[name] * factor for name in rest}}
        return predict(design, requirements, replace(known, durations=longer)).cycle_time

    factor = _solved(cycle_time, measured.cycle_time)
    return {**factors, **{name: _bounded(factors[name] * factor**weight) for name in rest}}


def _solved(value: Callable[[float], float], wanted: float) -> float:
    """The factor at which a rising function has the wanted value, by halving its logarithm."""
    low, high = math.log(LEAST), math.log(MOST)
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if value(math.exp(middle)) < wanted else (low, middle)
    return math.exp((low + high) / 2)


def _bounded(factor: float) -> float:
    return min(max(factor, LEAST), MOST)


def _mistakes(predicted: Performance, cycle_time: float | None, cost: float | None) -> tuple[Mistake, ...]:
    pairs = (("cycle time", predicted.cycle_time, cycle_time), ("cost", predicted.cost, cost))
    return tuple(Mistake(what, said, was) for what, said, was in pairs if was is not None and said > 0)


def _losses(design: Design, mistakes: tuple[Mistake, ...], entropy: float) -> Losses:
    errors = [mistake.error**2 for mistake in mistakes if math.isfinite(mistake.error)]
    complexity = anatomy(design).metrics.control_flow
    return Losses(sum(errors) / len(errors) if errors else 0.0, complexity / (complexity + HALF), 0.0 - entropy)


def family_of(requirements: Requirements) -> str:
    """The same for requirements with the same activities and pools, however long, dear or often they are."""
    names = (sorted(requirements.activities), sorted(requirements.pools))
    return f"correction {hashlib.sha256(repr(names).encode()).hexdigest()[:16]}"


def known_correction(memory: MemorySystem, requirements: Requirements) -> Correction:
    """What earlier measurements tell of requirements like these; nothing, if there were none."""
    found = memory.contexts.get(family_of(requirements))
    return Correction(**found.last_performance) if found is not None else Correction()


def remember_correction(memory: MemorySystem, requirements: Requirements, correction: Correction) -> None:
    """Keep what was learned for the next prediction."""
    direction = memory.direction(requirements, {"features": situation(features_of(DesignProblem(requirements)))})
    told: dict[str, Any] = {
        "durations": dict(correction.durations),
        "cost": correction.cost,
        "formulas": correction.formulas,
        "observations": correction.observations,
    }
    with memory.generation(memory.now + 1):
        memory.contexts.record(family_of(requirements), direction, told, True)


def measured_from_log(path: str | Path) -> MeasuredPerformance:
    """What an event log says: from first start to last end of a case, and the mean time of each activity."""
    events = read_events(path)
    first: dict[str, float] = {}
    last: dict[str, float] = {}
    for event in events:
        began = event.start if event.start is not None else event.time
        first[event.case] = min(first.get(event.case, math.inf), began)
        last[event.case] = max(last.get(event.case, -math.inf), event.time)
    spans = [last[case] - first[case] for case in first]
    found = estimate(events).requirements.activities
    durations = {name: activity.duration.mean for name, activity in found.items() if activity.duration.mean > 0}
    mean = sum(spans) / len(spans)
    return MeasuredPerformance(cycle_time=mean if mean > 0 else None, durations=durations)
