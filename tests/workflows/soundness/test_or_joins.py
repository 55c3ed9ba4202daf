"""Or-joins against Wynn's definition on small graphs, where it is written down again with tokens in bags."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.workflows.graph import Flow, Graph, Node
from groupwise.workflows.soundness import or_joins
from groupwise.workflows.soundness.check import check_graph, structure
from groupwise.workflows.soundness.net import Net, NetTransition, OrJoin, graph_net
from tests.workflows.soundness.oracle import TooManyMarkings, defects


def random_graph(rng: random.Random, tasks: int) -> Graph:
    """Tasks in a row with any joins and splits, more flows forwards and backwards, and something cleared away."""
    names = [f"t{number}" for number in range(tasks)]
    pairs = {("i", names[0]), (names[-1], "o"), *pairwise(names)}
    for _ in range(rng.randint(0, tasks)):
        a, b = rng.sample(range(tasks), 2)
        pairs.add((names[a], names[b]) if a < b or rng.random() < 0.3 else (names[b], names[a]))
    flows = tuple(Flow(a, b) for a, b in sorted(pairs))
    rules = ("and", "xor", "or", "or")
    nodes = tuple(
        Node(
            name,
            join=rng.choice(rules),
            split=rng.choice(rules),
            cancels=(rng.choice(flows).id, rng.choice(names)) if rng.random() < 0.15 else (),
        )
        for name in names
    )
    return Graph("random", (Node("i", kind="start"), *nodes, Node("o", kind="end")), flows)


def test_small_graphs_are_judged_as_the_definition_says() -> None:
    seen: Counter[str] = Counter()
    for seed in range(600):
        rng = random.Random(seed)
        graph = random_graph(rng, rng.randint(2, 6))
        if structure(graph_net(graph).net) is not None:
            continue
        try:
            broken = defects(graph, limit=150)
        except TooManyMarkings:
            continue
        found = check_graph(graph)
        seen[found.verdict] += 1
        assert found.verdict == ("unsound" if broken else "sound"), (seed, found, broken)
    assert min(seen["sound"], seen["unsound"]) >= 50, seen


def vicious(*extra: Flow) -> Graph:
    nodes = (Node("i", kind="start"), Node("s"), Node("a", join="or"), Node("b", join="or"), Node("j", join="and"))
    flows = "i s,s a,s b,a b,b a,a j,b j,j o"
    pairs = tuple(Flow(*pair.split()) for pair in flows.split(","))
    return Graph("vicious", (*nodes, Node("o", kind="end")), (*pairs, *extra))


def test_two_or_joins_that_wait_for_each_other_wait_for_ever() -> None:
    """The vicious circle of the paper: taken for an xor-join, each may still bring the other a token."""
    found = check_graph(vicious())
    assert (found.verdict, found.rule) == ("unsound", "no way to complete")
    assert found.trace == ("s",)


def race(*cleared: str) -> Graph:
    nodes = (
        Node("i", kind="start"), Node("s"), Node("slow"), Node("quick", cancels=cleared),
        Node("j", join="or"), Node("o", kind="end"),
    )  # fmt: skip
    pairs = ("i s", "s slow", "s quick", "slow j", "quick j", "j o")
    return Graph("race", nodes, tuple(Flow(*pair.split()) for pair in pairs))


def test_an_or_join_waits_only_for_what_leaves_it_what_it_has() -> None:
    """`quick` clears `slow` away. If it took its result back too, the join would have no reason to wait for it."""
    assert check_graph(race("slow", "s→slow")).sound
    hasty = check_graph(race("slow", "s→slow", "slow→j"))
    assert (hasty.rule, hasty.trace) == ("improper completion", ("s", "slow", "j"))


@st.composite
def garbage(draw: st.DrawFn) -> Graph:
    """Nodes of every kind with any flows between them, doubled ones and rings included."""
    count = draw(st.integers(0, 8))
    names = ["i", "o", *(f"n{number}" for number in range(count))]
    ends = st.sampled_from(names)
    flows = tuple(Flow(a, b) for a, b in draw(st.lists(st.tuples(ends, ends), max_size=20)))
    cleared = st.sampled_from([*names, *(flow.id for flow in flows)])
    rules = st.sampled_from(["and", "xor", "or"])
    inner = [
        Node(
            name,
            name=draw(st.sampled_from(["", "same"])),
            kind=draw(st.sampled_from(["task", "task", "condition"])),
            join=draw(rules),
            split=draw(rules),
            silent=draw(st.booleans()),
            cancels=tuple(draw(st.lists(cleared, max_size=3))),
        )
        for name in names[2:]
    ]
    return Graph("garbage", (Node("i", kind="start"), Node("o", kind="end"), *inner), flows)


@settings(max_examples=150, deadline=None)
@given(garbage())
def test_whatever_the_graph_there_is_a_verdict(graph: Graph) -> None:
    found = check_graph(graph, bound=2_000)
    assert found.verdict in ("sound", "unsound", "unknown")
    assert found.sound or found.explanation


def test_an_answer_about_one_join_and_marking_is_not_given_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was asked before, an or-join may fire exactly if one that is asked for the first time says so."""
    monkeypatch.setattr(or_joins, "WORK", 100_000)
    asked = 0
    for seed in range(100):
        rng = random.Random(f"answers/{seed}")
        found = graph_net(random_graph(rng, rng.randint(3, 6)))
        net, joins = found.net, found.or_joins
        shared = or_joins.OrJoinWait(net, joins)
        with suppress(or_joins.TooFarAhead):
            for _ in range(60 if len(joins) > 1 else 0):
                marking = rng.getrandbits(len(net.places)) & rng.getrandbits(len(net.places))
                for number, join in shared.of_step.items():
                    if net.transitions[number].takes == marking & join.places:
                        fresh = or_joins.OrJoinWait(net, joins)
                        assert shared(number, marking) == fresh(number, marking), (seed, marking, number)
                        asked += 1
    assert asked > 300


def waiting(*steps: tuple[str, str, str]) -> bool:
    """Whether a join of x and y waits with tokens at x, q and z; steps are written as takes, puts and clears."""
    places = {name: 1 << number for number, name in enumerate("ioxyqzkwv")}

    def mask(names: str) -> int:
        return sum(places[name] for name in names)

    joins = [NetTransition("", "", mask(some), mask("o")) for some in ("x", "y", "xy")]
    others = [NetTransition("t", "t", mask(takes), mask(puts), mask(clears)) for takes, puts, clears in steps]
    net = Net(tuple(places), (*joins, *others))
    wait = or_joins.OrJoinWait(net, (OrJoin("j", mask("xy"), frozenset(range(3))),))
    assert not wait(1, mask("xqz")), "not even asked without a token at y"
    return not wait(0, mask("xqz"))


def test_a_second_token_in_a_place_counts_when_looking_ahead() -> None:
    """`z` brings a second token to q: one goes on to w with k, and only the other can bring y together with it."""
    brings = [("z", "qk", ""), ("qk", "w", "")]
    assert waiting(*brings, ("qw", "y", ""))
    assert not waiting(*brings, ("qwk", "y", "")), "of k there is but one"
    # A step that clears q takes both tokens away.
    assert waiting(("z", "qk", ""), ("k", "w", ""), ("qw", "y", ""))
    assert not waiting(("z", "qk", ""), ("k", "w", "q"), ("qw", "y", ""))
    # What takes the token at x away brings nothing that the join could take with it.
    assert not waiting(("xz", "y", ""))
    assert not waiting(("z", "y", "x"))
    assert waiting(("z", "y", "q"))
    assert waiting(("z", "k", ""), ("xk", "xy", ""))


def test_looking_ahead_stops_at_its_limit_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    found = graph_net(race("slow", "s→slow"))
    net, (join,) = found.net, found.or_joins
    marking = next(1 << place for place, name in enumerate(net.places) if name == "slow→j")
    number = next(number for number in join.transitions if net.transitions[number].takes == marking)
    free = or_joins.OrJoinWait(net, found.or_joins)
    answer = free(number, marking)
    assert free.work > 0
    monkeypatch.setattr(or_joins, "WORK", free.work)
    again = or_joins.OrJoinWait(net, found.or_joins)
    assert again(number, marking) == answer
    assert again(number, marking) == answer, "what is known takes no more work"
    monkeypatch.setattr(or_joins, "WORK", free.work - 1)
    with pytest.raises(or_joins.TooFarAhead, match="'j'"):
        or_joins.OrJoinWait(net, found.or_joins)(number, marking)
