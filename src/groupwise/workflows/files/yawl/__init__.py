"""YAWL: reads specifications of versions Beta 3 to 4.0, and writes 4.0.

vocabulary.py   names of YAWL, and the parts that are written by default
reader.py       files to documents; open this file first
writer.py       documents to files
layout.py       the layout section, for YAWL's editor
"""

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
