"""The modules of an order are those that the definition gives; orders of 10,000 tasks are taken apart in seconds."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from time import process_time
from typing import TypeAlias

import pytest

from groupwise.workflows.block_form import lift
from groupwise.workflows.blocks import Activity, PartialOrder, activities, simplest_order, walk
from groupwise.workflows.files.step_dag import WorkflowStep, graph_of
from groupwise.workflows.graph import Flow, Graph, Node, only_order
from groupwise.workflows.modular_decomposition import DEEPEST, Module, modules
from groupwise.workflows.partial_orders import Edges, among, bits, closure, reduced
from groupwise.workflows.soundness.check import check_graph, check_soundness
from groupwise.workflows.soundness.net import graph_net


@pytest.mark.parametrize("seed", range(8))
def test_the_modules_are_those_of_the_definition(seed: int) -> None:
    for number in range(60):
        rng = random.Random(f"{seed}/{number}")
        count, edges = nested_order(rng, rng.randint(1, 24))
        assert plain(modules(count, edges)) == slow_modules(list(range(count)), closure(count, edges)), (count, edges)


def nested_order(rng: random.Random, size: int) -> tuple[int, Edges]:
    """Orders inside orders, in shuffled numbers: series, parallel and neither, at every depth."""
    place = rng.sample(range(size), size)
    return size, frozenset((place[a], place[b]) for a, b in _nested(rng, list(range(size))))


def _nested(rng: random.Random, parts: list[int]) -> set[tuple[int, int]]:
    if len(parts) == 1:
        return set()
    if rng.random() < 0.4:
        density = rng.choice([0.1, 0.3, 0.6])
        return {(a, b) for a in parts for b in parts if a < b and rng.random() < density}
    cuts = [0, *sorted(rng.sample(range(1, len(parts)), min(len(parts) - 1, rng.randint(1, 4)))), len(parts)]
    groups = [parts[start:stop] for start, stop in pairwise(cuts)]
    found = set().union(*(_nested(rng, group) for group in groups))
    chance = rng.choice([0.0, 0.4, 1.0])
    for number, group in enumerate(groups):
        for later in groups[number + 1 :]:
            if rng.random() < chance:
                found |= {(a, b) for a in group for b in later}
    return found


def plain(module: Module | int) -> object:
    """A module without the order in which parallel and mixed parts are listed."""
    if isinstance(module, int):
        return module
    parts = [plain(part) for part in module.parts]
    if module.kind == "series":
        return "series", tuple(parts)
    return module.kind, frozenset(parts), frozenset((parts[a], parts[b]) for a, b in module.edges)


def slow_modules(some: list[int], after: list[int]) -> object:
    """The decomposition by its definition: components, components of what is not related, or the largest modules."""
    if len(some) == 1:
        return some[0]
    related = {a: {b for b in some if a != b and (after[a] >> b & 1 or after[b] >> a & 1)} for a in some}
    groups = connected(some, related)
    if len(groups) > 1:
        return "parallel", frozenset(slow_modules(group, after) for group in groups), frozenset()
    groups = connected(some, {a: set(some) - related[a] for a in some})
    if len(groups) > 1:
        groups.sort(key=lambda group: sum(after[other] >> group[0] & 1 for other in some))
        return "series", tuple(slow_modules(group, after) for group in groups)
    # Two parts are in one of the largest modules if some module other than the whole has both.
    groups = connected(some, {a: {b for b in some if len(smallest(a, b, some, after)) < len(some)} for a in some})
    inner = [slow_modules(group, after) for group in groups]
    firsts = [group[0] for group in groups]
    edges = frozenset((x, y) for x, a in enumerate(firsts) for y, b in enumerate(firsts) if after[a] >> b & 1)
    direct = reduced(len(groups), edges)
    return "mixed", frozenset(inner), frozenset((inner[a], inner[b]) for a, b in direct)


def connected(some: list[int], near: dict[int, set[int]]) -> list[list[int]]:
    found, left = [], list(some)
    while left:
        group = [left[0]]
        for part in group:
            group += sorted(near[part] - set(group))
        found.append(group)
        left = [part for part in left if part not in group]
    return found


def smallest(a: int, b: int, some: list[int], after: list[int]) -> set[int]:
    """The smallest module with both: it grows by every part that tells two of its members apart."""
    module = {a, b}
    while True:
        apart = {
            x
            for x in set(some) - module
            if len({(after[x] >> member & 1, after[member] >> x & 1) for member in module}) > 1
        }
        if not apart:
            return module
        module |= apart


def test_parts_left_out_keep_the_order_of_their_neighbours() -> None:
    for seed in range(40):
        rng = random.Random(seed)
        count, edges = nested_order(rng, 12)
        kept = sorted(rng.sample(range(count), 7))
        after = closure(count, edges)
        found = closure(len(kept), among(kept, count, edges))
        assert [{kept[b] for b in bits(mask)} for mask in found] == [set(bits(after[a])) & set(kept) for a in kept]


Shape: TypeAlias = Callable[[int, random.Random], list[list[int]]]


def layers(count: int, rng: random.Random) -> list[list[int]]:
    return [rng.sample(range(t // 100 * 100 - 100, t // 100 * 100), 3) if t >= 100 else [] for t in range(count)]


def scattered(count: int, rng: random.Random) -> list[list[int]]:
    return [sorted({rng.randrange(t) for _ in range(rng.randint(0, 3))}) if t else [] for t in range(count)]


def overlapping(count: int, rng: random.Random) -> list[list[int]]:
    # Each waits for all but the one before it: a partition of such an order splits off one part at a time.
    return [[p for p in (t - 2, t - 3) if p >= 0] for t in range(count)]


def comb(count: int, rng: random.Random) -> list[list[int]]:
    # A long row with a leaf at every step: series and parallel blocks nested 5,000 deep.
    return [[] if t == 0 else [t - 1 - t % 2 if t > 1 else 0] for t in range(count)]


@pytest.mark.parametrize("shape", [layers, scattered, overlapping, comb])
def test_ten_thousand_tasks_are_checked_and_become_blocks_within_seconds(shape: Shape) -> None:
    parents = shape(10_000, random.Random(0))
    steps = [WorkflowStep(f"t{t}", needs=tuple(f"t{p}" for p in some)) for t, some in enumerate(parents)]
    graph = graph_of("large", steps)
    start = process_time()
    assert check_graph(graph).sound
    design = lift(graph)
    assert process_time() - start < 10
    assert len(list(activities(design.root))) == 10_000
    assert all(not isinstance(block, PartialOrder) or len(block.parts) >= 4 for block in walk(design.root))


def test_what_is_nested_too_deeply_stays_one_order() -> None:
    count = 4 * DEEPEST
    edges = frozenset((p, t) for t, some in enumerate(comb(count, random.Random(0))) for p in some)
    block = simplest_order(tuple(Activity(f"a{t:04}") for t in range(count)), edges)
    assert isinstance(block, PartialOrder)
    names = [[one.name for one in activities(part)] for part in block.parts]
    assert max(map(len, names)) > DEEPEST, "what is not too deep is still a block of its own"
    number = {name: place for place, some in enumerate(names) for name in some}
    between = {(number[f"a{a:04}"], number[f"a{b:04}"]) for a, b in edges}
    assert block.edges == reduced(len(names), frozenset((a, b) for a, b in between if a != b))


@pytest.mark.parametrize("seed", range(30))
def test_a_graph_that_is_only_an_order_is_sound_by_its_net_too(seed: int) -> None:
    rng = random.Random(seed)
    parents = scattered(rng.randint(1, 14), rng)
    graph = graph_of("g", [WorkflowStep(f"t{t}", needs=tuple(f"t{p}" for p in some)) for t, some in enumerate(parents)])
    assert only_order(graph)
    assert check_soundness(graph_net(graph).net).sound


@pytest.mark.parametrize(
    ("nodes", "flows"),
    [
        ([Node("a", split="xor"), Node("b", join="xor")], ["i a", "a c", "a d", "c b", "d b", "b o"]),
        ([Node("a"), Node("b", join="or")], ["i a", "a c", "a d", "c b", "d b", "b o"]),
        ([Node("a"), Node("b", join="and", cancels=("c",))], ["i a", "a c", "a d", "c b", "d b", "b o"]),
        ([Node("a"), Node("b", join="and")], ["i a", "a c", "a d", "c b", "b o"]),
        ([Node("a"), Node("b", join="and")], ["i a", "a c", "c b", "d b", "b o"]),
        ([Node("a", join="and"), Node("b", join="and")], ["i a", "a c", "c b", "a d", "d b", "b a", "b o"]),
    ],
    ids=["choice", "or-join", "cancellation", "dead end", "never begun", "cycle"],
)
def test_what_chooses_cancels_repeats_or_dangles_is_not_only_an_order(nodes: list[Node], flows: list[str]) -> None:
    ends = [Node("i", kind="start"), Node("o", kind="end"), Node("c"), Node("d")]
    assert not only_order(Graph("g", (*ends, *nodes), tuple(Flow(*flow.split()) for flow in flows)))
