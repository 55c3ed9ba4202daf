"""Metrics: known values by hand, and the walk over a tree against the graph it would draw."""

from __future__ import annotations

import random

import pytest

from groupwise.workflows.blocks import Activity, Design, Instances, walk
from groupwise.workflows.scoring.anatomy import anatomy
from groupwise.workflows.scoring.metrics import structure_of
from groupwise.workflows.unfolding import to_graph
from tests.workflows.designs import random_block

A, B, C, D = (Activity(name) for name in "abcd")


@pytest.mark.parametrize("seed", range(120))
def test_a_walk_over_the_tree_measures_what_the_graph_measures(seed: int) -> None:
    rng = random.Random(seed)
    root = random_block(rng, rng.randint(1, 30))
    whole = [block for block in walk(root) if isinstance(block, Instances) and not isinstance(block.body, Activity)]
    assert not whole, "the generator makes instances of single activities only"
    design = Design("random", root)
    assert anatomy(design).metrics == structure_of(to_graph(design))
