"""Search for programs: Monte Carlo tree search over any domain (`mcts.search`), and the domain of workflow code."""

from groupwise.workflows.search.domain import Domain, Judged
from groupwise.workflows.search.mcts import search
from groupwise.workflows.search.settings import Settings
from groupwise.workflows.search.tree import Record, Tree

__all__ = ["Domain", "Judged", "Record", "Settings", "Tree", "search"]
