"""Designing a workflow in six stages, each timed: what comes of it is an `DesignOutcome`.

    Designer(load_policy()).design(requirements).best.design

Preprocessing refuses requirements that cannot be met and makes arrays of the rest. Then, generation after generation:
candidates are made, all in lockstep as one batch, and those that memory recalls; they are evaluated; with `learn` the
policy is improved on those that were drawn from it; the best and the winners of tournaments go on; memory keeps what
worked. It ends when the evaluations are used up, or when the best has hardly improved for some generations.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import numpy as np

from groupwise.config.sections import GenerationSettings, ScoringSettings, TrainingSettings
from groupwise.designer.correction import (
    Correction,
    ErrorAnalysis,
    check_by_simulation,
    known_correction,
    remember_correction,
)
from groupwise.designer.generation_metrics import CandidateEvaluator, GenerationMetrics
from groupwise.designer.generations import Candidate, Generations, diversity
from groupwise.designer.memory import Recollection
from groupwise.designer.outcome import STAGES, DesignOutcome, Generation
from groupwise.designer.policy import GraphPolicy
from groupwise.designer.population import pareto_front
from groupwise.designer.problem import DesignProblem
from groupwise.designer.product import Improvement, LearningPolicy
from groupwise.designer.tasks import Drafter, PreparedRequirements
from groupwise.errors import ConfigError
from groupwise.memory import MemorySystem
from groupwise.workflows.feasibility import contradictions, insist_feasible
from groupwise.workflows.requirements import Requirements, Weights
from groupwise.workflows.scoring import DesignScorer
from groupwise.workflows.scoring.measures import MEASURES
from groupwise.workflows.scoring.score import weights_of

EVALUATIONS = 32
GENERATION = GenerationSettings()
STOPPING = TrainingSettings(early_stopping=True)
COMPLEXITY = next(n for n, measure in enumerate(MEASURES) if measure.name == "control-flow complexity")


class Designer:
    """Designs workflows with a policy, call after call.

    Args:
      policy: who takes the decisions; with `learn` it is improved in place.
      memory: what earlier calls left, from `open_memory`; None neither recalls nor remembers.
      settings: how candidates are made and selected.
      scoring: weights of the score where they are not those of the requirements.
      stopping: `early_stopping`, its patience in generations and its threshold.
      learn: whether the policy learns from every generation.
      learning: settings of the learner under their flat names, such as learning_rate.
    """

    def __init__(
        self,
        policy: GraphPolicy,
        memory: MemorySystem | None = None,
        settings: GenerationSettings = GENERATION,
        *,
        scoring: ScoringSettings | None = None,
        stopping: TrainingSettings = STOPPING,
        learn: bool = False,
        seed: int = 0,
        **learning: Any,
    ) -> None:
        self.policy, self.memory, self.settings, self.stopping, self.seed = policy, memory, settings, stopping, seed
        self.weights = _weights(scoring)
        self.improvement = Improvement(policy, seed=seed, **learning) if learn else None

    def design(
        self,
        requirements: Requirements,
        evaluations: int | None = None,
        generations: int | None = None,
        *,
        check: bool = False,
    ) -> DesignOutcome:
        """The best design found with so many evaluations, 32 if neither they nor generations are limited.

        With `check` the best is simulated too, and `Outcome.analysis` says how well its performance was predicted.
        """
        if evaluations is None:
            evaluations = generations * self.settings.batch_size if generations is not None else EVALUATIONS
        if evaluations < 1:
            raise ConfigError(
                f"{evaluations} evaluations are too few to design with", hint="Allow 1 or more.", field="evaluations"
            )
        call = self.begin(requirements)
        while call.going(evaluations, generations):
            call.generation(evaluations - call.evaluations)
        if check:
            call.check()
        return call.outcome()

    def begin(self, requirements: Requirements) -> DesignSession:
        """A call whose stages are gone through by hand: `generate`, `evaluator.evaluate`, `policy.update`, `select`."""
        return DesignSession(self, requirements)

    def close(self) -> None:
        if self.improvement is not None:
            self.improvement.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class DesignSession:
    """One set of requirements on its way through the stages."""

    def __init__(self, designer: Designer, requirements: Requirements) -> None:
        self.designer = designer
        self.correction = Correction()
        self.analysis: ErrorAnalysis | None = None
        self.stages = dict.fromkeys(STAGES, 0.0)
        self.history: list[Generation] = []
        self.judged: list[Candidate] = []
        self.evaluations = 0
        self.exhausted = False
        self.notes: list[str] = []
        with self._stage("preprocessing"):
            insist_feasible(requirements)
            self.requirements = self._believed(requirements)
            problem = DesignProblem(self.requirements)
            self.prepared = PreparedRequirements(
                problem, Drafter(problem), DesignScorer(self.requirements, designer.weights)
            )
            record = designer.improvement is not None or designer.memory is not None
            self.generations = Generations(designer.policy, self.prepared, designer.settings, designer.seed, record)
            self.memory = None if designer.memory is None else self._recollection(designer.memory)
            self.evaluator = CandidateEvaluator(self.prepared, designer.seed)
            self.policy: LearningPolicy | None = (
                designer.improvement.begin(self.generations) if designer.improvement is not None else None
            )

    def going(self, evaluations: int, generations: int | None = None) -> bool:
        """Whether another generation is due."""
        if self.exhausted or self.evaluations >= evaluations:
            return False
        if generations is not None and len(self.history) >= generations:
            return False
        return not self._settled()

    def generation(self, most: int | None = None) -> GenerationMetrics:
        """All stages once, with at most so many evaluations."""
        metrics = GenerationMetrics()
        metrics.start()
        candidates = self.generate(min(most or self.designer.settings.batch_size, self.designer.settings.batch_size))
        if not candidates:
            self.exhausted = True
            return metrics
        with self._stage("evaluation"):
            for candidate in candidates:
                metrics.record(self.evaluator.evaluate(candidate))
        if self.policy is not None:
            with self._stage("policy update"):
                metrics.record(self.policy.update(candidates, metrics))
        self.select(metrics)
        self.remember(metrics)
        return metrics

    def generate(self, count: int | None = None) -> list[Candidate]:
        """The candidates of the next generation, none of which was there before."""
        with self._stage("candidate generation"):
            wanted = count or self.designer.settings.batch_size
            recalled = self.memory.recalled(self.generations, wanted) if self.memory is not None else []
            return self.generations.propose(wanted, recalled)

    def select(self, metrics: GenerationMetrics) -> None:
        """Let the best of a judged generation go on."""
        with self._stage("selection"):
            judged = [result.candidate for result in metrics.results]
            self.generations.absorb(judged)
            self.judged = _front([*self.judged, *judged])
            self.evaluations += len(judged)
            self.history.append(self._told(metrics, judged))

    def remember(self, metrics: GenerationMetrics) -> None:
        """Leave what worked to later calls."""
        if self.memory is not None:
            with self._stage("memory integration"):
                self.memory.keep(self.generations, metrics)

    def outcome(self) -> DesignOutcome:
        if not self.history:
            raise ConfigError(f"{self.requirements.name}: nothing was designed", hint="Allow 1 evaluation or more.")
        with self._stage("selection"):
            front = sorted(self.judged, key=lambda candidate: -candidate.total)
        return DesignOutcome(
            requirements=self.requirements,
            best=self.generations.best,
            pareto=tuple(front),
            generations=tuple(self.history),
            stages=dict(self.stages),
            evaluations=self.evaluations,
            analysis=self.analysis,
            hit_rate=self.designer.memory.hit_rate if self.designer.memory is not None else None,
            notes=tuple(self.notes),
        )

    def check(self) -> ErrorAnalysis:
        """Simulate the best design and compare with what was predicted of it; memory keeps by how much."""
        with self._stage("evaluation"):
            entropy, seed = self.history[-1].entropy, self.designer.seed
            known = replace(self.correction, durations={}, cost=1.0)
            found = check_by_simulation(
                self.generations.best.design, self.requirements, known, entropy=entropy, seed=seed
            )
        if self.designer.memory is not None:
            with self._stage("memory integration"):
                kept = replace(self.correction, formulas=found.correction.formulas)
                remember_correction(self.designer.memory, self.requirements, kept)
        self.analysis = found
        return found

    def _believed(self, stated: Requirements) -> Requirements:
        """The requirements with what measurements corrected, as long as they can still be met."""
        if self.designer.memory is None:
            return stated
        self.correction = known_correction(self.designer.memory, stated)
        believed = self.correction.applied(stated)
        if believed is stated:
            return stated
        if found := contradictions(believed):
            self.notes.append(f"what was measured is left aside, since nothing could be designed for it: {found[0]}")
            self.correction = Correction()
            return stated
        self.notes.append(self.correction.words())
        return believed

    def _recollection(self, memory: MemorySystem) -> Recollection:
        return Recollection(memory, self.prepared.problem, self.designer.seed)

    def _settled(self) -> bool:
        """Whether the best improved by less than the threshold over the last generations."""
        stopping, patience = self.designer.stopping, self.designer.stopping.early_stopping_patience
        if not stopping.early_stopping or len(self.history) <= patience:
            return False
        bests = np.maximum.accumulate([generation.best for generation in self.history])
        gain = bests[-1] - bests[-1 - patience]
        if gain >= stopping.early_stopping_threshold:
            return False
        if not self.notes or not self.notes[-1].startswith("stopped early"):
            self.notes.append(
                f"stopped early after {len(self.history)} generations: the best score rose by {gain:.4f} in the last "
                f"{patience}, less than {stopping.early_stopping_threshold:g}"
            )
        return True

    def _told(self, metrics: GenerationMetrics, judged: Sequence[Candidate]) -> Generation:
        drawn = [candidate.logp for candidate in judged if candidate.origin == "sample"]
        made = sum(len(draft.candidates) for draft in self.generations.drafts)
        return Generation(
            number=len(self.history),
            judged=len(judged),
            best=self.generations.best.total,
            mean=metrics.mean,
            origins=dict(metrics.origins),
            diversity=diversity(judged, self.prepared),
            novelty=len(judged) / max(made, 1),
            entropy=-float(np.mean(drawn)) if drawn else 0.0,
            policy_loss=metrics.policy_loss,
        )

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        before = time.perf_counter()
        try:
            yield
        finally:
            self.stages[name] += time.perf_counter() - before


def _weights(scoring: ScoringSettings | None) -> Weights | None:
    if scoring is None:
        return None
    if scoring.normalization != "reference":
        raise ConfigError(
            f"scoring.normalization = {scoring.normalization!r} compares designs of one batch, not generations",
            hint='Set scoring.normalization = "reference".',
            field="scoring.normalization",
        )
    return weights_of(scoring)


def _front(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Those that no other beats in cycle time, cost and control-flow complexity together; none that breaks a rule."""
    able = [one for one in candidates if one.score is not None and not one.score.broken]
    return [able[n] for n in pareto_front(np.array([_objectives(one) for one in able]))] if able else []


def _objectives(candidate: Candidate) -> tuple[float, float, float]:
    score = candidate.score
    assert score is not None
    assert score.performance is not None
    complexity = score.measured[COMPLEXITY][0]
    return score.performance.cycle_time, score.performance.cost, complexity if complexity is not None else 0.0
