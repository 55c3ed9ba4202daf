"""Blocks refuse what has no meaning, at each limit; trees are walked, rewritten and tidied without losing anything."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from groupwise.workflows.blocks import (
    PLAIN,
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
    Retry,
    Sequence,
    Skip,
    activities,
    asked_again,
    children,
    rewritten,
    tidied,
    walk,
    with_children,
)
from groupwise.workflows.graph import Flow, Graph, Node
from groupwise.workflows.partial_orders import bits, closure, find_ring, in_order, reduced
from tests.workflows.designs import random_block

A, B, C, D = (Activity(name) for name in "abcd")


@pytest.mark.parametrize(
    "make",
    [
        lambda: Retry(0, 0.0, 1.0),
        lambda: Handling(timeout=0.001, delay=0.0, due=0.001),
        *(lambda how=how: Handling(scheduling=how) for how in ("fifo", "priority", "shortest", "due")),
        lambda: Choice((A, B), (0.5, 0.5 + 9e-10)),
        lambda: Choice((A, B), (0.5, 0.5 - 9e-10)),
        lambda: Loop(A, 0.999),
        lambda: Loop(A, 0.001),
        lambda: Cancellable(A, 0.999),
        lambda: Cancellable(A, 0.001),
        lambda: Instances(A, 1, 1, 1),
        lambda: Instances(A, 2, 3, 2),
        lambda: PartialOrder((A, B), frozenset({(1, 0)})),
        lambda: PartialOrder((A, B), frozenset()),
        lambda: Design("d", A, (("desk", 1),)),
    ],
)
def test_what_lies_on_a_limit_is_allowed(make: Callable[[], Any]) -> None:
    make()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Retry(-1), "retry.most is -1 but must be at least 0"),
        (lambda: Retry(1, -0.5), "retry.pause is -0.5 but must be at least 0"),
        (lambda: Retry(1, 1, 0.99), "retry.growth is 0.99 but must be at least 1"),
        (lambda: Handling(timeout=0.0), "timeout is 0.0 but must be above 0"),
        (lambda: Handling(delay=-1.0), "delay is -1.0 but must be at least 0"),
        (lambda: Handling(due=0.0), "due is 0.0 but must be above 0"),
        (lambda: Handling(scheduling="lifo"), "scheduling is 'lifo' but must be one of fifo, priority, shortest, due"),  # type: ignore[arg-type]
        (lambda: Activity(" "), "an activity has no name"),
        (lambda: Sequence((A,)), "a sequence has 1 parts but needs at least 2"),
        (lambda: Parallel((A,)), "a parallel block has 1 parts but needs at least 2"),
        (lambda: Choice((A,), (1.0,)), "a choice has 1 branches but needs at least 2"),
        (lambda: Choice((A, B), (1.0,)), "a choice has 2 branches and 1 probabilities"),
        (lambda: Choice((A, B), (1.0, 0.0)), "the probabilities of a choice must be above 0"),
        (lambda: Choice((A, B), (0.5, 0.5 + 1e-8)), "the probabilities of a choice add up to"),
        (lambda: Choice((A, B), (0.5, 0.5 - 1e-8)), "the probabilities of a choice add up to"),
        (lambda: Loop(A, 0.0), "a loop repeats with probability 0.0"),
        (lambda: Loop(A, 1.0), "a loop repeats with probability 1.0"),
        (lambda: PartialOrder((A,), frozenset()), "a partial order has 1 parts but needs at least 2"),
        (lambda: PartialOrder((A, B), frozenset({(0, 2)})), "2 parts cannot have the edge [(0, 2)]"),
        (lambda: PartialOrder((A, B), frozenset({(-1, 0)})), "2 parts cannot have the edge [(-1, 0)]"),
        (lambda: PartialOrder((A, B), frozenset({(0, 1), (1, 0)})), "a partial order has a cycle: 0 → 1 → 0"),
        (lambda: PartialOrder((A, B), frozenset({(0, 0)})), "a partial order has a cycle: 0 → 0"),
        (lambda: Cancellable(A, 0.0), "the chance of cancelling is 0.0"),
        (lambda: Cancellable(A, 1.0), "the chance of cancelling is 1.0"),
        (lambda: Instances(A, 1, 1, 0), "1 ≤ enough ≤ least ≤ most, not 0, 1, 1"),
        (lambda: Instances(A, 1, 2, 2), "1 ≤ enough ≤ least ≤ most, not 2, 1, 2"),
        (lambda: Instances(A, 3, 2, 1), "1 ≤ enough ≤ least ≤ most, not 1, 3, 2"),
        (lambda: Design("d", A, (("desk", 0),)), "pool 'desk' has 0 servers but needs at least 1"),
        (lambda: Design("d", Sequence((A, Loop(B, 0.5, A)))), "activities that occur more than once: a"),
        (lambda: Design("d", Skip()), "the design has no activity"),
    ],
)
def test_what_lies_beyond_a_limit_is_refused(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(DesignError) as error:
        make()
    assert words in error.value.message


def test_only_what_occurs_twice_is_named_once() -> None:
    with pytest.raises(DesignError) as error:
        Design("d", Sequence((B, C, A, Loop(Sequence((D, B)), 0.5, A), Parallel((A, Activity("e"))))))
    assert error.value.message == "activities that occur more than once: a, b"


def test_defaults_ask_for_nothing() -> None:
    assert Handling() == PLAIN == Handling(None, 0, "fifo", Retry(0, 0.0, 2.0), None, 0.0, None)
    assert (Loop(A, 0.5).redo, Cancellable(A, 0.5).handler) == (Skip(), Skip())


EVERY = (
    Sequence((A, B)), Parallel((A, B)), Choice((A, B), (0.25, 0.75)), PartialOrder((A, B), frozenset({(0, 1)})),
    Loop(A, 0.25, B), Cancellable(A, 0.25, B),
)  # fmt: skip


@pytest.mark.parametrize("block", EVERY, ids=lambda block: type(block).__name__)
def test_a_block_has_its_children_in_order_and_takes_others(block: Block) -> None:
    assert children(block) == (A, B)
    other = with_children(block, (C, D))
    assert children(other) == (C, D)
    assert with_children(other, (A, B)) == block, "everything but the children is kept"


def test_leaves_have_no_children_and_instances_one() -> None:
    assert children(A) == children(Skip()) == ()
    assert (with_children(A, ()), with_children(Skip(), ())) == (A, Skip())
    assert children(Instances(A, 2, 3, 1)) == (A,)
    assert with_children(Instances(A, 2, 3, 1), (B,)) == Instances(B, 2, 3, 1)


def test_a_walk_meets_the_outermost_first_and_a_rewriting_the_innermost() -> None:
    inner = Parallel((A, B))
    tree = Sequence((inner, Loop(C, 0.5, D)))
    assert list(walk(tree)) == [tree, inner, A, B, tree.parts[1], C, D]
    assert [one.name for one in activities(tree)] == list("abcd")
    met: list[Block] = []

    def change(block: Block) -> Block:
        met.append(block)
        return Activity(block.name * 2) if isinstance(block, Activity) else block

    doubled = rewritten(tree, change)
    assert [one.name for one in activities(doubled)] == ["aa", "bb", "cc", "dd"]
    assert [type(one).__name__ for one in met] == [
        "Activity", "Activity", "Parallel", "Activity", "Activity", "Loop", "Sequence",
    ]  # fmt: skip
    assert met[2] == Parallel((Activity("aa"), Activity("bb"))), "the children are new already"


@pytest.mark.parametrize(
    ("block", "tidy"),
    [
        (Sequence((Skip(), A)), A),
        (Sequence((Skip(), Skip())), Skip()),
        (Parallel((Skip(), A)), A),
        (Parallel((B, Skip(), A)), Parallel((A, B))),
        (Parallel((Sequence((C, A)), B)), Parallel((Sequence((C, A)), B))),
        (Choice((Choice((B, A), (0.25, 0.75)), C), (0.5, 0.5)), Choice((A, B, C), (0.375, 0.125, 0.5))),
        (Choice((Skip(), A, Skip()), (0.25, 0.5, 0.25)), Choice((Skip(), A), (0.5, 0.5))),
        (Choice((Skip(), Skip()), (0.25, 0.75)), Skip()),
        (Loop(Skip(), 0.5), Skip()),
        (Loop(Skip(), 0.5, A), Loop(Skip(), 0.5, A)),
        (Loop(A, 0.5), Loop(A, 0.5)),
        (Cancellable(Skip(), 0.5), Skip()),
        (Cancellable(Skip(), 0.5, A), Cancellable(Skip(), 0.5, A)),
        (Instances(Skip(), 2, 2, 2), Skip()),
        (Instances(A, 1, 1, 1), A),
        (Instances(A, 1, 2, 1), Instances(A, 1, 2, 1)),
        (PartialOrder((A, Skip(), B), frozenset({(0, 1), (1, 2)})), Sequence((A, B))),
        (PartialOrder((Skip(), Skip()), frozenset()), Skip()),
        (PartialOrder((B, A), frozenset()), Parallel((A, B))),
    ],
)
def test_tidying_keeps_what_happens_and_drops_the_rest(block: Block, tidy: Block) -> None:
    assert tidied(block) == tidy
    assert tidied(tidy) == tidy


def test_tidying_twice_changes_nothing_more() -> None:
    for seed in range(60):
        tidy = tidied(random_block(random.Random(seed), 9))
        assert tidied(tidy) == tidy


def graph(nodes: tuple[Node, ...], *flows: Flow) -> Graph:
    return Graph("g", nodes, flows)


ENDS = (Node("i", kind="start"), Node("o", kind="end"))


def test_a_graph_knows_its_flows_and_refuses_what_is_none() -> None:
    one = graph(
        (*ENDS, Node("a"), Node("c", kind="condition")), Flow("i", "a"), Flow("a", "c"), Flow("a", "o"), Flow("c", "o")
    )
    assert [flow.id for flow in one.out_of("a")] == ["a→c", "a→o"]
    assert [flow.id for flow in one.into("o")] == ["a→o", "c→o"]
    assert (one.into("i"), one.out_of("o")) == ([], [])
    assert (one.start.id, one.end.id, [node.id for node in one.tasks]) == ("i", "o", ["a"])
    one.into("o").clear()
    assert len(one.into("o")) == 2, "the list is the caller's own"
    for nodes, flows, words in (
        ((*ENDS, Node("a"), Node("a")), (), "g: the id 'a' is used twice"),
        (ENDS, (Flow("i", "x"),), "g: a flow names 'x', which does not exist"),
        (ENDS, (Flow("x", "o"),), "g: a flow names 'x', which does not exist"),
        (ENDS[:1], (), "g: there must be one end, not 0"),
        (ENDS[1:], (), "g: there must be one start, not 0"),
        ((*ENDS, Node("p", kind="end")), (), "g: there must be one end, not 2"),
    ):
        with pytest.raises(DesignError) as error:
            graph(nodes, *flows)
        assert error.value.message == words
    assert (Node("a").label, Node("a", name="check").label) == ("a", "check")


@pytest.mark.parametrize("seed", range(60))
def test_orders_are_what_walks_along_their_edges_find(seed: int) -> None:
    rng = random.Random(seed)
    size = seed % 8
    place = rng.sample(range(size), size)
    edges = frozenset((place[a], place[b]) for a in range(size) for b in range(a + 1, size) if rng.random() < 0.35)
    after = {part: {b for a, b in edges if a == part} for part in range(size)}
    for _ in range(size):
        after = {part: some.union(*(after[other] for other in some)) for part, some in after.items()}
    assert [set(bits(mask)) for mask in closure(size, edges)] == [after[part] for part in range(size)]
    needed = {(a, b) for a, b in edges if not any(b in after[other] for other in after[a])}
    assert reduced(size, edges) == needed
    assert find_ring(size, edges) == []
    # A topological order: of the parts that may come next, always the lowest.
    order, left = [], set(range(size))
    while left:
        order.append(min(part for part in left if not any(part in after[other] for other in left)))
        left.remove(order[-1])
    assert in_order(size, edges) == order


@pytest.mark.parametrize("seed", range(40))
def test_a_ring_is_found_wherever_there_is_one(seed: int) -> None:
    rng = random.Random(seed)
    size = rng.randint(1, 6)
    edges = frozenset((rng.randrange(size), rng.randrange(size)) for _ in range(rng.randint(0, 7)))
    ring = find_ring(size, edges)
    assert bool(ring) == (len(in_order(size, edges)) < size)
    if ring:
        assert ring[0] == ring[-1]
        assert len(set(ring)) == len(ring) - 1
        assert all(step in edges for step in pairwise(ring))


def test_bits_are_numbered_from_the_lowest() -> None:
    assert [bits(mask) for mask in (0, 1, 6, 1 << 70)] == [[], [0], [1, 2], [70]]


REFUSED = Sequence((B, Finish()))


@pytest.mark.parametrize(
    ("root", "said"),
    [
        (Sequence((A, Parallel((Choice((REFUSED, Skip()), (0.2, 0.8)), C)))), "beside work that is in progress"),
        (Sequence((A, Cancellable(Choice((REFUSED, C), (0.2, 0.8)), 0.1))), "beside work that is in progress"),
        (Sequence((A, Choice((REFUSED, Finish()), (0.2, 0.8)), C)), "nothing can follow where every case is over"),
    ],
)
def test_an_end_stands_only_where_nothing_else_of_the_case_is_open(root: Block, said: str) -> None:
    with pytest.raises(DesignError, match=said):
        Design("d", root)


def test_a_choice_of_an_outcome_needs_different_answers_for_its_branches() -> None:
    for answers in ((), (("x",),), (("x",), ("x",)), (("x",), ())):
        with pytest.raises(DesignError, match="needs different answers for each of its 2 branches"):
            Choice((A, B), (0.5, 0.5), "o", answers)


def test_what_goes_on_behind_an_end_has_one_form() -> None:
    flat = tidied(Sequence((A, Choice((REFUSED, Skip()), (0.2, 0.8)), C, D)))
    assert tidied(Sequence((A, Choice((REFUSED, Sequence((C, D))), (0.2, 0.8))))) == flat
    assert tidied(Sequence((A, Choice((REFUSED, C), (0.2, 0.8)), D))) == flat
    # Two questions in a row, of which the first ends cases, are one.
    asked = Sequence((Choice((REFUSED, Skip()), (0.2, 0.8)), Choice((C, D), (0.5, 0.5))))
    assert tidied(asked) == Choice((REFUSED, C, D), (0.2, 0.4, 0.4))
    # Where all cases end, everybody has a branch.
    closed = tidied(Choice((Sequence((A, Choice((REFUSED, Skip()), (0.5, 0.5)), C, Finish())), D), (0.3, 0.7)))
    assert any(one == Choice((REFUSED, Sequence((C, Finish()))), (0.5, 0.5)) for one in walk(closed))


def test_an_outcome_that_only_one_choice_asks_for_is_a_plain_choice() -> None:
    fork = Choice((A, Skip()), (0.3, 0.7), "o", (("x",), ("y",)))
    again = Choice((B, C), (0.3, 0.7), "o", (("x",), ("y",)))
    assert asked_again(Sequence((fork, D))) == Sequence((Choice((A, Skip()), (0.3, 0.7)), D))
    assert asked_again(Sequence((fork, D, again))) == Sequence((fork, D, again))


def test_questions_for_one_outcome_inside_each_other_are_one() -> None:
    inner = Choice((A, Skip()), (0.25, 0.75), "o", (("x",), ("y",)))
    outer = Choice((inner, B), (0.8, 0.2), "o", (("x", "y"), ("z",)))
    assert tidied(outer) == Choice((A, Skip(), B), (0.2, 0.6000000000000001, 0.2), "o", (("x",), ("y",), ("z",)))


def test_two_questions_in_a_row_for_one_outcome_are_one() -> None:
    a, b, c, d = (Activity(name) for name in "abcd")
    shares, answers = (0.3, 0.2, 0.5), (("big",), ("new",), ("small",))
    first = Choice((a, Skip(), b), shares, "size", answers)
    second = Choice((c, Skip()), (0.3, 0.7), "size", (("big",), ("new", "small")))
    one = Choice((Sequence((a, c)), Skip(), b), shares, "size", answers)
    assert tidied(Sequence((first, second, d))) == tidied(Sequence((one, d)))
    # With other work in between, or an activity that would be there twice, there are two.
    for more in ((first, d, second), (first, Choice((c, d), (0.5, 0.5), "size", (("big", "new"), ("small",))))):
        assert sum(isinstance(block, Choice) for block in walk(tidied(Sequence(more)))) == 2
