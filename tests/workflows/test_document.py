"""Which graphs of a document a case can reach, and in which order they call each other."""

from __future__ import annotations

from itertools import pairwise

import pytest

from groupwise.workflows.document import calling_order
from groupwise.workflows.graph import Flow, Graph, Node


def graph(name: str, *calls: str) -> Graph:
    inner = [Node(f"n{number}", calls=called) for number, called in enumerate(calls)]
    nodes = (Node("in", kind="start"), *inner, Node("out", kind="end"))
    flows = tuple(Flow(a.id, b.id) for a, b in pairwise(nodes))
    return Graph(name, nodes, flows)


@pytest.mark.parametrize(
    ("graphs", "order", "ring"),
    [
        ([graph("a", "b", "c"), graph("b", "c"), graph("c")], ["c", "b", "a"], set()),
        ([graph("a", "b"), graph("b", "c"), graph("c", "b")], [], {"b", "c"}),
        ([graph("a", "a")], [], {"a"}),
        # Nothing ever starts b or c, so it does no harm that they call each other.
        ([graph("a"), graph("b", "c"), graph("c", "b")], ["a"], set()),
        ([graph("a", "d"), graph("b", "c"), graph("c", "b"), graph("d")], ["d", "a"], set()),
    ],
)
def test_only_cycles_that_a_case_can_reach_are_reported(graphs: list[Graph], order: list[str], ring: set[str]) -> None:
    found, cycle = calling_order(tuple(graphs))
    assert (found, set(cycle)) == (order, ring)
