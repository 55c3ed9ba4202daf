"""A design drawn as a graph and lifted again is the same design; graphs without blocks say what has none."""

from __future__ import annotations

import random

import pytest

from groupwise.workflows.blocks import (
    Activity,
    Block,
    Choice,
    Design,
    Loop,
    Parallel,
    PartialOrder,
    Sequence,
    Skip,
    children,
    tidied,
)
from groupwise.workflows.graph import Flow, Graph, Node
from groupwise.workflows.lifting import NotBlocks, lift
from groupwise.workflows.unfolding import to_graph
from tests.workflows.designs import LIFTED, random_block


@pytest.mark.parametrize("seed", range(8))
def test_a_design_survives_being_drawn(seed: int) -> None:
    for number in range(40):
        rng = random.Random(f"{seed}/{number}")
        root = tidied(random_block(rng, rng.randint(1, 14), LIFTED))
        lifted = lift(to_graph(Design("d", root))).root
        assert approximately(lifted) == approximately(root)


def approximately(block: Block) -> object:
    """The design in plain values, probabilities to nine places: folding adds and divides them."""
    inner = tuple(map(approximately, children(block)))
    match block:
        case Choice(_, probabilities):
            return "choice", [round(share, 9) for share in probabilities], inner
        case Loop(_, again):
            return "loop", round(again, 9), inner
        case PartialOrder(_, edges):
            return "order", edges, inner
        case _:
            return type(block).__name__, getattr(block, "name", ""), inner


def test_tidying_has_one_form_for_one_behaviour() -> None:
    a, b, c = map(Activity, "abc")
    assert tidied(Sequence((a, Sequence((Skip(), b)), c))) == Sequence((a, b, c))
    assert tidied(Parallel((c, Parallel((b, a))))) == Parallel((a, b, c))
    assert tidied(PartialOrder((a, b, c), frozenset({(0, 1), (1, 2), (0, 2)}))) == Sequence((a, b, c))
    assert tidied(PartialOrder((a, b, c), frozenset({(0, 2), (1, 2)}))) == Sequence((Parallel((a, b)), c))
    n = PartialOrder((a, b, c, Activity("d")), frozenset({(0, 2), (1, 2), (1, 3)}))
    assert tidied(n) == n


def test_a_graph_without_blocks_names_what_has_none() -> None:
    names = ["s", "a", "b", "j", "k"]
    nodes = (Node("i", kind="start"), *(Node(n, split="xor") for n in names), Node("o", kind="end"))
    pairs = ["i s", "s a", "s b", "a j", "a k", "b j", "b k", "j o", "k o"]
    crossed = Graph("crossed", nodes, tuple(Flow(*pair.split()) for pair in pairs))
    with pytest.raises(NotBlocks, match="no blocks around"):
        lift(crossed)
