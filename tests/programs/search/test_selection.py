"""The distribution of the next action, against numbers worked out by hand."""

from __future__ import annotations

from math import e, log

import pytest

from groupwise.programs.search import Domain, Judged, SearchSettings, search
from groupwise.programs.search.mcts import chances
from groupwise.programs.search.search_settings import itself
from groupwise.programs.search.tree import SearchTree, TreeEdge, TreeNode, VisitTally


def tree_of(node: TreeNode, **settings: float) -> SearchTree:
    """A tree of one node, which has seen values from 0 to 1."""
    usual = {
        "exploration": 1.0,
        "widening": 100.0,
        "widening_power": 1.0,
        "explore": 0.0,
        "greed": 0.0,
        "experience": 0.0,
        "sharpness": 1.0,
    }
    return SearchTree("by hand", 0, SearchSettings(**{**usual, **settings}), [node], high=1.0)  # type: ignore[arg-type]


def edge(action: str, prior: float, *values: float, waiting: int = 0) -> TreeEdge:
    made = TreeEdge(action, log(prior), waiting=waiting)
    for value in values:
        made.tally.add(value)
    return made


def node_of(*edges: TreeEdge) -> TreeNode:
    node = TreeNode((), "", list(edges))
    node.tally = VisitTally(sum(e.tally.count for e in edges), sum(e.tally.total for e in edges))
    return node


def drawn(node: TreeNode, **settings: float) -> tuple[list[float], str]:
    found = chances(tree_of(node, **settings), [node], itself)
    assert found is not None
    return [round(chance, 6) for chance in found.of], found.rule


def test_at_first_the_prior_is_followed() -> None:
    assert drawn(node_of(edge("a", 0.5), edge("b", 0.3), edge("c", 0.2))) == ([0.5, 0.3, 0.2], "new")


def test_new_actions_can_be_drawn_more_sharply() -> None:
    node = node_of(edge("a", 0.6), edge("b", 0.2), edge("c", 0.2))
    assert drawn(node, sharpness=2.0)[0] == [round(one / 44, 6) for one in (36, 4, 4)]
    assert drawn(node, sharpness=2.0, explore=1.0)[0] == [0.6, 0.2, 0.2]


def test_puct_weighs_value_against_prior() -> None:
    # 4 tries, so the reach is 2: a has 0.5 + 2 · 0.2 / 4 = 0.6, b 0 + 2 · 0.8 / 2 = 0.8.
    node = node_of(edge("a", 0.2, 0.5, 0.5, 0.5), edge("b", 0.8, 0.0))
    assert drawn(node) == ([0, 1], "puct")
    # With a reach of 0.8: 0.54 against 0.32.
    assert drawn(node, exploration=0.4) == ([1, 0], "puct")


def test_greed_looks_at_the_best_below() -> None:
    node = node_of(edge("a", 0.5, 0.0, 1.0), edge("b", 0.5, 0.6, 0.6))
    assert drawn(node) == ([0, 1], "puct")
    assert drawn(node, greed=0.5) == ([1, 0], "puct")


def test_an_evaluation_in_flight_counts_as_one_that_found_nothing() -> None:
    # Without it a is worth more (0.8 against 0.6); with it 0.8 · 1/2 and 3 tries below the root: b is chosen.
    assert drawn(node_of(edge("a", 0.5, 0.8), edge("b", 0.5, 0.6)))[0] == [1, 0]
    assert drawn(node_of(edge("a", 0.5, 0.8, waiting=1), edge("b", 0.5, 0.6)))[0] == [0, 1]


def test_a_new_action_is_tried_where_it_promises_more() -> None:
    # The mean is 0.5 and 2 tries reach 1.41: what is new has 0.5 + 1.41 · 0.5 = 1.21, a 0.5 + 1.41 · 0.25 / 3 = 0.62.
    node = node_of(edge("a", 0.25, 0.5, 0.5), edge("b", 0.5), edge("c", 0.25))
    assert drawn(node) == ([0, round(2 / 3, 6), round(1 / 3, 6)], "new")
    # A node may have so few children that nothing new is tried.
    assert drawn(node, widening=1.0, widening_power=0.0) == ([1, 0, 0], "puct")
    # Or what is known is better than the mean of 0.5, and nothing speaks for what is new.
    assert drawn(node_of(edge("a", 0.5, 0.9, 0.1), edge("b", 0.5)), exploration=0.0, greed=1.0) == ([1, 0], "puct")


def test_a_share_follows_the_prior_alone() -> None:
    node = node_of(edge("a", 0.2, 0.5, 0.5, 0.5), edge("b", 0.8, 0.0))
    assert drawn(node, explore=0.1) == ([0.02, 0.98], "puct")


def test_experience_bends_what_is_untried() -> None:
    node = node_of(edge("a", 0.5), edge("b", 0.5))
    node.tally = VisitTally(4, 1.0)
    # Worth 1 in both of its tries where 0.25 is usual, so (2 − 2 · 0.25) / (2 + 2) = 0.375 more.
    node.experience["b"] = VisitTally(2, 2.0)
    weight = e**0.375
    assert drawn(node, experience=1.0)[0] == pytest.approx([1 / (1 + weight), weight / (1 + weight)], abs=1e-6)
    assert drawn(node, experience=0.0)[0] == [0.5, 0.5]


def test_experience_from_further_up_counts_until_there_is_more_at_hand() -> None:
    above, here = node_of(edge("a", 0.5), edge("b", 0.5)), node_of(edge("a", 0.5), edge("b", 0.5))
    above.tally, above.experience["b"] = VisitTally(4, 1.0), VisitTally(2, 2.0)
    tree = tree_of(above, experience=1.0)
    found = chances(tree, [above, here], itself)
    assert found is not None
    weight = e**0.375
    assert found.of == pytest.approx([1 / (1 + weight), weight / (1 + weight)])
    # Here b was worth as much as usual twice: (0 + 2 · 0.375) / 4.
    here.tally, here.experience["b"] = VisitTally(2, 1.0), VisitTally(2, 1.0)
    found = chances(tree, [above, here], itself)
    assert found is not None
    weight = e**0.1875
    assert found.of == pytest.approx([1 / (1 + weight), weight / (1 + weight)])


def test_a_node_widens_with_its_visits() -> None:
    letters = "abcdefghijklmnopqrstuvwxyz"

    def actions(word: str) -> list[tuple[str, float]]:
        return [(letter, 0.0) for letter in letters] if len(word) < 3 else []

    domain = Domain("letters", "", actions, str.__add__, str, lambda word: Judged(0.0))
    for budget in (4, 25, 100):
        tree = search(domain, budget, settings=SearchSettings(explore=0.0, widening=1.0, widening_power=0.5))
        assert sum(edge.tally.count > 0 for edge in tree.root.edges) == round(budget**0.5)
