"""The contract of a conversation's other side: messages in, messages out. An author never sees tokens.

    observation = await environment.reset(task)
    while not over:
        reply = the model's turn
        transition = await environment.step(reply)

One object lives through one conversation. `agents.conversations` holds many of them at once in one continuous batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from groupwise.types import End, Message, Task


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool the model wants to be run; `id` tells the calls of a conversation apart."""

    id: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BrokenCall:
    """What began like a call of a tool and is none, and why; the model is told."""

    text: str
    problem: str
    id: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """One turn of the model: its words, and the calls found among them. `cut` where it ran into a limit of tokens."""

    content: str
    calls: tuple[ToolCall, ...] = ()
    broken: tuple[BrokenCall, ...] = ()
    cut: bool = False

    @property
    def written(self) -> list[ToolCall | BrokenCall]:
        """All calls in the order they were written: the ids that replies are read with sort so."""
        both: list[ToolCall | BrokenCall] = [*self.calls, *self.broken]
        return sorted(both, key=lambda call: call.id) if self.broken else both

    def as_message(self) -> Message:
        """The turn as chat APIs write it."""
        said = {"role": "assistant", "content": self.content}
        if not self.calls:
            return said
        calls = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": dict(call.arguments)}}
            for call in self.calls
        ]
        return {**said, "tool_calls": calls}


@dataclass(frozen=True, slots=True)
class Observation:
    """How a conversation begins: its first messages, and the JSON schemas of the tools the model may call."""

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Transition:
    """What a reply led to: new messages for the model, what the turn earned, and how it ended if it did.

    `parts` name what the reward is made of; over a conversation they are added up.
    """

    messages: tuple[Message, ...] = ()
    reward: float = 0.0
    end: End | None = None
    parts: Mapping[str, float] = field(default_factory=dict)


class Environment(Protocol):
    """The user, the task and the tools of one conversation. It may also have `async def close(self)`."""

    async def reset(self, task: Task) -> Observation: ...
    async def step(self, reply: Reply) -> Transition: ...


class Scenarios(Protocol):
    """Where conversations come from.

    `training` is a pure function of its arguments, so that a run can go on anywhere; what it returns is never among
    what `held_out` returns. A scenario can be anything the environment understands: it is the task's payload. `make`
    gives a fresh environment for one conversation.
    """

    @property
    def name(self) -> str: ...
    def training(self, seed: int, number: int) -> Any: ...
    def held_out(self, seed: int, count: int) -> Sequence[Any]: ...
    def make(self) -> Environment: ...
