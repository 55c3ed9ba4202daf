"""Metrics: known values by hand, and the walk over a tree against the graph it would draw."""

from __future__ import annotations

import math
import random

import pytest

from groupwise.workflows.blocks import (
    Activity,
    Block,
    Cancellable,
    Choice,
    Design,
    Instances,
    Loop,
    Parallel,
    PartialOrder,
    Sequence,
    rewritten,
)
from groupwise.workflows.document import to_graph
from groupwise.workflows.graph import Flow, Graph, Node
from groupwise.workflows.scoring import anatomy, structure_of
from tests.workflows.designs import random_block

A, B, C, D = (Activity(name) for name in "abcd")


def in_place(block: Block) -> Block:
    """Without instances of more than one activity, which are drawn as a graph of their own."""
    return block.body if isinstance(block, Instances) and not isinstance(block.body, Activity) else block


@pytest.mark.parametrize("seed", range(100))
def test_a_walk_over_the_tree_measures_what_the_graph_measures(seed: int) -> None:
    rng = random.Random(seed)
    design = Design("random", rewritten(random_block(rng, rng.randint(1, 30)), in_place))
    assert anatomy(design).metrics == structure_of(to_graph(design))


def test_instances_of_several_activities_are_measured_as_if_drawn_in_place() -> None:
    body = Sequence((A, Parallel((B, C))))
    assert anatomy(Design("d", Instances(body, 2, 3, 1))).metrics == anatomy(Design("d", body)).metrics


def test_a_choice_measured_by_hand() -> None:
    """start → a → xor split → b | c | d → xor join → end: 8 nodes, 9 flows."""
    metrics = anatomy(Design("d", Sequence((A, Choice((B, C, D), (0.2, 0.3, 0.5)))))).metrics
    assert (metrics.nodes, metrics.flows, metrics.tasks) == (8, 9, 4)
    assert metrics.cyclomatic == 3
    assert metrics.control_flow == 3
    assert metrics.connectivity == 9 / 8
    assert metrics.density == 9 / 56
    assert metrics.interface == 4 * 1 + 2 * 9
    assert (metrics.widest_in, metrics.widest_out, metrics.mean_degree) == (3, 3, 4)
    assert (metrics.depth, metrics.cyclicity, metrics.structuredness) == (1, 0, 1)
    assert metrics.separability == 3 / 6
    assert metrics.heterogeneity == 0


def test_mixed_rules_cycles_and_nesting() -> None:
    both = anatomy(Design("d", Sequence((Parallel((A, B)), Choice((C, D), (0.5, 0.5)))))).metrics
    assert both.heterogeneity == pytest.approx(math.log(2, 3))
    again = anatomy(Design("d", Sequence((A, Loop(Parallel((B, C)), 0.3, D))))).metrics
    assert (again.depth, again.cyclic, again.nodes) == (2, 7, 11)


def test_a_cancellation_is_not_structured_and_its_branches_have_their_probability() -> None:
    found = anatomy(Design("d", Sequence((A, Cancellable(B, 0.25, Choice((C, D), (0.2, 0.8)))))))
    assert found.metrics.structuredness < 1
    shares = {activity.name: (share, alive) for activity, share, alive in found.runs}
    assert shares == {"a": (1, 1), "b": (1, 0.75), "c": (0.05, 0.05), "d": (0.2, 0.2)}


def graph(*flows: str, **nodes: Node) -> Graph:
    ends = (Node("s", kind="start"), *nodes.values(), Node("e", kind="end"))
    return Graph("g", ends, tuple(Flow(*flow.split()) for flow in flows))


def test_or_splits_count_every_set_of_branches() -> None:
    split, join = Node("split", split="or"), Node("join", join="or")
    found = structure_of(
        graph("s split", "split a", "split b", "split c", "a join", "b join", "c join", "join e",
              split=split, join=join, a=Node("a"), b=Node("b"), c=Node("c"))
    )  # fmt: skip
    assert (found.control_flow, found.ors, found.structuredness) == (7, 2, 1)


def test_ways_that_cross_are_not_structured() -> None:
    gates = {name: Node(name, split="xor", silent=True) for name in ("x", "y", "z", "v")}
    crossed = graph("s x", "x y", "x z", "y z", "y v", "z v", "v e", **gates)
    assert structure_of(crossed).structuredness == pytest.approx(2 / 6)
    gates = {name: Node(name, split="and", join="and", silent=True) for name in gates}
    assert structure_of(graph("s x", "x y", "x z", "y z", "y v", "z v", "v e", **gates)).structuredness == 1


def test_an_and_split_joined_by_xor_is_not_structured() -> None:
    nodes = {"x": Node("x", split="and"), "j": Node("j", join="xor"), "a": Node("a"), "b": Node("b")}
    assert structure_of(graph("s x", "x a", "x b", "a j", "b j", "j e", **nodes)).structuredness < 1


def test_orders_nest_where_their_arrows_do() -> None:
    diamond = PartialOrder((A, B, C, D), frozenset({(0, 1), (0, 2), (1, 3), (2, 3)}))
    assert anatomy(Design("d", diamond)).metrics == structure_of(to_graph(Design("d", diamond)))
    assert anatomy(Design("d", diamond)).metrics.depth == 1


def test_gates_that_wait_for_themselves_are_not_structured_also_through_a_block_inside() -> None:
    """q waits for p and for t, which comes after q: a cycle of and-gates, with a sound choice m … n on it."""
    gates = {name: Node(name, split="and", join="and", silent=True) for name in "pqtw"}
    choice = {"m": Node("m", split="xor"), "n": Node("n", join="xor"), "b": Node("b"), "c": Node("c")}
    inside = ("q m", "m b", "m c", "b n", "c n", "n t")
    cyclic = structure_of(graph("s p", "p q", "p t", "p w", *inside, "t q", "t w", "w e", **gates, **choice))
    assert (cyclic.nodes, cyclic.unstructured, cyclic.cyclic) == (10, 4, 6)
    # Without the way back, nothing waits for itself.
    forward = structure_of(graph("s p", "p q", "p t", "p w", *inside, "t w", "w e", **gates, **choice))
    assert (forward.unstructured, forward.cyclic) == (0, 0)


@pytest.mark.parametrize(("rule", "unstructured"), [("xor", 0), ("and", 3), ("or", 3)])
def test_only_a_loop_of_choices_is_structured(rule: str, unstructured: int) -> None:
    join, split = Node("j", join=rule), Node("p", split=rule)  # type: ignore[arg-type]
    found = structure_of(graph("s j", "j a", "a p", "p j", "p e", j=join, a=Node("a"), p=split))
    assert (found.unstructured, found.cyclic) == (unstructured, 3)


def test_the_sets_of_branches_are_counted_up_to_sixty_branches() -> None:
    for count, states in ((59, 2**59 - 1), (60, 2**60 - 1), (61, 2**60 - 1)):
        tasks = {f"t{n}": Node(f"t{n}") for n in range(count)}
        flows = [flow for name in tasks for flow in (f"x {name}", f"{name} j")]
        ends = {"x": Node("x", split="or"), "j": Node("j", join="or")}
        assert structure_of(graph("s x", *flows, "j e", **ends, **tasks)).control_flow == states


def test_all_counts_and_measures_are_there_by_name() -> None:
    metrics = anatomy(Design("d", Sequence((A, Choice((B, C, D), (0.2, 0.3, 0.5)))))).metrics
    derived = {name for name, value in vars(type(metrics)).items() if isinstance(value, property)}
    found = metrics.as_dict()
    assert set(found) == set(metrics._fields) | derived
    assert found == {name: getattr(metrics, name) for name in found}


def test_every_block_is_counted_once_whatever_its_kind() -> None:
    kinds: list[tuple[Block, int]] = [
        (A, 0),
        (Sequence((A, B)), 1),
        (Parallel((A, B)), 1),
        (Choice((A, B), (0.5, 0.5)), 1),
        (PartialOrder((A, B), frozenset()), 1),
        (Loop(A, 0.5, B), 1),
        (Cancellable(A, 0.5, B), 1),
        (Instances(A, 2, 3, 1), 1),
        (Instances(Sequence((A, Parallel((B, C)))), 2, 3, 1), 3),
        (Loop(Sequence((A, B)), 0.5, Choice((C, D), (0.5, 0.5))), 3),
    ]
    assert [anatomy(Design("d", block)).blocks for block, _ in kinds] == [count for _, count in kinds]
    eight = tuple(Activity(f"a{n}") for n in range(8))
    assert anatomy(Design("d", PartialOrder(eight, frozenset({(0, 1)})))).wide == 1
    assert anatomy(Design("d", PartialOrder(eight[1:], frozenset({(0, 1)})))).wide == 0
    assert anatomy(Design("d", Choice(eight, (0.125,) * 8))).wide == 1
