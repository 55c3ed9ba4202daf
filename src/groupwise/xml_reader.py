"""XML written by others, as frozen elements: no document types, entities or network, and the limits of `readers`.

`load_xml` gives the tree; `xml_events` gives what the parser sees, for files too large for a tree.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, NoReturn
from xml.parsers import expat

from groupwise.errors import ConfigError
from groupwise.readers import USUAL, Clock, ReadLimits, too_large

COMMENT = "#comment"
XML_ENCODING = re.compile(rb"<\?xml[^>]{0,100}?encoding\s*=\s*[\"']([A-Za-z0-9._-]+)[\"']")
# Bytes parsed at a time: events are handed out in between, so a large file needs no large list.
CHUNK = 1 << 16
# Bytes of one tag, comment or word. expat reads an unfinished one again with every chunk: time grows with the square.
LONGEST_TAG = 4 << 20


@dataclass(frozen=True, slots=True)
class Element:
    """One XML element. `tail` is the text after it, inside its parent; `prefixes` are those it declares.

    Namespaces are in the tag, as in `{http://example.org}task`. Elements are equal regardless of the `line` they were
    read from, of their prefixes and of the order of their attributes.
    """

    tag: str
    attributes: tuple[tuple[str, str], ...] = ()
    text: str = ""
    children: tuple[Element, ...] = ()
    tail: str = ""
    prefixes: tuple[tuple[str, str], ...] = field(default=(), compare=False)
    line: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "attributes", tuple(sorted(self.attributes)))

    @property
    def name(self) -> str:
        return self.tag.rpartition("}")[2]

    @property
    def namespace(self) -> str:
        return self.tag[1:].partition("}")[0] if self.tag.startswith("{") else ""

    @property
    def parts(self) -> tuple[Element, ...]:
        """The children without comments."""
        return tuple(child for child in self.children if child.tag != COMMENT)

    def get(self, attribute: str, default: str = "") -> str:
        return next((value for name, value in self.attributes if name == attribute), default)

    def all(self, name: str) -> tuple[Element, ...]:
        """The children of that name, in any namespace."""
        return tuple(child for child in self.children if child.name == name)

    def find(self, name: str) -> Element | None:
        return next((child for child in self.children if child.name == name), None)

    def says(self, name: str) -> str:
        """The text of the child of that name; empty if there is none."""
        child = self.find(name)
        return "" if child is None else child.text.strip()

    def with_attributes(self, **changes: str | None) -> Element:
        """The same with attributes set, or removed where they are None."""
        kept = tuple((name, value) for name, value in self.attributes if name not in changes)
        return replace(self, attributes=kept + tuple((n, v) for n, v in changes.items() if v is not None))

    def walk(self) -> Iterator[Element]:
        """The element and everything inside it, in the order of the file."""
        stack = [self]
        while stack:
            top = stack.pop()
            yield top
            stack.extend(reversed(top.children))


def named(elements: Iterable[Element], name: str, namespace: str | None = None) -> tuple[Element, ...]:
    """Those of that name (and of that namespace)."""
    return tuple(e for e in elements if e.name == name and namespace in (None, e.namespace))


def first(elements: Iterable[Element], name: str, namespace: str | None = None) -> Element | None:
    return next(iter(named(elements, name, namespace)), None)


class XmlEvent(NamedTuple):
    """A step of the parser: an element begins or ends, or there is text or a comment."""

    kind: Literal["start", "end", "text", "comment"]
    text: str  # the tag, or the text
    line: int = 0
    attributes: tuple[tuple[str, str], ...] = ()
    prefixes: tuple[tuple[str, str], ...] = ()


def xml_events(content: bytes | str, limits: ReadLimits = USUAL) -> Iterator[XmlEvent]:
    """The events of an XML text, in the order of the file, without building a tree."""
    if len(content) > limits.size:
        raise ConfigError(too_large(limits))
    raw, encoding = _recoded(content)
    if not raw.strip():
        raise ConfigError("not valid XML: the file is empty (at line 1)")
    events: list[XmlEvent] = []
    parser = _parser(encoding, events, Clock(limits))
    try:
        for at in range(0, len(raw), CHUNK):
            parser.Parse(raw[at : at + CHUNK], False)
            yield from events
            events.clear()
            if at + CHUNK - max(parser.CurrentByteIndex, 0) > LONGEST_TAG:
                where = f"line {parser.CurrentLineNumber}, column {parser.CurrentColumnNumber + 1}"
                raise ConfigError(
                    f"not valid XML: a tag or comment is longer than {LONGEST_TAG >> 20} MiB (at {where})"
                )
        parser.Parse(b"", True)
        yield from events
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)
        raise ConfigError(f"not valid XML: {reason} (at line {error.lineno}, column {error.offset + 1})") from None
    except (LookupError, ValueError) as error:  # an encoding that nobody knows
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"not valid XML: {error} (at line 1)") from None


def _recoded(content: bytes | str) -> tuple[bytes, str | None]:
    """The bytes, and their encoding where it is not for expat to find out: it knows none of several bytes but UTF."""
    if isinstance(content, str):
        return content.encode(), "utf-8"
    declared = XML_ENCODING.match(content)
    if declared is None or declared[1].upper().startswith((b"UTF-8", b"UTF-16", b"ISO-8859-1", b"US-ASCII")):
        return content, None
    try:
        return content.decode(declared[1].decode()).encode(), "utf-8"
    except (LookupError, ValueError) as error:
        raise ConfigError(f"not valid XML: {error} (at line 1)") from None


def _parser(encoding: str | None, events: list[XmlEvent], clock: Clock) -> Any:
    # Names come as "namespace}name"; the brace cannot occur in either.
    parser = expat.ParserCreate(encoding, "}")
    parser.buffer_text = parser.ordered_attributes = True
    parser.buffer_size = CHUNK
    depth = 0
    # expat reports prefixes just before the element that declares them.
    declared: list[tuple[str, str]] = []

    def full(name: str) -> str:
        return f"{{{name}" if "}" in name else name

    def start(name: str, pairs: list[str]) -> None:
        nonlocal depth
        depth += 1
        line = parser.CurrentLineNumber
        if depth > clock.limits.depth:
            raise ConfigError(f"elements are nested more than {clock.limits.depth} deep (at line {line})")
        clock.tick(f" (at line {line})")
        attributes = tuple((full(pairs[at]), pairs[at + 1]) for at in range(0, len(pairs), 2))
        events.append(XmlEvent("start", full(name), line, attributes, tuple(declared)))
        declared.clear()

    def end(name: str) -> None:
        nonlocal depth
        depth -= 1
        events.append(XmlEvent("end", full(name)))

    def refuse(*_: Any) -> NoReturn:
        message = "a DTD, entity or external reference is not allowed"
        hint = "Remove the <!DOCTYPE …> and write the values out."
        raise ConfigError(f"{message} (at line {parser.CurrentLineNumber})", hint=hint)

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = lambda text: events.append(XmlEvent("text", text))
    parser.CommentHandler = lambda text: events.append(XmlEvent("comment", text, parser.CurrentLineNumber))
    parser.StartNamespaceDeclHandler = lambda prefix, uri: declared.append((prefix or "", uri or ""))
    # Refused when they are declared, before anything could be expanded or fetched.
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = parser.ExternalEntityRefHandler = refuse
    return parser


def _meant(text: str) -> str:
    """Text between elements, unless it is only indentation."""
    return text if text.strip() else ""


class _OpenElement:
    """An element whose end has not come yet: its own text, its children, and the text after the last of them."""

    def __init__(self, event: XmlEvent) -> None:
        self.event = event
        self.text, self.tail = "", ""
        self.children: list[Element] = []

    def read(self, text: str) -> None:
        if self.children:
            self.tail += text
        else:
            self.text += text

    def add(self, child: Element | None) -> None:
        """Close the tail of the last child, and append another."""
        if _meant(self.tail):
            self.children[-1] = replace(self.children[-1], tail=self.tail)
        self.tail = ""
        self.children += [] if child is None else [child]

    def closed(self) -> Element:
        self.add(None)
        own, text = self.event, _meant(self.text) if self.children else self.text
        return Element(own.text, own.attributes, text, tuple(self.children), "", own.prefixes, own.line)


def load_xml(content: bytes | str, limits: ReadLimits = USUAL) -> Element:
    """The root element of an XML text; comments before it become its first children."""
    stack = [_OpenElement(XmlEvent("start", ""))]
    for event in xml_events(content, limits):
        if event.kind == "start":
            stack.append(_OpenElement(event))
        elif event.kind == "end":
            done = stack.pop().closed()
            stack[-1].add(done)
        elif event.kind == "comment":
            stack[-1].add(Element(COMMENT, text=event.text, line=event.line))
        elif len(stack) > 1:
            stack[-1].read(event.text)
    built = stack[0].children
    at = next(number for number, element in enumerate(built) if element.tag != COMMENT)
    return replace(built[at], children=(*built[:at], *built[at].children))
