"""The search against one with sets of places, its bounds, and what the verdict on a document says."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import replace
from itertools import pairwise

import pytest

from groupwise.workflows.document import Document
from groupwise.workflows.graph import Flow, Graph, Node
from groupwise.workflows.partial_orders import bits
from groupwise.workflows.soundness import check, or_joins
from groupwise.workflows.soundness.check import check_document, check_graph, check_soundness, search
from groupwise.workflows.soundness.net import Net, NetTransition
from groupwise.workflows.soundness.reduction import reduce_net
from tests.workflows.designs import random_block
from tests.workflows.soundness.block_nets import compile_net
from tests.workflows.soundness.test_check import broken
from tests.workflows.soundness.test_or_joins import random_graph

Marking = frozenset[int]


def places(net: Net, mask: int) -> Marking:
    return frozenset(place for place in range(len(net.places)) if mask >> place & 1)


class Plain:
    """What a search should find, from markings as sets of places and every fault by the steps that lead to it."""

    def __init__(self, net: Net) -> None:
        start, goal = places(net, net.start), places(net, net.goal)
        depth, queue = {start: 0}, deque([start])
        self.happened: set[int] = set()
        self.faults: dict[str, int] = {}
        leads: dict[Marking, set[Marking]] = {}
        while queue:
            here = queue.popleft()
            leads[here] = set()
            for number, step in enumerate(net.transitions):
                takes, puts, clears = (places(net, mask) for mask in (step.takes, step.puts, step.clears))
                if not takes <= here:
                    continue
                self.happened.add(number)
                rest = here - takes - clears
                after = rest | puts
                leads[here].add(after)
                if rest & puts:
                    self.faults.setdefault("unsafe", depth[here] + 1)
                if goal < after:
                    self.faults.setdefault("improper completion", depth[here] + 1)
                if after not in depth:
                    depth[after] = depth[here] + 1
                    queue.append(after)
        self.markings = len(depth)
        able = {goal}
        while more := {here for here, followers in leads.items() if here not in able and followers & able}:
            able |= more
        self.lost = leads.keys() - able
        self.stuck = {here for here in self.lost if not leads[here]}


@pytest.mark.parametrize("seed", range(6))
def test_a_search_finds_what_sets_of_places_find(seed: int) -> None:
    seen = set()
    for number in range(60):
        rng = random.Random(f"{seed}/{number}")
        net = compile_net(random_block(rng, rng.randint(1, 5)))
        net = broken(net, rng) if number % 3 else net
        if not all(step.takes for step in net.transitions):
            continue
        found, plain = search(net, 5_000), Plain(net)
        seen.add(found.rule)
        if found.rule in ("unsafe", "improper completion"):
            # Breadth first: no fault takes fewer steps than the one that is shown.
            assert len(found.steps) == min(plain.faults.values()), (seed, number)
            continue
        assert not plain.faults
        assert found.markings == plain.markings
        assert found.happened == sum(1 << step for step in plain.happened)
        assert bool(found.rule) == bool(plain.lost)
        if found.rule:
            here = net.start
            for step in (net.transitions[place] for place in found.steps):
                here = here & ~step.takes & ~step.clears | step.puts
            # A marking where the case is stuck is shown rather than one where it goes in circles.
            assert places(net, here) in (plain.stuck or plain.lost)
            assert ("is stuck" in found.explanation) == bool(plain.stuck)
    assert {"", "unsafe", "no way to complete"} <= seen


def chain(length: int, ways: int = 1) -> Net:
    """`length` steps in a row, each in as many `ways`: length + 1 markings."""
    places = ("start", "end", *(f"p{number}" for number in range(1, length)))
    stops = [0, *range(2, length + 1), 1]
    steps = [NetTransition(f"{a}.{way}", "", 1 << a, 1 << b) for a, b in pairwise(stops) for way in range(ways)]
    return Net(places, tuple(steps))


def test_a_search_stops_after_as_many_markings_as_it_may_visit() -> None:
    assert search(chain(4), 5).rule == ""
    found = search(chain(4), 4)
    assert (found.rule, found.explanation) == ("too large", "the search stopped after 4 markings")
    assert found.markings == 5
    assert search(chain(4), 3).markings == 4
    assert check_soundness(chain(4), 1).sound, "reduced to one step, it needs no search"


def test_a_search_stops_after_twenty_steps_for_every_marking_it_may_visit() -> None:
    assert search(chain(2, ways=30), 3).rule == "", "60 steps, as many as allowed"
    assert search(chain(2, ways=31), 3).rule == "too large"
    assert search(chain(1, ways=40), 2).rule == ""
    assert search(chain(1, ways=41), 2).rule == "too large"


def test_a_search_begins_where_it_is_told_to_and_leaves_out_what_is_forbidden() -> None:
    net = chain(3, ways=2)
    found = search(net, 9, start=1 << 2)
    assert (found.rule, found.markings, found.happened, found.steps) == ("", 3, 0b111100, ())
    asked: list[tuple[int, int]] = []

    def may(number: int, marking: int) -> bool:
        asked.append((number, marking))
        return number % 2 == 0

    found = search(net, 9, may)
    assert (found.rule, found.happened) == ("", 0b010101)
    assert asked == [(0, 1), (1, 1), (2, 4), (3, 4), (4, 8), (5, 8)]
    stuck = search(net, 9, lambda number, marking: number < 2)
    assert (stuck.rule, stuck.steps) == ("no way to complete", (0,))
    assert stuck.explanation == "with tokens at p1, the case is stuck"


def test_what_is_wrong_is_said_with_the_places() -> None:
    places = ("start", "end", "p", "q")
    split = NetTransition("split", "split", 0b1, 0b1100)
    unsafe = search(Net(places, (split, NetTransition("on", "on", 0b100, 0b1000))), 9)
    assert unsafe.explanation == "'q' can receive a second token while it still has one"
    assert (unsafe.rule, unsafe.steps, unsafe.happened) == ("unsafe", (0, 1), 0b11)
    early = search(Net(places, (split, NetTransition("out", "out", 0b100, 0b10))), 9)
    assert early.explanation == "the case can end while work is left at q"
    assert (early.rule, early.steps) == ("improper completion", (0, 1))
    back = NetTransition("back", "back", 0b100, 0b100, clears=0b1000)
    assert search(Net(places, (split, back, NetTransition("end", "end", 0b1100, 0b10))), 9).rule == "no way to complete"


def test_whatever_happens_in_a_net_is_possible_in_its_reduction() -> None:
    """No step is lost on the way, and none that is dead comes to life."""
    seen = 0
    for seed in range(250):
        rng = random.Random(seed)
        net = compile_net(random_block(rng, rng.randint(1, 8)))
        net = broken(net, rng) if seed % 2 else net
        if check.structure(net) is not None or search(net, 5_000).rule:
            continue
        seen += 1
        less = reduce_net(net)
        left = search(less.net, 5_000)
        assert left.rule == ""
        possible = set().union(*(less.possible(step) for step in bits(left.happened)))
        assert possible == set(bits(search(net, 5_000).happened)), seed
    assert seen > 100


@pytest.mark.parametrize("seed", range(40))
def test_nets_of_blocks_that_cancel_nothing_reduce_to_a_single_way(seed: int) -> None:
    rng = random.Random(seed)
    block = random_block(rng, rng.randint(1, 14), ("sequence", "parallel", "choice", "loop", "instances"))
    less = reduce_net(compile_net(block)).net
    assert {(step.takes, step.puts) for step in less.transitions} == {(less.start, less.goal)}


def test_places_kept_apart_are_not_fused() -> None:
    net = chain(5)
    assert len(reduce_net(net).net.places) == 2
    less = reduce_net(net, apart=1 << 3)
    assert [net.places[old] for old in less.places] == ["start", "end", "p2"]
    assert len(less.net.transitions) == 2


def test_looking_too_far_ahead_for_an_or_join_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = next(
        graph for seed in range(200)
        if check_graph(graph := random_graph(random.Random(seed), 6)).sound
        and any(node.join == "or" and len(graph.into(node.id)) > 1 for node in graph.nodes)
    )  # fmt: skip
    monkeypatch.setattr(or_joins, "WORK", 1)
    found = check_graph(graph)
    assert (found.verdict, found.rule) == ("unknown", "too large")
    assert found.explanation.startswith("it takes too long to find out what can still reach the or-join of 't")


def calling(name: str, flows: str, **called: str) -> Graph:
    """Flows written "a b"; tasks called s are xor-splits, p are and-splits, j are and-joins."""
    pairs = [pair.split() for pair in flows.split(", ")]
    names = dict.fromkeys(one for pair in pairs for one in pair if one not in "io")
    inner = (
        Node(one, split="xor" if one == "s" else "and", join="and" if one == "j" else "xor", calls=called.get(one, ""))
        for one in names
    )
    nodes = (Node("i", kind="start"), Node("o", kind="end"), *inner)
    return Graph(name, nodes, tuple(Flow(a, b) for a, b in pairs))


def verdicts(*graphs: Graph) -> dict[str, tuple[str, str]]:
    return {name: (one.rule, one.explanation) for name, one in check_document(Document("d", graphs)).items()}


NEVER = "calls a graph that can never end"
RING = calling("ring", "i r, r o", r="ring")


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        (calling("main", "i a, a b, b o", a="ring"), f"'a' {NEVER}, and there is no way around it"),
        (calling("main", "i s, s a, s b, a o, b o", a="ring"), f"'a' {NEVER}, and a case may choose it"),
        (calling("main", "i p, p a, p b, a j, b j, j o", b="ring"), f"'b' {NEVER}, and there is no way around it"),
        (calling("main", "i a, a b, b o", a="ring", b="ring"), f"'a', 'b' {NEVER}, and there is no way around it"),
        (calling("main", "i a, a b, b o", a="fine"), ""),
    ],
)
def test_a_call_that_never_ends_is_named_where_it_is_made(graph: Graph, words: str) -> None:
    found = verdicts(graph, RING, calling("fine", "i x, x o"))
    assert found["main"] == (("endless calls", words) if words else ("", ""))
    assert found["ring"] == ("endless calls", f"'r' {NEVER}, and there is no way around it")
    assert found["fine"] == ("", "")


def test_calls_end_through_graphs_that_call_on() -> None:
    graphs = (
        calling("one", "i a, a o", a="two"), calling("two", "i b, b o", b="three"),
        calling("three", "i s, s c, s d, c o, d o", c="one"),
    )  # fmt: skip
    assert verdicts(*graphs) == dict.fromkeys(("one", "two", "three"), ("", ""))
    late = calling("two", "i b, b s, s c, s d, c o, d o", b="three")
    assert verdicts(graphs[0], late, calling("three", "i c, c o", c="one"))["one"][0] == "endless calls"


def test_a_graph_of_broken_structure_or_too_large_to_search_counts_as_one_that_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torn = calling("torn", "i x, x o, y o", y="torn")
    found = verdicts(calling("main", "i a, a o", a="torn"), torn)
    assert (found["main"], found["torn"][0]) == (("", ""), "structure")
    # Unsound for another reason stays what it is, whatever it calls.
    stuck = calling("stuck", "i s, s a, s b, a j, b j, j o", a="stuck", b="stuck")
    assert verdicts(stuck)["stuck"][0] == "no way to complete"
    waits = calling("waits", "i a, a b, b c, c o", c="waits")
    assert verdicts(waits)["waits"][0] == "endless calls"
    monkeypatch.setattr(check, "CALL_BOUND", 3)
    assert verdicts(waits)["waits"][0] == ""


def test_a_way_around_a_call_that_cancels_what_it_waits_for_is_none() -> None:
    """Around `t` leads only `j`, which waits for `a` and `k`; but `k` cancels `a` or its result."""
    half = calling("half", "i s, s t, t o, s p, p a, p k, a j, k j, j o", t="ring")
    nodes = tuple(replace(node, cancels=("a", "p→a", "a→j")) if node.id == "k" else node for node in half.nodes)
    caller = calling("main", "i x, x o", x="half")
    assert verdicts(caller, replace(half, nodes=nodes), RING)["main"][0] == "endless calls"
    assert verdicts(caller, half, RING)["main"][0] == "", "without the cancellation there is a way"


def test_places_that_fill_together_but_are_taken_by_different_steps_are_both_kept() -> None:
    """Each step takes from one place and clears the other: neither place can stand for both."""
    steps = (
        NetTransition("split", "split", 0b1, 0b1100),
        NetTransition("one", "one", 0b100, 0b10, 0b1000),
        NetTransition("other", "other", 0b1000, 0b10, 0b100),
    )
    net = Net(("start", "end", "p", "q"), steps)
    assert len(reduce_net(net).net.places) == 4
    assert check_soundness(net).sound
