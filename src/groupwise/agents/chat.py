"""A conversation with a language model from ordinary code: messages in, text out as it is made.

It is one conversation of a `MultiTurnAgent`, whose event loop runs in a thread.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from groupwise.agents.multiturn import MultiTurnAgent
from groupwise.agents.settings import AgentConfig
from groupwise.agents.store import ConversationContext, ConversationNotFound
from groupwise.agents.turn import Response, Turn
from groupwise.event_loop import EventLoop
from groupwise.language.engine import Engine
from groupwise.language.loading import LanguageModel
from groupwise.types import Message

USER = "me"


class Conversation:
    """One conversation in an engine of its own. Use it in a `with` block: it runs threads.

    Args:
      language: the model and its tokenizer, which must have a chat template.
      config: what it is told first, and how it samples.
      seed: answer n is sampled with seed + n, so that a conversation can be had again.
      strategy: how the conversation is led.
      store: the file that keeps it.
      conversation_id: the conversation to go on with, begun if the store has none of that name.
      tools: what the model may call.
    """

    def __init__(
        self, language: LanguageModel, config: AgentConfig, seed: int = 0, *, strategy: str | None = None,
        store: str | Path | None = None, conversation_id: str | None = None, tools: Iterable[Any] = (),
    ) -> None:  # fmt: skip
        self.seed, self.strategy = seed, strategy
        self.agent = MultiTurnAgent(config, None, None, tools, store, strategy, language=language, slots=1)
        self.agent.use(language)
        self.answers: list[Response] = []
        self._loop = EventLoop("chat")
        try:
            self.context = self._loop.run(self._open(conversation_id))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Conversation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._loop.close()
        self.engine.close()
        self.agent.store.close()

    @property
    def engine(self) -> Engine:
        return self.agent.engine

    @property
    def messages(self) -> list[Message]:
        """All that was said, and what the model was told."""
        return list(self.context.messages)

    def reset(self) -> None:
        """Start over: a new conversation, with nothing but the system prompt."""
        self.answers = []
        self.context = self._loop.run(self._open(None))

    def reply(self, message: str) -> Generator[str]:
        """The answer's text, piece by piece; afterwards it is `answers[-1]` and part of the conversation.

        Closing the iterator, or Ctrl-C while it waits, ends the answer where it is: it then counts as cancelled.
        """
        turn = self.agent.stream_multiturn_response(self.context.conversation_id, message, self.strategy)
        pieces: SimpleQueue[str | None] = SimpleQueue()
        work = self._loop.start(_put_all(turn, pieces))
        ended = False
        try:
            while (piece := pieces.get()) is not None:
                yield piece
            ended = True
            work.result()
        finally:
            if not ended:
                work.cancel()
                while pieces.get() is not None:
                    pass
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


async def _put_all(turn: Turn, pieces: SimpleQueue[str | None]) -> None:
    """The pieces of a turn, then None, however it ends."""
    try:
        async with turn:
            async for piece in turn:
                pieces.put(piece)
    finally:
        pieces.put(None)
