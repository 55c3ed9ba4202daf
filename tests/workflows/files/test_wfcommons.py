"""WfCommons instances are read with all that matters for scheduling, and come back valid and the same."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from groupwise.errors import ConfigError
from groupwise.workflows.blocks import Activity, Design, Handling, Retry
from groupwise.workflows.document import document_of
from groupwise.workflows.files import CannotExpress, read_workflow, write_workflow
from groupwise.workflows.files.step_dag import steps_of
from groupwise.workflows.files.wfcommons import read, write
from groupwise.workflows.requirements import parse_requirements
from tests.workflows.designs import random_block
from tests.workflows.files.schemas import INSTANCES, mistakes, needs_schemas

SMALL: dict[str, Any] = {
    "name": "small",
    "description": "two tasks",
    "schemaVersion": "1.5",
    "author": {"name": "A", "email": "a@b.c"},
    "workflow": {
        "specification": {
            "tasks": [
                {"name": "cut", "id": "t1", "parents": [], "children": ["t2"], "inputFiles": [], "outputFiles": ["f"]},
                {"name": "glue", "id": "t2", "parents": ["t1"], "children": [], "inputFiles": ["f"], "outputFiles": []},
            ],
            "files": [{"id": "f", "sizeInBytes": 2000}],
        },
        "execution": {
            "makespanInSeconds": 9.5,
            "executedAt": "2020",
            "tasks": [
                {"id": "t1", "runtimeInSeconds": 1.5, "coreCount": 2, "memoryInBytes": 100, "machines": ["m1"]},
                {
                    "id": "t2",
                    "runtimeInSeconds": 8,
                    "priority": 3,
                    "avgCPU": 50.0,
                    "command": {"program": "glue", "arguments": ["-x", "a b"]},
                },
            ],
            "machines": [{"nodeName": "m1", "cpu": {"coreCount": 4}}, {"nodeName": "m2", "system": "linux"}],
        },
    },
}


def content(**changes: Any) -> bytes:
    return json.dumps(SMALL | changes).encode()


def test_runtimes_files_and_machines_become_requirements() -> None:
    document = read(content())
    requirements = document.requirements
    assert requirements is not None
    cut, glue = requirements.activities["cut"], requirements.activities["glue"]
    assert (cut.duration.mean, cut.duration.kind, cut.cpu, cut.memory) == (1.5, "fixed", 2, 100)
    assert (cut.writes, glue.reads, requirements.data) == (("f",), ("f",), {"f": 2000.0})
    assert glue.documentation == "glue -x 'a b'"
    assert cut.pools == ("m1", "m2")
    assert document.servers == (("m1", 4), ("m2", 1))
    assert requirements.pools["m1"].kind == "machine"
    first, second = steps_of(document, "")
    assert (first.label, first.handling.pool) == ("cut", "m1")
    assert (second.label, second.needs, second.handling.priority) == ("glue", ("t1",), 3)
    assert "author is not kept" in document.notes
    assert "workflow.execution.tasks: avgCPU of 1 is not kept" in document.notes
    assert document.root.documentation == "two tasks"


@needs_schemas
@pytest.mark.parametrize("path", INSTANCES, ids=lambda path: path.stem)
def test_every_instance_comes_back_valid_and_as_it_was(path: Path, tmp_path: Path) -> None:
    document = read_workflow(path)
    write_workflow(document, tmp_path / "again.wfcommons.json")
    again = read_workflow(tmp_path / "again.wfcommons.json")
    assert replace(again, notes=()) == replace(document, notes=())
    assert mistakes("wfcommons", json.loads(write(document))) == []
    assert write(again) == write(document)
    original = json.loads(path.read_text())["workflow"]
    assert len(steps_of(document, "")) == len(original["specification"]["tasks"])
    total = sum(task["runtimeInSeconds"] for task in original["execution"]["tasks"])
    assert document.requirements is not None
    assert sum(a.duration.mean for a in document.requirements.activities.values()) == pytest.approx(total)


@needs_schemas
@pytest.mark.parametrize("seed", range(10))
def test_designs_of_steps_are_valid_and_come_back(seed: int) -> None:
    rng = random.Random(seed)
    root = random_block(rng, rng.randint(1, 20), ("sequence", "parallel", "order"))
    names = [f"a{number}" for number in range(20)]
    known = {name: {"duration": {"kind": "fixed", "mean": rng.random()}, "writes": [f"{name} out"]} for name in names}
    for requirements in (None, parse_requirements({"name": "d", "activities": known})):
        written = write(document_of(Design("d", root), requirements))
        assert mistakes("wfcommons", json.loads(written)) == []
        assert write(read(written)) == written


def test_an_edited_instance_is_written_as_edited() -> None:
    document = read(content())
    nodes = tuple(replace(node, name="slice") if node.id == "t1" else node for node in document.root.nodes)
    known = document.requirements
    assert known is not None
    activities = {"slice": known.activities["cut"], "glue": known.activities["glue"]}
    edited = replace(
        document,
        graphs=(replace(document.root, nodes=nodes),),
        requirements=known.model_copy(update={"activities": activities}),
    )
    assert [task["name"] for task in json.loads(write(edited))["workflow"]["specification"]["tasks"]] == [
        "slice",
        "glue",
    ]


def with_task(number: int, **changes: Any) -> bytes:
    value = json.loads(content())
    value["workflow"]["specification"]["tasks"][number] |= changes
    return json.dumps(value).encode()


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (
            b'{"name": "x",\n  oops}',
            "not valid JSON: Expecting property name enclosed in double quotes (at line 2, column 3)",
        ),
        (content(schemaVersion="0.9"), "schemaVersion: '0.9' is not supported"),
        (content(workflow=[]), "workflow: "),
        (with_task(1, parents=["t9"]), "tasks.1.parents: 't2' names 't9', which does not exist"),
        (with_task(1, parents=[]), "tasks.0.children: 't1' names 't2', which does not name it back"),
        (
            with_task(0, parents=["t2"], children=["t2"]),
            "tasks.0.parents: 't1' names 't2', which does not name it back",
        ),
        (with_task(1, id="t1"), "the id 't1' is used twice"),
        (with_task(1, id=7), "workflow.specification.tasks.1.id: "),
        (content(workflow=SMALL["workflow"] | {"execution": {"tasks": []}}), "the task 't1' is missing"),
    ],
)
def test_bad_instances_are_refused_with_their_place(broken: bytes, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        read(broken)
    assert said in str(error.value)


def test_a_ring_of_parents_is_refused() -> None:
    value = json.loads(with_task(0, parents=["t2"]))
    value["workflow"]["specification"]["tasks"][1]["children"] = ["t1"]
    with pytest.raises(ConfigError, match="steps need each other in a cycle"):
        read(json.dumps(value).encode())


def test_a_large_instance_is_read_in_a_moment() -> None:
    value = json.loads(content())
    value["padding"] = "x" * (10 << 20)
    assert "padding is not kept" in read(json.dumps(value).encode()).notes


@pytest.mark.parametrize(
    ("activity", "handling", "said"),
    [
        ({"duration": {"mean": 1}}, {}, "'a' has a duration of kind exponential"),
        ({"duration": {"kind": "fixed", "mean": 1}, "failure": 0.1}, {}, "cannot express the failure of 'a'"),
        ({"duration": {"kind": "fixed", "mean": 1}}, {"retry": Retry(1)}, "cannot express retries .1. for 'a'"),
    ],
)
def test_what_the_format_has_no_words_for_is_refused(activity: Any, handling: Any, said: str) -> None:
    requirements = parse_requirements({"name": "r", "activities": {"a": activity}})
    with pytest.raises(CannotExpress, match=said):
        write(document_of(Design("d", Activity("a", Handling(**handling))), requirements))
