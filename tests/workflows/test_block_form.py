"""A design drawn as a graph and lifted again is the same design; graphs without blocks say what has none."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from groupwise.workflows.block_form import NotBlocks, lift
from groupwise.workflows.blocks import (
    Activity,
    Block,
    Cancellable,
    Choice,
    Design,
    DesignError,
    Finish,
    Handling,
    Instances,
    Loop,
    Parallel,
    PartialOrder,
    Sequence,
    Skip,
    activities,
    children,
    tidied,
)
from groupwise.workflows.document import Document, document_of, to_graph
from groupwise.workflows.files import read_workflow, write_workflow
from groupwise.workflows.graph import Flow, Graph, Node, TaskCopies
from groupwise.workflows.partial_orders import bits, closure
from groupwise.workflows.soundness.check import check_document
from tests.workflows.designs import random_design


@pytest.mark.parametrize("seed", range(8))
def test_a_design_survives_being_drawn(seed: int) -> None:
    for number in range(50):
        rng = random.Random(f"{seed}/{number}")
        design = random_design(rng, rng.randint(1, 16))
        root = tidied(design.root)
        lifted = lift(document_of(design))
        assert (lifted.name, lifted.servers, lifted.documentation) == (design.name, design.servers, "made by chance")
        assert approximately(lifted.root) == approximately(root), design.root


def approximately(block: Block) -> object:
    """The design in plain values, probabilities to nine places: folding adds and divides them."""
    inner = tuple(map(approximately, children(block)))
    match block:
        case Choice(_, probabilities):
            return "choice", [round(share, 9) for share in probabilities], inner
        case Loop(_, share) | Cancellable(_, share):
            return type(block).__name__, round(share, 9), inner
        case PartialOrder(_, edges):
            return "order", edges, inner
        case Instances(_, least, most, enough):
            return "instances", least, most, enough, inner
        case Activity():
            return block
        case _:
            return type(block).__name__, inner


def test_tidying_has_one_form_for_one_behaviour() -> None:
    a, b, c = map(Activity, "abc")
    assert tidied(Sequence((a, Sequence((Skip(), b)), c))) == Sequence((a, b, c))
    assert tidied(Parallel((c, Parallel((b, a))))) == Parallel((a, b, c))
    assert tidied(PartialOrder((a, b, c), frozenset({(0, 1), (1, 2), (0, 2)}))) == Sequence((a, b, c))
    assert tidied(PartialOrder((a, b, c), frozenset({(0, 2), (1, 2)}))) == Sequence((Parallel((a, b)), c))
    n = PartialOrder((a, b, c, Activity("d")), frozenset({(0, 2), (1, 2), (1, 3)}))
    assert tidied(n) == n


def test_branches_that_meet_early_keep_their_share_of_the_choice() -> None:
    """0.2 and 0.3 meet in `m` before 0.5 joins them: half of the cases, of which two fifths do `a`."""
    nodes = (
        Node("i", kind="start"), Node("s", silent=True, split="xor"), Node("a"), Node("b"), Node("m", join="xor"),
        Node("d"), Node("j", silent=True, join="xor"), Node("o", kind="end"),
    )  # fmt: skip
    pairs = (("i", "s"), ("s", "a", 0.2), ("s", "b", 0.3), ("s", "d", 0.5), ("a", "m"), ("b", "m"), ("m", "j"))
    flows = tuple(Flow(*pair[:2], probability=(*pair, None)[2]) for pair in (*pairs, ("d", "j"), ("j", "o")))
    early = Sequence((Choice((Activity("a"), Activity("b")), (0.4, 0.6)), Activity("m")))
    assert approximately(lift(Graph("early", nodes, flows)).root) == approximately(
        tidied(Choice((early, Activity("d")), (0.5, 0.5)))
    )


def test_an_order_has_one_form_however_it_was_put_together() -> None:
    for seed in range(300):
        rng = random.Random(seed)
        size = rng.randint(2, 9)
        edges = {(a, b) for a in range(size) for b in range(a + 1, size) if rng.random() < rng.choice([0.15, 0.4])}
        shuffled = rng.sample(range(size), size)
        whole = [(a, b) for a, mask in enumerate(closure(size, frozenset(edges))) for b in bits(mask)]
        more = {pair for pair in whole if rng.random() < 0.5}
        names = [Activity(f"a{number}") for number in range(size)]
        order = PartialOrder(tuple(names), frozenset(edges))
        same = PartialOrder(
            tuple(names[shuffled.index(number)] for number in range(size)),
            frozenset((shuffled[a], shuffled[b]) for a, b in edges | more),
        )
        assert tidied(order) == tidied(same)
        assert precedence(tidied(order)) == {(f"a{a}", f"a{b}") for a, b in whole}


def precedence(block: Block) -> set[tuple[str, str]]:
    """Which activity comes before which, read off sequences, parallel blocks and orders."""
    parts = children(block)
    found = set().union(*map(precedence, parts)) if parts else set()
    before: list[tuple[int, int]] = []
    if isinstance(block, Sequence):
        before = [(a, b) for b in range(len(parts)) for a in range(b)]
    elif isinstance(block, PartialOrder):
        before = [(a, b) for a, mask in enumerate(closure(len(parts), block.edges)) for b in bits(mask)]
    names = [[activity.name for activity in activities(part)] for part in parts]
    return found | {(x, y) for a, b in before for x in names[a] for y in names[b]}


def test_a_graph_without_blocks_names_what_has_none() -> None:
    names = ["s", "a", "b", "j", "k"]
    nodes = (Node("i", kind="start"), *(Node(n, split="xor") for n in names), Node("o", kind="end"))
    pairs = ["i s", "s a", "s b", "a j", "a k", "b j", "b k", "j o", "k o"]
    crossed = Graph("crossed", nodes, tuple(Flow(*pair.split()) for pair in pairs))
    with pytest.raises(NotBlocks, match="no block form around"):
        lift(crossed)


def test_activities_may_be_called_what_gateways_are() -> None:
    names = ["start", "end", "and_split_1", "a", "a join", "guard_1", "guard_end_1", "instances_1"]
    *first, last = map(Activity, names)
    root = tidied(Sequence((Parallel(tuple(first)), Instances(Cancellable(last, 0.5), 2, 2, 1))))
    assert lift(document_of(Design("d", root))).root == root


def test_a_breaker_clears_the_body_and_nothing_else() -> None:
    a, b, c = map(Activity, "abc")
    whole = to_graph(Design("d", Sequence((a, Cancellable(Sequence((b, c)), 0.25)))))
    (breaker,) = (node for node in whole.nodes if node.cancels)
    for cancels in (breaker.cancels[1:], (*breaker.cancels, "a"), (*breaker.cancels, "guard_1")):
        nodes = tuple(replace(node, cancels=cancels) if node.cancels else node for node in whole.nodes)
        with pytest.raises(NotBlocks, match="'break_off_1' cancels something other"):
            lift(replace(whole, nodes=nodes))
    working = tuple(replace(node, silent=False) if node.cancels else node for node in whole.nodes)
    with pytest.raises(NotBlocks, match="'break_off_1' does work and also cancels"):
        lift(replace(whole, nodes=working))


def test_a_breaker_need_not_and_may_clear_the_flows_of_conditions() -> None:
    a, b = map(Activity, "ab")
    design = Design("d", Sequence((a, Cancellable(b, 0.25))))
    whole = to_graph(design)
    (breaker,) = (node for node in whole.nodes if node.cancels)
    assert set(breaker.cancels) == {"b", "guarded_1", "guard_split_1→b", "b→guarded_1"}
    every = (*breaker.cancels, "guarded_1→guard_end_1")
    for cancels in (every, tuple(name for name in every if name != "b→guarded_1"), breaker.cancels[::-1]):
        nodes = tuple(replace(node, cancels=cancels) if node.cancels else node for node in whole.nodes)
        assert lift(replace(whole, nodes=nodes)).root == design.root


@pytest.mark.parametrize(
    ("breaks", "ends", "chance"), [(0.25, 0.75, 0.25), (0.25, None, 0.25), (None, 0.75, 0.25), (None, None, 0.5)]
)
def test_the_chance_of_cancelling_is_known_from_either_way_of_its_guard(
    breaks: float | None, ends: float | None, chance: float
) -> None:
    whole = to_graph(Design("d", Sequence((Activity("a"), Cancellable(Activity("b"), 0.25)))))
    (breaker,) = (node.id for node in whole.nodes if node.cancels)
    (guard,) = (flow.source for flow in whole.into(breaker))
    flows = tuple(
        replace(flow, probability=breaks if flow.target == breaker else ends) if flow.source == guard else flow
        for flow in whole.flows
    )
    assert lift(replace(whole, flows=flows)).root == Sequence((Activity("a"), Cancellable(Activity("b"), chance)))


def calling(name: str, called: str = "", **node: Any) -> Graph:
    nodes = (Node("i", kind="start"), Node(f"{name} task", calls=called, **node), Node("o", kind="end"))
    return Graph(name, nodes, (Flow("i", f"{name} task"), Flow(f"{name} task", "o")))


def test_a_task_that_calls_a_graph_is_the_block_of_that_graph() -> None:
    document = Document(
        "d", (calling("one", "two", copies=TaskCopies(2, 3, 1)), calling("two", "three"), calling("three"))
    )
    assert lift(document).root == Instances(Activity("three task"), 2, 3, 1)
    with pytest.raises(DesignError, match="calls 'two', which does not exist"):
        lift(document.root)
    with pytest.raises(NotBlocks, match="call each other in a cycle: two → three → two"):
        lift(Document("d", (calling("one", "two"), calling("two", "three"), calling("three", "two"))))
    with pytest.raises(NotBlocks, match="its own handling"):
        lift(Document("d", (calling("one", "two", handling=Handling(priority=1)), calling("two"))))


def test_what_a_tree_cannot_say_twice_is_named() -> None:
    nodes = (Node("i", kind="start"), Node("x", "send"), Node("y", "send"), Node("o", kind="end"))
    twice = Graph("twice", nodes, (Flow("i", "x"), Flow("x", "y"), Flow("y", "o")))
    with pytest.raises(NotBlocks, match="'send' would occur more than once"):
        lift(twice)
    doubled = Graph("doubled", nodes, (Flow("i", "x"), Flow("x", "y"), Flow("x", "y"), Flow("y", "o")))
    with pytest.raises(NotBlocks, match="two flows lead from 'x' to 'y'"):
        lift(doubled)


def lifted(flows: str, **nodes: Node) -> Block:
    """The block form of a graph from i to o; flows are written "a b" or "a b 0.25", other tasks are plain."""
    parts = [flow.split() for flow in flows.split(", ")]
    names = dict.fromkeys(name for part in parts for name in part[:2] if name not in "io")
    inner = (nodes.get(name, Node(name)) for name in names)
    arrows = tuple(Flow(a, b, float(rest[0]) if rest else None) for a, b, *rest in parts)
    return lift(Graph("g", (Node("i", kind="start"), Node("o", kind="end"), *inner), arrows)).root


def gate(name: str, rule: Any) -> dict[str, Node]:
    return {name: Node(name, silent=True, split=rule, join=rule)}


A, B, C = map(Activity, "abc")


def test_unknown_probabilities_are_shared_equally_and_known_ones_are_kept() -> None:
    xor = {**gate("s", "xor"), **gate("j", "xor")}
    assert lifted("i s, s a, s b, a j, b j, j o", **xor) == Choice((A, B), (0.5, 0.5))
    assert lifted("i s, s a 0.25, s b 0.75, a j, b j, j o", **xor) == Choice((A, B), (0.25, 0.75))
    assert lifted("i s, s a 0.25, s b, a j, b j, j o", **xor) == Choice((A, B), (0.5, 0.5)), "one is unknown"
    assert lifted("i s, s a 0.25, s j 0.75, a j, j o", **xor) == Choice((Skip(), A), (0.75, 0.25))
    assert lifted("i s, s a 0.9, s b 0.1, a j, b j, j o", **gate("s", "and"), **gate("j", "and")) == Parallel((A, B))


def test_a_way_back_is_a_loop() -> None:
    xor = {**gate("j", "xor"), **gate("s", "xor")}
    assert lifted("i j, j a, a s, s j 0.25, s o 0.75", **xor) == Loop(A, 0.25)
    assert lifted("i j, j a, a s, s j, s o", **xor) == Loop(A, 0.5)
    assert lifted("i j, j a, a s, s b 0.25, b j, s o 0.75", **xor) == Loop(A, 0.25, B)
    assert lifted("i j, j s, s b 0.25, b j, s a 0.75, a o", **xor) == Sequence((Loop(Skip(), 0.25, B), A))


@pytest.mark.parametrize(("join", "split"), [("xor", "and"), ("and", "xor"), ("and", "and")])
def test_only_choices_make_a_loop(join: str, split: str) -> None:
    with pytest.raises(NotBlocks, match="no block form around"):
        lifted("i j, j a, a s, s j, s o", **gate("j", join), **gate("s", split))
    with pytest.raises(NotBlocks, match="no block form around"):
        lifted("i j, j a, a s, s b, b j, s o", **gate("j", join), **gate("s", split))


def test_several_ways_back_or_out_are_choices_of_a_loop() -> None:
    xor = {**gate("j", "xor"), **gate("s", "xor"), **gate("k", "xor")}
    back = lifted("i j, j a, a s, s b 0.1, b j, s c 0.3, c j, s o 0.6", **xor)
    assert approximately(back) == approximately(Loop(A, 0.4, Choice((B, C), (0.25, 0.75))))
    out = lifted("i j, j a, a s, s j 0.5, s b 0.1, b k, s c 0.4, c k, k o", **xor)
    assert approximately(out) == approximately(Sequence((Loop(A, 0.5), Choice((B, C), (0.2, 0.8)))))
    twice = lifted("i j, j a, a s, s j 0.25, s b 0.25, b j, s o 0.5", **xor)
    assert approximately(twice) == approximately(Loop(A, 0.5, Choice((Skip(), B), (0.5, 0.5))))


def test_splits_and_joins_of_different_rules_are_no_block() -> None:
    for split, join in (("and", "xor"), ("xor", "and")):
        with pytest.raises(NotBlocks, match="no block form around"):
            lifted("i s, s a, s b, a j, b j, j o", **gate("s", split), **gate("j", join))
    for rule in ("split", "join"):
        nodes = {**gate("s", "and"), **gate("j", "and")}
        name = "s" if rule == "split" else "j"
        nodes[name] = replace(nodes[name], **{rule: "or"})
        with pytest.raises(NotBlocks, match=f"'{name}' is an or-join or or-split, which blocks do not have"):
            lifted("i s, s a, s b, a j, b j, j o", **nodes)
    assert lifted("i a, a o", a=Node("a", join="or", split="or")) == A, "a single flow is no gateway"


def test_tasks_may_split_and_join_themselves_and_conditions_choose() -> None:
    assert lifted("i a, a b, a c, b d, c d, d o", d=Node("d", join="and")) == Sequence(
        (A, Parallel((B, C)), Activity("d"))
    )
    place = {"p": Node("p", kind="condition"), "q": Node("q", kind="condition")}
    assert lifted("i p, p a 0.25, p b 0.75, a q, b q, q c, c o", **place) == Sequence((Choice((A, B), (0.25, 0.75)), C))


def test_an_order_between_and_gates_keeps_the_arrows_that_are_needed() -> None:
    ands = {**gate("s", "and"), **gate("j", "and")}
    tasks = {name: Node(name, join="and", split="and") for name in "abcd"}
    crossed = lifted("i s, s a, s b, a c, a d, b d, c j, d j, j o", **ands, **tasks)
    assert precedence(crossed) == {("a", "c"), ("a", "d"), ("b", "d")}
    assert isinstance(crossed, PartialOrder)
    plus = lifted("i s, s a, s b, a c, a j, b c, c j, j o", **ands, **tasks)
    assert plus == Sequence((Parallel((A, B)), C)), "what follows from other arrows is left out"


def activity(name: str) -> Activity:
    return Activity(name)


ENDING = Choice((Sequence((activity("refuse"), Finish())), Skip()), (0.3, 0.7))
NESTED = Sequence(
    (
        activity("assess"),
        Choice((Sequence((activity("hear"), ENDING)), Skip()), (0.4, 0.6)),
        Parallel((activity("inspect"), activity("price"))),
        Loop(Sequence((activity("test"), Choice((Finish(), Skip()), (0.1, 0.9)))), 0.2, activity("mend")),
    )
)
TWICE = Sequence(
    (
        Choice((activity("reserve"), Skip()), (0.3, 0.7), "type", (("express",), ("late", "standard"))),
        activity("pack"),
        Choice(
            (activity("courier"), activity("lorry"), activity("van")),
            (0.3, 0.2, 0.5),
            "type",
            (("express",), ("late",), ("standard",)),
        ),
    )
)


@pytest.mark.parametrize("root", [NESTED, TWICE, Sequence((NESTED, TWICE))], ids=["ends", "asked again", "both"])
def test_ends_and_outcomes_come_back_from_bpmn_and_yawl(root: Block, tmp_path: Path) -> None:
    design = Design("d", tidied(root))
    for kind in ("bpmn", "yawl"):
        write_workflow(document_of(design), tmp_path / f"d.{kind}")
        found = read_workflow(tmp_path / f"d.{kind}")
        assert lift(found) == design
        assert all(verdict.sound for verdict in check_document(found).values())
        write_workflow(found, tmp_path / f"again.{kind}")
        assert (tmp_path / f"again.{kind}").read_bytes() == (tmp_path / f"d.{kind}").read_bytes()


def test_ends_of_a_foreign_file_are_found_where_no_other_block_form_is() -> None:
    # start → a → x? → b → y? → end 1, or on to j; x? → j; j → c → end 2
    nodes = [Node("start", kind="start"), Node("end", kind="end")]
    nodes += [Node(name, name) for name in "abc"]
    nodes += [Node(name, silent=True, split="xor") for name in "xy"] + [Node("j", silent=True)]
    ways = ["start a", "a x", "x b", "x j", "b y", "y end", "y j", "j c", "c end"]
    flows = [Flow(*way.split()) for way in ways]
    found = lift(Graph("g", tuple(nodes), tuple(flows)))
    branch = Sequence((activity("b"), Choice((Skip(), Finish()), (0.5, 0.5))))
    assert found.root == Sequence((activity("a"), Choice((Skip(), branch), (0.5, 0.5)), activity("c")))
