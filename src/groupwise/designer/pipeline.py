"""Designing a workflow in six timed stages; the result is a `DesignOutcome`.

    Designer(load_policy()).design(requirements).best.design

Preprocessing rejects requirements that cannot be met and turns the rest into arrays. Then, generation after generation:
candidates are made, all in lockstep as one batch, some of them recalled from memory; they are evaluated; with `learn`
the policy is improved on the candidates sampled from it; the best and the winners of tournaments become parents; memory
stores what worked. The search ends when the evaluations are used up, or when the best score has stopped improving.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from groupwise.config.sections import RolloutSettings, ScoringSettings, TrainingSettings
from groupwise.designer import prediction_correction as correction
from groupwise.designer.baseline import baseline_of
from groupwise.designer.candidate_workers import CandidateWorker, LocalCandidates, SharedCandidates
from groupwise.designer.declaration import GenerationSettings
from groupwise.designer.familiarity import search_settings
from groupwise.designer.finalists import choose_finalists, objectives
from groupwise.designer.generations import Candidate, Generations, pareto_front
from groupwise.designer.learning import Improvement, LearningPolicy
from groupwise.designer.memory import Recollection
from groupwise.designer.policy import GraphPolicy
from groupwise.designer.problem import DesignProblem, insist_designable
from groupwise.designer.results.outcome import STAGES, CandidateEvaluator, DesignOutcome, Generation, GenerationMetrics
from groupwise.designer.tasks import CASES, PreparedRequirements, score_design
from groupwise.errors import ConfigError
from groupwise.memory import MemorySystem
from groupwise.rollout.backends import RolloutWorkers, make_workers
from groupwise.workflows.feasibility import contradictions, insist_feasible
from groupwise.workflows.requirements import Requirements, Weights

# Evaluations: more are allowed while no design is legal and better than the one to start from.
BUDGETS = (64, 128, 256, 512)
# As many are always allowed where formulas are enough, which take milliseconds.
ENOUGH_BY_FORMULAS = 256
# The most activities of cases to simulate for twice the evaluations, if that is only to find something better still.
MOST_SIMULATED = 1_500_000
# A rise of the score for which doubling the evaluations is worth while.
WORTHWHILE = 0.003
STOPPING = TrainingSettings(early_stopping=True)


class Designer:
    """Designs workflows with a policy, call after call.

    Args:
      policy: takes the decisions; with `learn` it is improved in place.
      memory: what earlier calls stored, from `open_memory`; without it nothing is recalled or stored.
      settings: how candidates are made and selected, or a function that chooses this for a problem.
      scoring: weights of the score, if they are not those of the requirements; with `normalization="zscore"`,
        candidates of a generation are compared by z-scores. Scores are reported on the fixed scales all the same.
      stopping: `early_stopping`, its patience in generations and its threshold.
      learn: whether the policy learns from every generation.
      rollout: where candidates are made and evaluated: its `backend`, and how many workers unless `settings` say it.
      learning: settings of the learner under their flat names, such as learning_rate.
    """

    def __init__(
        self,
        policy: GraphPolicy,
        memory: MemorySystem | None = None,
        settings: GenerationSettings | Callable[[DesignProblem], GenerationSettings] = search_settings,
        *,
        scoring: ScoringSettings | None = None,
        stopping: TrainingSettings = STOPPING,
        learn: bool = False,
        rollout: RolloutSettings | None = None,
        seed: int = 0,
        **learning: Any,
    ) -> None:
        self.policy, self.memory, self.settings, self.stopping, self.seed = policy, memory, settings, stopping, seed
        self.weights = _weights(scoring)
        self.normalization = scoring.normalization if scoring is not None else "reference"
        self.rollout = rollout or RolloutSettings()
        self.workers: RolloutWorkers | None = None
        self.improvement = Improvement(policy, seed=seed, **learning) if learn else None

    def design(
        self,
        requirements: Requirements,
        evaluations: int | None = None,
        generations: int | None = None,
        *,
        check: bool = False,
        folder: Path | None = None,
    ) -> DesignOutcome:
        """The best design found with that many evaluations.

        By default 64, and more until the starting design is beaten (see `DesignSession.search`). With `check`,
        `DesignOutcome.analysis` says how good the prediction of the best design was.
        """
        session = self.begin(requirements, folder)
        for _ in session.search(evaluations, generations):
            pass
        if check:
            session.check()
        return session.outcome()

    def begin(self, requirements: Requirements, folder: Path | None = None) -> DesignSession:
        """A session: `search`, or call its stages yourself (generate, evaluator.evaluate, policy.update, select).

        The starting design that the requirements name is a file relative to `folder`.
        """
        return DesignSession(self, requirements, folder)

    def candidates(self, prepared: PreparedRequirements, workers: int) -> LocalCandidates:
        """Where candidates are made and evaluated: here or by workers, which `rollout` may place elsewhere."""
        where = self.rollout
        if where.backend == "local" and workers > 1:
            where = where.replace(backend="processes")
        if workers > 1:
            where = where.replace(num_workers=workers, max_workers=None)
        self.workers = self.workers or make_workers(where, CandidateWorker)
        return (
            LocalCandidates(prepared)
            if self.workers is None
            else SharedCandidates(prepared, self.weights, self.workers)
        )

    def close(self) -> None:
        if self.workers is not None:
            self.workers.close()
            self.workers = None
        if self.improvement is not None:
            self.improvement.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class DesignSession:
    """The search for one set of requirements, from preprocessing to the outcome.

    The requirements are turned into a `DesignProblem` once; everything that needs it takes `prepared` from here.
    """

    def __init__(self, designer: Designer, requirements: Requirements, folder: Path | None = None) -> None:
        self.designer = designer
        self.correction = correction.Correction()
        self.analysis: correction.ErrorAnalysis | None = None
        self.stages = dict.fromkeys(STAGES, 0.0)
        self.history: list[Generation] = []
        self.front: list[Candidate] = []
        self.evaluations = 0
        self.notes: list[str] = []
        with self._stage("preprocessing"):
            insist_feasible(requirements)
            self.requirements = self._corrected(requirements)
            self.prepared = PreparedRequirements.of(self.requirements, designer.weights)
            insist_designable(self.prepared.problem)
            chosen = designer.settings
            self.settings = chosen if isinstance(chosen, GenerationSettings) else chosen(self.prepared.problem)
            learning = designer.improvement is not None
            source = designer.candidates(self.prepared, self.settings.workers)
            self.generations = Generations(
                designer.policy, self.prepared, self.settings, designer.seed,
                record=learning or designer.memory is not None, learning=learning,
                normalization=designer.normalization, source=source,
            )  # fmt: skip
            memory = designer.memory
            self.memory = Recollection(memory, self.prepared.problem, designer.seed) if memory is not None else None
            self.evaluator = CandidateEvaluator(source, designer.seed)
            self.start = baseline_of(self.prepared, folder)
            self.notes += self.start.notes
            learns = designer.improvement
            self.policy: LearningPolicy | None = (
                learns.begin(self.generations, designer.seed) if learns is not None else None
            )

    def search(self, evaluations: int | None = None, generations: int | None = None) -> Iterator[GenerationMetrics]:
        """Generation after generation, with so many evaluations, or with more and more until the start is beaten."""
        if evaluations is not None and evaluations < 1:
            said = f"{evaluations} evaluations are too few to design with"
            raise ConfigError(said, hint="Allow at least 1.", field="evaluations")
        if evaluations is None and generations is not None:
            evaluations = generations * self.settings.batch_size
        if evaluations is not None:
            yield from self.run(evaluations, generations)
            return
        before = score_design(self.prepared, self.start.design, self.designer.seed).total
        reached = 0.0
        for budget in BUDGETS:
            yield from self.run(budget)
            best = self.generations.best.score
            if best is None or best.broken:
                continue
            # The search goes on as long as it pays, where it takes little time.
            formulas = best.performance is not None and best.performance.tier == "analytic"
            quick = formulas or 2 * budget * CASES * len(self.requirements.activities) <= MOST_SIMULATED
            settled = best.total < reached + WORTHWHILE and not (formulas and budget < ENOUGH_BY_FORMULAS)
            if best.total > before and (not quick or settled):
                return
            reached = best.total

    def run(self, evaluations: int, generations: int | None = None) -> Iterator[GenerationMetrics]:
        """The search loop: one generation after another, until a limit is reached or nothing new can be proposed."""
        while self.evaluations < evaluations and (generations is None or len(self.history) < generations):
            if self._settled():
                return
            metrics = self.generation(evaluations - self.evaluations)
            if not metrics.results:
                return
            yield metrics

    def generation(self, most: int | None = None) -> GenerationMetrics:
        """All stages once, with at most that many evaluations; without results if no new design could be proposed."""
        metrics = GenerationMetrics()
        metrics.start()
        candidates = self.generate(min(most or self.settings.batch_size, self.settings.batch_size))
        if not candidates:
            return metrics
        with self._stage("evaluation"):
            for result in self.evaluator.evaluate_all(candidates):
                metrics.record(result)
            if self.policy is not None:
                self.policy.measure(metrics)
        if self.policy is not None:
            with self._stage("policy update"):
                metrics.record(self.policy.update(candidates, metrics))
        self.select(metrics)
        self.remember(metrics)
        return metrics

    def generate(self, count: int | None = None) -> list[Candidate]:
        """The candidates of the next generation; none of them was proposed before."""
        with self._stage("candidate generation"):
            wanted = count or self.settings.batch_size
            recalled = self.memory.recalled(self.generations, wanted) if self.memory is not None else []
            return self.generations.propose(wanted, recalled)

    def select(self, metrics: GenerationMetrics) -> None:
        """Choose the next parents from an evaluated generation, and update the Pareto front."""
        with self._stage("selection"):
            judged = [result.candidate for result in metrics.results]
            self.generations.absorb(judged)
            # Pareto-optimal in cycle time, cost and control-flow complexity; none that breaks a rule.
            able = [one for one in (*self.front, *judged) if one.score is not None and not one.score.broken]
            values = np.array([objectives(one) for one in able])
            self.front = [able[number] for number in pareto_front(values)] if able else []
            self.evaluations += len(judged)
            self.history.append(self._summary(metrics, judged))

    def remember(self, metrics: GenerationMetrics) -> None:
        if self.memory is not None:
            with self._stage("memory integration"):
                self.memory.keep(self.generations, metrics)

    def outcome(self) -> DesignOutcome:
        if not self.history:
            raise ConfigError(f"{self.requirements.name}: nothing was designed", hint="Allow at least 1 evaluation.")
        began = time.perf_counter()
        found = {one.key: one for one in (*self.front, *self.generations.parents)}
        final = choose_finalists(self.prepared, list(found.values()), self.start)
        return DesignOutcome(
            requirements=self.requirements,
            best=final.best,
            pareto=final.front,
            start=self.start,
            start_score=final.start,
            generations=tuple(self.history),
            stages=dict(self.stages),
            simulation=time.perf_counter() - began,
            evaluations=self.evaluations,
            analysis=self.analysis,
            hit_rate=self.designer.memory.hit_rate if self.designer.memory is not None else None,
            notes=tuple(self.notes),
        )

    def check(self) -> correction.ErrorAnalysis:
        """Simulate the best design and compare with the prediction; memory stores by how much they differ."""
        with self._stage("evaluation"):
            entropy, seed, best = self.history[-1].entropy, self.designer.seed, self.generations.best.design
            # `self.requirements` have the corrected durations and costs already: only the formulas' factor is left.
            known = replace(self.correction, durations={}, cost=1.0)
            found = correction.check_by_simulation(best, self.requirements, known, entropy=entropy, seed=seed)
        if self.designer.memory is not None:
            with self._stage("memory integration"):
                kept = replace(self.correction, formulas=found.correction.formulas)
                correction.remember_correction(self.designer.memory, self.prepared.problem, kept)
        self.analysis = found
        return found

    def _corrected(self, stated: Requirements) -> Requirements:
        # The requirements as earlier measurements correct them, provided that they can still be met.
        if self.designer.memory is None:
            return stated
        self.correction = correction.known_correction(self.designer.memory, stated)
        corrected = self.correction.applied(stated)
        if corrected is stated:
            return stated
        if found := contradictions(corrected):
            ignored = "Earlier measurements are ignored, because no design could meet the corrected requirements"
            self.notes.append(f"{ignored}: {found[0]}")
            self.correction = correction.Correction()
            return stated
        self.notes.append(self.correction.words())
        return corrected

    def _settled(self) -> bool:
        # Whether the best score has improved by less than the threshold over the last generations.
        stopping, patience = self.designer.stopping, self.designer.stopping.early_stopping_patience
        best = self.generations.best.score if self.history else None
        # As long as every design breaks a rule, scores are 0 and say nothing about progress.
        if not stopping.early_stopping or len(self.history) <= patience or best is None or best.broken:
            return False
        bests = np.maximum.accumulate([generation.best for generation in self.history])
        gain = bests[-1] - bests[-1 - patience]
        if gain >= stopping.early_stopping_threshold:
            return False
        self.notes.append(
            f"Stopped early after {len(self.history)} generations: the best score rose by only {gain:.4f} in the last "
            f"{patience} (the threshold is {stopping.early_stopping_threshold:g})."
        )
        return True

    def _summary(self, metrics: GenerationMetrics, judged: Sequence[Candidate]) -> Generation:
        sampled = [candidate.logp for candidate in judged if candidate.origin == "sample"]
        diversity, novelty = self.generations.react(judged)
        control = self.generations.control
        return Generation(
            number=len(self.history),
            judged=len(judged),
            best=self.generations.best.total,
            mean=metrics.mean,
            origins=dict(metrics.origins),
            diversity=diversity,
            novelty=novelty,
            # −mean log p of samples estimates the entropy of the policy over whole designs, in nats.
            entropy=-float(np.mean(sampled)) if sampled else 0.0,
            policy_loss=metrics.policy_loss,
            modes=dict(metrics.modes),
            actions=dict(metrics.actions),
            met={**diversity.met(control.targets), "novelty": novelty >= control.novelty},
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
    return Weights(
        performance=scoring.performance_weight,
        structure=scoring.structural_weight,
        maintainability=scoring.maintainability_weight,
        resources=scoring.resource_weight,
    )
