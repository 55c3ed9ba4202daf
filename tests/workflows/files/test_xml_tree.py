"""XML is written so that it can be read again, or refused."""

from __future__ import annotations

import pytest

from groupwise.workflows.files.formats import CannotExpress
from groupwise.workflows.files.xml_tree import parse, serialise
from groupwise.xml_reader import Element


def test_what_is_written_is_read_as_it_was() -> None:
    root = parse(b'<r xmlns="urn:a" xmlns:p="urn:b" p:y="2">one<!-- c --><p:i>x &lt; y</p:i> two<e/></r>')
    assert parse(serialise(root)) == root


def test_what_xml_cannot_hold_is_refused() -> None:
    with pytest.raises(CannotExpress, match="XML has no way to write"):
        serialise(Element("a", text="\x00"))
