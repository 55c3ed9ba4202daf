"""Reading and writing XML files as `Element`s, and names that XML schemas accept."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from groupwise.errors import ConfigError
from groupwise.readers import ReadLimits
from groupwise.workflows.files.formats import BadFile, CannotExpress
from groupwise.xml_reader import COMMENT, Element, load_xml

LIMITS = ReadLimits(size=16 << 20, depth=100, values=300_000)


def parse(content: bytes) -> Element:
    try:
        return load_xml(content, LIMITS)
    except ConfigError as error:
        raise BadFile(error.message, hint=error.hint) from error


def inherit(element: Element, outer: dict[str, str]) -> Element:
    """The element with the prefixes its ancestors declared as its own, so that it can be moved."""
    own = dict(element.prefixes)
    # Texts such as xs:string refer to prefixes that the parser does not see.
    return replace(element, prefixes=tuple(sorted({**outer, **own}.items())))


def serialise(root: Element) -> bytes:
    """The file with that root, indented, in UTF-8."""
    from lxml import etree  # of the extra `workflows`; reading works without it

    try:
        node = _node(etree, root, None)
    except ValueError as error:
        raise CannotExpress(f"XML has no way to write a name or text of this workflow: {error}") from error
    text: bytes = etree.tostring(node, xml_declaration=True, encoding="UTF-8", pretty_print=True)
    return text


def _node(etree: Any, element: Element, parent: Any) -> Any:
    if element.tag == COMMENT:
        node = etree.Comment(element.text)
        if parent is not None:
            parent.append(node)
    else:
        spaces = {prefix or None: uri for prefix, uri in element.prefixes}
        made = etree.Element if parent is None else partial(etree.SubElement, parent)
        node = made(element.tag, nsmap=spaces)
        for name, value in element.attributes:
            node.set(name, value)
        node.text = element.text or None
        for child in element.children:
            _node(etree, child, node)
    node.tail = element.tail or None
    return node


def place(element: Element) -> str:
    return f"line {element.line}: " if element.line else ""


def refuse(element: Element, message: str) -> BadFile:
    return BadFile(f"{place(element)}{message}")


@contextmanager
def located(element: Element, what: str = "") -> Iterator[None]:
    """Give errors the line of an element in front."""
    try:
        yield
    except ConfigError as error:
        raise refuse(element, f"{what}{error.message}") from error


# A subset of what XML allows: letters of ASCII and Latin-1.
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.\-À-ÖØ-öø-ÿ]")
_NOT_FIRST = re.compile(r"[0-9.\-]")


def xml_name(text: str) -> str:
    """The text as an XML name without a colon."""
    name = _NOT_IN_NAMES.sub("_", text) or "_"
    return f"_{name}" if _NOT_FIRST.match(name) else name


def free_name(text: str, taken: set[str]) -> str:
    """An XML name like the text that is not `taken`; it is from then on."""
    name, number = xml_name(text), 1
    while name in taken:
        number += 1
        name = f"{xml_name(text)}_{number}"
    taken.add(name)
    return name


def xml_names(texts: Iterable[str], taken: set[str] | None = None) -> dict[str, str]:
    """A different XML name for each text. A text that is one keeps it, whatever the others are."""
    all_texts = list(dict.fromkeys(texts))
    taken = set() if taken is None else taken
    names = {}
    # Valid names go first, so that no other text can take them.
    for text in sorted(all_texts, key=lambda text: xml_name(text) != text):
        names[text] = free_name(text, taken)
    return {text: names[text] for text in all_texts}
