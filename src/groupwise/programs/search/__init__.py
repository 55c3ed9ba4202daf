"""Search for programs: Monte Carlo tree search over any domain (`mcts.search`), and the domain of workflow code."""

from groupwise.programs.search.mcts import search
from groupwise.programs.search.tree import Domain, EvaluationRecord, Judged, SearchSettings, SearchTree

__all__ = ["Domain", "EvaluationRecord", "Judged", "SearchSettings", "SearchTree", "search"]
