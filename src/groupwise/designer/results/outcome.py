"""The outcome of a design call: results of candidates, metrics of generations, stages, and whether it converged.

metrics = GenerationMetrics()
metrics.start()
metrics.record(evaluator.evaluate(candidate))       # of every candidate
metrics.record(policy.update(candidates, metrics))
logger.info("Generation metrics: %s", metrics)
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import numpy as np

from groupwise.designer.baseline import Baseline
from groupwise.designer.candidate_workers import LocalCandidates
from groupwise.designer.diversity import RATED, Diversity
from groupwise.designer.generations import Candidate
from groupwise.designer.prediction_correction import ErrorAnalysis
from groupwise.errors import ContractError
from groupwise.workflows.requirements import Requirements
from groupwise.workflows.scoring import DesignScore

# The six stages, each with its target range in seconds per generation.
STAGES = {
    "preprocessing": (0.050, 0.100),
    "candidate generation": (0.200, 0.500),
    "evaluation": (0.100, 0.300),
    "policy update": (0.050, 0.150),
    "selection": (0.010, 0.050),
    "memory integration": (0.020, 0.100),
}


@dataclass(frozen=True, slots=True)
class WorkflowResult:
    """A candidate with its score, and how long the evaluation took."""

    candidate: Candidate
    score: DesignScore
    seconds: float

    @property
    def total(self) -> float:
        return self.score.total


@dataclass(frozen=True, slots=True)
class PolicyUpdateResult:
    """One update of the policy: how many attempts it used, its loss, and how far the policy moved.

    `attempts` were sampled from the policy; `left_out` candidates were not, and were not learned from. `entropy` is the
    mean over single decisions, in nats. `losses` are the mean performance and structural loss of the attempts, as far
    as they are computed, and `simulation` the seconds it took.
    """

    attempts: int
    left_out: int
    policy_loss: float
    entropy: float
    kl: float
    gradient_norm: float
    version: int
    seconds: float
    losses: tuple[float, float] = (0.0, 0.0)
    simulation: float = 0.0


class CandidateEvaluator:
    """Evaluates candidates for one set of requirements."""

    def __init__(self, source: LocalCandidates, seed: int = 0) -> None:
        self.source, self.seed = source, seed

    def evaluate(self, candidate: Candidate) -> WorkflowResult:
        """One evaluation: performance and score. All candidates share the seed of the simulation."""
        return self.evaluate_all([candidate])[0]

    def evaluate_all(self, candidates: Sequence[Candidate]) -> list[WorkflowResult]:
        """The evaluations of a generation, shared out among worker processes if there are any."""
        scored = self.source.score([candidate.design for candidate in candidates], self.seed)
        return [
            WorkflowResult(replace(candidate, score=one.score), one.score, one.seconds)
            for candidate, one in zip(candidates, scored, strict=True)
        ]


class GenerationMetrics:
    """Records a generation as it happens; `start` begins a new one."""

    def __init__(self) -> None:
        self.results: list[WorkflowResult] = []
        self.updates: list[PolicyUpdateResult] = []
        self._began: float | None = None

    def start(self) -> None:
        self.results, self.updates = [], []
        self._began = time.perf_counter()

    def record(self, result: WorkflowResult | PolicyUpdateResult) -> None:
        if self._began is None:
            raise ContractError("the generation has not started", hint="Call start() first.")
        if isinstance(result, WorkflowResult):
            self.results.append(result)
        else:
            self.updates.append(result)

    @property
    def seconds(self) -> float:
        return 0.0 if self._began is None else time.perf_counter() - self._began

    @property
    def totals(self) -> Sequence[float]:
        return [result.total for result in self.results]

    @property
    def best(self) -> float:
        return max(self.totals, default=float("-inf"))

    @property
    def mean(self) -> float:
        return float(np.mean(self.totals)) if self.results else float("nan")

    @property
    def variance(self) -> float:
        return float(np.var(self.totals)) if self.results else float("nan")

    @property
    def origins(self) -> Mapping[str, int]:
        return Counter(result.candidate.origin for result in self.results)

    @property
    def modes(self) -> Mapping[str, int]:
        """How many candidates explored, and how many exploited what is known."""
        exploring = sum(result.candidate.exploring for result in self.results)
        return {"exploring": exploring, "exploiting": len(self.results) - exploring}

    @property
    def actions(self) -> Mapping[str, int]:
        """How many edits contained each group of actions."""
        counts = Counter(action for result in self.results for action in result.candidate.actions)
        return {group: counts[group] for group in RATED}

    @property
    def policy_loss(self) -> float | None:
        return self.updates[-1].policy_loss if self.updates else None

    def __str__(self) -> str:
        text = f"{len(self.results)} judged, best {self.best:.4f}, mean {self.mean:.4f}, variance {self.variance:.2g}"
        if self.updates:
            update = self.updates[-1]
            text += f", policy loss {update.policy_loss:+.4f} from {update.attempts} attempts"
        return f"{text}, {self.seconds * 1e3:.0f} ms"


@dataclass(frozen=True, slots=True)
class Generation:
    """One generation: how many designs were evaluated, best and mean score, their origins and their diversity.

    `modes` and `actions` are those of `GenerationMetrics`; `met` says which targets of diversity were reached.
    """

    number: int
    judged: int
    best: float
    mean: float
    origins: Mapping[str, int]
    diversity: Diversity
    novelty: float
    entropy: float
    policy_loss: float | None = None
    modes: Mapping[str, int] = field(default_factory=dict)
    actions: Mapping[str, int] = field(default_factory=dict)
    met: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DesignOutcome:
    """Everything about one design call.

    `requirements` are those that were designed for: corrected, if memory has measurements (`notes` then say so). The
    best design, the Pareto-optimal ones (the best first) and the start were simulated, in `simulation` seconds; the
    best breaks a rule only if every design found does. `analysis` compares prediction and simulation, if that was asked
    for.
    """

    requirements: Requirements
    best: Candidate
    pareto: tuple[Candidate, ...]
    start: Baseline
    start_score: DesignScore
    generations: tuple[Generation, ...]
    stages: Mapping[str, float]
    simulation: float
    evaluations: int
    hit_rate: float | None = None
    analysis: ErrorAnalysis | None = None
    notes: tuple[str, ...] = ()

    @property
    def today(self) -> Candidate:
        """The start as one of the candidates."""
        nothing = np.zeros(0, np.int64)
        free = np.zeros(0, np.bool_)
        return Candidate(self.start.design, "start", 0.0, 0, nothing, nothing, free, -1, self.start_score)


PhaseName: TypeAlias = Literal["initial", "training", "plateau"]
# The number of newest generations that a value is averaged over.
WINDOW = 10
# The share of the total gain that ends the initial phase: 63%, one time constant of an exponential approach.
RAPID = 1 - np.exp(-1)


@dataclass(frozen=True, slots=True)
class ConvergenceTarget:
    """A target of convergence: the bound of a value, and what it means to meet it."""

    name: str
    bound: float
    above: bool
    words: str

    def met(self, value: float) -> bool:
        return value > self.bound if self.above else value < self.bound


TARGETS = (
    ConvergenceTarget("policy loss", 0.1, False, "stable policy"),
    ConvergenceTarget("performance variance", 0.05, False, "consistent results"),
    ConvergenceTarget("exploration entropy", 1.0, True, "diversity is maintained"),
    ConvergenceTarget("memory hit rate", 0.3, True, "memory is useful"),
)


@dataclass(frozen=True, slots=True)
class ConvergenceReading:
    """A target with its measured value; None where there was nothing to measure, and then `met` is None as well."""

    target: ConvergenceTarget
    value: float | None

    @property
    def met(self) -> bool | None:
        return None if self.value is None else self.target.met(self.value)


def convergence_table(
    generations: Sequence[Generation], hit_rate: float | None = None
) -> tuple[ConvergenceReading, ...]:
    """The four values over the newest ten generations.

    Policy loss is the absolute mean; performance variance is that of the generations' mean scores; exploration entropy
    is that of the policy over complete designs, in nats.
    """
    last = generations[-WINDOW:]
    losses = [one.policy_loss for one in last if one.policy_loss is not None]
    entropies = [one.entropy for one in last if one.origins.get("sample")]
    values = (
        abs(float(np.mean(losses))) if losses else None,
        float(np.var([one.mean for one in last])) if len(last) > 1 else None,
        float(np.mean(entropies)) if entropies else None,
        hit_rate,
    )
    return tuple(ConvergenceReading(target, value) for target, value in zip(TARGETS, values, strict=True))


@dataclass(frozen=True, slots=True)
class Phase:
    """Generations `first` to `last` (inclusive), and how much the best score gained in them."""

    name: PhaseName
    first: int
    last: int
    gain: float


def phases(bests: Sequence[float], threshold: float = 0.01, patience: int = WINDOW) -> tuple[Phase, ...]:
    """The phases of a run, from the best score of each generation.

    The plateau begins where less than `threshold` is left to gain, if it lasts at least `patience` generations. The
    initial phase ends when 63% of the gain up to there is made; the training phase lies between the two.
    """
    if not len(bests):
        return ()
    best = np.maximum.accumulate(np.asarray(bests, float))
    count = len(best)
    flat = int(np.argmax(best[-1] - best < threshold))
    plateau = flat if count - flat >= patience else count
    initial = count
    if plateau < count or best[-1] - best[0] >= threshold:
        end = best[min(plateau, count - 1)]
        initial = min(int(np.argmax(best - best[0] >= RAPID * (end - best[0]))) + 1, plateau)
    bounds: list[tuple[PhaseName, int, int]] = [
        ("initial", 0, initial),
        ("training", initial, plateau),
        ("plateau", plateau, count),
    ]
    return tuple(
        Phase(name, first, end - 1, float(best[end - 1] - best[max(first - 1, 0)]))
        for name, first, end in bounds
        if end > first
    )


def phase_of(bests: Sequence[float], threshold: float = 0.01, patience: int = WINDOW) -> PhaseName:
    found = phases(bests, threshold, patience)
    return found[-1].name if found else "initial"


def generations_to(bests: Sequence[float], tolerance: float) -> int:
    """How many generations it took to come within `tolerance` of the final best score."""
    best = np.maximum.accumulate(np.asarray(bests, float))
    return int(np.argmax(best >= best[-1] - tolerance)) + 1
