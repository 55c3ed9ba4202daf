"""From a request to tokens and back: what a server of a model does, without the server.

Requests under one label are one conversation. While each begins with what was said before, the model's own turns are
carried as the tokens it sampled and never made again from text.
"""

from __future__ import annotations

import json
import secrets
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from groupwise.agents.completion_requests import CompletionRequest, RequestError
from groupwise.agents.environment import Reply
from groupwise.agents.frame import Frame
from groupwise.language.engine import Engine, Sampled
from groupwise.language.engine.request import OnToken
from groupwise.types import Message

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
