"""Conversations as a learned reward reads them: who spoke, what was said, in order."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from groupwise.types import Message

LONGEST = 4000


@dataclass(frozen=True, slots=True)
class Transcript:
    """Turns of (whether the policy spoke, text). Of a long turn the beginning and the end are kept."""

    turns: tuple[tuple[bool, str], ...]

    @classmethod
    def of(cls, messages: Sequence[Message]) -> Transcript:
        return cls(tuple((message.get("role") == "assistant", _clipped(_text(message))) for message in messages))

    @property
    def opening(self) -> tuple[tuple[bool, str], ...]:
        """What stood there before the policy first spoke: what the members of a group share."""
        first = next((number for number, (own, _) in enumerate(self.turns) if own), len(self.turns))
        return self.turns[:first]

    def packed(self) -> list[Any]:
        return [[own, text] for own, text in self.turns]

    @classmethod
    def unpacked(cls, state: Sequence[Any]) -> Transcript:
        return cls(tuple((bool(own), str(text)) for own, text in state))


def mark(*things: object) -> int:
    """A number that depends on what is said alone: the same in every process."""
    return zlib.crc32(repr(things).encode("utf8", "backslashreplace"))


def _text(message: Message) -> str:
    content = message.get("content") or ""
    if not isinstance(content, str):  # parts, as chat APIs also write them
        content = " ".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    calls = message.get("tool_calls")
    return f"{content} {json.dumps(calls, default=str, ensure_ascii=False)}" if calls else content


def _clipped(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} … {text[-LONGEST // 2 :]}"
