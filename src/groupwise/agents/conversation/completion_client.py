"""What a rollout function is given: an OpenAI-like client, and the tasks to call it with.

The client is an object in the same process with the shape of OpenAI's; nothing is sent over a network. Whoever answers
its calls is in the same process (`custom_rollout`) or, when the function runs in a worker, at the other end of a pipe
(`environments/worker_environments`).
"""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any, Protocol

from groupwise.agents.environments.contract import Listed, Reply
from groupwise.agents.openai.requests import read_message, read_template_options
from groupwise.errors import ContractError
from groupwise.types import Message

# Accepted so that agents written for OpenAI run unchanged, but without effect: the run decides how to sample.
OURS = (
    "model", "temperature", "top_p", "seed", "stop", "user", "tool_choice", "parallel_tool_calls", "timeout",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Completed:
    """The model's turn, whether it ended by itself, and how many tokens were read and written for it."""

    reply: Reply
    stopped: bool
    prompt_tokens: int
    completion_tokens: int


class Completes(Protocol):
    """Answers a client's call."""

    async def complete(
        self, messages: Sequence[Any], tools: Any, most: int | None, options: Mapping[str, Any]
    ) -> Completed: ...


def plain_message(message: Any) -> Message:
    """Normalise a message for comparison: role, text, calls with parsed arguments, and the call it answers."""
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
    raise ContractError(f"{thing!r:.60} is not a message", hint='Write it like {"role": "user", "content": "…"}.')


def message_of(reply: Reply) -> Message:
    """Return the turn as OpenAI's API represents it: with calls instead of the text they were written in."""
    return {**reply.as_message(), "content": "" if reply.tool_calls else reply.content}


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
    reasoning_content: str | None = None
    role: str = "assistant"

    def model_dump(self, **_: Any) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class CompletionChoice:
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
    """The fields of OpenAI's answer that agents use."""

    id: str
    model: str
    choices: list[CompletionChoice]
    usage: Usage
    created: int
    object: str = "chat.completion"


class CompletionClient:
    """Offers `client.chat.completions.create(…)` of OpenAI's asynchronous client."""

    def __init__(self, who: Completes) -> None:
        self.chat = self.completions = self
        self.who, self._calls = who, 0

    async def create(
        self, *, messages: Sequence[Any], tools: Any = None, max_tokens: int | None = None,
        max_completion_tokens: int | None = None, extra_body: Mapping[str, Any] | None = None, **options: Any,
    ) -> ChatCompletion:  # fmt: skip
        """Return the model's next turn. The run decides how to sample: `temperature` and the like are ignored.

        Options of the chat template go where OpenAI's client has them: extra_body={"chat_template_kwargs": {…}}.
        """
        template = read_template_options(
            {"reasoning_effort": options.pop("reasoning_effort", None), **(extra_body or {})}
        )
        if options.pop("stream", False) or options.pop("n", 1) != 1:
            raise ContractError("create() returns one complete answer per call", hint="Leave out stream and n.")
        unknown = next((name for name in options if name not in OURS), None)
        if unknown is not None:
            raise ContractError(f"create() does not accept {unknown!r} here", hint=f"It accepts {', '.join(OURS)}.")
        most = max_completion_tokens if max_completion_tokens is not None else max_tokens
        done = await self.who.complete(messages, tools, most, template)
        self._calls += 1
        reply = done.reply
        calls = [FunctionCall(c.id, Function(c.name, json.dumps(dict(c.arguments)))) for c in reply.tool_calls]
        finish = "length" if not done.stopped else "tool_calls" if calls else "stop"
        said = AssistantMessage(None if calls else reply.content, calls or None, reply.reasoning or None)
        choice = CompletionChoice(said, finish)
        usage = Usage(done.prompt_tokens, done.completion_tokens, done.prompt_tokens + done.completion_tokens)
        model = str(options.get("model", "policy"))
        return ChatCompletion(f"call-{self._calls}", model, [choice], usage, int(time.time()))


class RolloutScenarios(Listed[Any]):
    """What a custom agent is trained on: its rollout function, and the tasks to call it with."""

    def __init__(
        self,
        rollout: Callable[..., Any],
        tasks: Sequence[Any],
        *,
        held_out: Sequence[Any] | None = None,
        name: str = "",
    ) -> None:
        if not inspect.iscoroutinefunction(rollout) or len(inspect.signature(rollout).parameters) != 2:
            message = f"{rollout!r:.60} is not a rollout function"
            raise ContractError(message, hint="Write async def rollout(client, task).")
        super().__init__(tasks, held_out)
        self.rollout, self.name = rollout, name or rollout.__name__

    def make(self) -> Any:
        message = "a rollout function runs its own conversations, so there is no environment to make"
        raise ContractError(message, hint="Use CustomRollouts.")


class TurnsUsedUp(ContractError):
    """The agent called the model more often than `rollout.max_conversation_turns` allows."""

    code = "turn_limit"


class ContextUsedUp(ContractError):
    """The messages leave no room in the model's context for an answer."""

    code = "context_length_exceeded"
