"""A chat-completions request, read and checked: what is not understood is refused by name, never ignored unseen."""

from __future__ import annotations

import json
import secrets
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from groupwise.agents.conversation.frame import Frame
from groupwise.agents.environments.contract import Reply
from groupwise.errors import ContractError
from groupwise.language.engine import Engine, Sampled, SamplingParams
from groupwise.language.engine.request import OnToken
from groupwise.types import Message

NUMBERS = ("temperature", "top_p", "min_p", "repetition_penalty")
LIMITS = ("max_completion_tokens", "max_tokens")
UNDERSTOOD = {"model", "messages", "tools", "stream", "stream_options", "n", "stop", "seed", "top_k", *NUMBERS, *LIMITS}
NO_EFFECT = {
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "parallel_tool_calls",
}
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "logprobs": (False,),
    "logit_bias": ({},),
    "response_format": ({"type": "text"},),
    "tool_choice": ("auto",),
}
MOST_ANSWERS = 64
LARGEST = 1e9  # of a number; none of those that sampling has use for is near it


class RequestError(ContractError):
    """A request that cannot be answered; `field` is the parameter at fault."""

    code = "invalid_request_error"


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """What is asked for: how many answers to which messages, sampled how, and whether piece by piece."""

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...]
    params: SamplingParams
    count: int
    seed: int | None
    stream: bool
    stream_usage: bool


def read_request(body: bytes, usual: SamplingParams) -> CompletionRequest:
    """The request; what it leaves open is as in `usual`."""
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        raise RequestError("the body is no JSON") from None
    if not isinstance(given, dict):
        raise RequestError("the body is no JSON object")
    given = {name: value for name, value in given.items() if value is not None}
    for name, value in given.items():
        if name not in UNDERSTOOD and name not in NO_EFFECT and value not in NEUTRAL.get(name, ()):
            raise RequestError(f"{name} = {json.dumps(value):.80} is not supported by this server", field=name)
    stream, options = bool(given.get("stream", False)), given.get("stream_options", {})
    if not isinstance(options, dict):
        raise RequestError(f"stream_options is {options!r:.80}, not an object", field="stream_options")
    count = _whole(given, "n", 1, 1, 1 if stream else MOST_ANSWERS)
    return CompletionRequest(
        messages=tuple(map(read_message, _objects(given, "messages"))),
        tools=_objects(given, "tools") if given.get("tools") else (),
        params=_params(given, usual),
        count=count,
        seed=_whole(given, "seed", None, -(1 << 63), (1 << 63) - 1),
        stream=stream,
        stream_usage=bool(options.get("include_usage", False)),
    )


def _params(given: Mapping[str, Any], usual: SamplingParams) -> SamplingParams:
    changes: dict[str, Any] = {name: _number(given, name) for name in NUMBERS if name in given}
    if "top_k" in given:
        changes["top_k"] = _whole(given, "top_k", 0, 0, 1 << 31)
    limit = next((name for name in LIMITS if name in given), None)
    if limit is not None:
        changes["max_new_tokens"] = _whole(given, limit, 1, 1, 1 << 31)
    if "stop" in given:
        stop = given["stop"] if isinstance(given["stop"], list) else [given["stop"]]
        if not all(isinstance(text, str) and text for text in stop):
            raise RequestError(f"stop is {given['stop']!r:.80}, not a text or a list of texts", field="stop")
        changes["stop"] = tuple(stop)
    return replace(usual, **changes)


def _objects(given: Mapping[str, Any], name: str) -> tuple[Mapping[str, Any], ...]:
    found = given.get(name)
    if not isinstance(found, list) or not found or not all(isinstance(item, dict) for item in found):
        raise RequestError(f"{name} is {found!r:.80}, not a list of at least one object", field=name)
    return tuple(found)


def read_message(given: Mapping[str, Any]) -> Message:
    """A message as chat templates want it: content is text, the arguments of calls are objects."""
    message = {name: value for name, value in given.items() if value is not None}
    content = message.get("content")
    if isinstance(content, list):
        message["content"] = "".join(_text_part(part) for part in content)
    if message.get("role") == "developer":
        message["role"] = "system"
    if "tool_calls" in message:
        message["tool_calls"] = [_call(call) for call in _objects(message, "tool_calls")]
    return message


def _text_part(part: Any) -> str:
    if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
        raise RequestError(f"a message holds {part!r:.80}; only text can be read here", field="messages")
    return str(part["text"])


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    try:
        function = {"name": function["name"], "arguments": function["arguments"]}  # type: ignore[index]
        if isinstance(function["arguments"], str):
            function["arguments"] = json.loads(function["arguments"])
    except (TypeError, KeyError, ValueError, RecursionError):
        raise RequestError(f"a call of a tool cannot be read: {call!r:.120}", field="messages") from None
    return {"id": call.get("id"), "type": "function", "function": function}


def _number(given: Mapping[str, Any], name: str) -> float:
    value = given[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > LARGEST:
        raise RequestError(f"{name} is {value!r:.80}, not a number up to {LARGEST:g}", field=name)
    return float(value)


def _whole(given: Mapping[str, Any], name: str, default: Any, least: int, most: int) -> Any:
    value = given.get(name, default)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most):
        raise RequestError(f"{name} is {value!r:.80}, not a whole number from {least} to {most}", field=name)
    return value


CONVERSATIONS = 4096
FINISH = {"stop": "stop", "length": "length", "context": "length", "cancelled": "length"}


@dataclass(frozen=True, slots=True)
class Served:
    """One answer: to whom and to what, from which tokens, and the tokens that were sampled."""

    label: str
    request: CompletionRequest
    prompt: tuple[int, ...] = field(repr=False)
    sampled: Sampled
    reply: Reply

    @property
    def message(self) -> Message:
        """The turn as chat APIs write it: the arguments of a call are JSON in a text."""
        said = dict(self.reply.as_message())
        for call in said.get("tool_calls", ()):
            call["function"]["arguments"] = json.dumps(call["function"]["arguments"])
        return said

    @property
    def finish(self) -> str:
        return "tool_calls" if self.reply.calls else FINISH[self.sampled.end]


@dataclass
class _Line:
    """A conversation under a label: how often it was asked on, and the answers to the last request."""

    asked: int = 0
    last: tuple[Served, ...] = ()


class Answering:
    """Turns requests into prompts, and what the engine sampled into answers; any thread may ask.

    With a `seed`, answers to requests without one of their own are repeatable, by label and turn. `on_answer` sees
    every answer before the client does.
    """

    def __init__(
        self, engine: Engine, frame: Frame, seed: int | None, on_answer: Callable[[Served], object] | None
    ) -> None:
        self.engine, self.frame, self.seed, self.on_answer = engine, frame, seed, on_answer
        self._lines: OrderedDict[str, _Line] = OrderedDict()
        self._lock = threading.Lock()

    def submit(
        self, label: str, request: CompletionRequest, on_token: OnToken | None = None
    ) -> tuple[tuple[int, ...], list[Future[Sampled]]]:
        """The tokens of the question, and the answers to come."""
        with self._lock:
            line = self._line(label)
            prompt = self._prompt(line, request)
            turn, line.asked = line.asked, line.asked + 1
        if len(prompt) >= self.engine.max_length:
            raise RequestError(
                f"the messages take {len(prompt)} tokens of a context of {self.engine.max_length}: no room to answer",
                field="messages",
            )
        futures = []
        for number in range(request.count):
            seed, session = self._seed(label, request, turn, number), label or None
            futures.append(self.engine.submit(prompt, request.params, seed, None if number else session, on_token))
        return prompt, futures

    def served(
        self, label: str, request: CompletionRequest, prompt: tuple[int, ...], sampled: Sequence[Sampled]
    ) -> tuple[Served, ...]:
        """The answers, remembered for what follows."""
        turn = sum(message.get("role") == "assistant" for message in request.messages)
        answers = tuple(Served(label, request, prompt, one, self._reply(request, one, turn)) for one in sampled)
        if label:
            with self._lock:
                self._line(label).last = answers
        for answer in answers if self.on_answer else ():
            assert self.on_answer is not None
            self.on_answer(answer)
        return answers

    def forget(self, label: str) -> None:
        """A conversation is over."""
        with self._lock:
            self._lines.pop(label, None)

    def _line(self, label: str) -> _Line:
        line = self._lines.setdefault(label, _Line())
        self._lines.move_to_end(label)
        while len(self._lines) > CONVERSATIONS:
            self._lines.popitem(last=False)
        return line

    def _prompt(self, line: _Line, request: CompletionRequest) -> tuple[int, ...]:
        for before in line.last:
            said = (*before.request.messages, before.reply.as_message())
            new = request.messages[len(said) :]
            if new and request.tools == before.request.tools and _same(said, request.messages[: len(said)]):
                following = self.frame.following(new, self.frame.ended(before.sampled))
                return (*before.prompt, *before.sampled.ids.tolist(), *following)
        return tuple(self.frame.opening(request.messages, request.tools))

    def _reply(self, request: CompletionRequest, sampled: Sampled, turn: int) -> Reply:
        """What was said, up to the text that ended it."""
        reply = self.frame.reply(sampled, turn)
        places = [place for stop in request.params.stop if (place := reply.content.find(stop)) >= 0]
        return replace(reply, content=reply.content[: min(places)]) if places else reply

    def _seed(self, label: str, request: CompletionRequest, turn: int, number: int) -> int:
        if request.seed is None and self.seed is None:
            return secrets.randbits(62)
        own = [abs(request.seed), 0, 0] if request.seed is not None else [self.seed, zlib.crc32(label.encode()), turn]
        return int(np.random.SeedSequence([*own, number]).generate_state(1, np.uint64)[0] >> np.uint64(1))


def _same(said: Sequence[Message], now: Sequence[Message]) -> bool:
    return [_essence(message) for message in said] == [_essence(message) for message in now]


def _essence(message: Message) -> tuple[Any, ...]:
    """What of a message matters, whatever else a client added."""
    calls = [(call.get("id"), call.get("function")) for call in message.get("tool_calls") or ()]
    return message.get("role"), message.get("content") or "", message.get("tool_call_id"), calls
