"""What one generation did, recorded as it happens: results of candidates, then the update of the policy.

metrics = GenerationMetrics()
metrics.start()
metrics.record(evaluator.evaluate(candidate))       # of every candidate
metrics.record(policy.update(candidates, metrics))
logger.info("Generation metrics: %s", metrics)
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from groupwise.designer.generations import Candidate
from groupwise.designer.tasks import PreparedRequirements, score_design
from groupwise.errors import ContractError
from groupwise.workflows.scoring import DesignScore


@dataclass(frozen=True, slots=True)
class WorkflowResult:
    """A candidate with its score, and how long judging it took."""

    candidate: Candidate
    score: DesignScore
    seconds: float

    @property
    def total(self) -> float:
        return self.score.total


@dataclass(frozen=True, slots=True)
class PolicyUpdateResult:
    """One update of the policy: from how many attempts, its loss, and how far the policy moved.

    `attempts` were drawn from the policy and judged; `left_out` candidates were not drawn from it and taught nothing.
    `entropy` is the mean over single decisions, in nats.
    """

    attempts: int
    left_out: int
    policy_loss: float
    entropy: float
    kl: float
    gradient_norm: float
    version: int
    seconds: float


class CandidateEvaluator:
    """Judges candidates for one set of requirements."""

    def __init__(self, prepared: PreparedRequirements, seed: int = 0) -> None:
        self.prepared, self.seed = prepared, seed

    def evaluate(self, candidate: Candidate) -> WorkflowResult:
        """One evaluation: performance and score. All candidates meet the same chance."""
        before = time.perf_counter()
        score = score_design(self.prepared, candidate.design, self.seed)
        return WorkflowResult(replace(candidate, score=score), score, time.perf_counter() - before)


class GenerationMetrics:
    """Counts a generation; `start` begins a new one."""

    def __init__(self) -> None:
        self.results: list[WorkflowResult] = []
        self.updates: list[PolicyUpdateResult] = []
        self._began: float | None = None

    def start(self) -> None:
        self.results, self.updates = [], []
        self._began = time.perf_counter()

    def record(self, result: WorkflowResult | PolicyUpdateResult) -> None:
        if self._began is None:
            raise ContractError("nothing can be recorded before the generation started", hint="Call start() first.")
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
        """How many candidates came from where."""
        return Counter(result.candidate.origin for result in self.results)

    @property
    def policy_loss(self) -> float | None:
        return self.updates[-1].policy_loss if self.updates else None

    def __str__(self) -> str:
        told = f"{len(self.results)} judged, best {self.best:.4f}, mean {self.mean:.4f}, variance {self.variance:.2g}"
        if self.updates:
            update = self.updates[-1]
            told += f", policy loss {update.policy_loss:+.4f} from {update.attempts} attempts"
        return f"{told}, {self.seconds * 1e3:.0f} ms"
