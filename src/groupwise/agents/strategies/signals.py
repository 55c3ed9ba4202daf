"""What people say, recognised by words: small, in English, and the same every time."""

from __future__ import annotations

import re
from collections.abc import Iterator

from groupwise.types import Message

LONGEST = 120  # characters of a sentence that is kept
HEARD = 8000  # characters of a message that are listened to
MOST = 6  # sentences of a kind that are kept
DENIAL = re.compile(r"(?:\b(?:not|no|never|hardly|cannot)|n't)(?:\W+\w+){0,2}\W*$", re.IGNORECASE)
SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")


class Signal:
    """Phrases as regular expressions of whole words, between ` | `. With `denied`, "not happy" is no "happy"."""

    def __init__(self, phrases: str, *, denied: bool = True) -> None:
        choices = [phrase.strip() for phrase in re.split(r"\s\|\s", phrases.strip())]
        assert all(choices)
        self.pattern = re.compile(rf"(?<!\w)(?:{'|'.join(choices)})(?!\w)", re.IGNORECASE)
        self.denied = denied

    def within(self, text: str) -> bool:
        return any(True for _ in self.found(text))

    def count(self, text: str) -> int:
        return sum(1 for _ in self.found(text))

    def found(self, text: str) -> Iterator[re.Match[str]]:
        for match in self.pattern.finditer(text):
            if not (self.denied and DENIAL.search(text[max(0, match.start() - 40) : match.start()])):
                yield match


def words_of(message: Message) -> str:
    """How the message begins, with straight apostrophes: whoever pastes a book is not read to its end."""
    return str(message.get("content") or "")[:HEARD].replace("’", "'")


def sentences(text: str) -> list[str]:
    return [part.strip() for part in SENTENCE.split(text) if part.strip()]


def clipped(sentence: str) -> str:
    return sentence if len(sentence) <= LONGEST else sentence[: LONGEST - 3].rstrip() + "..."


def noted(known: tuple[str, ...], *new: str) -> tuple[str, ...]:
    """The sentences with new ones added, each once, the newest few kept."""
    short = [clipped(sentence.strip(" .")) for sentence in new if sentence.strip(" .")]
    return tuple(dict.fromkeys((*known, *short)))[-MOST:]


def listed(head: str, sentences: tuple[str, ...]) -> list[str]:
    """A line of guidance about some sentences; none if there are none."""
    return [f"{head}: {'; '.join(sentences)}."] if sentences else []
