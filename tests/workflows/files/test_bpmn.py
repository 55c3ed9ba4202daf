"""BPMN files of other tools are understood; what is written is valid, and comes back as it was, edited or not."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from groupwise.workflows.block_form import lift
from groupwise.workflows.blocks import (
    Activity,
    Block,
    Cancellable,
    Design,
    Handling,
    Instances,
    Loop,
    Parallel,
    Sequence,
)
from groupwise.workflows.document import Document, document_of
from groupwise.workflows.files import CannotExpress, read_workflow, write_workflow
from groupwise.workflows.files.bpmn import read, write
from groupwise.workflows.files.formats import BadFile
from groupwise.workflows.graph import Flow, Graph, Node, TaskCopies
from groupwise.workflows.requirements import parse_requirements
from groupwise.workflows.soundness.check import check_graph
from groupwise.xml_reader import first
from tests.workflows.designs import random_design
from tests.workflows.files.samples import SHARED, in_order, mistakes

HEAD = """<?xml version="1.0" encoding="UTF-8"?>
<bpmn:definitions xmlns:bpmn="http://www.omg.org/spec/BPMN/20100524/MODEL"
  xmlns:bpmndi="http://www.omg.org/spec/BPMN/20100524/DI" xmlns:dc="http://www.omg.org/spec/DD/20100524/DC"
  xmlns:di="http://www.omg.org/spec/DD/20100524/DI" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
  xmlns:camunda="http://camunda.org/schema/1.0/bpmn" id="D" targetNamespace="http://bpmn.io/schema/bpmn"
  exporter="Camunda Modeler" exporterVersion="5.0">
"""
CLAIM = (
    HEAD
    + """  <bpmn:error id="Error_1" name="failed" errorCode="42" />
  <bpmn:process id="claim" name="Claim" isExecutable="true" camunda:historyTimeToLive="P5D">
    <bpmn:documentation>How a claim is settled.</bpmn:documentation>
    <bpmn:laneSet id="lanes">
      <bpmn:lane id="lane_1" name="Clerks"><bpmn:flowNodeRef>check</bpmn:flowNodeRef>
        <bpmn:flowNodeRef>gate</bpmn:flowNodeRef></bpmn:lane>
      <bpmn:lane id="lane_2" name="Bank"><bpmn:flowNodeRef>pay</bpmn:flowNodeRef></bpmn:lane>
    </bpmn:laneSet>
    <bpmn:startEvent id="by_mail" name="Mail"><bpmn:outgoing>f1</bpmn:outgoing>
      <bpmn:messageEventDefinition id="m1" /></bpmn:startEvent>
    <bpmn:startEvent id="by_phone" name="Phone"><bpmn:outgoing>f2</bpmn:outgoing></bpmn:startEvent>
    <bpmn:userTask id="check" name="Check it" camunda:assignee="jo">
      <bpmn:documentation>Look twice.</bpmn:documentation>
      <bpmn:extensionElements><camunda:taskListener class="x.Y" event="create" /></bpmn:extensionElements>
      <bpmn:incoming>f1</bpmn:incoming><bpmn:incoming>f2</bpmn:incoming><bpmn:outgoing>f3</bpmn:outgoing>
    </bpmn:userTask>
    <bpmn:boundaryEvent id="late" name="late" attachedToRef="check"><bpmn:outgoing>f8</bpmn:outgoing>
      <bpmn:timerEventDefinition id="t1"><bpmn:timeDuration xsi:type="bpmn:tFormalExpression">P2D</bpmn:timeDuration>
      </bpmn:timerEventDefinition></bpmn:boundaryEvent>
    <bpmn:exclusiveGateway id="gate" name="ok?" default="f5"><bpmn:incoming>f3</bpmn:incoming></bpmn:exclusiveGateway>
    <bpmn:subProcess id="settle" name="Settle">
      <bpmn:startEvent id="s0" /><bpmn:serviceTask id="pay" name="Pay" camunda:topic="pay">
        <bpmn:multiInstanceLoopCharacteristics camunda:collection="bills">
          <bpmn:loopCardinality xsi:type="bpmn:tFormalExpression">3</bpmn:loopCardinality>
        </bpmn:multiInstanceLoopCharacteristics></bpmn:serviceTask>
      <bpmn:endEvent id="e0" />
      <bpmn:sequenceFlow id="g1" sourceRef="s0" targetRef="pay" />
      <bpmn:sequenceFlow id="g2" sourceRef="pay" targetRef="e0" />
    </bpmn:subProcess>
    <bpmn:boundaryEvent id="broken" attachedToRef="settle">
      <bpmn:errorEventDefinition id="ed" errorRef="Error_1" /></bpmn:boundaryEvent>
    <bpmn:intermediateCatchEvent id="wait" name="a day">
      <bpmn:timerEventDefinition id="t2"><bpmn:timeDuration xsi:type="bpmn:tFormalExpression">P1D</bpmn:timeDuration>
      </bpmn:timerEventDefinition></bpmn:intermediateCatchEvent>
    <bpmn:endEvent id="paid" name="Paid" />
    <bpmn:endEvent id="refused" name="Refused" />
    <bpmn:dataObjectReference id="dor" dataObjectRef="do" /><bpmn:dataObject id="do" />
    <bpmn:sequenceFlow id="f1" sourceRef="by_mail" targetRef="check" />
    <bpmn:sequenceFlow id="f2" sourceRef="by_phone" targetRef="check" />
    <bpmn:sequenceFlow id="f3" sourceRef="check" targetRef="gate" />
    <bpmn:sequenceFlow id="f4" name="yes" sourceRef="gate" targetRef="wait">
      <bpmn:conditionExpression xsi:type="bpmn:tFormalExpression">${ok}</bpmn:conditionExpression></bpmn:sequenceFlow>
    <bpmn:sequenceFlow id="f5" sourceRef="gate" targetRef="refused" />
    <bpmn:sequenceFlow id="f6" sourceRef="wait" targetRef="settle" />
    <bpmn:sequenceFlow id="f7" sourceRef="settle" targetRef="paid" />
    <bpmn:sequenceFlow id="f8" sourceRef="late" targetRef="refused" />
    <bpmn:sequenceFlow id="f9" sourceRef="broken" targetRef="refused" />
    <bpmn:textAnnotation id="note"><bpmn:text>urgent</bpmn:text></bpmn:textAnnotation>
    <bpmn:association id="as" sourceRef="check" targetRef="note" />
  </bpmn:process>
  <bpmndi:BPMNDiagram id="dia"><bpmndi:BPMNPlane id="plane" bpmnElement="claim">
    <bpmndi:BPMNShape id="lane_di" bpmnElement="lane_1">
      <dc:Bounds x="0" y="0" width="900" height="200" /></bpmndi:BPMNShape>
    <bpmndi:BPMNShape id="check_di" bpmnElement="check">
      <dc:Bounds x="200" y="80" width="100" height="80" /></bpmndi:BPMNShape>
    <bpmndi:BPMNEdge id="f3_di" bpmnElement="f3">
      <di:waypoint x="300" y="120" /><di:waypoint x="350" y="120" /></bpmndi:BPMNEdge>
  </bpmndi:BPMNPlane></bpmndi:BPMNDiagram>
</bpmn:definitions>
"""
)
PLAIN = (
    HEAD
    + """<bpmn:process id="p">
<bpmn:startEvent id="s"/>
<bpmn:task id="a"/>
<bpmn:endEvent id="e"/>
<bpmn:sequenceFlow id="f" sourceRef="s" targetRef="a"/>
<bpmn:sequenceFlow id="g" sourceRef="a" targetRef="e"/>
</bpmn:process></bpmn:definitions>"""
)


def wrapped(content: str) -> bytes:
    return f'{HEAD}<bpmn:process id="p">{content}</bpmn:process></bpmn:definitions>'.encode()


def line(*names: str) -> str:
    """Flows one after the other."""
    return "".join(f'<bpmn:sequenceFlow id="{a}.{b}" sourceRef="{a}" targetRef="{b}"/>' for a, b in pairwise(names))


def valid(content: bytes) -> bool:
    return SHARED is None or mistakes("bpmn", content) == []


def test_a_typical_file_is_understood() -> None:
    document = read(CLAIM.encode())
    graph, inner = document.graphs
    assert (graph.name, inner.name, graph.documentation) == ("claim", "settle", "How a claim is settled.")
    check, settle, pay = graph.by_id["check"], graph.by_id["settle"], inner.by_id["pay"]
    assert (check.name, check.documentation, check.handling.pool) == ("Check it", "Look twice.", "Clerks")
    assert (check.split, [flow.target for flow in graph.out_of("check")]) == ("xor", ["gate", "late"])
    assert (settle.calls, settle.split, pay.handling.pool) == ("settle", "xor", "Bank")
    assert pay.copies == TaskCopies(3, 3, 3)
    assert graph.by_id["wait"].handling.delay == 86400
    gate = graph.out_of("gate")
    assert [(flow.condition, flow.default) for flow in gate] == [("${ok}", False), ("", True)]
    assert [flow.target for flow in graph.out_of(graph.start.id)] == ["by_mail", "by_phone"]
    assert {flow.source for flow in graph.into(graph.end.id)} == {"paid", "refused"}
    assert check_graph(graph).verdict == "sound"
    assert document.notes == ()


def test_a_typical_file_comes_back_as_it_was() -> None:
    document = read(CLAIM.encode())
    written = write(document)
    assert valid(written)
    again = read(written)
    drawn = ("BPMNShape", "BPMNEdge")
    for before, after in zip(document.graphs, again.graphs, strict=True):
        for old, new in zip(before.nodes, after.nodes, strict=True):
            assert replace(new, extras=tuple(e for e in new.extras if e.name not in drawn)) == replace(
                old, extras=tuple(e for e in old.extras if e.name not in drawn)
            )
        assert {f.id for f in before.flows} == {f.id for f in after.flows}
        assert before.extras == after.extras
    text = written.decode()
    for kept in ('camunda:assignee="jo"', "camunda:taskListener", 'errorCode="42"', "urgent", 'bpmnElement="lane_1"'):
        assert kept in text
    assert '<dc:Bounds height="80" width="100" x="200" y="80"/>' in text
    assert "<bpmn:flowNodeRef>pay</bpmn:flowNodeRef>" in text
    assert write(read(write(again))) == write(again)


def test_an_edited_file_is_valid() -> None:
    document = read(CLAIM.encode())
    graph = document.root
    check = replace(graph.by_id["check"], name="Check twice", join="and", handling=Handling(pool="Experts", priority=1))
    new = Node("phone back", "Phone back", split="xor", handling=Handling(pool="Clerks"), copies=TaskCopies(2, 4, 1))
    nodes = [check if node.id == "check" else node for node in graph.nodes if node.id != "wait"]
    flows = [flow for flow in graph.flows if "wait" not in (flow.source, flow.target)]
    flows += [Flow("gate", new.id, condition="${ok}"), Flow(new.id, "settle"), Flow(new.id, "paid")]
    edited = replace(graph, nodes=(*nodes, new), flows=tuple(flows))
    written = write(replace(document, graphs=(edited, *document.graphs[1:])))
    assert valid(written)
    again = read(written).root
    found = again.by_id["check"]
    assert (found.name, found.join, found.handling) == ("Check twice", "and", check.handling)
    assert first(found.extras, "userTask") is not None
    assert (again.by_id[new.id].copies, again.by_id[new.id].split) == (new.copies, "xor")
    assert {(f.source, f.target) for f in again.flows} == {(f.source, f.target) for f in flows}


@pytest.mark.parametrize("seed", range(40))
def test_a_design_comes_back_as_it_was(seed: int) -> None:
    rng = random.Random(seed)
    document = document_of(random_design(rng, rng.randint(1, 14)))
    written = write(document)
    assert valid(written)
    again = read(written)
    assert again.notes == ()
    assert lift(again) == lift(document)
    for before, after in zip(document.graphs, again.graphs, strict=True):
        assert set(after.flows) == set(before.flows)
        assert {replace(n, cancels=()) for n in after.nodes} == {replace(n, cancels=()) for n in before.nodes}
        assert {n.id: set(n.cancels) for n in after.nodes} == {n.id: set(n.cancels) for n in before.nodes}


def test_everything_known_of_the_work_comes_back() -> None:
    requirements = parse_requirements(
        {
            "name": "claims",
            "activities": {"1. check <it>": {"duration": {"mean": 60}, "pools": ["clerk & co"]}},
            "pools": {"clerk & co": {"most": 3}},
        }
    )
    activity = Activity("1. check <it>", Handling("clerk & co", 2, "due", timeout=0.1, delay=1.5, due=9.0))
    document = document_of(Design("claims: 2nd", activity, (("clerk & co", 3),), "why & what for"), requirements)
    written = write(document)
    assert valid(written)
    assert in_order(read(written)) == in_order(document)


def test_a_guarded_body_is_a_sub_process_with_an_event_on_its_boundary() -> None:
    inner = Cancellable(Activity("try"), 0.25, Activity("mend"))
    body: Block = Cancellable(Sequence((inner, Parallel((Activity("a"), Activity("b"))))), 0.1, Activity("stop"))
    document = document_of(Design("d", Loop(body, 0.5)))
    text = write(document).decode()
    assert text.count("<bpmn:subProcess") == text.count("<bpmn:boundaryEvent") == 2
    assert lift(read(text.encode())) == lift(document)


def test_other_cancellations_are_refused_by_name() -> None:
    nodes = (Node("s", kind="start"), Node("a", "Stop all", cancels=("s",)), Node("e", kind="end"))
    with pytest.raises(CannotExpress, match="'Stop all' cancels others"):
        write(Document("d", (Graph("g", nodes, (Flow("s", "a"), Flow("a", "e"))),)))


def test_tasks_that_join_and_split_get_gateways_and_lose_them_again() -> None:
    nodes = (
        Node("s", kind="start"),
        Node("c", kind="condition"),
        Node("a", "A", join="and", split="or"),
        Node("b", "B", join="or", split="xor"),
        Node("g", silent=True, join="and", split="xor"),
        Node("e", kind="end"),
    )
    ways = ["sa", "sc", "ca", "cb", "ab", "ag", "bg", "be", "ga", "ge"]
    graph = Graph("g", nodes, tuple(Flow(a, b, 0.5 if a == "b" else None) for a, b in ways))
    written = write(Document("g", (graph,)))
    assert valid(written)
    again = read(written).root
    assert set(again.nodes) == set(nodes)
    assert set(again.flows) == set(graph.flows)


def test_loops_links_and_ends_become_plain_flows() -> None:
    content = wrapped(
        '<bpmn:startEvent id="s"/><bpmn:task id="a"><bpmn:standardLoopCharacteristics>'
        "<bpmn:loopCondition>again</bpmn:loopCondition></bpmn:standardLoopCharacteristics></bpmn:task>"
        '<bpmn:intermediateThrowEvent id="t"><bpmn:linkEventDefinition name="L"/></bpmn:intermediateThrowEvent>'
        '<bpmn:intermediateCatchEvent id="c"><bpmn:linkEventDefinition name="L"/></bpmn:intermediateCatchEvent>'
        '<bpmn:parallelGateway id="x"/><bpmn:endEvent id="e1"/><bpmn:endEvent id="e2"/>'
        f"{line('s', 'a', 't')}{line('c', 'x', 'e1')}{line('x', 'e2')}"
    )
    document = read(content)
    graph = document.root
    assert {("a", "a_again"), ("a_again", "a"), ("t", "c")} <= {(f.source, f.target) for f in graph.flows}
    assert graph.by_id["all_ended"].join == "or"
    assert check_graph(graph).verdict == "sound"
    assert valid(write(document))
    assert isinstance(lift(read(wrapped(_loop_only()))).root, Loop)


def _loop_only() -> str:
    loop = '<bpmn:task id="a" name="A"><bpmn:standardLoopCharacteristics/></bpmn:task>'
    return f'<bpmn:startEvent id="s"/>{loop}<bpmn:endEvent id="e"/>{line("s", "a", "e")}'


def test_flows_may_be_written_outside_their_sub_process() -> None:
    inner = '<bpmn:startEvent id="i"/><bpmn:task id="a"/><bpmn:endEvent id="o"/>'
    content = wrapped(
        f'<bpmn:startEvent id="s"/><bpmn:subProcess id="sub">{inner}</bpmn:subProcess><bpmn:endEvent id="e"/>'
        f"{line('i', 'a', 'o')}{line('s', 'sub', 'e')}"
    )
    document = read(content)
    assert [[flow.id for flow in graph.flows] for graph in document.graphs] == [["s→sub", "sub→e"], ["i→a", "a→o"]]


def test_a_terminating_end_clears_the_rest() -> None:
    content = wrapped(
        '<bpmn:startEvent id="s"/><bpmn:parallelGateway id="x"/><bpmn:task id="a"/><bpmn:task id="b"/>'
        '<bpmn:endEvent id="e"/><bpmn:endEvent id="t"><bpmn:terminateEventDefinition/></bpmn:endEvent>'
        f"{line('s', 'x', 'a', 'e')}{line('x', 'b', 't')}"
    )
    document = read(content)
    assert {"a", "x→a", "e"} <= set(document.root.by_id["t"].cancels)
    written = write(document)
    assert valid(written)
    assert read(written) == document


def test_what_is_read_otherwise_is_noted() -> None:
    content = wrapped(
        '<bpmn:startEvent id="s"/><bpmn:complexGateway id="x"/>\n<bpmn:callActivity id="c" calledElement="other"/>'
        '<bpmn:boundaryEvent id="b" attachedToRef="c" cancelActivity="false"/><bpmn:endEvent id="e"/>'
        '<bpmn:subProcess id="sub" triggeredByEvent="true"><bpmn:startEvent id="z"/></bpmn:subProcess>'
        f"{line('s', 'x', 'c', 'e')}{line('b', 'e')}"
    )
    document = read(content)
    assert document.notes == (
        "line 7: the complex gateway 'x' is treated as an inclusive gateway",
        "line 8: 'c' calls 'other', which is not in this file",
        "line 8: <subProcess> 'sub' is kept, but is not part of the graph",
        "the event 'b' does not interrupt 'c'; it is treated as an or-split",
    )
    text = write(document).decode()
    assert 'triggeredByEvent="true"' in text
    assert 'calledElement="other"' in text
    assert valid(text.encode())


def test_what_another_format_has_no_place_for_is_told(tmp_path: Path) -> None:
    document = read(CLAIM.encode())
    assert write_workflow(document, tmp_path / "claim.bpmn") == ()
    (told,) = write_workflow(document, tmp_path / "claim.yawl")
    assert told.startswith("left out, because YAWL 4.0 has no place for it: boundaryEvent (2), ")
    assert "userTask (1)" in told
    again = read_workflow(tmp_path / "claim.yawl")
    assert {node.label for node in again.root.tasks} == {node.label for node in document.root.tasks}


def test_what_is_called_once_is_a_sub_process_and_what_is_called_twice_a_process() -> None:
    body = Instances(Sequence((Activity("a"), Activity("b"))), 2, 2, 2)
    document = document_of(Design("d", Sequence((body, Activity("c")))))
    text = write(document).decode()
    assert '<bpmn:subProcess id="instances_1"' in text
    assert valid(text.encode())
    assert in_order(read(text.encode())) == in_order(document)
    whole, inner = document.graphs
    again = Node("once more", calls=inner.name)
    flows = (*(flow for flow in whole.flows if flow.target != "end"), Flow("c", again.id), Flow(again.id, "end"))
    twice = replace(document, graphs=(replace(whole, nodes=(*whole.nodes, again), flows=flows), inner))
    text = write(twice).decode()
    assert text.count('calledElement="d_instances_1"') == 2
    assert in_order(read(text.encode())) == in_order(twice)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "bpmn:definitions",
            "bpmn:model",
            "line 2: the root element is <model>, but a BPMN 2.0 file has <definitions>",
        ),
        ("20100524/MODEL", "20990101/MODEL", "line 2: the root element is <definitions>"),
        ('id="a"', 'id="s"', "line 9: the id 's' is used twice"),
        ('targetRef="a"', 'targetRef="nowhere"', "line 11: the flow 'f' names 'nowhere'"),
        ('<bpmn:task id="a"/>', "<bpmn:task/>", "line 9: a <task> has no id"),
        ("bpmn:task", "bpmn:adHocSubProcess", "line 9: <adHocSubProcess> 'a' is not supported"),
        (
            '<bpmn:process id="p">',
            '<bpmn:process id="p"><x',
            "not valid XML: not well-formed (invalid token) (at line 8, column 1)",
        ),
        ("</bpmn:process>", "", "not valid XML: mismatched tag (at line 13, column 3)"),
    ],
)
def test_a_broken_file_says_where_and_why(old: str, new: str, message: str) -> None:
    assert old in PLAIN
    with pytest.raises(BadFile) as caught:
        read(PLAIN.replace(old, new).encode())
    assert caught.value.message.startswith(message)


def test_a_file_without_a_process_is_refused() -> None:
    with pytest.raises(BadFile, match="there is no process with any content"):
        read(f"{HEAD}</bpmn:definitions>".encode())


def test_a_diagram_of_ours_is_kept_only_once_somebody_has_moved_something() -> None:
    document = document_of(Design("d", Sequence((Activity("a"), Parallel((Activity("b"), Activity("c")))))))
    written = write(document)
    assert read(written) == document
    moved = written.replace(b' x="', b' x="1', 1)
    drawn = [first(node.extras, "BPMNShape") for node in read(moved).root.nodes]
    assert all(shape is not None for shape in drawn)
    assert b"laid out by Groupwise" not in write(read(moved))
    renamed = written.replace(b'name="b"', b'name="much longer"')
    assert read(renamed).root.nodes[1].extras != ()
