"""What an agent sees of OpenAI's asynchronous client: the call it makes, and the answer it gets."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any, Protocol

from groupwise.agents.completion_requests import read_message
from groupwise.agents.environment import Reply
from groupwise.errors import ContractError
from groupwise.language.engine import Sampled
from groupwise.types import Message

OURS = ("model", "temperature", "top_p", "seed", "stop", "user", "tool_choice", "parallel_tool_calls", "timeout")


class Completes(Protocol):
    """Who answers: the reply, the tokens of it, and how many tokens came before."""

    async def complete(self, messages: Sequence[Any], tools: Any, most: int | None) -> tuple[Reply, Sampled, int]: ...


def plain_message(message: Any) -> Message:
    """A message as it is compared: a table of role, text, calls with their arguments, and whose result it is."""
    given = dict(_table(message))
    if isinstance(given.get("content"), list):
        given["content"] = [_table(part) for part in given["content"]]
    calls = [dict(_table(call)) for call in given.pop("tool_calls", None) or ()]
    if calls:
        given["tool_calls"] = [{**call, "function": _table(call.get("function"))} for call in calls]
    read = read_message(given)
    kept = {name: read[name] for name in ("tool_calls", "tool_call_id") if read.get(name)}
    return {"role": read.get("role"), "content": read.get("content") or "", **kept}


def _table(thing: Any) -> Mapping[str, Any]:
    if isinstance(thing, Mapping):
        return thing
    if is_dataclass(thing) and not isinstance(thing, type):
        return asdict(thing)
    if hasattr(thing, "model_dump"):
        return dict(thing.model_dump())
    raise ContractError(f"{thing!r:.60} is no message", hint='Like {"role": "user", "content": "…"}.')


def message_of(reply: Reply) -> Message:
    """The turn as OpenAI's API tells it: calls instead of the words they were written in."""
    return {**reply.as_message(), "content": "" if reply.calls else reply.content}


@dataclass(frozen=True)
class Function:
    name: str
    arguments: str


@dataclass(frozen=True)
class FunctionCall:
    id: str
    function: Function
    type: str = "function"


@dataclass(frozen=True)
class AssistantMessage:
    content: str | None
    tool_calls: list[FunctionCall] | None = None
    role: str = "assistant"

    def model_dump(self, **_: Any) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class Choice:
    message: AssistantMessage
    finish_reason: str
    index: int = 0


@dataclass(frozen=True)
class Usage:
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


@dataclass(frozen=True)
class ChatCompletion:
    """What OpenAI's client returns, as far as agents look at it."""

    id: str
    model: str
    choices: list[Choice]
    usage: Usage
    created: int
    object: str = "chat.completion"


class Client:
    """`client.chat.completions.create(…)`, as an agent knows it from OpenAI's asynchronous client."""

    def __init__(self, who: Completes) -> None:
        self.chat = self
        self.completions = self
        self._who = who
        self._calls = 0

    async def create(
        self, *, messages: Sequence[Any], tools: Any = None, max_tokens: int | None = None,
        max_completion_tokens: int | None = None, **options: Any,
    ) -> ChatCompletion:  # fmt: skip
        """The next turn. How tokens are drawn is the run's to say: `temperature` and its like are not used."""
        if options.pop("stream", False) or options.pop("n", 1) != 1:
            raise ContractError("one whole answer a call is all there is", hint="Leave out stream and n.")
        unknown = next((name for name in options if name not in OURS), None)
        if unknown is not None:
            raise ContractError(f"create() takes no {unknown!r} here", hint=f"It takes {', '.join(OURS)}.")
        most = max_completion_tokens if max_completion_tokens is not None else max_tokens
        reply, sampled, length = await self._who.complete(messages, tools, most)
        self._calls += 1
        return ChatCompletion(
            f"call-{self._calls}", str(options.get("model", "policy")),
            [Choice(_message(reply), _finish(reply, sampled))], Usage(length, len(sampled), length + len(sampled)),
            int(time.time()),
        )  # fmt: skip


def _message(reply: Reply) -> AssistantMessage:
    calls = [FunctionCall(c.id, Function(c.name, json.dumps(dict(c.arguments)))) for c in reply.calls]
    return AssistantMessage(None if calls else reply.content, calls or None)


def _finish(reply: Reply, sampled: Sampled) -> str:
    if sampled.end != "stop":
        return "length"
    return "tool_calls" if reply.calls else "stop"
