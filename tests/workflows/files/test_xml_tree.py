"""Hostile and broken XML is refused in one sentence with its line."""

from __future__ import annotations

import time

import pytest

from groupwise.workflows.files.formats import BadFile, CannotExpress
from groupwise.workflows.files.xml_tree import DEEPEST, LARGEST, parse, serialise
from groupwise.workflows.graph import COMMENT, Element

BOMB = b"""<?xml version="1.0"?>
<!DOCTYPE lolz [
  <!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;">
  <!ENTITY d "&c;&c;&c;&c;&c;&c;&c;&c;&c;&c;"><!ENTITY e "&d;&d;&d;&d;&d;&d;&d;&d;&d;&d;">
]>
<root a="&e;">&e;</root>"""
SECRET = b"""<?xml version="1.0"?>

<!DOCTYPE root [<!ENTITY x SYSTEM "file:///etc/passwd">]>
<root>&x;</root>"""
REMOTE = b'<!DOCTYPE root SYSTEM "http://127.0.0.1:9/x.dtd"><root/>'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (BOMB, "line 2: a document type"),
        (SECRET, "line 3: a document type"),
        (REMOTE, "line 1: a document type"),
        ("<!DOCTYPE a><a/>".encode("utf-16"), "line 1: a document type"),
        (b"<!-- " + b"x" * 200_000 + b" -->\n<!DOCTYPE a><a/>", "line 2: a document type"),
        (b"<a>\n<b>\n", "line 3: this is no well-formed XML"),
        (b"<a>\n</b>", "line 2: this is no well-formed XML"),
        (b"<a>&unknown;</a>", "line 1: this is no well-formed XML"),
        (b"{}", "line 1: this is no well-formed XML"),
        (b"  \n ", "line 1: the file is empty"),
        (b"\xff\xfe\x00", "line 1: this is no well-formed XML"),
        (b"<a>" * (DEEPEST + 1) + b"</a>" * (DEEPEST + 1), f"line 1: elements are nested more than {DEEPEST} deep"),
        (b"<a>" * 50_000, "line 1: "),
    ],
)
def test_what_is_refused_says_where(content: bytes, message: str) -> None:
    with pytest.raises(BadFile) as caught:
        parse(content)
    assert caught.value.message.startswith(message)
    assert "\n" not in caught.value.message


def test_large_files_are_read_or_refused_quickly() -> None:
    began = time.perf_counter()
    long = parse(b"<a>\n<b>" + b"x" * (9 << 20) + b"</b></a>")
    assert len(long.says("b")) == 9 << 20
    with pytest.raises(BadFile, match="more than 300,000 elements"):
        parse(b"<a>" + b"<b/>" * 400_000 + b"</a>")
    with pytest.raises(BadFile, match="may have 16 MiB, and this has 16.0"):
        parse(b"<a>" + b" " * LARGEST + b"</a>")
    assert time.perf_counter() - began < 20


def test_elements_come_back_as_they_were() -> None:
    text = b'<r xmlns="urn:a" xmlns:p="urn:b" z="1" p:y="2">one<!-- c --><p:i>x &lt; y</p:i> two<e/></r>'
    root = parse(text)
    assert root == Element(
        "{urn:a}r",
        (("z", "1"), ("{urn:b}y", "2")),
        "one",
        (Element(COMMENT, text=" c "), Element("{urn:b}i", text="x < y", tail=" two"), Element("{urn:a}e")),
    )
    assert parse(serialise(root)) == root
    assert [child.line for child in parse(b"<a>\n<b/>\n<c/></a>").children] == [2, 3]


def test_what_xml_cannot_hold_is_refused() -> None:
    with pytest.raises(CannotExpress, match="XML has no way to write"):
        serialise(Element("a", text="\x00"))
