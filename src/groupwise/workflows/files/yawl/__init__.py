"""YAWL: specifications of versions Beta 3 to 4.0 are read, and 4.0 is written."""

from __future__ import annotations

from groupwise.workflows.files.formats import Format
from groupwise.workflows.files.yawl.reader import read
from groupwise.workflows.files.yawl.vocabulary import XS, YAWL
from groupwise.workflows.files.yawl.writer import write

FORMAT = Format(
    "yawl",
    "YAWL 4.0",
    (".yawl", ".ywl", ".xml"),
    lambda head: b"specificationSet" in head,
    read,
    write,
    namespaces=(YAWL, XS),
)
