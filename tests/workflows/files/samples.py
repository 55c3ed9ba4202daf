"""The files and schemas beside the repository, where they are, and what several tests do with them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

SHARED = next((p for parent in Path(__file__).parents if (p := parent / "shared/data").is_dir()), None)
YAWL = sorted(SHARED.glob("yawl/**/*.yawl")) + sorted(SHARED.glob("yawl/verification_cases/*.xml")) if SHARED else []
SCHEMAS = {"yawl": "yawl/schema/YAWL_Schema4.0.xsd", "bpmn": "schemas/bpmn20/BPMN20.xsd"}
needs_data = pytest.mark.skipif(SHARED is None, reason="shared/data is not beside the repository")


@cache
def schema(name: str) -> Any:
    from lxml import etree

    assert SHARED is not None
    return etree.XMLSchema(etree.parse(str(SHARED / SCHEMAS[name])))


def mistakes(name: str, content: bytes) -> list[str]:
    """What the published schema finds wrong with a file."""
    from lxml import etree

    found = schema(name)
    return [] if found.validate(etree.fromstring(content)) else [str(error) for error in found.error_log]
