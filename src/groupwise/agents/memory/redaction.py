"""Takes facts out of messages that mention them, for a user who wants them forgotten in mid-conversation."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from groupwise.agents.memory.facts import Fact
from groupwise.types import Message

FORGOTTEN = "[forgotten at the user's request]"
TEXTS = ("content", "reasoning_content")
SHORT = 3  # characters; shorter values occur everywhere, so the fact's subject must be mentioned too
SENTENCE = re.compile(r"[^.!?\n]*(?:[.!?](?=\S)[^.!?\n]*)*[.!?\n]*\s*")


def redacted(message: Message, facts: Sequence[Fact]) -> Message:
    """The message without the sentences that mention one of the facts, and without them in the arguments of calls."""
    changed: dict[str, Any] = {
        name: _text(message[name], facts) for name in TEXTS if isinstance(message.get(name), str)
    }
    if message.get("tool_calls"):
        changed["tool_calls"] = without(message["tool_calls"], facts)
    return {**message, **changed}


def _text(text: str, facts: Sequence[Fact]) -> str:
    return "".join(f"{FORGOTTEN} " if _mentions(part, facts) else part for part in SENTENCE.findall(text)).rstrip()


def without(value: Any, facts: Sequence[Fact]) -> Any:
    """A JSON value without the texts in it that mention one of the facts."""
    if isinstance(value, str):
        return FORGOTTEN if _mentions(value, facts) else value
    if isinstance(value, Mapping):
        return {key: without(inner, facts) for key, inner in value.items()}
    return [without(inner, facts) for inner in value] if isinstance(value, list | tuple) else value


def _mentions(text: str, facts: Sequence[Fact]) -> bool:
    lower = text.lower()
    for fact in facts:
        found = re.search(rf"(?<!\w){re.escape(fact.value.lower())}(?!\w)", lower)
        subject = any(word in lower for word in fact.subject.lower().split())
        if (found and (len(fact.value) > SHORT or subject)) or fact.text.lower() in lower:
            return True
    return False
