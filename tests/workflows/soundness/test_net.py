"""The net of a graph, place by place, and what is wrong with the structure of a net."""

from __future__ import annotations

import pytest

from groupwise.workflows.graph import Flow, Graph, Node
from groupwise.workflows.partial_orders import bits
from groupwise.workflows.soundness.check import Soundness, check_graph, structure
from groupwise.workflows.soundness.net import WIDEST_OR, GraphNet, Net, NetBuilder, NetTransition, graph_net, titles


def drawn(*nodes: Node, flows: str) -> Graph:
    """A graph from i to o; flows are written "a b"."""
    ends = (Node("i", kind="start"), Node("o", kind="end"))
    return Graph("by hand", (*ends, *nodes), tuple(Flow(*pair.split()) for pair in flows.split(", ")))


def steps(found: GraphNet) -> list[tuple[str, str, list[str], list[str], list[str]]]:
    """Every transition with the names of its places: name, label, takes, puts, clears."""
    at = found.net.marking
    return [(one.name, one.label, at(one.takes), at(one.puts), at(one.clears)) for one in found.net.transitions]


def test_a_task_begins_with_its_inputs_and_ends_with_its_outputs() -> None:
    graph = drawn(Node("s", name="split", split="and"), Node("j", join="and"), flows="i s, s j, s o, j o")
    found = graph_net(graph)
    assert found.net.places == ("i", "o", "split running", "j running", "s→j")
    assert (found.net.source, found.net.sink, found.net.start, found.net.goal) == (0, 1, 1, 2)
    assert steps(found) == [
        ("", "", ["i"], ["split running"], []),
        ("split", "split", ["split running"], ["o", "s→j"], []),
        ("", "", ["s→j"], ["j running"], []),
        ("j", "j", ["j running"], ["o"], []),
    ]
    assert (found.or_joins, found.too_wide) == ((), ())


def test_rules_of_joins_and_splits_decide_the_transitions() -> None:
    inner = (Node("s", split="xor", silent=True), Node("a"), Node("b"), Node("j", join="or"))
    found = graph_net(drawn(*inner, flows="i s, s a, s b, a j, b j, j o"))
    assert [one for one in steps(found) if one[0] == "s"] == [
        ("s", "", ["s running"], ["s→a"], []),
        ("s", "", ["s running"], ["s→b"], []),
    ]
    begins = [one for one in steps(found) if one[3] == ["j running"]]
    assert [one[2] for one in begins] == [["a→j"], ["b→j"], ["a→j", "b→j"]]
    (join,) = found.or_joins
    assert (join.task, found.net.marking(join.places)) == ("j", ["a→j", "b→j"])
    assert sorted(join.transitions) == [n for n, one in enumerate(steps(found)) if one[3] == ["j running"]]
    split = graph_net(drawn(Node("s", split="or"), Node("j", join="and"), flows="i s, s j, s o, j o"))
    assert [one[3] for one in steps(split) if one[0] == "s"] == [["s→j"], ["o"], ["o", "s→j"]]
    joined = graph_net(drawn(Node("s"), Node("j", join="and"), Node("a"), flows="i s, s j, s a, a j, j o"))
    assert [one[2] for one in steps(joined) if one[3] == ["j running"]] == [["s→j", "a→j"]]
    either = graph_net(drawn(Node("s"), Node("j", join="xor"), Node("a"), flows="i s, s j, s a, a j, j o"))
    assert [one[2] for one in steps(either) if one[3] == ["j running"]] == [["s→j"], ["a→j"]]
    assert either.or_joins == ()


def test_conditions_are_places_and_a_flow_between_them_moves_the_token() -> None:
    inner = (Node("c", name="inbox", kind="condition"), Node("d", kind="condition"), Node("a"))
    found = graph_net(drawn(*inner, flows="i c, c d, d a, a o"))
    assert found.net.places == ("i", "o", "inbox", "d", "a running")
    assert [(one[2], one[3]) for one in steps(found)] == [
        (["i"], ["inbox"]),
        (["inbox"], ["d"]),
        (["d"], ["a running"]),
        (["a running"], ["o"]),
    ]


def test_a_cancellation_clears_running_tasks_conditions_and_flows() -> None:
    cleared = ("a", "c", "s→a", "a→c")
    inner = (Node("s"), Node("a"), Node("c", kind="condition"), Node("k", cancels=cleared), Node("l"))
    found = graph_net(drawn(*inner, flows="i s, s a, s k, a c, c l, l o, k o"))
    clears = {one[0]: one[4] for one in steps(found) if one[0]}
    assert clears == {"s": [], "a": [], "l": [], "k": ["a running", "c", "s→a"]}
    assert all(not one[4] for one in steps(found) if not one[0])


def test_cancelling_a_flow_clears_all_flows_of_that_name() -> None:
    graph = drawn(Node("s"), Node("j", join="and"), Node("k", cancels=("s→j",)), flows="i s, s j, s j, s k, j o, k o")
    found = graph_net(graph).net
    (clears,) = (one.clears for one in found.transitions if one.name == "k")
    assert [place for place, name in enumerate(found.places) if name == "s→j"] == bits(clears)
    assert clears.bit_count() == 2


def test_tasks_of_one_label_are_told_apart_by_their_ids() -> None:
    graph = drawn(Node("a", name="check"), Node("b", name="check"), Node("c"), flows="i a, a b, b c, c o")
    assert titles(graph) == {"i": "i", "o": "o", "a": "check (a)", "b": "check (b)", "c": "c"}
    found = graph_net(graph).net
    assert "check (a) running" in found.places
    assert {(one.name, one.label) for one in found.transitions if one.name} == {
        ("check (a)", "check"), ("check (b)", "check"), ("c", "c"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("count", "verdict"), [(WIDEST_OR - 1, "sound"), (WIDEST_OR, "sound"), (WIDEST_OR + 1, "unknown")]
)
def test_or_gateways_are_searched_up_to_the_widest(count: int, verdict: str) -> None:
    inner = [Node(f"a{n}") for n in range(count)]
    flows = ", ".join(["i s", *(f"s {one.id}, {one.id} j" for one in inner), "j o"])
    graph = drawn(Node("s", split="or"), Node("j", join="or"), *inner, flows=flows)
    found = check_graph(graph)
    assert found.verdict == verdict
    if verdict == "unknown":
        assert found.explanation == "'s', 'j' has more than 8 or-branches"
        assert graph_net(graph).too_wide == ("s", "j")
    else:
        assert len(graph_net(graph).or_joins[0].transitions) == 2**count - 1


def test_a_builder_names_what_has_no_name() -> None:
    builder = NetBuilder()
    assert [builder.place(), builder.place("desk"), builder.place()] == [2, 3, 4]
    builder.transition([0], [2, 4])
    builder.transition([2, 4], [3], label="b", clears=4)
    builder.transition([3], [1], label="c", name="last")
    assert builder.net() == Net(
        ("start", "end", "p2", "desk", "p4"),
        (
            NetTransition("t0", "", 0b1, 0b10100),
            NetTransition("b", "b", 0b10100, 0b1000, 0b100),
            NetTransition("last", "c", 0b1000, 0b10),
        ),
    )


PLACES = ("start", "end", "p", "q")


def net(*transitions: tuple[str, str, str]) -> Net:
    """Transitions written as name, takes and puts, with places by their initials."""

    def mask(letters: str) -> int:
        return sum(1 << number for number, name in enumerate(PLACES) if name[0] in letters)

    return Net(PLACES, tuple(NetTransition(name, name, mask(takes), mask(puts)) for name, takes, puts in transitions))


@pytest.mark.parametrize(
    ("transitions", "words"),
    [
        ((("a", "s", "pq"), ("b", "pq", "e")), None),
        ((("a", "s", "pq"), ("b", "pq", "e"), ("c", "p", "s")), "'start' is the start, but steps lead back to it"),
        ((("a", "s", "pq"), ("b", "pq", "e"), ("c", "e", "p")), "'end' is the end, but steps lead on from it"),
        ((("a", "s", "pq"), ("b", "pq", "e"), ("c", "", "p")), "'c' needs nothing to happen"),
        ((("a", "s", "pq"), ("b", "pq", "e"), ("c", "p", "")), "'c' leads nowhere"),
        ((("a", "s", "pq"), ("b", "pq", "e"), ("", "p", "")), "'p' leads nowhere"),
        ((("a", "s", "p"), ("b", "pq", "e")), "q: cannot be reached from the start"),
        ((("a", "s", "e"), ("b", "q", "p")), "p, q: cannot be reached from the start"),
        ((("a", "s", "pq"), ("b", "p", "e")), "q: has no way to the end"),
        ((("a", "s", "p"), ("b", "p", "q"), ("c", "q", "p"), ("d", "s", "e")), "p, q: has no way to the end"),
        ((("d", "q", "e"), ("c", "p", "q"), ("a", "s", "p")), None),
    ],
)
def test_a_structure_has_one_source_one_sink_and_everything_between(
    transitions: tuple[tuple[str, str, str], ...], words: str | None
) -> None:
    wanted = None if words is None else Soundness("unsound", "structure", words)
    assert structure(net(*transitions)) == wanted
