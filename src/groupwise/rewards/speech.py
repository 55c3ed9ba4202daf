"""What an assistant said, as words and sentences: all that the components look at.

Matching is by whole words, without regard to case or punctuation, so that "Sorry!" is sorry and "this" is not "hi".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from groupwise.types import Message

WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
SENTENCE = re.compile(r"[^.!?\n]+[.!?]*")
QUOTES = str.maketrans({"\u2019": "'", "\u2018": "'", "\u02bc": "'"})


@dataclass(frozen=True)
class Reply:
    """One turn of the assistant."""

    text: str

    @cached_property
    def words(self) -> list[str]:
        return words_of(self.text)

    @cached_property
    def sentences(self) -> list[str]:
        return [found.strip() for found in SENTENCE.findall(self.text) if WORD.search(found)]

    @cached_property
    def questions(self) -> set[str]:
        """Its questions, each once."""
        return {" ".join(words_of(sentence)) for sentence in self.sentences if sentence.endswith("?")}

    @cached_property
    def spoken(self) -> str:
        """Its words between single spaces, with one at either end: a phrase is in it as ` phrase `."""
        return f" {' '.join(self.words)} "

    def says(self, phrase: str) -> bool:
        """Whether a phrase in small letters occurs; `resolv*` is every word that begins so."""
        return (f" {phrase[:-1]}" if phrase.endswith("*") else f" {phrase} ") in self.spoken

    def says_any(self, phrases: Iterable[str]) -> bool:
        return any(map(self.says, phrases))


def words_of(text: str) -> list[str]:
    """Its words in small letters; a typographic apostrophe is a plain one."""
    return WORD.findall(text.translate(QUOTES).casefold())


def phrase_of(text: str) -> str:
    """A phrase as `Reply.says` takes it, a star at its end kept."""
    return " ".join(words_of(text)) + "*" * text.rstrip().endswith("*")


def replies(turns: Sequence[Message]) -> list[Reply]:
    """What the assistant said, turn by turn. A turn that only calls tools is none; an empty one is."""
    spoken = [turn for turn in turns if turn.get("role") == "assistant"]
    said = [(text_of(turn.get("content")), turn.get("tool_calls")) for turn in spoken]
    return [Reply(text) for text, calls in said if text.strip() or not calls]


def text_of(content: Any) -> str:
    """The text of a message's content: a text, a list of parts as chat APIs have them, or nothing."""
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    parts = [part.get("text", "") if isinstance(part, dict) else part for part in content]
    return "\n".join(str(part) for part in parts)


def listed(phrases: str) -> tuple[str, ...]:
    """Phrases written one after another, with commas between."""
    return tuple(phrase.strip() for phrase in phrases.split(","))
