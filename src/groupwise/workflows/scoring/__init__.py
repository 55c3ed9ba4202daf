"""Scores of designs: structural metrics, maintainability, and one number that explains itself."""

from groupwise.workflows.scoring.design_metrics import Anatomy, anatomy
from groupwise.workflows.scoring.metrics import Metrics, structure_of
from groupwise.workflows.scoring.score import DesignScore, DesignScorer, ScorePart, score, score_batch, weights_of

__all__ = [
    "Anatomy",
    "DesignScore",
    "DesignScorer",
    "Metrics",
    "ScorePart",
    "anatomy",
    "score",
    "score_batch",
    "structure_of",
    "weights_of",
]
