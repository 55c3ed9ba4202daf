"""Names that XML schemas accept, for whatever people call their tasks."""

from __future__ import annotations

import re
from collections.abc import Iterable

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
