"""Monte Carlo tree search over any domain, and the search for programs.

Open `mcts` first. In the order in which data flows:

    search_settings  what is searched, as functions, and how the budget is spent
    tree             the tree as data, and its JSON file
    mcts             `search`: simulate, expand, evaluate, backward; PUCT, progressive widening, exploration
    program_search   the domain of programs, the uninformed prior, and searches kept in files and folders
    tree_view        the part of a tree worth showing, on a terminal and as SVG
"""

from groupwise.programs.search.mcts import search
from groupwise.programs.search.search_settings import Domain, Judged, SearchSettings
from groupwise.programs.search.tree import EvaluationRecord, SearchTree

__all__ = ["Domain", "EvaluationRecord", "Judged", "SearchSettings", "SearchTree", "search"]
