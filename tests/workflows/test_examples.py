"""The examples: feasible, sound, within their rules, and with a score; and the published schema is that of the code."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from groupwise.workflows import check_document, contradictions, open_workflow, score
from groupwise.workflows.requirements import schema

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples" / "workflows").glob("*.yaml"))
PUBLISHED = ROOT / "docs" / "reference" / "requirements.schema.json"


def test_there_are_six() -> None:
    names = ["ci_pipeline", "hospital_triage", "insurance_claim", "loan", "order_fulfilment", "scientific_dag"]
    assert [path.stem for path in EXAMPLES] == names


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_can_be_met_and_starts_from_a_sound_design_with_a_score(path: Path) -> None:
    jsonschema.validate(yaml.safe_load(path.read_text(encoding="utf8")), schema())
    opened = open_workflow(path)
    assert opened.requirements is not None
    assert contradictions(opened.requirements) == []
    assert all(verdict.sound for verdict in check_document(opened.document).values())
    found = score(opened.design(), opened.requirements)
    assert found.broken == ()
    assert 0.3 < found.total < 0.95


def test_the_published_schema_is_that_of_the_code() -> None:
    assert json.loads(PUBLISHED.read_text(encoding="utf8")) == json.loads(json.dumps(schema())), (
        "write it again: json.dumps(groupwise.workflows.requirements.schema(), indent=2, ensure_ascii=False)"
    )
