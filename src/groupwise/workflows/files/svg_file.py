"""The picture of a workflow as an SVG file; written only."""

from __future__ import annotations

from groupwise.workflows.document import Document
from groupwise.workflows.files.formats import Format
from groupwise.workflows.pictures.svg import svg


def write(document: Document) -> bytes:
    return svg(document).encode()


FORMAT = Format("svg", "SVG", (".svg",), write=write)
