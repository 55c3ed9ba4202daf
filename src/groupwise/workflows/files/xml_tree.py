"""Reading and writing XML safely: no network, no entities, no document type, and limits on size and depth.

A hostile or broken file is refused in one sentence with its line. What is read are `Element`s, and what is written is
made of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from groupwise.errors import ConfigError
from groupwise.workflows.files.formats import BadFile, CannotExpress
from groupwise.workflows.graph import COMMENT, Element

LARGEST = 16 << 20
DEEPEST = 100
MOST = 300_000
XML_NAMESPACE = "http://www.w3.org/XML/1998/namespace"


def _lxml() -> Any:
    try:
        from lxml import etree
    except ModuleNotFoundError as error:
        raise ConfigError("XML files need lxml", hint="pip install 'groupwise[workflows]'") from error
    return etree


class _Start(Exception):
    """The root element has begun: whatever could be declared has been."""


class _Prolog:
    """A parser target that stops at the root element, and before anything a document type declares is used."""

    def doctype(self, name: str, public: str | None, system: str | None) -> None:
        raise BadFile(f"a document type (<!DOCTYPE {name}>) stands before the file's content, and it is not read")

    def start(self, tag: str, attributes: object) -> None:
        raise _Start

    def end(self, tag: str) -> None: ...

    def close(self) -> None: ...


def parse(content: bytes) -> Element:
    """The root element of an XML file; comments before it are the first of its children."""
    if len(content) > LARGEST:
        raise BadFile(f"an XML workflow may have {LARGEST >> 20} MiB, and this has {len(content) / (1 << 20):.1f}")
    if not content.strip():
        raise BadFile("line 1: the file is empty")
    etree = _lxml()
    try:
        _refuse_doctype(etree, content)
        parser = etree.XMLParser(
            resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False, remove_pis=True
        )
        root = etree.fromstring(content, parser)
    except etree.XMLSyntaxError as error:
        said = (error.msg or "it is cut off").split(", line")[0]
        raise BadFile(f"line {error.lineno or 1}: this is no well-formed XML: {said}") from error
    _refuse_depth(root)
    before = tuple(_element(node, True, {}) for node in reversed(list(root.itersiblings(preceding=True))))
    read = _element(root, False, {})
    return replace(read, children=(*before, *read.children)) if before else read


def _refuse_doctype(etree: Any, content: bytes) -> None:
    parser = etree.XMLParser(target=_Prolog(), resolve_entities=False, no_network=True, load_dtd=False)
    try:
        parser.feed(content[:65536])
        # A file may begin with more than that in comments: go on until the root element begins.
        for at in range(65536, len(content), 65536):
            parser.feed(content[at : at + 65536])
        parser.close()
    except _Start:
        return
    except BadFile as error:
        line = content.partition(b"<!DOCTYPE")[0].count(b"\n") + 1
        raise BadFile(f"line {line}: {error.message}", hint="Remove the DOCTYPE.") from None


def _refuse_depth(root: Any) -> None:
    """Without recursion, for it is depth that is looked for."""
    count, level = 0, [root]
    for depth in range(1, DEEPEST + 2):
        if not level:
            return
        count += len(level)
        if depth > DEEPEST:
            raise BadFile(f"line {level[0].sourceline}: elements are nested more than {DEEPEST} deep")
        if count > MOST:
            raise BadFile(f"line {level[-1].sourceline}: the file has more than {MOST:,} elements")
        level = [child for element in level for child in element]


def _element(node: Any, inner: bool, known: dict[str | None, str]) -> Element:
    if not isinstance(node.tag, str):
        return Element(COMMENT, text=node.text or "", tail=_said(node.tail), line=node.sourceline or 0)
    declared = node.nsmap
    children = tuple(_element(child, True, declared) for child in node)
    text = _said(node.text) if children else node.text or ""
    fresh = tuple((prefix or "", uri) for prefix, uri in declared.items() if known.get(prefix) != uri)
    tail = _said(node.tail) if inner else ""
    return Element(node.tag, tuple(node.attrib.items()), text, children, tail, fresh, node.sourceline or 0)


def _said(text: str | None) -> str:
    """Text between elements, where it is more than indentation."""
    return text if text and text.strip() else ""


def inherit(element: Element, outer: dict[str, str]) -> Element:
    """The element with the prefixes its ancestors declared as its own, so that it can be moved."""
    own = dict(element.prefixes)
    return replace(element, prefixes=tuple(sorted({**outer, **own}.items())))


def serialise(root: Element) -> bytes:
    """The file with that root, indented, in UTF-8."""
    etree = _lxml()
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
        node = (
            etree.Element(element.tag, nsmap=spaces)
            if parent is None
            else etree.SubElement(parent, element.tag, nsmap=spaces)
        )
        for name, value in element.attributes:
            node.set(name, value)
        node.text = element.text or None
        for child in element.children:
            _node(etree, child, node)
    node.tail = element.tail or None
    return node


def place(element: Element) -> str:
    """Where an element stands, for the beginning of a message."""
    return f"line {element.line}: " if element.line else ""


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
    for text in sorted(all_texts, key=lambda text: xml_name(text) != text):
        names[text] = free_name(text, taken)
    return {text: names[text] for text in all_texts}
