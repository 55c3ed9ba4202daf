"""Our own JSON, which holds everything: a document, or a design in its blocks. `schema()` is published.

python -m groupwise.workflows.files.json_file > docs/reference/workflow.schema.json
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

from groupwise.errors import ConfigError
from groupwise.workflows.blocks import Design
from groupwise.workflows.document import Document, document_of
from groupwise.workflows.files.formats import BadFile, CannotExpress, Format
from groupwise.workflows.plain import parsed, plain, schema_of
from groupwise.workflows.texts import load_json

VERSION = 1
KINDS: dict[str, type[Document] | type[Design]] = {"document": Document, "design": Design}


def read(content: bytes) -> Document:
    """The document, or the design as a document."""
    found = _read(content)
    return found if isinstance(found, Document) else document_of(found)


def read_design(content: bytes) -> Design:
    found = _read(content)
    if isinstance(found, Document):
        raise BadFile("it holds a document and no design", hint="lifting.lift makes a design of a graph.")
    return found


def _read(content: bytes) -> Document | Design:
    value = load_json(content)
    if not isinstance(value, dict) or "groupwise" not in value:
        _refuse("no workflow of Groupwise: the key 'groupwise' is missing")
    kind, version = value.get("groupwise"), value.get("version")
    if not isinstance(kind, str) or kind not in KINDS:
        _refuse(f"groupwise: {kind!r} must be one of {', '.join(KINDS)}")
    if version != VERSION:
        _refuse(f"version: {version!r} must be {VERSION}")
    unknown = set(value) - {"groupwise", "version", kind}
    if unknown:
        _refuse(f"{min(unknown)}: unknown; there are groupwise, version and {kind}")
    try:
        found: Document | Design = parsed(KINDS[kind], value.get(kind), kind)
    except RecursionError as error:
        raise BadFile("no JSON that can be read: it is nested too deeply") from error
    except ConfigError as error:
        raise BadFile(error.message, hint=error.hint) from error
    return found


def _refuse(message: str) -> NoReturn:
    raise BadFile(message)


def write(workflow: Document | Design) -> bytes:
    kind = "document" if isinstance(workflow, Document) else "design"
    value = {"groupwise": kind, "version": VERSION, kind: plain(workflow)}
    try:
        return (json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()
    except ValueError as error:
        raise CannotExpress(f"JSON has no word for a number of {workflow.name!r} that is infinite or none") from error


def schema() -> dict[str, Any]:
    """The JSON Schema of our files."""
    schemas = {name: schema_of(kind) for name, kind in KINDS.items()}
    definitions: dict[str, Any] = {}
    for one in schemas.values():
        definitions |= one.pop("$defs")
    whole = [
        {
            "type": "object",
            "properties": {"groupwise": {"const": name}, "version": {"const": VERSION}, name: one},
            "required": ["groupwise", "version", name],
            "additionalProperties": False,
        }
        for name, one in schemas.items()
    ]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "anyOf": whole, "$defs": definitions}


FORMAT = Format("json", "Groupwise JSON", (".json",), lambda head: b'"groupwise"' in head, read, write)


if __name__ == "__main__":
    print(json.dumps(schema(), indent=2, ensure_ascii=False))
