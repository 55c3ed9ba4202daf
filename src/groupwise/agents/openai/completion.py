"""Answers chat-completions requests of OpenAI's API with an engine: one object, or chunks while tokens are sampled.

The service puts this behind `POST /v1/chat/completions`; there is no other server.
"""

import asyncio
import json
import secrets
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import numpy as np

from groupwise.agents.conversation.chat_format import Frame
from groupwise.agents.conversation.streaming import SpeechStream, ThoughtPiece
from groupwise.agents.environments.contract import Reply
from groupwise.agents.openai.requests import CompletionRequest, RequestError
from groupwise.language.engine import Sampled
from groupwise.language.engine.request import OnToken
from groupwise.language.samplers.token_engine import TokenEngine
from groupwise.thoughts import REASONING
from groupwise.types import Message

FINISH = {"stop": "stop", "length": "length", "context": "length", "cancelled": "length"}


class Completion:
    """One request being answered under the name `model`."""

    def __init__(self, engine: TokenEngine, frame: Frame, request: CompletionRequest, model: str) -> None:
        self.engine, self.request, self.model = engine, request, model
        self.frame = frame.with_options(request.options)
        self.id, self.created = f"chatcmpl-{uuid.uuid4().hex}", int(time.time())

    async def events(self) -> AsyncIterator[Mapping[str, Any]]:
        """Yield one `chat.completion`, or for a stream the `chat.completion.chunk`s.

        Closing the generator, or cancelling the task, cancels the answers.
        """
        loop, tokens = asyncio.get_running_loop(), asyncio.Queue[int | None]()

        def on_token(token: int, _: Any) -> None:
            loop.call_soon_threadsafe(tokens.put_nowait, token)

        prompt, futures = self._submit(on_token if self.request.stream else None)
        try:
            if self.request.stream:
                # Done callbacks run in the engine's thread, after the last token was queued.
                futures[0].add_done_callback(lambda _: loop.call_soon_threadsafe(tokens.put_nowait, None))
                async for piece in self._pieces(tokens, prompt):
                    yield piece
            sampled = [await asyncio.wrap_future(future) for future in futures]
        except BaseException:
            for future in futures:
                self.engine.cancel(future)
            raise
        replies = [self._reply(one, prompt) for one in sampled]
        made = sum(map(len, sampled))
        usage = {"prompt_tokens": len(prompt), "completion_tokens": made, "total_tokens": len(prompt) + made}
        if self.request.stream:
            for chunk in self._last(replies[0], sampled[0], usage):
                yield chunk
        else:
            choices = [
                {"index": n, "message": api_message(reply), "finish_reason": finish_reason(reply, one)}
                for n, (reply, one) in enumerate(zip(replies, sampled, strict=True))
            ]
            yield {**self._head("chat.completion", choices), "usage": usage}

    def _submit(self, on_token: OnToken | None) -> tuple[Sequence[int], list[Future[Sampled]]]:
        """Hand the request to the engine; return the prompt's tokens and the answers to come."""
        prompt, limit = self.frame.opening(self.request.messages, self.request.tools), self.engine.max_length
        if len(prompt) >= limit:
            raise RequestError(
                f"the messages need {len(prompt)} tokens of a context of {limit}, which leaves no room for an answer",
                field="messages",
            )
        seeds = [self._seed(number) for number in range(self.request.count)]
        return prompt, [self.engine.submit(prompt, self.request.params, seed, None, on_token) for seed in seeds]

    def _seed(self, number: int) -> int:
        if self.request.seed is None:
            return secrets.randbits(62)
        # The zeros stand for label and turn, which earlier versions had: answers to a seed stay the same.
        seeds = [abs(self.request.seed), 0, 0, number]
        return int(np.random.SeedSequence(seeds).generate_state(1, np.uint64)[0] >> np.uint64(1))

    def _reply(self, sampled: Sampled, prompt: Sequence[int]) -> Reply:
        """Return what was thought and said, up to the stop string if one ended it."""
        turn = sum(message.get("role") == "assistant" for message in self.request.messages)
        reply = self.frame.reply(sampled, turn, prompt, self.request.tools)
        return replace(reply, content=self._stopped(reply.content), reasoning=self._stopped(reply.reasoning))

    def _stopped(self, text: str) -> str:
        places = [place for stop in self.request.params.stop if (place := text.find(stop)) >= 0]
        return text[: min(places)] if places else text

    async def _pieces(
        self, tokens: asyncio.Queue[int | None], prompt: Sequence[int]
    ) -> AsyncIterator[Mapping[str, Any]]:
        speech = SpeechStream(self.frame.tokenizer, prompt, self.request.params.stop)
        yield self._chunk({"role": "assistant", "content": ""})
        while (token := await tokens.get()) is not None:
            for piece in speech.feed(token):
                yield self._chunk(_delta(piece))
        for piece in speech.finish():
            yield self._chunk(_delta(piece))

    def _last(self, reply: Reply, sampled: Sampled, usage: Mapping[str, int]) -> list[dict[str, Any]]:
        calls = [{"index": n, **call} for n, call in enumerate(api_message(reply).get("tool_calls", ()))]
        last = self._chunk({"tool_calls": calls} if calls else {}, finish_reason(reply, sampled))
        usage_chunk = {**self._head("chat.completion.chunk", []), "usage": usage}
        return [last, usage_chunk] if self.request.stream_usage else [last]

    def _chunk(self, delta: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
        return self._head("chat.completion.chunk", [{"index": 0, "delta": delta, "finish_reason": finish}])

    def _head(self, kind: str, choices: list[Any]) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model, "choices": choices}


def _delta(piece: str | ThoughtPiece) -> dict[str, str]:
    return {"content": piece} if isinstance(piece, str) else {REASONING: piece.text}


def api_message(reply: Reply) -> Message:
    """Return the turn as chat APIs write it: the arguments of a call are JSON in a string."""
    said = dict(reply.as_message())
    for call in said.get("tool_calls", ()):
        call["function"]["arguments"] = json.dumps(call["function"]["arguments"])
    return said


def finish_reason(reply: Reply, sampled: Sampled) -> str:
    return "tool_calls" if reply.tool_calls else FINISH[sampled.end]
