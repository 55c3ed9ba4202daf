"""Scores of designs: structural metrics, maintainability, and one number that explains itself.

design_metrics   a block design measured in one walk over its tree; what scoring uses
metrics          the same metrics of any graph, by definition; the reference for `design_metrics`
graph_regions    the nested single-entry single-exit regions of a graph, which `metrics` needs
measures         the seventeen measures of a score, their scales, and how maintainability is measured
references       the bounds that the scales of the measures refer to, from the requirements alone
lost_cases       the share of cases that a design loses through failed tries
score            from performance and shape to a score. Open this first
"""

from groupwise.workflows.scoring.design_metrics import Anatomy, anatomy
from groupwise.workflows.scoring.metrics import Metrics, structure_of
from groupwise.workflows.scoring.score import DesignScore, DesignScorer, ScorePart, score, score_batch

__all__ = [
    "Anatomy", "DesignScore", "DesignScorer", "Metrics", "ScorePart", "anatomy", "score", "score_batch", "structure_of",
]  # fmt: skip
