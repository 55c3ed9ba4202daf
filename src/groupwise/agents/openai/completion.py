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
from groupwise.agents.openai.forced_calls import forced_grammar
from groupwise.agents.openai.requests import CompletionRequest, RequestError
from groupwise.language.engine import Engine, Sampled
from groupwise.language.engine.request import OnToken
from groupwise.language.engine.steering import Grammar, Likeliest, Penalties, Several, Steering
from groupwise.language.samplers.token_engine import TokenEngine
from groupwise.thoughts import REASONING
from groupwise.training.token_attempts import answer_text, is_special, token_texts
from groupwise.types import Message

FINISH = {"stop": "stop", "length": "length", "context": "length", "cancelled": "length"}


class Completion:
    """One request being answered under the name `model`."""

    KIND, CHUNK = "chat.completion", "chat.completion.chunk"

    def __init__(self, engine: TokenEngine, frame: Frame, request: CompletionRequest, model: str) -> None:
        self.engine, self.request, self.model = engine, request, model
        self.frame = frame.with_options(request.options)
        self.id, self.created = f"chatcmpl-{uuid.uuid4().hex}", int(time.time())

    async def events(self) -> AsyncIterator[Mapping[str, Any]]:
        """Yield one `chat.completion`, or for a stream the `chat.completion.chunk`s.

        Closing the generator, or cancelling the task, cancels the answers.
        """
        loop, tokens = asyncio.get_running_loop(), asyncio.Queue[tuple[int, float] | None]()

        def on_token(token: int, logp: float) -> None:
            loop.call_soon_threadsafe(tokens.put_nowait, (token, logp))

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
            choices = [self._choice(n, *pair) for n, pair in enumerate(zip(replies, sampled, strict=True))]
            yield {**self._head(self.KIND, choices), "usage": usage}

    def _submit(self, on_token: OnToken | None) -> tuple[Sequence[int], list[Future[Sampled]]]:
        """Hand the request to the engine; return the prompt's tokens and the answers to come."""
        prompt, limit = self._opening(), self.engine.max_length
        if len(prompt) >= limit:
            raise RequestError(
                f"the messages need {len(prompt)} tokens of a context of {limit}, which leaves no room for an answer",
                field="messages",
            )
        seeds = [self._seed(number) for number in range(self.request.count)]
        steerings = [self._steering() for _ in seeds]
        self.likeliest = [seen for _, seen in steerings]
        futures = [
            self._future(prompt, seed, on_token, steering) for seed, (steering, _) in zip(seeds, steerings, strict=True)
        ]
        return prompt, futures

    def _future(
        self, prompt: Sequence[int], seed: int, on_token: OnToken | None, steering: Steering | None
    ) -> Future[Sampled]:
        if steering is None:
            return self.engine.submit(prompt, self.request.params, seed, None, on_token)
        if not isinstance(self.engine, Engine):
            message = "this sampler cannot follow response_format, penalties or top_logprobs"
            raise RequestError(message, hint="Serve the model with the built-in engine.")
        return self.engine.submit(prompt, self.request.params, seed, None, on_token, steering)

    def _steering(self) -> tuple[Steering | None, Likeliest | None]:
        """What steers one answer, and where the alternatives of its tokens are kept."""
        asked, parts = self.request, list[Steering]()
        vocabulary = int(getattr(self.engine, "vocabulary", len(self.frame.tokenizer)))
        seen = Likeliest(asked.logprobs) if asked.logprobs else None
        if seen is not None:
            parts.append(seen)
        if asked.penalties is not None:
            unknown = next((token for token in asked.penalties[2] if token >= vocabulary), None)
            if unknown is not None:
                message = f"logit_bias names the token {unknown!s:.20}, but the model has {vocabulary}"
                raise RequestError(message, field="logit_bias")
            parts.append(Penalties(*asked.penalties))
        grammar: Mapping[str, Any] | str | None = asked.schema
        if asked.forced:
            grammar = forced_grammar(self.frame.call_format(), asked.tools, asked.forced, asked.parallel)
        if grammar is not None:
            # Last: whatever the penalties prefer, the answer fits.
            parts.append(Grammar(self.frame.tokenizer, vocabulary, grammar))
        return (Several(parts) if parts else None), seen

    def _opening(self) -> Sequence[int]:
        return self.frame.opening(self.request.messages, self.request.tools)

    def _choice(self, number: int, reply: Reply, sampled: Sampled) -> dict[str, Any]:
        facts = {"index": number, "message": api_message(reply), "finish_reason": finish_reason(reply, sampled)}
        if self.request.logprobs is None:
            return facts
        ended = sampled.end == "stop" and is_special(self.frame.tokenizer, int(sampled.ids[-1]))
        count = len(sampled) - ended
        pairs = zip(sampled.ids[:count].tolist(), sampled.logp[:count].tolist(), strict=True)
        return {**facts, "logprobs": {"content": [self._logprob(number, n, *pair) for n, pair in enumerate(pairs)]}}

    def _logprob(self, answer: int, place: int, token: int, logp: float) -> dict[str, Any]:
        """A token with its log-probability, and the likeliest ones in its place."""
        seen = self.likeliest[answer]
        others = [] if seen is None else [self._token(*pair) for pair in seen.found[place]]
        return {**self._token(token, logp), "top_logprobs": others}

    def _token(self, token: int, logp: float) -> dict[str, Any]:
        (text,) = token_texts(self.frame.tokenizer, [token])
        # JSON has no infinity.
        return {"token": text, "logprob": max(logp, -1e9), "bytes": list(text.encode())}

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
        calls = reply.tool_calls if self.request.parallel else reply.tool_calls[:1]
        content, reasoning = self._stopped(reply.content), self._stopped(reply.reasoning)
        return replace(reply, content=content, reasoning=reasoning, tool_calls=calls)

    def _stopped(self, text: str) -> str:
        places = [place for stop in self.request.params.stop if (place := text.find(stop)) >= 0]
        return text[: min(places)] if places else text

    async def _pieces(
        self, tokens: asyncio.Queue[tuple[int, float] | None], prompt: Sequence[int]
    ) -> AsyncIterator[Mapping[str, Any]]:
        speech, waiting, made = SpeechStream(self.frame.tokenizer, prompt, self.request.params.stop), [], 0
        yield self._chunk({"role": "assistant", "content": ""})
        while (new := await tokens.get()) is not None:
            if self.request.logprobs is not None and not is_special(self.frame.tokenizer, new[0]):
                waiting.append(self._logprob(0, made, *new))
            made += 1
            for piece in speech.feed(new[0]):
                yield self._chunk(_delta(piece), logprobs=waiting)
                waiting = []
        for piece in speech.finish():
            yield self._chunk(_delta(piece), logprobs=waiting)
            waiting = []

    def _last(self, reply: Reply, sampled: Sampled, usage: Mapping[str, int]) -> list[dict[str, Any]]:
        calls = [{"index": n, **call} for n, call in enumerate(api_message(reply).get("tool_calls", ()))]
        last = self._chunk({"tool_calls": calls} if calls else {}, finish_reason(reply, sampled))
        usage_chunk = {**self._head(self.CHUNK, []), "usage": usage}
        return [last, usage_chunk] if self.request.stream_usage else [last]

    def _chunk(
        self, delta: Mapping[str, Any], finish: str | None = None, logprobs: Sequence[Any] = ()
    ) -> dict[str, Any]:
        told = {"logprobs": {"content": logprobs}} if logprobs else {}
        return self._head(self.CHUNK, [{"index": 0, "delta": delta, "finish_reason": finish, **told}])

    def _head(self, kind: str, choices: list[Any]) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model, "choices": choices}


class TextCompletion(Completion):
    """A request of `/v1/completions`: the prompt's text is continued as it is, without a chat format."""

    KIND = CHUNK = "text_completion"

    def _opening(self) -> Sequence[int]:
        assert self.request.prompt is not None
        ids: list[int] = self.frame.tokenizer.encode(self.request.prompt)
        return ids

    def _reply(self, sampled: Sampled, prompt: Sequence[int]) -> Reply:
        return Reply(self._stopped(answer_text(self.frame.tokenizer, sampled)))

    def _choice(self, number: int, reply: Reply, sampled: Sampled) -> dict[str, Any]:
        facts = super()._choice(number, reply, sampled)
        del facts["message"]
        listed = facts.pop("logprobs", None)
        told = None if listed is None else _by_columns(listed["content"])
        return {**facts, "text": reply.content, "logprobs": told}

    def _chunk(
        self, delta: Mapping[str, Any], finish: str | None = None, logprobs: Sequence[Any] = ()
    ) -> dict[str, Any]:
        told = _by_columns(logprobs) if logprobs else None
        text = str(delta.get("content", "")) + str(delta.get(REASONING, ""))
        return self._head(self.CHUNK, [{"index": 0, "text": text, "finish_reason": finish, "logprobs": told}])


def _by_columns(tokens: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Log-probabilities as the older API has them."""
    return {
        "tokens": [one["token"] for one in tokens],
        "token_logprobs": [one["logprob"] for one in tokens],
        "top_logprobs": [{other["token"]: other["logprob"] for other in one["top_logprobs"]} for one in tokens],
    }


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
