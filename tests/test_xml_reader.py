"""Hostile and broken XML is refused in one sentence with its line; everything else comes back as it was."""

from __future__ import annotations

import pytest

from groupwise.errors import ConfigError
from groupwise.readers import ReadLimits
from groupwise.xml_reader import COMMENT, Element, load_xml, xml_events

LIMITS = ReadLimits(size=16 << 20, depth=100, values=300_000)
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
DTD = "a DTD, entity or external reference is not allowed"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (BOMB, f"{DTD} (at line 2)"),
        (SECRET, f"{DTD} (at line 3)"),
        (REMOTE, f"{DTD} (at line 1)"),
        ("<!DOCTYPE a><a/>".encode("utf-16"), f"{DTD} (at line 1)"),
        (b"<!-- " + b"x" * 200_000 + b" -->\n<!DOCTYPE a><a/>", f"{DTD} (at line 2)"),
        (b"<a>\n<b>\n", "not valid XML: no element found (at line 3, column 1)"),
        (b"<a>\n</b>", "not valid XML: mismatched tag (at line 2, column 3)"),
        (b"<a>&unknown;</a>", "not valid XML: undefined entity (at line 1, column 4)"),
        (b"<p:a/>", "not valid XML: unbound prefix (at line 1, column 1)"),
        (b"{}", "not valid XML: not well-formed (invalid token) (at line 1, column 1)"),
        (b"  \n ", "not valid XML: the file is empty (at line 1)"),
        (b"\xff\xfe\x00", "not valid XML"),
        (b'<?xml version="1.0" encoding="klingon"?><a/>', "not valid XML: unknown encoding: klingon (at line 1)"),
        (b'<?xml version="1.0" encoding="utf-8"?><a>\xff</a>', "not valid XML: not well-formed"),
        (b"<a>" * 101 + b"</a>" * 101, "elements are nested more than 100 deep (at line 1)"),
        (b"<a>" * 50_000, "elements are nested more than 100 deep (at line 1)"),
        (b"<a>" + b"<b/>" * 400_000 + b"</a>", "more than 300000 values (at line 1)"),
        (b"<a>" + b" " * LIMITS.size + b"</a>", "the file is larger than 16 MiB"),
    ],
)
def test_what_is_refused_says_where(content: bytes, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_xml(content, LIMITS)
    assert caught.value.message.startswith(message)
    assert "\n" not in caught.value.message


def test_a_text_that_takes_too_long_is_given_up() -> None:
    with pytest.raises(ConfigError, match="longer than 0 seconds"):
        load_xml(b"<a>" + b"<b/>" * 5000 + b"</a>", ReadLimits(seconds=0))


def test_elements_come_back_as_they_were() -> None:
    text = b'<r xmlns="urn:a" xmlns:p="urn:b" z="1" p:y="2">one<!-- c --><p:i>x &lt; y</p:i> two<e/></r>'
    root = load_xml(text)
    assert root == Element(
        "{urn:a}r",
        (("z", "1"), ("{urn:b}y", "2")),
        "one",
        (Element(COMMENT, text=" c "), Element("{urn:b}i", text="x < y", tail=" two"), Element("{urn:a}e")),
    )
    assert root.prefixes == (("", "urn:a"), ("p", "urn:b"))
    assert [child.line for child in load_xml(b"<a>\n<b/>\n<c/></a>").children] == [2, 3]


def test_text_is_whole_however_the_parser_cuts_it() -> None:
    long = "x<![CDATA[ < ]]>" + "y" * 100_000 + "<?ignored?>z"
    assert load_xml(f"<a> {long}</a>").text == " x < " + "y" * 100_000 + "z"


def test_comments_before_the_root_are_its_first_children() -> None:
    root = load_xml(b"<!-- one -->\n<a><b/></a><!-- after -->")
    assert [child.tag for child in root.children] == [COMMENT, "b"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "iso-8859-1", "windows-1252", "shift_jis", "gb18030"])
def test_declared_encodings_are_read(encoding: str) -> None:
    text = f'<?xml version="1.0" encoding="{encoding}"?><a>¶</a>'
    assert load_xml(text.encode(encoding)).text == "¶"


def test_events_come_without_a_tree() -> None:
    found = [(event.kind, event.text) for event in xml_events(b'<a k="v">t<!--c--><b/></a>')]
    assert found == [("start", "a"), ("text", "t"), ("comment", "c"), ("start", "b"), ("end", "b"), ("end", "a")]
