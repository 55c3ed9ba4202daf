"""XML elements as frozen values: how a document keeps what a file says and a graph has no word for.

Writers put them where their schema wants them; nothing is passed through as text. Namespaces are in the tag, as in
`{http://example.org}task`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

COMMENT = "#comment"


@dataclass(frozen=True, slots=True)
class Element:
    """One element. `tail` is text behind it, inside its parent; `prefixes` are those that texts inside it may use.

    Two elements are equal whatever the `line` they were read from, their prefixes and the order of their attributes.
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
        """The tag without its namespace."""
        return self.tag.rpartition("}")[2]

    @property
    def namespace(self) -> str:
        return self.tag[1:].partition("}")[0] if self.tag.startswith("{") else ""

    @property
    def parts(self) -> tuple[Element, ...]:
        """The children that are elements."""
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
