"""YAWL files are read in every version; what is written is valid, and comes back as it was, edited or not."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from groupwise.workflows.block_form import lift
from groupwise.workflows.blocks import Activity, Choice, Design, Handling, Instances, Sequence, Skip
from groupwise.workflows.document import Document, document_of
from groupwise.workflows.files import CannotExpress, read_workflow, write_workflow
from groupwise.workflows.files.formats import BadFile
from groupwise.workflows.files.yawl import read, write
from groupwise.workflows.graph import Flow, Graph, Node, TaskCopies
from groupwise.workflows.requirements import Requirements, parse_requirements
from tests.workflows.designs import random_design
from tests.workflows.files.samples import SHARED, YAWL, edited, in_order, mistakes, needs_data
from tests.workflows.test_endings import random_requirements

SMALL = """<?xml version="1.0"?>
<specificationSet xmlns="http://www.yawlfoundation.org/yawlschema" version="4.0"
    xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">
<specification uri="small">
<metaData/>
<decomposition id="Net" isRootNet="true" xsi:type="NetFactsType"><processControlElements>
<inputCondition id="i"><flowsInto><nextElementRef id="A"/></flowsInto></inputCondition>
<task id="A"><flowsInto><nextElementRef id="o"/></flowsInto><join code="xor"/><split code="and"/></task>
<outputCondition id="o"/>
</processControlElements></decomposition>
</specification></specificationSet>
"""


@needs_data
@pytest.mark.parametrize("path", YAWL, ids=lambda path: path.name)
def test_every_specification_comes_back_as_it_was(path: Path) -> None:
    document = read_workflow(path)
    written = write(document)
    assert mistakes("yawl", written) == []
    again = read(written)
    assert replace(again, notes=()) == replace(document, notes=())
    assert write(again) == written
    if path.suffix == ".yawl":
        assert document.notes == ()


@needs_data
@pytest.mark.parametrize("path", YAWL, ids=lambda path: path.name)
def test_an_edited_specification_is_valid_and_keeps_its_edits(path: Path) -> None:
    document = read_workflow(path)
    changed = replace(document, graphs=tuple(edited(graph) for graph in document.graphs))
    written = write(changed)
    assert mistakes("yawl", written) == []
    for before, after in zip(changed.graphs, read(written).graphs, strict=True):
        assert _bare(after) == _bare(before)


def _bare(graph: Graph) -> tuple[set[Node], set[Flow]]:
    nodes = {replace(node, extras=(), cancels=tuple(sorted(node.cancels))) for node in graph.nodes}
    return nodes, {replace(flow, extras=()) for flow in graph.flows}


@pytest.mark.parametrize("seed", range(40))
def test_a_design_comes_back_as_it_was(seed: int) -> None:
    rng = random.Random(seed)
    design = random_design(rng, rng.randint(1, 14))
    document = document_of(design)
    written = write(document)
    again = read(written)
    assert again.notes == ()
    assert lift(again) == lift(document)
    assert [_bare(graph) for graph in again.graphs] == [_bare(graph) for graph in document.graphs]
    if SHARED is not None:
        assert mistakes("yawl", written) == []


def test_everything_known_of_the_work_comes_back() -> None:
    requirements = parse_requirements(
        {
            "name": "claims",
            "activities": {"check <it>": {"duration": {"mean": 60}, "pools": ["clerk & co"]}},
            "pools": {"clerk & co": {"most": 3}},
        }
    )
    activity = Activity("check <it>", Handling("clerk & co", 2, "due", timeout=0.5, delay=1.5, due=9.0))
    document = document_of(Design("claims: 2nd", activity, (("clerk & co", 3),), "why & what for"), requirements)
    again = read(write(document))
    assert in_order(again) == in_order(document)
    assert isinstance(again.requirements, Requirements)


def test_choices_are_decided_by_a_variable_of_the_net(tmp_path: Path) -> None:
    design = Design("d", Choice((Activity("yes"), Activity("no")), (0.25, 0.75)))
    path = tmp_path / "d.yawl"
    write_workflow(design, path)
    text = path.read_text()
    assert "/d/xor_split_1_goes_to/text() = 'yes'" in text
    assert "<isDefaultFlow/>" in text
    changed = text.replace("/d/xor_split_1_goes_to/text() = 'yes'", "/d/amount > 3")
    path.write_text(changed)
    flows = read_workflow(path).root.out_of("xor_split_1")
    assert [(flow.condition, flow.default, flow.probability) for flow in flows] == [
        ("/d/amount > 3", False, 0.25),
        ("", True, 0.75),
    ]


@needs_data
def test_the_rich_example_is_understood() -> None:
    assert SHARED is not None
    document = read_workflow(SHARED / "yawl/specs/orderfulfillment.yawl")
    nodes = [node for graph in document.graphs for node in graph.nodes]
    assert (document.root.name, len(document.graphs)) == ("Overall", 9)
    assert sum(node.kind == "task" for node in nodes) == 66
    assert sum(node.kind == "condition" for node in nodes) == 15
    assert sum(len(graph.flows) for graph in document.graphs) == 126
    assert sum(len(node.cancels) for node in nodes) == 9
    assert sum(node.copies != TaskCopies() for node in nodes) == 1
    called = {node.calls for node in document.root.nodes if node.calls}
    assert called == {"Ordering", "Carrier_Appointment", "Payment", "Freight_in_Transit", "Freight_Delivered"}
    assert [node.handling.timeout for node in nodes if node.handling.timeout] == [3 * 86400.0]
    assert sum(node.handling.pool is not None for node in nodes) == 45


@needs_data
def test_a_timer_follows_the_timeout_and_keeps_its_trigger() -> None:
    assert SHARED is not None
    document = read_workflow(SHARED / "yawl/specs/orderfulfillment.yawl")
    graph = next(g for g in document.graphs if any(node.handling.timeout for node in g.nodes))
    nodes = tuple(
        replace(node, handling=replace(node.handling, timeout=60.0)) if node.handling.timeout else node
        for node in graph.nodes
    )
    graphs = tuple(replace(graph, nodes=nodes) if one is graph else one for one in document.graphs)
    text = write(replace(document, graphs=graphs)).decode()
    assert "<trigger>OnEnabled</trigger>\n            <duration>PT60S</duration>" in text
    assert "P3D" not in text


def test_instances_and_names_that_xml_does_not_accept() -> None:
    body = Sequence((Activity("1. Prüfen!"), Activity("check it"), Activity("check_it")))
    design = Design("4 eyes/principle", Sequence((Instances(body, 2, 5, 1), Instances(Activity("日本"), 3, 3, 2))))
    document = document_of(design)
    written = write(document)
    again = read(written)
    assert (again.name, lift(again)) == (document.name, lift(document))
    assert [_bare(graph) for graph in again.graphs] == [_bare(graph) for graph in document.graphs]
    if SHARED is not None:
        assert mistakes("yawl", written) == []


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("specificationSet", "definitions", "line 2: the root element is <definitions>"),
        ('version="4.0"', 'version="9.1"', "line 2: YAWL version '9.1' is unknown; supported are Beta 3"),
        ('id="A">', 'id="i">', "line 8: the id 'i' is used twice"),
        ('Ref id="o"', 'Ref id="x"', "line 8: 'A' flows into 'x', which does not exist"),
        ("<join", '<removesTokens id="x"/><join', "line 8: 'A' removes tokens from 'x'"),
        (
            "<join",
            '<removesTokensFromFlow><flowSource id="i"/><flowDestination id="o"/></removesTokensFromFlow><join',
            "line 8: 'A' removes tokens from the flow 'i→o', which does not exist",
        ),
        ('code="xor"', 'code="nor"', "line 8: the join of 'A' is nor"),
        ('<join code="xor"/>', "", "line 8: the join of 'A' is missing"),
        ('<outputCondition id="o"/>', "", "line 6: the net 'Net' has 0 outputConditions"),
        ("</task>", '<decomposesTo id="B"/></task>', "line 8: task 'A' decomposes to 'B', which does not exist"),
        ('xsi:type="NetFactsType"', 'xsi:type="Thing"', "line 6: the decomposition 'Net' is of type 'Thing'"),
        ("<metaData/>", "</specification><specification>", "line 5: a file must have one specification, not 2"),
        ("<task", "<tusk", "not valid XML: mismatched tag (at line 8, column"),
    ],
)
def test_a_broken_file_says_where_and_why(old: str, new: str, message: str) -> None:
    assert old in SMALL
    with pytest.raises(BadFile) as caught:
        read(SMALL.replace(old, new).encode())
    assert caught.value.message.startswith(message)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9, 0.99])
def test_a_file_cut_short_is_refused(share: float) -> None:
    with pytest.raises(BadFile, match=r"^not valid XML: .* \(at line \d+, column \d+\)"):
        read(SMALL[: int(len(SMALL.rstrip()) * share)].encode())


def test_what_is_not_carried_is_noted() -> None:
    content = SMALL.replace('<split code="and"/>', '<split code="and"/><fancy/>').replace(
        "<task", "<!-- why -->\n<task"
    )
    notes = read(content.encode()).notes
    assert notes == (
        "line 9: <fancy> in task 'A' is left out: YAWL 4.0 has no such element",
        "line 8: a comment in net 'Net' is left out",
    )


def test_graphs_that_yawl_cannot_hold_name_the_element() -> None:
    start, end = Node("s", kind="start"), Node("e", kind="end")
    lost = Graph("g", (start, Node("t"), end), (Flow("s", "t"),))
    with pytest.raises(CannotExpress, match="no flow leaves 't'"):
        write(Document("d", (lost,)))
    back = Graph("g", (start, Node("t"), end), (Flow("s", "t"), Flow("t", "e"), Flow("e", "t")))
    with pytest.raises(CannotExpress, match="a flow leaves the end 'e'"):
        write(Document("d", (back,)))


@pytest.mark.parametrize("seed", range(20))
def test_early_endings_are_paths_and_come_back(seed: int) -> None:
    rng = random.Random(seed)
    design = random_design(rng, rng.randint(1, 14))
    document = document_of(design, random_requirements(rng, design))
    written = write(document)
    assert SHARED is None or mistakes("yawl", written) == []
    again = read(written)
    assert lift(again) == lift(document)
    for before, after in zip(document.graphs, again.graphs, strict=True):
        assert set(after.flows) == set(before.flows)
        assert {node.id: (node.name, node.extras) for node in after.nodes} == {
            node.id: (node.name, node.extras) for node in before.nodes
        }


def test_work_is_offered_to_whoever_may_do_it_and_choices_say_what_is_decided() -> None:
    told = {name: {"duration": {"mean": 60}, "pools": ["clerk", "boss"]} for name in ("check", "pay")}
    branch = {"name": "damage", "options": {"pay": 0.3}}
    pools = {"clerk": {}, "boss": {}}
    known = parse_requirements({"name": "r", "activities": told, "pools": pools, "branches": [branch]})
    root = Sequence((Activity("check"), Choice((Activity("pay", Handling(pool="boss")), Skip()), (0.3, 0.7))))
    document = document_of(Design("d", root), known)
    text = write(document).decode()
    assert text.count("<role>clerk</role>") == text.count("<role>boss</role>") == 1
    for said in ("<name>damage?</name>", "<documentation>yes (30%)</documentation>"):
        assert said in text
    assert in_order(read(text.encode())) == in_order(document)
    changed = read(text.replace("<name>damage?</name>", "<name>is it broken?</name>").encode())
    assert changed.root.by_id["xor_split_1"].name == "is it broken?"
