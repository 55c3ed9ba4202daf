"""The net of a graph as PNML, and nets of others as graphs."""

from __future__ import annotations

import random

import pytest

from groupwise.workflows.block_form import lift
from groupwise.workflows.blocks import Activity, Cancellable, Choice, Design, Instances, Parallel, Sequence, activities
from groupwise.workflows.document import Document, document_of
from groupwise.workflows.files import CannotExpress
from groupwise.workflows.files.formats import BadFile
from groupwise.workflows.files.pnml import read, write
from groupwise.workflows.files.xml_tree import parse
from groupwise.workflows.graph import Flow, Graph, Node
from groupwise.workflows.soundness.check import check_graph
from groupwise.xml_reader import Element
from tests.workflows.designs import random_design

NET = """<pnml xmlns="http://www.pnml.org/version-2009/grammar/pnml"><net id="n"><page id="g">
<place id="i"><initialMarking><text>1</text></initialMarking></place>
<transition id="t"><name><text>Do it</text></name></transition>
<place id="o"/>
<arc id="a" source="i" target="t"/>
<arc id="b" source="t" target="o"/>
</page></net></pnml>"""


@pytest.mark.parametrize("seed", range(15))
def test_the_net_of_a_design_is_sound_and_has_its_activities(seed: int) -> None:
    rng = random.Random(seed)
    design = random_design(rng, rng.randint(1, 12), ("sequence", "parallel", "choice", "order", "loop"))
    written = write(document_of(design))
    check_structure(parse(written))
    document = read(written)
    graph = document.root
    assert read(write(document)) == document
    assert {node.name for node in graph.tasks if not node.silent} == {a.name for a in activities(design.root)}
    assert check_graph(graph).verdict == "sound"


def check_structure(root: Element) -> None:
    """What the grammar of place/transition nets demands."""
    (net,) = root.all("net")
    (page,) = net.all("page")
    ids = [e.get("id") for e in root.walk() if e.get("id")]
    assert len(set(ids)) == len(ids)
    places, transitions = ({e.get("id") for e in page.all(kind)} for kind in ("place", "transition"))
    for arc in page.all("arc"):
        ends = arc.get("source"), arc.get("target")
        assert (ends[0] in places and ends[1] in transitions) or (ends[0] in transitions and ends[1] in places)
    assert {e.name for e in page.parts} == {"place", "transition", "arc"}


def test_a_net_has_the_blocks_of_its_design() -> None:
    body = Sequence((Activity("a"), Parallel((Activity("b"), Activity("c"))), Activity("d")))
    assert lift(read(write(document_of(Design("d", body))))).root == body
    choice = Sequence((Activity("a"), Choice((Activity("b"), Activity("c")), (0.5, 0.5)), Activity("d")))
    assert lift(read(write(document_of(Design("d", choice))))).root == choice


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (Cancellable(Activity("a"), 0.5), "'break_off_1' cancels others"),
        (Instances(Activity("a"), 2, 2, 2), "'a' has several instances"),
        (Instances(Sequence((Activity("a"), Activity("b"))), 2, 2, 2), "'instances_1' calls"),
    ],
)
def test_what_a_net_cannot_say_is_refused_by_name(block: Cancellable | Instances, message: str) -> None:
    with pytest.raises(CannotExpress, match=message):
        write(document_of(Design("d", block)))


def test_an_or_join_is_refused_by_name() -> None:
    nodes = (Node("s", kind="start"), Node("a", split="or"), Node("b", "wait", join="or"), Node("e", kind="end"))
    flows = (Flow("s", "a"), Flow("a", "b"), Flow("s", "b"), Flow("b", "e"))
    with pytest.raises(CannotExpress, match="'wait' is an or-join"):
        write(Document("d", (Graph("g", nodes, flows),)))


def test_a_net_is_read() -> None:
    graph = read(NET.encode()).root
    assert [(node.id, node.kind, node.label) for node in graph.nodes] == [
        ("i", "start", "i"),
        ("o", "end", "o"),
        ("t", "task", "Do it"),
    ]
    assert [flow.id for flow in graph.flows] == ["i→t", "t→o"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("pnml", "xml", "line 1: the root element is <xml>"),
        ('<place id="o"/>', '<place id="i"/>', "line 4: the id 'i' of a place is missing or used twice"),
        ('target="o"', 'target="x"', "line 6: the arc 'b' names 'x', which does not exist"),
        ('source="i" target="t"', 'source="i" target="o"', "line 5: the arc 'a' does not connect"),
        ('target="t"/>', 'target="t"><inscription><text>2</text></inscription></arc>', "line 5: the arc 'a' moves 2"),
        (
            'target="t"/>',
            'target="t"><type value="inhibitor"/></arc>',
            "line 5: the arc 'a' has the unsupported type 'inhibitor'",
        ),
        ("<text>1</text>", "<text>3</text>", "line 2: the place 'i' has 3 tokens"),
        ('<place id="o"/>', '<place id="o"/><place id="q"/>', "line 1: a workflow net has one start place"),
        ('<place id="o"/>', '<referencePlace id="o" ref="i"/>', "line 4: <referencePlace> 'o'"),
    ],
)
def test_a_broken_net_says_where_and_why(old: str, new: str, message: str) -> None:
    assert old in NET
    with pytest.raises(BadFile) as caught:
        read(NET.replace(old, new).encode())
    assert caught.value.message.startswith(message)
