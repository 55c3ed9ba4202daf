"""Scores of designs: structural metrics, maintainability, and one number that explains itself."""

from groupwise.workflows.scoring.anatomy import Anatomy, anatomy
from groupwise.workflows.scoring.metrics import Metrics, structure_of
from groupwise.workflows.scoring.score import Part, Score, Scorer, score, score_batch, weights_of

__all__ = [
    "Anatomy",
    "Metrics",
    "Part",
    "Score",
    "Scorer",
    "anatomy",
    "score",
    "score_batch",
    "structure_of",
    "weights_of",
]
