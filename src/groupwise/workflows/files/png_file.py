"""The picture of a workflow as a PNG file; written only."""

from __future__ import annotations

from groupwise.workflows.document import Document
from groupwise.workflows.files.formats import Format


def write(document: Document) -> bytes:
    from groupwise.workflows.pictures.png import png  # matplotlib takes a second to import

    return png(document)


FORMAT = Format("png", "PNG", (".png",), write=write)
