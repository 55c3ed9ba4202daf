"""Hostile and broken XML is refused in one sentence with its line; everything else comes back as it was."""

from __future__ import annotations

import pytest

from groupwise.errors import ConfigError
from groupwise.readers import ReadLimits
from groupwise.xml_reader import COMMENT, Element, first, load_xml, named, xml_events

LIMITS = ReadLimits(size=16 << 20, depth=100, values=30_000)
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
        (b"<a>" + b"<b/>" * 40_000 + b"</a>", "more than 30000 values (at line 1)"),
        (b"<a>" + b" " * LIMITS.size + b"</a>", "the file is larger than 16 MiB"),
    ],
    ids=lambda given: f"{len(given)} bytes" if isinstance(given, bytes) and len(given) > 200 else None,
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


@pytest.mark.parametrize("begins", [b"x", b"<a", b"<a b='", b"<!--", b"<?a "])
def test_a_tag_that_never_ends_is_refused_early(begins: bytes) -> None:
    limits = ReadLimits(size=256 << 20)
    with pytest.raises(ConfigError, match=r"a tag or comment is longer than 4 MiB \(at line 1, column 1\)"):
        list(xml_events(begins + b"x" * (5 << 20), limits))
    assert len(load_xml(b"<a b='" + b"x" * (3 << 20) + b"'/>", limits).get("b")) == 3 << 20
    assert len(load_xml(b"<a>" + b"x" * (5 << 20) + b"</a>", limits).text) == 5 << 20


def test_an_element_is_asked_by_name_in_any_namespace() -> None:
    root = load_xml(b'<r xmlns:p="urn:b" b="2" a="1"><x> one </x><!-- x --><p:x> two <y/></p:x><z e=""/> after </r>')
    assert (root.name, root.namespace, root.tag) == ("r", "", "r")
    assert load_xml(b"<row/>").namespace == ""
    one, two = root.all("x")
    assert (two.name, two.namespace, two.tag) == ("x", "urn:b", "{urn:b}x")
    assert [part.name for part in root.parts] == ["x", "x", "z"]
    assert root.find("x") is one
    assert root.find("y") is None
    assert (root.says("x"), root.says("z"), root.says("none")) == ("one", "", "")
    assert (root.get("a"), root.get("none"), root.get("none", "usual"), two.get("a")) == ("1", "", "usual", "")
    assert root.parts[2].get("e", "usual") == ""
    assert [e.name for e in root.walk()] == ["r", "x", COMMENT, "x", "y", "z"]
    assert named(root.children, "x") == (one, two)
    assert named(root.children, "x", "urn:b") == (two,)
    assert named(root.children, "x", "") == (one,)
    assert first(root.children, "x", "urn:b") is two
    assert first(root.children, "y") is None


def test_an_element_may_be_had_with_other_attributes() -> None:
    given = Element("a", (("z", "1"), ("b", "2")), "text", (Element("c"),))
    changed = given.with_attributes(b=None, z="", n="3")
    assert changed == Element("a", (("n", "3"), ("z", "")), "text", (Element("c"),))
    assert given.attributes == (("b", "2"), ("z", "1"))
    assert given.with_attributes() == given


def test_elements_are_equal_wherever_they_stood_and_however_they_were_written() -> None:
    one = load_xml(b'<p:a xmlns:p="urn:a" x="1" y="2"><p:b/></p:a>')
    other = load_xml(b'\n\n<a y="2" x="1" xmlns="urn:a">\n  <b/>\n</a>')
    assert one == other
    assert hash(one) == hash(other)
    assert (one.line, other.line) == (1, 3)
    assert one != load_xml(b'<a xmlns="urn:a" x="1" y="3"><b/></a>')


@pytest.mark.parametrize(
    ("content", "text", "tails"),
    [
        (b"<a>  </a>", "  ", []),
        (b"<a> <b/> </a>", "", [""]),
        (b"<a> t <b/> u <c/>\n</a>", " t ", [" u ", ""]),
        (b"<a><b/>u<!--c-->v<c/> </a>", "", ["u", "v", ""]),
        (b"<a>one<b>two</b></a>", "one", [""]),
    ],
)
def test_indentation_is_left_out_and_text_kept(content: bytes, text: str, tails: list[str]) -> None:
    root = load_xml(content)
    assert (root.text, [child.tail for child in root.children]) == (text, tails)


def test_prefixes_belong_to_the_element_that_declares_them() -> None:
    root = load_xml(b'<a xmlns:p="urn:p"><b/><c xmlns:q="urn:q"><d/></c></a>')
    assert [(e.name, e.prefixes) for e in root.walk()] == [
        ("a", (("p", "urn:p"),)), ("b", ()), ("c", (("q", "urn:q"),)), ("d", ()),
    ]  # fmt: skip


def test_limits_are_reached_exactly() -> None:
    deep = ReadLimits(depth=3)
    load_xml(b"<a><b><c/><c/></b><b><c/></b></a>", deep)
    with pytest.raises(ConfigError, match=r"nested more than 3 deep \(at line 1\)"):
        load_xml(b"<a><b><c><d/></c></b></a>", deep)
    load_xml(b"<a><b/><b/></a>", ReadLimits(values=3))
    with pytest.raises(ConfigError, match="more than 2 values"):
        load_xml(b"<a><b/><b/></a>", ReadLimits(values=2))
    load_xml(b"<a></a>", ReadLimits(size=7))
    with pytest.raises(ConfigError, match="larger than 6 bytes"):
        load_xml(b"<a></a>", ReadLimits(size=6))


def test_events_of_a_long_file_come_once_each_and_in_order() -> None:
    content = b"<a>" + b"".join(b"<b>%d</b>" % n for n in range(30_000)) + b"</a>"
    events = list(xml_events(content))
    # Text may come in pieces, where a chunk ends.
    assert "".join(event.text for event in events if event.kind == "text") == "".join(map(str, range(30_000)))
    assert sum(event.kind == "end" for event in events) == 30_001
