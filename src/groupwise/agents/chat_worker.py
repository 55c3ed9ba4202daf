"""The worker process that holds language models: chat, and completions in OpenAI's format.

A model is loaded when it is first needed; the last few stay loaded, and a run is loaded again when it has a newer
checkpoint.
"""

from __future__ import annotations

import asyncio
import copy
import time
import uuid
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from groupwise.agents.conversation.frame import TextStream
from groupwise.agents.conversation.multiturn_agent import MultiTurnAgent
from groupwise.agents.conversation.store import ConversationContext, ConversationNotFound, ConversationStore
from groupwise.agents.environments.contract import BrokenCall, Reply, ToolCall
from groupwise.agents.model_start import find_chat_model
from groupwise.agents.openai.requests import Answering, CompletionRequest, Served, read_request
from groupwise.agents.settings import AgentConfig
from groupwise.agents.tools.toolbox import Toolbox, ToolResult, find_tools
from groupwise.language.engine import Sampled
from groupwise.training.checkpoint import checkpoint_folders
from groupwise.worker_process import by_operation

CHANGES = ("temperature", "max_new_tokens")


@dataclass(frozen=True)
class Loaded:
    """A loaded model and the checkpoint it came from."""

    agent: MultiTurnAgent
    answering: Answering
    step: str


class Speaker:
    """Holds conversations and completes chats with whichever model a request names."""

    def __init__(self, runs_dir: str, store: str, most: int, tools: str | None) -> None:
        self.runs_dir, self.most = Path(runs_dir), most
        self.store = ConversationStore(store)
        self.toolbox = Toolbox(find_tools(tools)) if tools else None
        self._models: OrderedDict[str, Loaded] = OrderedDict()
        self._loading = asyncio.Lock()

    async def chat(self, asked: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        """Stream an answer in a conversation."""
        loaded = await self.loaded(asked["model"])
        agent = _changed(loaded.agent, asked)
        context = await self._conversation(agent, asked)
        yield {"type": "start", "conversation_id": context.conversation_id}
        turn = agent.stream_multiturn_response(context.conversation_id, asked["message"], asked.get("strategy"))
        async with turn:
            async for event in turn.events:
                for told in _told(event):
                    yield told
        response = turn.response
        facts = response.metadata
        yield {
            "type": "done", "conversation_id": response.conversation_id, "response": response.text,
            "model": asked["model"], "calls": [_call_facts(result) for result in response.results],
            **{name: facts[name] for name in ("strategy", "state", "turn", "tokens", "end", "seconds", "compressed")},
        }  # fmt: skip

    async def complete(self, asked: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        """A chat completion: one object, or chunks if the request asks for a stream."""
        loaded = await self.loaded(asked["model"])
        request = read_request(asked["body"].encode(), loaded.agent.config.sampling_params())
        completion = Completion(loaded.answering, request, asked["model"])
        async for event in completion.events():
            yield event

    async def loaded(self, name: str) -> Loaded:
        async with self._loading:
            newest = next((path.name for path in checkpoint_folders(self.runs_dir / name / "checkpoints")), "")
            found = self._models.get(name)
            if found is None or found.step != newest:
                found = await asyncio.to_thread(self._load, name, newest)
                if before := self._models.pop(name, None):
                    await before.agent.close()
                self._models[name] = found
            self._models.move_to_end(name)
            while len(self._models) > self.most:
                _, old = self._models.popitem(last=False)
                await old.agent.close()
            return found

    def _load(self, name: str, step: str) -> Loaded:
        path = self.runs_dir / name
        language, own = find_chat_model(str(path) if path.is_dir() else name, str(self.runs_dir))
        own.pop("model_name")
        config = AgentConfig(model_name=name, **own)
        agent = MultiTurnAgent(config, None, None, self.toolbox or (), self.store, language=language, slots=16)
        agent.use(language)
        return Loaded(agent, Answering(agent.engine, agent.frame, None, None), step)

    async def _conversation(self, agent: MultiTurnAgent, asked: Mapping[str, Any]) -> ConversationContext:
        """The conversation to continue, or a new one. Other users' conversations do not exist for this caller."""
        name = asked.get("conversation_id")
        if name is None:
            return await agent.start_conversation(asked["user"], strategy=asked.get("strategy"), seed=asked.get("seed"))
        context = await agent.context(name)
        if context.user_id != asked["user"] and not asked.get("admin"):
            raise ConversationNotFound(
                f"there is no conversation {name!r:.60}", hint="Leave it out to start a new one."
            )
        return context


class Completion:
    """The answer to one request in OpenAI's format."""

    def __init__(self, answering: Answering, request: CompletionRequest, model: str) -> None:
        self.answering, self.request, self.model = answering, request, model
        self.id, self.created = f"chatcmpl-{uuid.uuid4().hex}", int(time.time())

    async def events(self) -> AsyncIterator[Mapping[str, Any]]:
        loop, tokens = asyncio.get_running_loop(), asyncio.Queue[int | None]()

        def on_token(token: int, _: Any) -> None:
            loop.call_soon_threadsafe(tokens.put_nowait, token)

        prompt, futures = self.answering.submit("", self.request, on_token if self.request.stream else None)
        try:
            if self.request.stream:
                futures[0].add_done_callback(lambda _: loop.call_soon_threadsafe(tokens.put_nowait, None))
                async for piece in self._pieces(tokens):
                    yield piece
            sampled = [await asyncio.wrap_future(future) for future in futures]
        except BaseException:
            for future in futures:
                self.answering.engine.cancel(future)
            raise
        answers = self.answering.served("", self.request, prompt, sampled)
        usage = _usage(len(prompt), sampled)
        if self.request.stream:
            for chunk in self._last(answers[0], usage):
                yield chunk
        else:
            choices = [{"index": n, "message": a.message, "finish_reason": a.finish} for n, a in enumerate(answers)]
            yield {**self._head("chat.completion", choices), "usage": usage}

    async def _pieces(self, tokens: asyncio.Queue[int | None]) -> AsyncIterator[Mapping[str, Any]]:
        text = TextStream(self.answering.frame.tokenizer, self.request.params.stop)
        yield self._chunk({"role": "assistant", "content": ""})
        while (token := await tokens.get()) is not None:
            if piece := text.feed(token):
                yield self._chunk({"content": piece})
        if piece := text.finish():
            yield self._chunk({"content": piece})

    def _last(self, answer: Served, usage: Mapping[str, int]) -> list[dict[str, Any]]:
        calls = [{"index": n, **call} for n, call in enumerate(answer.message.get("tool_calls", ()))]
        chunks = [self._chunk({"tool_calls": calls} if calls else {}, answer.finish)]
        return (
            [*chunks, {**self._head("chat.completion.chunk", []), "usage": usage}]
            if self.request.stream_usage
            else chunks
        )

    def _chunk(self, delta: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
        return self._head("chat.completion.chunk", [{"index": 0, "delta": delta, "finish_reason": finish}])

    def _head(self, kind: str, choices: list[Any]) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model, "choices": choices}


def _changed(agent: MultiTurnAgent, asked: Mapping[str, Any]) -> MultiTurnAgent:
    """The same agent on the same engine, with the settings this request changes."""
    changes = {name: asked[name] for name in CHANGES if asked.get(name) is not None}
    if asked.get("system") is not None:
        changes["system_prompt"] = asked["system"]
    if not changes:
        return agent
    other = copy.copy(agent)
    other.config = replace(agent.config, **changes)
    return other


def _told(event: str | Reply | ToolResult) -> list[Mapping[str, Any]]:
    if isinstance(event, str):
        return [{"type": "delta", "text": event}]
    if isinstance(event, Reply):
        return [{"type": "call", **_call(call)} for call in event.written]
    return [{"type": "result", **_call_facts(event)}]


def _call(call: ToolCall | BrokenCall) -> dict[str, Any]:
    if isinstance(call, BrokenCall):
        return {"name": "", "arguments": {}, "text": call.text}
    return {"name": call.name, "arguments": dict(call.arguments)}


def _call_facts(result: ToolResult) -> dict[str, Any]:
    facts = {"outcome": str(result.outcome), "content": result.content, "seconds": round(result.seconds, 4)}
    return {**_call(result.call), **facts}


def _usage(prompt: int, sampled: Sequence[Sampled]) -> dict[str, int]:
    made = sum(map(len, sampled))
    return {"prompt_tokens": prompt, "completion_tokens": made, "total_tokens": prompt + made}


def make_handler(runs_dir: str, store: str, most: str, tools: str | None = None) -> Callable[..., Any]:
    """What `Sidecar` starts the process with."""
    speaker = Speaker(runs_dir, store, int(most), tools)
    return by_operation({"chat": speaker.chat, "complete": speaker.complete})
