"""Our own JSON holds everything and comes back as it was; what does not fit is refused with its place."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from groupwise.errors import ConfigError
from groupwise.workflows.blocks import Activity, Design, Handling
from groupwise.workflows.document import Document, document_of
from groupwise.workflows.files import CannotExpress, read_workflow, write_workflow
from groupwise.workflows.files.json_file import read, read_design, schema, write
from groupwise.workflows.graph import Flow, Graph, Node
from groupwise.workflows.requirements import parse_requirements
from tests.workflows.designs import random_design

VALIDATOR = Draft202012Validator(schema())
REQUIREMENTS = parse_requirements(
    {
        "name": "r",
        "activities": {"a": {"duration": {"mean": 0.1}, "pools": ["p"], "reads": ["x"]}},
        "pools": {"p": {"calendar": [[9, 17]]}},
        "data": {"x": 12.5},
        "objective": "pareto",
    }
)


@pytest.mark.parametrize("seed", range(60))
def test_designs_and_documents_come_back_exactly(seed: int) -> None:
    rng = random.Random(seed)
    design = random_design(rng, rng.randint(1, 25))
    document = document_of(design, REQUIREMENTS)
    assert read_design(write(design)) == design
    assert read(write(document)) == document
    assert read(write(design)) == document_of(design)
    VALIDATOR.validate(json.loads(write(design)))
    VALIDATOR.validate(json.loads(write(document)))


def test_every_field_of_a_document_comes_back(tmp_path) -> None:  # type: ignore[no-untyped-def]
    node = Node("b", "B ü", join="or", split="xor", cancels=("a",), calls="g", documentation="why\n", silent=True)
    nodes = (Node("i", kind="start"), Node("a", handling=Handling(timeout=1e-300)), node, Node("o", kind="end"))
    flows = (Flow("i", "b", 1 / 3, "x > 1", True), Flow("b", "o"))
    document = Document("d", (Graph("g", nodes, flows, "about"),), REQUIREMENTS, (("p", 1),), ("note",))
    write_workflow(document, tmp_path / "d.json")
    assert read_workflow(tmp_path / "d.json") == document


def test_the_schema_itself_is_valid_and_strict() -> None:
    Draft202012Validator.check_schema(schema())
    value = json.loads(write(Design("d", Activity("a"))))
    value["design"]["root"]["nmae"] = 1
    assert list(VALIDATOR.iter_errors(value))


def test_the_published_schema_is_the_one_of_today() -> None:
    published = Path(__file__).parents[3] / "docs" / "reference" / "workflow.schema.json"
    command = "python -m groupwise.workflows.files.json_file > docs/reference/workflow.schema.json"
    assert json.loads(published.read_text(encoding="utf8")) == schema(), f"write it again: {command}"


def changed(**change: Any) -> bytes:
    value = json.loads(write(document_of(Design("d", Activity("a")))))
    value["document"]["graphs"][0]["nodes"][1] |= change
    return json.dumps(value).encode()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", "not valid JSON: Expecting property name enclosed in double quotes (at line 1, column 2)"),
        (
            b'{"groupwise": "design",\n"version": 1,,}',
            "not valid JSON: Expecting property name enclosed in double quotes (at line 2, column 14)",
        ),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a": 1, "a": 2}', "'a' is given twice (at line 1)"),
        (b'{"groupwise": NaN}', "groupwise = nan must be a finite number"),
        (b"\xff\xfe", "the file is UTF-16 text"),
        (b"[]", "the key 'groupwise' is missing"),
        (b'{"groupwise": "song", "version": 1}', "groupwise: 'song' must be one of document, design"),
        (b'{"groupwise": "design", "version": 2}', "version: 2 must be 1"),
        (b'{"groupwise": "design", "version": 1}', "design: None must be an object"),
        (changed(join="nor"), "document.graphs.0.nodes.1.join: 'nor' must be one of and, xor, or"),
        (changed(silent=1), "document.graphs.0.nodes.1.silent: 1 must be true or false"),
        (changed(colour="red"), "document.graphs.0.nodes.1.colour: unknown"),
        (changed(handling={"timeout": -1}), "document.graphs.0.nodes.1.handling: timeout is -1"),
        (changed(id="start"), "document.graphs.0: d: the id 'start' is used twice"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(content: bytes, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        read(content)
    assert said in str(error.value)


def test_a_design_nested_too_deeply_is_refused() -> None:
    deep = '{"is":"loop","again":0.5,"body":' * 2000 + '{"is":"skip"}' + "}" * 2000
    with pytest.raises(ConfigError, match="nested too deeply"):
        read(f'{{"groupwise":"design","version":1,"design":{{"name":"d","root":{deep}}}}}'.encode())


def test_infinite_numbers_have_no_place_in_json() -> None:
    with pytest.raises(CannotExpress, match="'d'"):
        write(Design("d", Activity("a", Handling(delay=float("inf")))))
