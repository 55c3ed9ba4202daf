"""What designing comes to: the best design, those that no other beats, the stages with their times, and how it went."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from groupwise.workflows.blocks import Design
from groupwise.workflows.designer.diversity import Diversity
from groupwise.workflows.designer.generation import Candidate
from groupwise.workflows.requirements import Requirements
from groupwise.workflows.scoring import Score

STAGES = {
    "preprocessing": (0.050, 0.100),
    "candidate generation": (0.200, 0.500),
    "evaluation": (0.100, 0.300),
    "policy update": (0.050, 0.150),
    "selection": (0.010, 0.050),
    "memory integration": (0.020, 0.100),
}
"""The six stages, each with the seconds that the first description of this pipeline promised."""


@dataclass(frozen=True, slots=True)
class Generation:
    """One generation: how many were judged, best and mean score, where they came from, how different they were."""

    number: int
    judged: int
    best: float
    mean: float
    origins: Mapping[str, int]
    diversity: Diversity
    novelty: float
    entropy: float
    policy_loss: float | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """Everything about one design call."""

    requirements: Requirements
    best: Candidate
    pareto: tuple[Candidate, ...]
    generations: tuple[Generation, ...]
    stages: Mapping[str, float]
    evaluations: int
    start: Design | None = None
    start_score: Score | None = None
    hit_rate: float | None = None
    notes: tuple[str, ...] = ()
