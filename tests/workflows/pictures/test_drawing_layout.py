"""Nothing overlaps, no arrow runs through a box, and the same graph is always drawn the same way."""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from itertools import combinations, pairwise, product
from types import FrameType

import pytest

from groupwise.workflows.blocks import Activity, Choice, Design, Loop, Parallel, Sequence
from groupwise.workflows.document import document_of, to_graph
from groupwise.workflows.graph import Flow, Graph, Node
from groupwise.workflows.pictures.column_assignment import DrawingColumns
from groupwise.workflows.pictures.drawing_layout import NAME_LINE, DrawingLayout, NodeBox, in_rows, layout
from groupwise.workflows.pictures.labels import SMALL, flow_label, name_below, width_of, wrapped
from groupwise.workflows.pictures.placement import gaps
from groupwise.workflows.pictures.scene import without_detours
from tests.workflows.designs import FLAT, random_block, random_design


def graph(flows: str, *names: str) -> Graph:
    """i and o are the start and the end; a, b, … are tasks."""
    pairs = [tuple(pair.split(">")) for pair in flows.split()]
    kinds = {"i": "start", "o": "end"}
    found = dict.fromkeys([*(end for pair in pairs for end in pair), *names])
    nodes = [Node(name, kind=kinds.get(name, "task")) for name in found]  # type: ignore[arg-type]
    return Graph("g", tuple(nodes), tuple(Flow(a, b) for a, b in pairs))


def overlaps(one: NodeBox, other: NodeBox) -> bool:
    return one.x < other.right and other.x < one.right and one.y < other.bottom and other.y < one.bottom


def faults(drawn: Graph, place: DrawingLayout) -> list[str]:
    found = [f"{a} on {b}" for a, b in combinations(place.boxes, 2) if overlaps(place.boxes[a], place.boxes[b])]
    for flow in drawn.flows:
        for (x1, y1), (x2, y2) in pairwise(place.routes[flow.id]):
            if x1 != x2 and y1 != y2:
                found.append(f"{flow.id} runs aslant")
            line = NodeBox(min(x1, x2) - 1e-6, min(y1, y2) - 1e-6, abs(x1 - x2) + 2e-6, abs(y1 - y2) + 2e-6)
            for name, box in place.boxes.items():
                inner = NodeBox(box.x + 1, box.y + 1, box.width - 2, box.height - 2)
                pointed = drawn.by_id[name].silent or drawn.by_id[name].kind != "task"
                if overlaps(line, inner) and not (pointed and name in (flow.source, flow.target)):
                    found.append(f"{flow.id} runs through {name}")
    for x, y in [point for route in place.routes.values() for point in route]:
        if not (0 <= x <= place.width and 0 <= y <= place.height):
            found.append(f"({x}, {y}) is outside")
    return found


@pytest.mark.parametrize("seed", range(40))
def test_nothing_overlaps_in_random_designs(seed: int) -> None:
    rng = random.Random(seed)
    for drawn in document_of(random_design(rng, rng.randint(1, 30))).graphs:
        place = layout(drawn)
        assert faults(drawn, place) == []
        assert set(place.boxes) == set(drawn.by_id)
        assert set(place.routes) == {flow.id for flow in drawn.flows}
        assert place == layout(drawn)


@pytest.mark.parametrize(
    "drawn",
    [
        graph("i>a a>a a>o"),
        graph("i>a a>b b>a b>c c>b c>a c>o"),
        graph("i>a a>o b>c c>b", "d"),
        graph("i>a a>b a>c c>d d>c b>o"),
        graph("i>a i>b a>o b>o o>i"),
        graph("i>a a>c a>d b>c b>d i>b c>o d>o"),
        graph("i>o"),
        graph("", "i", "o"),
    ],
    ids=["self", "loops", "island", "dead end", "round", "all to all", "empty", "unconnected"],
)
def test_graphs_that_no_design_has_are_drawn_too(drawn: Graph) -> None:
    place = layout(drawn)
    assert faults(drawn, place) == []


def texts(drawn: Graph, place: DrawingLayout) -> dict[str, NodeBox]:
    """Where words stand outside of boxes."""
    found = {}
    for flow in drawn.flows:
        if label := flow_label(flow):
            x, y = place.labels[flow.id]
            found[flow.id] = NodeBox(x, y - 9, width_of(label, SMALL), 11)
    for node in drawn.nodes:
        if lines := name_below(node):
            box, width = place.boxes[node.id], max(width_of(line, SMALL) for line in lines)
            found[node.id] = NodeBox(box.middle[0] - width / 2, box.bottom + 1, width, NAME_LINE * len(lines) - 1)
    return found


@pytest.mark.parametrize("seed", range(30))
def test_words_stand_on_nothing(seed: int) -> None:
    rng = random.Random(seed)
    for graph in document_of(random_design(rng, rng.randint(2, 30))).graphs:
        nodes = [replace(n, name=f"the {n.id}") if n.silent and rng.random() < 0.3 else n for n in graph.nodes]
        drawn = replace(graph, nodes=tuple(nodes))
        stand_on_nothing(drawn, layout(drawn))
        stand_on_nothing(drawn, in_rows(drawn, layout(drawn), 700))


def stand_on_nothing(drawn: Graph, place: DrawingLayout) -> None:
    words = texts(drawn, place)
    for (one, text), (other, second) in combinations(words.items(), 2):
        assert not overlaps(text, second), (one, other)
    for (one, text), (other, box) in product(words.items(), place.boxes.items()):
        assert not overlaps(text, box), (one, other)
    for (one, text), (other, route) in product(words.items(), place.routes.items()):
        for (x1, y1), (x2, y2) in pairwise(route) if one != other else ():
            line = NodeBox(min(x1, x2), min(y1, y2), abs(x1 - x2) + 1e-6, abs(y1 - y2) + 1e-6)
            assert not overlaps(text, line), (one, other)


@pytest.mark.parametrize("seed", range(20))
def test_no_flow_runs_along_another_to_somewhere_else(seed: int) -> None:
    """Those between all of some and all of others may: there is nothing to confuse."""
    rng = random.Random(seed)
    for drawn in map(without_detours, document_of(random_design(rng, rng.randint(2, 35))).graphs):
        place = layout(drawn)
        ids = {flow.id for flow in drawn.flows}
        pieces = [(flow, *ends) for flow in drawn.flows for ends in pairwise(place.routes[flow.id])]
        for (one, a, b), (other, c, d) in combinations(pieces, 2):
            if one.source == other.source or one.target == other.target:
                continue
            if {f"{one.source}→{other.target}", f"{other.source}→{one.target}"} <= ids:
                continue
            for across in (0, 1):
                if a[across] == b[across] == c[across] == d[across]:
                    along = 1 - across
                    shared = min(max(a[along], b[along]), max(c[along], d[along])) - max(
                        min(a[along], b[along]), min(c[along], d[along])
                    )
                    assert shared <= 1, (one.id, other.id)


@pytest.mark.parametrize("seed", range(20))
def test_a_long_drawing_is_broken_into_rows(seed: int) -> None:
    rng = random.Random(seed)
    kinds = ("sequence", "sequence", "parallel", "choice", "loop")
    drawn = to_graph(Design("d", Sequence((Activity("first"), random_block(rng, 20, kinds), Activity("last")))))
    whole = layout(drawn)
    place = in_rows(drawn, whole, 700)
    assert faults(drawn, place) == []
    assert set(place.boxes) == set(whole.boxes)
    assert set(place.routes) == set(whole.routes)
    assert in_rows(drawn, whole, whole.width) is whole


def test_rows_are_of_about_one_length_and_read_from_left_to_right() -> None:
    drawn = to_graph(Design("d", Sequence(tuple(Activity(f"step {number}") for number in range(30)))))
    place = in_rows(drawn, layout(drawn), 1000)
    assert 800 < place.width < 1150
    heights = [place.boxes[f"step {number}"].y for number in range(30)]
    assert heights == sorted(heights)
    assert 4 <= len(set(heights)) <= 5


def test_flows_that_change_places_do_not_share_a_level() -> None:
    """From 0 to 50 and from 50 to 0: whichever turns first would run along the other, and so it stops short."""
    columns = DrawingColumns([0, 0, 1, 1], [[0, 1], [2, 3]], right=[[3], [2], [], []], left=[[], [], [1], [0]])
    (gap,) = gaps(columns, [0.0, 50.0, 0.0, 50.0])
    (link,) = gap.detours
    other = next(one for one in gap.tracks if one != link)
    assert gap.tracks[link].place < gap.tracks[other].place < gap.places - 1
    assert 0 < gap.detours[link] < 50


def test_flows_go_to_the_right_and_loops_come_back_above() -> None:
    drawn = to_graph(Design("d", Sequence((Activity("a"), Loop(Activity("b"), 0.3, Activity("redo")), Activity("c")))))
    boxes = layout(drawn).boxes
    assert boxes["a"].right < boxes["b"].x
    assert boxes["b"].right < boxes["c"].x
    assert boxes["redo"].bottom < boxes["b"].y
    assert boxes["a"].middle[1] == boxes["b"].middle[1] == boxes["c"].middle[1]


def test_the_likeliest_way_is_straight() -> None:
    parts = (Activity("rare"), Activity("usual"), Activity("odd"))
    drawn = to_graph(Design("d", Sequence((Choice(parts, (0.2, 0.7, 0.1)), Activity("z")))))
    place = layout(drawn)
    level = {place.boxes[name].middle[1] for name in ("start", "usual", "z", "end")}
    assert len(level) == 1
    assert len(place.routes["xor_split_1→usual"]) == 2


def test_routes_begin_and_end_at_their_nodes() -> None:
    drawn = to_graph(Design("d", Parallel((Activity("a"), Activity("b")))))
    place = layout(drawn)
    for flow in drawn.flows:
        first, last = place.routes[flow.id][0], place.routes[flow.id][-1]
        assert first == (place.boxes[flow.source].right, place.boxes[flow.source].middle[1])
        assert last == (place.boxes[flow.target].x, place.boxes[flow.target].middle[1])


def test_two_hundred_nodes_take_a_bounded_number_of_steps() -> None:
    drawn = to_graph(Design("d", random_block(random.Random(7), 80, FLAT)))
    assert len(drawn.nodes) > 200
    calls = 0

    def notice(_: FrameType, event: str, __: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(notice)
    try:
        layout(drawn)
    finally:
        sys.setprofile(None)
    assert calls < 200_000


def test_long_names_are_wrapped_and_their_boxes_hold_them() -> None:
    name = (
        "decide about the claim, with a second pair of eyes, and write down everything that was said about it at length"
    )
    drawn = to_graph(Design("d", Sequence((Activity(name), Activity("x" * 300), Activity("b")))))
    boxes = layout(drawn).boxes
    assert len(wrapped(name)) == 4
    assert wrapped(name)[-1].endswith("…")
    for label in (name, "x" * 300):
        assert all(width_of(line) + 20 <= boxes[label].width for line in wrapped(label))
    assert boxes["b"].height < boxes[name].height
    assert boxes[name].width < 200
