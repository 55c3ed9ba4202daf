"""Chat with a language model from synchronous code: messages in, text out while it is generated.

A `ChatSession` is one conversation of a `MultiTurnAgent` whose event loop runs in a thread.
"""

import asyncio
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Self, TypeAlias

from groupwise.agents.conversation.multiturn_agent import MultiTurnAgent
from groupwise.agents.conversation.store import ConversationContext, ConversationNotFound
from groupwise.agents.conversation.streaming import ThoughtPiece
from groupwise.agents.conversation.turn import Response
from groupwise.agents.environments.contract import Reply
from groupwise.agents.settings import AgentConfig
from groupwise.agents.tools.toolbox import Toolbox, ToolResult
from groupwise.event_loop import EventLoop
from groupwise.language.engine import Engine
from groupwise.language.loading import LanguageModel
from groupwise.types import Message

Event: TypeAlias = str | ThoughtPiece | Reply | ToolResult
USER = "me"


class ChatSession:
    """One conversation with its own engine. Use it in a `with` block: it runs threads.

    Args:
      language: the model and its tokenizer, which must have a chat template.
      config: the system prompt and the sampling settings.
      seed: answer n is sampled with seed + n, so a conversation can be reproduced.
      toolbox: tools the model may call; it sees their results before it answers.
      max_rounds: how often in a row it may call them.
      strategy: how the conversation is conducted.
      store: the file that keeps the conversation.
      conversation_id: the conversation to continue; started if the store does not have it.
    """

    def __init__(
        self, language: LanguageModel, config: AgentConfig, seed: int = 0, toolbox: Toolbox | None = None,
        max_rounds: int = 8, *, strategy: str | None = None, store: str | Path | None = None,
        conversation_id: str | None = None,
    ) -> None:  # fmt: skip
        self.tokenizer, self.seed, self.toolbox, self.strategy = language.tokenizer, seed, toolbox, strategy
        self.agent = MultiTurnAgent(
            config, None, None, toolbox or (), store, strategy, language=language, slots=1, max_rounds=max_rounds
        )
        # The model is loaded already, so there is nothing to await in initialize().
        self.agent.use(language)
        self.answers: list[Response] = []
        self._loop = EventLoop("chat")
        try:
            self.context = self._loop.run(self._open(conversation_id))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._loop.close()
        self.engine.close()
        self.agent.store.close()
        if self.agent.memory is not None:
            self.agent.memory.close()

    @property
    def engine(self) -> Engine:
        return self.agent.engine

    @property
    def messages(self) -> list[Message]:
        """All messages, including the notes the model was given."""
        return list(self.context.messages)

    @property
    def _ids(self) -> tuple[int, ...]:
        """The tokens the model has read and sampled."""
        return self.context.ids

    def reset(self) -> None:
        """Start over: a new conversation, with nothing but the system prompt."""
        self.answers = []
        self.context = self._loop.run(self._open(None))

    def reply(self, message: str) -> Generator[str]:
        """Yield the answer piece by piece; afterwards it is `answers[-1]` and part of the conversation.

        Closing the iterator, or pressing Ctrl-C while it waits, stops the answer, which then counts as cancelled.
        """
        with closing(self.events(message)) as events:
            yield from (event for event in events if isinstance(event, str))

    def events(self, message: str) -> Generator[Event]:
        """Like `reply`, but also yield thoughts, every reply that calls tools and the result of each call."""
        turn = self.agent.stream_multiturn_response(self.context.conversation_id, message, self.strategy)
        busy = asyncio.Lock()  # Ctrl-C may leave the last step cleaning up; closing waits for it

        async def step() -> Event | None:
            async with busy:
                return await anext(turn.events, None)

        async def close() -> None:
            async with busy:
                await turn.events.aclose()

        try:
            while (event := self._loop.run(step())) is not None:
                yield event
        finally:
            self._loop.run(close())
            if turn.answered:
                self.context = turn.response.context
                self.answers.append(turn.response)

    async def _open(self, conversation_id: str | None) -> ConversationContext:
        if conversation_id is not None:
            try:
                return await self.agent.context(conversation_id)
            except ConversationNotFound:
                pass
        return await self.agent.start_conversation(USER, conversation_id=conversation_id, seed=self.seed)
