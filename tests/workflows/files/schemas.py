"""JSON Schemas and instances beside the repository, where they are."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

DATA = next((p for parent in Path(__file__).parents if (p := parent / "shared/data").is_dir()), None)
INSTANCES = sorted(DATA.glob("wfcommons/instances/*.json")) if DATA else []
needs_schemas = pytest.mark.skipif(DATA is None, reason="shared/data is not beside the repository")
PATHS = {
    "actions": "schemas/github-workflow.schema.json",
    "argo": "schemas/argo-workflows.schema.json",
    "wfcommons": "wfcommons/wfcommons-schema.json",
}


@cache
def _validator(name: str) -> Any:
    from jsonschema import Draft7Validator, Draft202012Validator

    assert DATA is not None
    schema = json.loads((DATA / PATHS[name]).read_text())
    return (Draft202012Validator if name == "argo" else Draft7Validator)(schema)


def mistakes(name: str, value: Any) -> list[str]:
    """What the published schema finds wrong with a value."""
    return [error.message for error in _validator(name).iter_errors(value)]
