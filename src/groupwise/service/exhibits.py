"""What the API shows of an attempt beside its tokens. Runs may come from anywhere, so exhibits are not trusted."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

from groupwise.errors import GroupwiseError
from groupwise.workflows.blocks import Design
from groupwise.workflows.differences import compare_workflows
from groupwise.workflows.document import document_of
from groupwise.workflows.files.json_file import read_design
from groupwise.workflows.pictures.svg import svg

KINDS = ("episode", "design", "program")


def shown_exhibit(row: Mapping[str, Any], group: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The exhibit of an attempt; a design is drawn and compared with the worst of its group."""
    found = _exhibit(row)
    if found is None or found["kind"] != "design":
        return found
    with suppress(GroupwiseError, ValueError, RecursionError):
        design = _design(str(found["workflow"]))
        scored = [one for one in group if one["total"] is not None]
        worst = min(scored, key=lambda one: float(one["total"]), default=None)
        other = None if worst is None else _exhibit(worst)
        changes: list[str] = []
        if other is not None and worst is not None and worst["trajectory_id"] != row["trajectory_id"]:
            changes = list(compare_workflows(_design(str(other["workflow"])), design).lines())
        return {"kind": "design", "svg": svg(document_of(design)), "changes": changes}
    return None


def _exhibit(row: Mapping[str, Any]) -> dict[str, Any] | None:
    try:
        found = json.loads(row.get("exhibit") or "null")
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and found.get("kind") in KINDS else None


@lru_cache(maxsize=64)
def _design(text: str) -> Design:
    return read_design(text.encode())
