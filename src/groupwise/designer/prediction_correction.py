"""Self-correction: compare a prediction with what was achieved, and predict better from then on.

The prediction comes from analytic formulas. What was achieved comes from a simulation, or from measurements in
production. Three losses summarise the comparison:

    performance   mean of ((achieved − predicted) / predicted)² over the quantities measured
    structural    c / (c + 20) for control-flow complexity c: one half at 20
    exploration   minus the entropy of the policy over whole designs, in nats

While the policy learns, they are terms of its objective (`LossTerms`): the first two lower the reward of a design, each
with its coefficient, and the third is the learner's entropy bonus, with loss.entropy_coef.

A measurement is stored as a `Correction`: factors for durations and costs that apply to all requirements with the same
activities and pools. The next prediction, and the next design, use it.
"""

import hashlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field, replace
from pathlib import Path

from groupwise.designer.features import features_of, situation
from groupwise.designer.problem import DesignProblem
from groupwise.errors import ConfigError
from groupwise.memory import MemorySystem
from groupwise.workflows.blocks import Design
from groupwise.workflows.evaluation import Performance, evaluate
from groupwise.workflows.event_logs import read_events
from groupwise.workflows.process_mining import estimate
from groupwise.workflows.requirements import RequiredActivity, Requirements
from groupwise.workflows.scoring import DesignScore
from groupwise.workflows.scoring.design_metrics import anatomy

# Factors outside this range are taken to be errors of measurement.
LEAST, MOST = 0.05, 20.0
# Bisection steps: ln(MOST / LEAST) / 2⁴⁰ is below 1e-11.
STEPS = 40
# The least weight of a new measurement, however many came before it.
SLOWEST = 0.3
# The control-flow complexity at which the structural loss is one half.
HALF = 20.0
# Factors closer to 1 than this are not mentioned.
NOTICED = 0.005
CASES = 2_000
# Simulated cases where a design is learned from: enough to see that formulas are off by a tenth.
FEW = 500
# The largest performance loss of one design, an error of about a third: larger ones, of designs that are nearly
# overloaded, would decide about the advantages of their whole group.
WORST = 0.1


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
        performance, structural, exploration = astuple(self.weights)
        return float(performance * self.performance + structural * self.structural + exploration * self.exploration)


@dataclass(frozen=True, slots=True)
class Correction:
    """Factors by which durations and costs differ from those stated, and simulated cycle times from analytic ones."""

    durations: Mapping[str, float] = field(default_factory=dict)
    cost: float = 1.0
    formulas: float = 1.0
    observations: int = 0

    def applied(self, requirements: Requirements) -> Requirements:
        """The requirements with corrected durations and costs."""
        if not self.changes(requirements):
            return requirements
        activities = {name: self._activity(name, one) for name, one in requirements.activities.items()}
        given = requirements.pools
        pools = {name: pool.model_copy(update={"wage": pool.wage * self.cost}) for name, pool in given.items()}
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
        corrections = []
        if self.durations:
            least, most = min(self.durations.values()), max(self.durations.values())
            span = f"{least:.2f}" if most - least < 0.005 else f"{least:.2f} to {most:.2f} (by activity)"
            corrections.append(f"durations are multiplied by {span}")
        if abs(self.cost - 1) >= NOTICED:
            corrections.append(f"costs {'' if corrections else 'are multiplied '}by {self.cost:.2f}")
        times = "measurement" if self.observations == 1 else "measurements"
        if not corrections:
            return f"{self.observations} {times} stored; nothing needs correcting."
        return f"Based on {self.observations} {times}, {' and '.join(corrections)}."


@dataclass(frozen=True, slots=True)
class Mistake:
    """One quantity with its predicted and its achieved value."""

    what: str
    predicted: float
    achieved: float

    @property
    def error(self) -> float:
        """Relative to the prediction."""
        return (self.achieved - self.predicted) / self.predicted if self.predicted else math.inf

    def __str__(self) -> str:
        off = f"{abs(self.error):.1%} {'more' if self.error >= 0 else 'less'}"
        subject = self.what[0].upper() + self.what[1:]
        unit = "" if self.what == "cost" else " s"
        return f"{subject}: predicted {self.predicted:.4g}{unit}, actual {self.achieved:.4g}{unit} ({off})"


@dataclass(frozen=True, slots=True)
class ErrorAnalysis:
    """What was mispredicted and by how much, the losses, and what will be predicted differently from now on."""

    mistakes: tuple[Mistake, ...]
    losses: Losses
    correction: Correction
    adjusted: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        losses = self.losses
        summary = (
            f"Losses: performance {losses.performance:.4f}, structural {losses.structural:.4f}, "
            f"exploration {losses.exploration:.4f}, total {losses.total:.4f}"
        )
        return [*map(str, self.mistakes), summary, *(self.adjusted or ("Nothing was adjusted.",))]


@dataclass(frozen=True, slots=True)
class MeasuredPerformance:
    """Measurements from production: mean seconds per case, mean cost per case, and seconds of single activities."""

    cycle_time: float | None = None
    cost: float | None = None
    durations: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        given = {"cycle time": self.cycle_time, "cost": self.cost, **self.durations}
        if all(value is None for value in given.values()):
            raise ConfigError("no measurement was given", hint="Add a cycle time, a cost or a log.")
        for name, value in given.items():
            if value is not None and not 0 < value < math.inf:
                raise ConfigError(f"the measured {name} is {value}; it must be positive and finite")


class LossTerms:
    """The losses of single designs for one set of requirements, and what they cost in reward while a policy learns.

    The objective is E[score − coefficients · losses] over designs of the policy, so that its gradient is that of the
    policy's loss with each of these rewards. A design is simulated once, with the same seed as all others.
    """

    def __init__(self, requirements: Requirements, performance: float, structural: float, seed: int = 0) -> None:
        self.requirements, self.seed = requirements, seed
        self.performance, self.structural = performance, structural
        self.known: dict[Design, tuple[float, float]] = {}
        # Seconds spent on simulations.
        self.seconds = 0.0

    def of(self, design: Design, score: DesignScore) -> tuple[float, float]:
        """The performance and the structural loss; one whose coefficient is 0 is not computed."""
        found = self.known.get(design)
        if found is None:
            found = self.known[design] = (self._performance(design, score), self._structural(design))
        return found

    def penalty(self, design: Design, score: DesignScore) -> float:
        performance, structural = self.of(design, score)
        return self.performance * performance + self.structural * structural

    def _performance(self, design: Design, score: DesignScore) -> float:
        # Only formulas mispredict; what breaks a rule has no performance to speak of.
        predicted = score.performance
        if not self.performance or predicted is None or predicted.tier != "analytic" or score.broken:
            return 0.0
        before = time.perf_counter()
        achieved = evaluate(design, self.requirements, "simulation", seed=self.seed, cases=FEW)
        self.seconds += time.perf_counter() - before
        return min(squared_error(_mistakes(predicted, achieved.cycle_time, achieved.cost)), WORST)

    def _structural(self, design: Design) -> float:
        return complexity_loss(design) if self.structural else 0.0


def predict(design: Design, requirements: Requirements, correction: Correction | None = None) -> Performance:
    known = correction or Correction()
    found = evaluate(design, known.applied(requirements), cases=CASES)
    return replace(found, cycle_time=found.cycle_time * known.formulas)


def check_by_simulation(
    design: Design, requirements: Requirements, known: Correction | None = None, *, entropy: float = 0.0, seed: int = 0
) -> ErrorAnalysis:
    """Compare prediction and simulation. Where they differ, the formulas are wrong, not the durations."""
    known = known or Correction()
    predicted = predict(design, requirements, known)
    achieved = evaluate(design, known.applied(requirements), "simulation", seed=seed, cases=CASES)
    mistakes = _mistakes(predicted, achieved.cycle_time, achieved.cost)
    adjusted: tuple[str, ...] = ()
    correction = known
    if mistakes and math.isfinite(mistakes[0].error):
        ratio = _bounded(known.formulas * achieved.cycle_time / predicted.cycle_time)
        correction = replace(known, formulas=ratio)
        adjusted = (f"Analytic cycle times will be multiplied by {ratio:.3f} from now on.",)
    return ErrorAnalysis(mistakes, _losses(design, mistakes, entropy), correction, adjusted)


def learn_from(
    design: Design,
    requirements: Requirements,
    measured: MeasuredPerformance,
    known: Correction | None = None,
    *,
    entropy: float = 0.0,
) -> ErrorAnalysis:
    """Compare prediction and measurement, and change durations until the prediction meets the measurement.

    Durations of single activities are taken as measured; a cycle time changes all the others by one factor. The first
    measurement counts fully, the n-th with weight 1/n but at least 0.3, in the logarithm of the factors.
    """
    known = known or Correction()
    predicted = predict(design, requirements, known)
    mistakes = _mistakes(predicted, measured.cycle_time, measured.cost)
    mistakes += tuple(
        Mistake(f"duration of {name!r}", known.durations.get(name, 1.0) * stated, measured.durations[name])
        for name, activity in requirements.activities.items()
        if name in measured.durations and (stated := activity.duration.mean) > 0
    )
    weight = max(1 / (known.observations + 1), SLOWEST)
    durations = _durations(design, requirements, measured, known, weight)
    # The cost is compared after the durations have been corrected, which already changes it.
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
    # The factor at which an increasing function takes the wanted value, by bisection of its logarithm.
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
    return Losses(squared_error(mistakes), complexity_loss(design), 0.0 - entropy)


def squared_error(mistakes: Sequence[Mistake]) -> float:
    errors = [mistake.error**2 for mistake in mistakes if math.isfinite(mistake.error)]
    return sum(errors) / len(errors) if errors else 0.0


def complexity_loss(design: Design) -> float:
    complexity = anatomy(design).metrics.control_flow
    return complexity / (complexity + HALF)


def family_of(requirements: Requirements) -> str:
    """A key shared by all requirements with the same activities and pools, whatever their durations and costs."""
    names = (sorted(requirements.activities), sorted(requirements.pools))
    return f"correction {hashlib.sha256(repr(names).encode()).hexdigest()[:16]}"


def known_correction(memory: MemorySystem, requirements: Requirements) -> Correction:
    """The correction from earlier measurements of requirements like these; the identity if there are none."""
    found = memory.contexts.get(family_of(requirements))
    return Correction(**found.last_performance) if found is not None else Correction()


def remember_correction(memory: MemorySystem, problem: DesignProblem | Requirements, correction: Correction) -> None:
    problem = problem if isinstance(problem, DesignProblem) else DesignProblem(problem)
    requirements = problem.requirements
    direction = memory.direction(requirements, {"features": situation(features_of(problem))})
    with memory.generation(memory.now + 1):
        memory.contexts.record(family_of(requirements), direction, asdict(correction), True)


def measured_from_log(path: str | Path) -> MeasuredPerformance:
    """Measurements from an event log: mean time from first start to last end of a case, and of each activity."""
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
