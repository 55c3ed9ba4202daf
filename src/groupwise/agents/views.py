"""What a model is shown of a conversation: the messages, brought into the shape its chat template takes.

Notes are messages of the system that the agent writes itself: `guidance` of the strategy, `examples` from the dialogue
database, a `summary` of earlier turns. Each has its kind as `name`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from groupwise.agents.compression import shorten
from groupwise.agents.frame import Frame
from groupwise.errors import ConfigError
from groupwise.types import Message

GUIDANCE, EXAMPLES = "guidance", "examples"
NOT_RUN = "error: it was not run"
PROBE = "as the system says"


def note(kind: str, content: str, **more: Any) -> Message:
    return {"role": "system", "name": kind, "content": content, **more}


def is_note(message: Message, kind: str) -> bool:
    return message["role"] == "system" and message.get("name") == kind


def current(messages: Sequence[Message], defused: Callable[[str], str]) -> list[Message]:
    """The conversation to be read from its beginning: without notes that newer ones replace, and as plain text.

    Examples are shown with the question they were found for, and no longer once it is answered.
    """
    spoken = max((n for n, message in enumerate(messages) if message["role"] == "assistant"), default=-1)
    newest = max((n for n, message in enumerate(messages) if is_note(message, GUIDANCE)), default=-1)
    stale = {n for n, m in enumerate(messages) if is_note(m, GUIDANCE) and n != newest}
    stale |= {n for n, m in enumerate(messages) if is_note(m, EXAMPLES) and n < spoken}
    return [plain(message, defused) for n, message in enumerate(messages) if n not in stale]


def plain(message: Message, defused: Callable[[str], str]) -> Message:
    """The message as a template renders it.

    What users said was checked when they said it; what a model or a tool wrote may look like the frame, and is defused.
    A call is written by the template, in the model's own format, and not a second time as text.
    """
    if message["role"] == "user":
        return message
    return {**message, "content": "" if message.get("tool_calls") else defused(str(message.get("content") or ""))}


def unanswered_calls(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Results for calls of the newest turn that never got one: the process ended, or the answer was stopped."""
    turn = max((n for n, message in enumerate(messages) if message["role"] == "assistant"), default=len(messages))
    known = {message.get("tool_call_id") for message in messages[turn:]}
    calls = [call for message in messages[turn:] for call in message.get("tool_calls") or ()]
    return tuple(
        {"role": "tool", "tool_call_id": call["id"], "name": call["function"]["name"], "content": NOT_RUN}
        for call in calls
        if call["id"] not in known
    )


class Shape:
    """How a chat template takes system messages: anywhere, only first, or not at all; found by trying.

    Some refuse them and some leave them out without a word, and some have another template for tools. Where one is not
    taken, its text is put in front of the next user's message.
    """

    def __init__(self, frame: Frame, tools: Sequence[Mapping[str, Any]] = ()) -> None:
        said, asked = {"role": "system", "content": PROBE}, {"role": "user", "content": "u"}
        before = [asked, {"role": "assistant", "content": "a"}]
        self.first = _shows(frame, lambda: frame.opening([said, asked], tools))
        begun = _shows(frame, lambda: frame.opening([*before, said, asked], tools))
        self.later = self.first and begun and _shows(frame, lambda: frame.following([said, asked], True))

    def fit(self, messages: Sequence[Message], *, opening: bool) -> list[Message]:
        """The messages in that shape; system messages in a row are one, and so are those of a user."""
        fitted: list[Message] = []
        waiting: list[str] = []
        for message in messages:
            role, content = message["role"], str(message.get("content") or "")
            starts = opening and all(known["role"] == "system" for known in fitted)
            if role == "system" and not (self.first if starts else self.later):
                waiting.append(content)
                continue
            if role == "user" and waiting:
                content, waiting = "\n\n".join([*waiting, content]), []
            if fitted and role in ("system", "user") and fitted[-1]["role"] == role:
                content = f"{fitted.pop()['content']}\n\n{content}"
            fitted.append({**message, "content": content})
        return fitted


def _shows(frame: Frame, render: Callable[[], list[int]]) -> bool:
    try:
        return PROBE in frame.tokenizer.decode(render())
    except ConfigError:
        return False


def as_example(messages: Sequence[Message], limit: int = 2000) -> str:
    """A dialogue to learn from, as lines."""
    lines = [f"{m['role']}: {m.get('content') or ''}" for m in messages if m["role"] in ("user", "assistant")]
    return shorten("\n".join(lines), limit)
