"""What is written is complete: lanes, kinds of tasks, names, early endings, flows of nodes, and a diagram."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise, product
from typing import Any

import pytest

from groupwise.workflows.block_form import lift
from groupwise.workflows.blocks import Activity, Choice, Design, Handling, Loop, Parallel, Sequence, Skip, tidied
from groupwise.workflows.document import Document, document_of
from groupwise.workflows.endings import role_of
from groupwise.workflows.files.bpmn import read, write
from groupwise.workflows.graph import Flow, Graph, Node
from groupwise.workflows.requirements import parse_requirements
from groupwise.xml_reader import load_xml
from tests.workflows.designs import random_design
from tests.workflows.files.samples import in_order
from tests.workflows.files.test_bpmn import HEAD, line, valid, wrapped
from tests.workflows.test_endings import random_requirements

CLAIM: dict[str, Any] = {
    "name": "claim",
    "activities": {
        "wait for papers": {"kind": "receive", "duration": {"mean": 60}},
        "assess": {"kind": "decision", "duration": {"mean": 60}, "pools": ["clerk"], "knock_out": 0.1},
        "rate": {"kind": "decision", "duration": {"mean": 60}, "pools": ["system"]},
        "offer": {"kind": "human", "duration": {"mean": 60}, "pools": ["clerk"], "failure": 0.2},
        "pay": {"duration": {"mean": 60}, "pools": ["system"]},
        "refuse": {"kind": "send", "duration": {"mean": 60}, "pools": ["clerk", "boss"]},
        "note": {"duration": {"mean": 60}, "pools": ["boss"]},
        "think": {"duration": {"mean": 60}},
    },
    "pools": {"clerk": {"most": 3}, "system": {"kind": "machine"}, "boss": {}},
    "outcomes": [
        {
            "name": "cover",
            "after": "assess",
            "branches": {
                "covered": {"probability": 0.7, "activities": ["offer", "pay", "note"]},
                "not covered": {"probability": 0.3, "activities": ["refuse"], "ends": True},
            },
        }
    ],
}
ROOT = Sequence((
    Activity("wait for papers"),
    Parallel((Activity("assess"), Activity("rate"), Activity("think"))),
    Choice((
        Sequence((Activity("offer"), Loop(Activity("pay"), 0.1), Activity("note"))),
        Activity("refuse", Handling(pool="boss")),
    ), (0.7, 0.3)),
))  # fmt: skip


def claim() -> Document:
    return document_of(Design("claim", ROOT, (("clerk", 2),)), parse_requirements(CLAIM))


def elements(content: bytes) -> dict[str, Any]:
    return {e.get("id"): e for e in load_xml(content).walk() if e.get("id") and "MODEL" in e.namespace}


def test_everything_comes_back_with_its_endings() -> None:
    document = claim()
    written = write(document)
    assert valid(written)
    again = read(written)
    assert in_order(again) == in_order(document)
    # Also their order, on which simulations depend.
    assert again.requirements is not None
    assert list(again.requirements.activities) == list(CLAIM["activities"])
    assert write(again) == write(read(write(again)))
    assert lift(again) == lift(document_of(Design("claim", ROOT, (("clerk", 2),))))


@pytest.mark.parametrize("seed", range(30))
def test_random_designs_with_endings_come_back(seed: int) -> None:
    rng = random.Random(seed)
    design = random_design(rng, rng.randint(1, 14))
    document = document_of(design, random_requirements(rng, design))
    written = write(document)
    assert valid(written)
    assert lift(read(written)) == lift(document)
    for before, after in zip(document.graphs, read(written).graphs, strict=True):
        assert set(after.flows) == set(before.flows)
        assert {node.id: node.extras for node in after.nodes} == {node.id: node.extras for node in before.nodes}


def test_tasks_are_of_the_kind_that_the_requirements_say() -> None:
    found = {e.get("name"): e.name for e in elements(write(claim())).values() if e.name.endswith(("Task", "task"))}
    assert found == {
        "wait for papers": "receiveTask", "assess": "userTask", "rate": "serviceTask", "offer": "userTask",
        "pay": "serviceTask", "refuse": "sendTask", "note": "userTask", "think": "task",
    }  # fmt: skip


def test_a_lane_for_every_pool_has_its_tasks_and_is_drawn_around_them() -> None:
    content = write(claim())
    root = load_xml(content)
    lanes = {e.get("name"): e for e in root.walk() if e.name == "lane"}
    assert set(lanes) == {"clerk", "system", "boss"}
    known = elements(content)
    members = {name: [ref.text for ref in lane.all("flowNodeRef")] for name, lane in lanes.items()}
    named = {name: {known[ref].get("name") for ref in refs} for name, refs in members.items()}
    assert {"assess", "offer"} <= named["clerk"]
    assert {"rate", "pay"} <= named["system"]
    assert {"refuse", "note", "not covered"} <= named["boss"]
    nodes = [e.get("id") for e in known.values() if e.name.endswith(("Task", "task", "Event", "Gateway"))]
    assert sorted(nodes) == sorted(ref for refs in members.values() for ref in refs)
    boxes = boxes_of(content)
    for pool, lane in lanes.items():
        x, y, width, height = boxes[lane.get("id")]
        for ref in members[pool]:
            left, top, wide, high = boxes[ref]
            assert x <= left <= left + wide <= x + width, ref
            assert y <= top <= top + high <= y + height, ref


@pytest.mark.parametrize("seed", range(12))
def test_nodes_know_their_flows_and_all_of_it_is_drawn(seed: int) -> None:
    rng = random.Random(seed)
    design = random_design(rng, rng.randint(2, 14))
    root = load_xml(write(document_of(design, random_requirements(rng, design))))
    walked = list(root.walk())
    flows = [e for e in walked if e.name == "sequenceFlow"]
    kinds = ("Task", "task", "Event", "Gateway", "subProcess", "callActivity")
    nodes = [e for e in walked if e.name.endswith(kinds) and "MODEL" in e.namespace]
    for node in nodes:
        for side, end in (("incoming", "targetRef"), ("outgoing", "sourceRef")):
            wanted = [flow.get("id") for flow in flows if flow.get(end) == node.get("id")]
            assert sorted(e.text for e in node.all(side)) == sorted(wanted), node.get("id")
    drawn = Counter(e.get("bpmnElement") for e in walked if e.name in ("BPMNShape", "BPMNEdge"))
    lanes = [e for e in walked if e.name in ("lane", "participant")]
    assert drawn == Counter(e.get("id") for e in (*nodes, *flows, *lanes))


@pytest.mark.parametrize("seed", range(25))
def test_a_linter_would_find_nothing(seed: int) -> None:
    """The rules of bpmnlint that concern names and gateways; `benchmarks/workflow_lint.py` runs all of them."""
    rng = random.Random(seed)
    kinds = ("sequence", "parallel", "choice", "order", "loop")
    made = random_design(rng, rng.randint(1, 16), kinds)
    design = Design(made.name, tidied(made.root), made.servers)
    known = elements(write(document_of(design, random_requirements(rng, design) if seed % 2 else None)))
    flows = [e for e in known.values() if e.name == "sequenceFlow"]
    assert len({(f.get("sourceRef"), f.get("targetRef")) for f in flows}) == len(flows)
    for node in known.values():
        into, out = (sum(f.get(end) == node.get("id") for f in flows) for end in ("targetRef", "sourceRef"))
        if node.name.endswith("Gateway"):
            assert (into, out) != (1, 1), node.get("id")
            assert into < 2 or out < 2, node.get("id")
            assert node.get("name") or node.name == "parallelGateway" or out < 2, node.get("id")
        elif node.name.endswith(("Task", "task", "Event")):
            assert node.get("name"), node.get("id")
            assert max(into, out) < 2, node.get("id")
    for flow in flows:
        assert flow.get("name") or flow.find("conditionExpression") is None


def test_names_that_we_made_up_are_not_kept_but_changed_ones_are() -> None:
    document = document_of(Design("d", Choice((Activity("a"), Skip()), (0.3, 0.7))))
    text = write(document).decode()
    assert 'name="a needed?"' in text
    assert 'name="yes (30%)"' in text
    assert in_order(read(text.encode())) == in_order(document)
    renamed = text.replace('name="a needed?"', 'name="is it big?"').replace('name="yes (30%)"', 'name="big"')
    changed = read(renamed.encode())
    graph = changed.root
    assert graph.by_id["xor_split_1"].name == "is it big?"
    assert {flow.name for flow in graph.flows} == {"", "big"}
    again = write(changed).decode()
    assert 'name="is it big?"' in again
    assert 'name="big"' in again


def test_a_task_that_somebody_moves_to_another_lane_changes_its_pool() -> None:
    handled = [Activity(name, Handling(pool=pool)) for name, pool in (("a", "clerk"), ("b", "boss"))]
    text = write(document_of(Design("d", Sequence(tuple(handled))))).decode()
    one, other = (f"<bpmn:flowNodeRef>{name}</bpmn:flowNodeRef>" for name in "ab")
    moved = text.replace(other, "").replace(one, one + other)
    assert read(text.encode()).root.by_id["b"].handling.pool == "boss"
    assert read(moved.encode()).root.by_id["b"].handling.pool == "clerk"


def test_a_kind_of_task_that_somebody_chose_is_kept() -> None:
    text = write(claim()).decode()
    assert "<bpmn:userTask" in text
    changed = write(read(text.replace("bpmn:userTask", "bpmn:manualTask").encode())).decode()
    assert "<bpmn:manualTask" in changed
    assert "<bpmn:userTask" not in changed


def test_a_path_that_somebody_removed_is_gone() -> None:
    requirements = parse_requirements(
        {"name": "r", "activities": {n: {"duration": {"mean": 1}, "knock_out": 0.5} for n in "ab"}}
    )
    design = Design("d", Sequence((Activity("a"), Activity("b"))))
    lines = write(document_of(design, requirements)).decode()
    for tag, name in (("endEvent", "ended_1"), ("sequenceFlow", "passed_1_to_ended_1")):
        start = lines.index(f'<bpmn:{tag} id="{name}"')
        lines = lines[:start] + lines[lines.index(f"</bpmn:{tag}>", start) + len(f"</bpmn:{tag}>") :]
    document = read(lines.encode())
    assert [node.name for node in document.root.nodes if role_of(node) == "end"] == ["ended after b"]
    assert lift(document).root == Sequence((Activity("a"), Activity("b")))


def test_several_starts_and_ends_stay_events() -> None:
    content = wrapped(
        '<bpmn:startEvent id="s"/><bpmn:startEvent id="t"/><bpmn:task id="a"/><bpmn:exclusiveGateway id="x"/>'
        '<bpmn:endEvent id="e" name="good"/><bpmn:endEvent id="f"/>'
        f"{line('s', 'a', 'x', 'e')}{line('t', 'a')}{line('x', 'f')}"
    )
    document = read(content)
    found = elements(write(document))
    assert [found[name].name for name in "stef"] == ["startEvent", "startEvent", "endEvent", "endEvent"]
    assert in_order(read(write(document))) == in_order(document)


@pytest.mark.parametrize(("join", "split"), list(product(("xor", "and", "or"), ("xor", "or"))))
def test_a_task_that_leads_back_to_itself_still_does(join: Any, split: Any) -> None:
    nodes = (Node("s", kind="start"), Node("a", "A", join=join, split=split), Node("e", kind="end"))
    graph = Graph("g", nodes, (Flow("s", "a"), Flow("a", "a", 0.25), Flow("a", "e")))
    written = write(Document("g", (graph,)))
    assert valid(written)
    assert set(read(written).root.flows) == set(graph.flows)
    assert set(read(written).root.nodes) == set(nodes)


def test_ids_in_annotations_are_not_ids_of_elements() -> None:
    work = (Node("s", kind="start"), Node("b"), Node("e", kind="end"))
    inner = Graph("do it", work, (Flow("s", "b"), Flow("b", "e")))
    nodes = (Node("x", kind="start"), Node("do_it", calls="do it"), Node("y", kind="end"))
    outer = Graph("o", nodes, (Flow("x", "do_it"), Flow("do_it", "y")))
    document = Document("o", (outer, inner))
    assert in_order(read(write(document))) == in_order(document)


def test_a_file_of_somebody_else_gets_no_names_from_us() -> None:
    shape = '<bpmndi:BPMNShape id="h" bpmnElement="x"><dc:Bounds x="0" y="0" width="5" height="5"/></bpmndi:BPMNShape>'
    content = (
        f'{HEAD}<bpmn:process id="p"><bpmn:startEvent id="s"/><bpmn:exclusiveGateway id="x"/><bpmn:task id="a"/>'
        f'<bpmn:exclusiveGateway id="j"/><bpmn:endEvent id="e"/>{line("s", "x", "a", "j", "e")}{line("x", "j")}'
        '</bpmn:process><bpmndi:BPMNDiagram id="d"><bpmndi:BPMNPlane id="pl" bpmnElement="p">'
        f"{shape}</bpmndi:BPMNPlane></bpmndi:BPMNDiagram></bpmn:definitions>"
    )
    again = write(read(content.encode())).decode()
    assert "needed?" not in again
    assert "groupwise:node" not in again


def test_lanes_stay_as_drawn_once_somebody_has_moved_something() -> None:
    written = write(claim())
    moved = read(written.replace(b' x="', b' x="1', 1))
    again = write(moved)
    assert valid(again)
    drawn = Counter(e.get("bpmnElement") for e in load_xml(again).walk() if e.name in ("BPMNShape", "BPMNEdge"))
    assert set(drawn.values()) == {1}
    assert set(drawn) == {e.get("bpmnElement") for e in load_xml(written).walk() if e.name in ("BPMNShape", "BPMNEdge")}
    assert lift(read(again)) == lift(claim())


def boxes_of(content: bytes) -> dict[str, list[float]]:
    """Left, top, width and height of every shape."""
    shapes = [e for e in load_xml(content).walk() if e.name == "BPMNShape"]
    return {e.get("bpmnElement"): [float(e.parts[0].get(n)) for n in ("x", "y", "width", "height")] for e in shapes}


@pytest.mark.parametrize("kinds", [("sequence", "choice", "loop", "parallel"), ("sequence", "cancellable")])
def test_events_of_failures_stand_on_the_boundary_of_their_task(kinds: tuple[str, ...]) -> None:
    seen = 0
    for seed in range(12):
        rng = random.Random(seed)
        design = random_design(rng, rng.randint(2, 12), kinds)
        content = write(document_of(design, random_requirements(rng, design)))
        boxes, events = boxes_of(content), [e for e in load_xml(content).walk() if e.name == "boundaryEvent"]
        for event in (e for e in events if e.find("errorEventDefinition") is not None):
            x, y, width, height = boxes[event.get("id")]
            left, top, wide, high = boxes[event.get("attachedToRef")]
            assert (x + width / 2) in (pytest.approx(left, abs=0.2), pytest.approx(left + wide, abs=0.2))
            assert (y + height / 2) in (pytest.approx(top, abs=0.2), pytest.approx(top + high, abs=0.2))
            seen += 1
    assert seen > 5


def test_several_events_on_one_task_stand_side_by_side() -> None:
    events = "".join(f'<bpmn:boundaryEvent id="{name}" attachedToRef="a"/>' for name in ("b", "c", "d"))
    ends = "".join(f'<bpmn:endEvent id="{name}"/>' for name in ("e", "f", "g", "h"))
    flows = "".join(line(*pair) for pair in (("s", "a", "e"), ("b", "f"), ("c", "g"), ("d", "h")))
    content = write(read(wrapped(f'<bpmn:startEvent id="s"/><bpmn:task id="a"/>{events}{ends}{flows}')))
    boxes = boxes_of(content)
    lefts = sorted(boxes[name][0] for name in "bcd")
    assert all(right - left >= boxes["b"][2] for left, right in pairwise(lefts))
    assert all(boxes["a"][0] <= left + 15 <= boxes["a"][0] + boxes["a"][2] for left in lefts)
