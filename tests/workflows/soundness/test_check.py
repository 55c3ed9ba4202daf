"""Designs of blocks are sound; broken nets are found broken, with steps that show it."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest

from groupwise.workflows.blocks import Activity, Block, Design, Parallel, Sequence
from groupwise.workflows.document import Document, document_of, to_graphs
from groupwise.workflows.graph import Flow, Graph, Node, Rule
from groupwise.workflows.soundness.check import (
    BOUND,
    Soundness,
    check_design,
    check_document,
    check_graph,
    check_soundness,
    search,
    structure,
)
from groupwise.workflows.soundness.net import Net, NetTransition
from tests.workflows.designs import FLAT, random_block
from tests.workflows.soundness.block_nets import compile_net


@pytest.mark.parametrize("seed", range(10))
def test_whatever_blocks_are_made_of_they_are_sound(seed: int) -> None:
    for number in range(40):
        rng = random.Random(f"{seed}/{number}")
        block = random_block(rng, rng.randint(1, 12))
        net = compile_net(block)
        assert check_soundness(net).sound, block
        assert check_design(Design("random", block)).sound
        assert search(net, 20_000).rule in ("", "too large"), block
        verdicts = check_document(document_of(Design("random", block)))
        assert all(found.sound for found in verdicts.values()), block


def looping() -> Net:
    """After "alone" the case goes round between p and q: "finish" also needs r, which only "both" marks."""
    places = {name: 1 << number for number, name in enumerate(("start", "end", "p", "q", "r"))}

    def step(name: str, takes: str, puts: str) -> NetTransition:
        return NetTransition(name, name, *(sum(places[p] for p in side.split()) for side in (takes, puts)))

    steps = (
        step("alone", "start", "p"), step("both", "start", "p r"), step("round", "p", "q"), step("back", "q", "p"),
        step("finish", "p r", "end"),
    )  # fmt: skip
    return Net(tuple(places), steps)


def test_a_net_that_loops_without_a_deadlock_is_unsound() -> None:
    found = search(looping(), 100)
    assert (found.rule, found.steps) == ("no way to complete", (0,))
    assert found.explanation == "with tokens at p, the case can go on forever but never end"


def test_a_loop_that_reduction_removes_is_still_explained_as_a_loop() -> None:
    found = check_soundness(looping())
    assert (found.verdict, found.rule, found.trace) == ("unsound", "no way to complete", ("alone",))
    assert found.explanation == "with tokens at p, the case can go on forever but never end"


def broken(net: Net, rng: random.Random) -> Net:
    """The net with one place of one step changed (taken, put or cleared), a step dropped, or a step added."""
    steps, place = list(net.transitions), 1 << rng.randrange(len(net.places))
    number = rng.randrange(len(steps))
    step = steps[number]
    match rng.randrange(5):
        case 0:
            steps[number] = NetTransition(step.name, step.label, step.takes ^ place, step.puts, step.clears)
        case 1:
            steps[number] = NetTransition(step.name, step.label, step.takes, step.puts ^ place, step.clears)
        case 2:
            steps.pop(number)
        case 3:
            steps[number] = NetTransition(step.name, step.label, step.takes, step.puts, step.clears ^ place)
        case _:
            steps.append(NetTransition(f"new{rng.random()}", "", place, 1 << rng.randrange(len(net.places))))
    return Net(net.places, tuple(steps))


def searched(net: Net) -> str:
    """The verdict without any reduction."""
    found = search(net, 20_000)
    dead = not found.rule and found.happened != (1 << len(net.transitions)) - 1
    return "dead task" if dead else found.rule or "sound"


def replayed(net: Net, trace: tuple[str, ...]) -> str:
    """The rule that the last marking of a trace breaks; every step of it must be able to happen."""
    steps = {step.name: step for step in net.transitions}
    here = net.start
    for name in trace:
        step = steps[name]
        assert step.takes & here == step.takes, f"{name} cannot happen"
        rest = here & ~step.takes & ~step.clears
        if rest & step.puts:
            return "unsafe"
        here = rest | step.puts
    if here & net.goal and here != net.goal:
        return "improper completion"
    return "no way to complete" if here != net.goal else "nothing"


def test_reduction_changes_no_verdict() -> None:
    """Nets with one defect, searched marking by marking as they are and after reduction."""
    seen: Counter[str] = Counter()
    for seed in range(1500):
        rng = random.Random(seed)
        net = broken(compile_net(random_block(rng, rng.randint(2, 9))), rng)
        if structure(net) is not None:
            continue
        whole, less = searched(net), check_soundness(net, 20_000)
        seen[whole] += 1
        assert (whole == "sound") == less.sound, (seed, whole, less)
        if less.trace:
            assert replayed(net, less.trace) == less.rule, (seed, less)
    assert (
        min(seen[rule] for rule in ("sound", "unsafe", "dead task", "no way to complete", "improper completion")) > 30
    )


def test_twenty_parallel_branches_are_not_a_million_markings() -> None:
    block: Block = Parallel(tuple(Sequence((Activity(f"a{n}"), Activity(f"b{n}"))) for n in range(20)))
    assert check_soundness(compile_net(block), bound=100).sound


def graph(*flows: str, **rules: tuple[Rule, Rule]) -> Graph:
    """Flows written as "a b"; `rules` are join and split of tasks, and any other task is plain."""
    pairs = [tuple(flow.split()) for flow in flows]
    names = dict.fromkeys(name for pair in pairs for name in pair)
    kinds = {"i": "start", "o": "end"}
    nodes = tuple(
        Node(name, kind=kinds.get(name, "condition" if name.startswith("c") else "task"), join=join, split=split)  # type: ignore[arg-type]
        for name in names
        for join, split in [rules.get(name, ("xor", "and"))]
    )
    return Graph("by hand", nodes, tuple(Flow(a, b) for a, b in pairs))


def verdict(found: Soundness) -> tuple[str, str]:
    return found.verdict, found.rule


def test_defects_by_hand_are_named_and_shown() -> None:
    deadlock = check_graph(graph("i s", "s a", "s b", "a j", "b j", "j o", s=("xor", "xor"), j=("and", "and")))
    assert verdict(deadlock) == ("unsound", "no way to complete")
    assert "the case is stuck" in deadlock.explanation
    assert deadlock.trace[-1] in ("a", "b")
    unsynchronised = check_graph(graph("i s", "s a", "s b", "a j", "b j", "j o"))
    assert unsynchronised.rule in ("unsafe", "improper completion")
    livelock = check_graph(
        graph("i a", "a b", "b c", "c b", "a o", a=("xor", "xor"), b=("xor", "and"), c=("xor", "and"))
    )
    assert livelock.verdict == "unsound"
    plain = graph("i a", "a o")
    stale = check_graph(replace(plain, nodes=tuple(replace(node, cancels=("gone",)) for node in plain.nodes)))
    assert stale.explanation == "'a' cancels 'gone', which does not exist"
    stray = check_graph(graph("i a", "a o", "b o"))
    assert verdict(stray) == ("unsound", "structure")
    assert "b" in stray.explanation


def test_an_or_join_waits_for_what_can_still_come() -> None:
    structured = graph("i s", "s a", "s b", "a j", "b j", "j o", s=("xor", "or"), j=("or", "and"))
    assert check_graph(structured).sound
    hasty = graph("i s", "s a", "s b", "a j", "b j", "j o", s=("xor", "or"), j=("xor", "and"))
    assert not check_graph(hasty).sound


def test_a_cancellation_clears_what_would_be_left_over() -> None:
    nodes = (
        Node("i", kind="start"), Node("s", split="and"), Node("slow"), Node("c", kind="condition"), Node("late"),
        Node("quick", cancels=("slow", "s→slow", "slow→c")), Node("o", kind="end"),
    )  # fmt: skip
    pairs = [("i", "s"), ("s", "slow"), ("s", "quick"), ("slow", "c"), ("c", "late"), ("quick", "o"), ("late", "o")]
    flows = tuple(Flow(a, b) for a, b in pairs)
    assert check_graph(Graph("race", nodes, flows)).rule == "improper completion"


def test_beyond_the_bound_it_says_that_it_does_not_know() -> None:
    wide = graph(*(f"i {n}" for n in ("s",)), *(f"s a{n}" for n in range(9)), *(f"a{n} j" for n in range(9)), "j o",
                 s=("xor", "or"), j=("or", "and"))  # fmt: skip
    found = check_graph(wide)
    assert verdict(found) == ("unknown", "too large")
    assert "'s'" in found.explanation


def calls(name: str, *flows: str, **called: str) -> Graph:
    """A graph of tasks, some of which call others; a task called s is an xor-split."""
    plain = graph(*flows, s=("xor", "xor"))
    return Graph(name, tuple(replace(node, calls=called.get(node.id, "")) for node in plain.nodes), plain.flows)


def test_graphs_that_call_each_other_must_be_able_to_end() -> None:
    ring = Document("d", (calls("one", "i a", "a o", a="two"), calls("two", "i b", "b o", b="one")))
    found = check_document(ring)
    assert [verdict(one) for one in found.values()] == [("unsound", "endless calls")] * 2
    assert "'a' calls a graph that can never end, and there is no way around it" in found["one"].explanation
    way_out = calls("one", "i s", "s a", "s b", "a o", "b o", a="one")
    assert check_document(Document("d", (way_out,)))["one"].sound
    endless = calls("two", "i d", "d e", "e o", d="two")
    caller = calls("one", "i s", "s a", "s b", "a o", "b o", a="two")
    assert verdict(check_document(Document("d", (caller, endless)))["one"]) == ("unsound", "endless calls")


def test_a_graph_that_calls_itself_for_ever_is_unsound_however_large_it_is() -> None:
    """What is too large to search is unknown; that it never ends is known all the same."""
    ways = [f"w{n}" for n in range(9)]
    flows = ["i split", *(f"split {way}" for way in ways), *(f"{way} join" for way in ways), "join again", "again o"]
    wide = graph(*flows, split=("xor", "or"), join=("or", "and"))
    assert check_document(Document("d", (wide,)))[wide.name].rule == "too large"
    nodes = tuple(replace(node, calls=wide.name if node.id == "again" else "") for node in wide.nodes)
    assert verdict(check_document(Document("d", (replace(wide, nodes=nodes),)))[wide.name]) == (
        "unsound",
        "endless calls",
    )


def test_a_large_graph_is_judged_or_given_up_within_the_bound() -> None:
    """Two thousand nodes: a sound design, a web of and-gateways too large to search, and one of or-gateways."""
    rng = random.Random(1)
    whole = to_graphs(Design("large", random_block(rng, 720, FLAT)))[0]
    assert len(whole.nodes) > 1_900
    assert check_graph(whole).sound
    for rule in ("xor", "or"):
        names = [f"t{number}" for number in range(2_000)]
        pairs = list(pairwise(names)) + [tuple(sorted(rng.sample(names, 2))) for _ in range(600)]
        flows = ("i t0", *(f"{a} {b}" for a, b in dict.fromkeys(pairs) if a != b), "t1999 o")
        found = check_graph(graph(*flows, **{name: (rule, "and") for name in names}))  # type: ignore[arg-type]
        assert found.verdict in ("unsound", "unknown")
        assert found.markings <= 2 * BOUND
