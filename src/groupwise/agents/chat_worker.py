"""The worker process that holds language models: chat, and completions in OpenAI's format.

A model is loaded when it is first needed; the last few stay loaded, and a run is loaded again when it has a newer
checkpoint.
"""

import asyncio
import copy
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groupwise.agents.conversation.chat import Event
from groupwise.agents.conversation.multiturn_agent import MultiTurnAgent
from groupwise.agents.conversation.store import ConversationContext, ConversationNotFound, ConversationStore
from groupwise.agents.conversation.streaming import ThoughtPiece
from groupwise.agents.environments.contract import BrokenCall, Reply, ToolCall
from groupwise.agents.model_start import find_chat_model
from groupwise.agents.openai.completion import Completion, TextCompletion
from groupwise.agents.openai.requests import read_request
from groupwise.agents.settings import AgentConfig
from groupwise.agents.tools.tool_sources import find_tools
from groupwise.agents.tools.toolbox import Toolbox, ToolResult
from groupwise.training.checkpoint import checkpoint_folders
from groupwise.worker_process import by_operation

CHANGES = ("temperature", "max_new_tokens")


@dataclass(frozen=True)
class Loaded:
    """A loaded model and the checkpoint it came from."""

    agent: MultiTurnAgent
    checkpoint: object


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
        agent = _changed((await self.loaded(asked["model"])).agent, asked)
        context = await self._conversation(agent, asked)
        yield {"type": "start", "conversation_id": context.conversation_id}
        turn = agent.stream_multiturn_response(context.conversation_id, asked["message"], asked.get("strategy"))
        async with turn:
            async for event in turn.events:
                for message in _messages(event):
                    yield message
        response, facts = turn.response, turn.response.metadata
        yield {
            "type": "done", "conversation_id": response.conversation_id, "response": response.text,
            "reasoning": response.reasoning, "model": asked["model"],
            "calls": [_call_facts(result) for result in response.results],
            **{name: facts[name] for name in ("strategy", "state", "turn", "tokens", "end", "seconds", "compressed")},
        }  # fmt: skip

    async def complete(self, asked: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        """A chat completion: one object, or chunks if the request asks for a stream."""
        loaded = await self.loaded(asked["model"])
        request = read_request(asked["body"].encode(), loaded.agent.config.sampling_params())
        kind = Completion if request.prompt is None else TextCompletion
        completion = kind(loaded.agent.engine, loaded.agent.frame, request, asked["model"])
        async for event in completion.events():
            yield event

    async def loaded(self, name: str) -> Loaded:
        async with self._loading:
            newest = _newest_checkpoint(self.runs_dir / name)
            found = self._models.get(name)
            if found is None or found.checkpoint != newest:
                found = await asyncio.to_thread(self._load, name, newest)
                if before := self._models.pop(name, None):
                    await before.agent.close()
                self._models[name] = found
            self._models.move_to_end(name)
            # The least recently used model is first.
            while len(self._models) > self.most:
                _, old = self._models.popitem(last=False)
                await old.agent.close()
            return found

    def _load(self, name: str, checkpoint: object) -> Loaded:
        path = self.runs_dir / name
        language, own = find_chat_model(str(path) if path.is_dir() else name, str(self.runs_dir))
        # A path on this machine; clients know the model by its name.
        own.pop("model_name")
        config = AgentConfig(model_name=name, **own)
        agent = MultiTurnAgent(config, None, None, self.toolbox or (), self.store, language=language, slots=16)
        agent.use(language)
        return Loaded(agent, checkpoint)

    async def _conversation(self, agent: MultiTurnAgent, asked: Mapping[str, Any]) -> ConversationContext:
        """The conversation to continue, or a new one. Other users' conversations do not exist for this caller."""
        name = asked.get("conversation_id")
        if name is None:
            return await agent.start_conversation(asked["user"], strategy=asked.get("strategy"), seed=asked.get("seed"))
        context = await agent.context(name)
        if context.user_id != asked["user"] and not asked.get("admin"):
            message = f"there is no conversation {name!r:.60}"
            raise ConversationNotFound(message, hint="Leave it out to start a new one.")
        return context


def _newest_checkpoint(run: Path) -> object:
    """What tells the newest checkpoint of a run from any other; a base model has none, and never changes.

    Its step is not enough: the run may have been deleted, and its name be that of another key's run by now.
    """
    newest = next(checkpoint_folders(run / "checkpoints"), None)
    if newest is None:
        return None
    try:
        made = newest.stat()
    except FileNotFoundError:  # a newer one has just taken its place
        return newest.name
    return newest.name, made.st_dev, made.st_ino, made.st_mtime_ns


def _changed(agent: MultiTurnAgent, asked: Mapping[str, Any]) -> MultiTurnAgent:
    """The same agent on the same engine, with the settings this request changes."""
    changes = {name: asked[name] for name in CHANGES if asked.get(name) is not None}
    if asked.get("system") is not None:
        changes["system_prompt"] = asked["system"]
    if not changes:
        return agent
    other = copy.copy(agent)
    other.config = agent.config.replace(**changes)
    return other


def _messages(event: Event) -> list[Mapping[str, Any]]:
    if isinstance(event, str):
        return [{"type": "delta", "text": event}]
    if isinstance(event, ThoughtPiece):
        return [{"type": "thought", "text": event.text}]
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


def make_handler(runs_dir: str, store: str, most: str, tools: str | None = None) -> Callable[..., Any]:
    """What `Sidecar` starts the process with."""
    speaker = Speaker(runs_dir, store, int(most), tools)
    return by_operation({"chat": speaker.chat, "complete": speaker.complete})
