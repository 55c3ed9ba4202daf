"""Words of questions: names, things, how a question is cut into tokens, and which split a wording belongs to.

In a template `#` stands for a number and `~` for a small one; `{A}`, `{B}` and `{things}` are filled in. A question's
wording is its text with the numbers left out. It decides the split, so no two splits share a wording.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from groupwise.workflows.code.problem import Split

NAMES = (
    "Ann", "Ben", "Cara", "Dan", "Eva", "Finn", "Gina", "Hugo", "Ida", "Jack", "Kate", "Leo", "Mia", "Nora", "Omar",
    "Pia",
)  # fmt: skip
LETTERS = "abcdefghijklmnopqrstuvwxyz"
TOKEN = re.compile(r"\d+|\w+|[^\w\s]")
SLOT = re.compile(r"\{\w+\}")
DIGITS = re.compile(r"\d+")
SHARES: dict[Split, range] = {"train": range(7), "valid": range(7, 8), "test": range(8, 10)}


def tokens(text: str, known: Iterable[str] = ()) -> list[str]:
    """A question as tokens: words in lower case, numbers, signs. Words outside `known`, if given, fall into letters."""
    found = TOKEN.findall(text)
    listed = frozenset(known)
    if not listed:
        return [token.lower() for token in found]
    whole: list[str] = []
    for token in found:
        lower = token.lower()
        whole += [lower] if lower in listed and not _shouted(token) else list(token)
    return whole


def words_of(templates: Iterable[str]) -> set[str]:
    """The words and signs that templates can put into a question, slots aside."""
    return {token.lower() for text in templates for token in TOKEN.findall(SLOT.sub(" ", text)) if token not in "#~"}


def split_of(wording: str) -> Split:
    """The split that a wording belongs to: seven tenths train, one valid, two test."""
    digest = hashlib.sha256(DIGITS.sub("#", wording).encode()).digest()
    bucket = int.from_bytes(digest[:4], "big") % 10
    return next(split for split, buckets in SHARES.items() if bucket in buckets)


def sentence(text: str) -> str:
    """With a capital letter in front."""
    return text[:1].upper() + text[1:]


def _shouted(token: str) -> bool:
    return len(token) > 1 and token.isupper()
