"""A conversation with a language model: messages in, text out as it is made.

The tokens of an answer are carried on as they were sampled; only what others say is made from text (`agents.frame`).
"""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass
from queue import SimpleQueue

from groupwise.agents.frame import Frame
from groupwise.agents.settings import AgentConfig
from groupwise.agents.streaming import TextStream
from groupwise.errors import ContractError
from groupwise.language.engine import EndOfText, Engine
from groupwise.language.loading import LanguageModel
from groupwise.types import Message

SESSION = "conversation"


class ContextFull(ContractError):
    """The conversation no longer fits the model."""

    code = "context_full"


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model said: its text, how many tokens it took, why it ended, and how long that was."""

    text: str
    tokens: int
    end: EndOfText
    seconds: float

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds if self.seconds > 0 else 0.0


class Conversation:
    """One conversation in an engine of its own. Use it in a `with` block: it runs a thread.

    Args:
      language: the model and its tokenizer, which must have a chat template.
      config: what it is told first, and how it samples.
      seed: answer n is sampled with seed + n, so that a conversation can be had again.
    """

    def __init__(self, language: LanguageModel, config: AgentConfig, seed: int = 0) -> None:
        self.frame = Frame(language.tokenizer, f"'{language.name}'")
        self.tokenizer, self.config, self.seed = language.tokenizer, config, seed
        self.reset()
        self.engine = Engine(language.model, language.tokenizer, slots=1).start()

    def __enter__(self) -> Conversation:
        return self

    def __exit__(self, *_: object) -> None:
        self.engine.close()

    def reset(self) -> None:
        """Forget everything but the system prompt."""
        system = self.config.system_prompt
        self.messages: list[Message] = [self.frame.plain({"role": "system", "content": system})] if system else []
        self.answers: list[Answer] = []
        self._ids: list[int] = []
        self._ended = True

    def reply(self, message: str) -> Generator[str]:
        """The answer's text, piece by piece; afterwards it is `answers[-1]` and part of the conversation.

        Closing the iterator, or Ctrl-C while it waits, ends the answer where it is: it then counts as cancelled.
        """
        messages = [*self.messages, self.frame.plain({"role": "user", "content": message})]
        prompt = self._prompt(messages)
        stream = TextStream(self.tokenizer, self.config.stop)
        tokens: SimpleQueue[int | None] = SimpleQueue()
        seed = self.seed + len(self.answers)
        began = time.perf_counter()
        future = self.engine.submit(
            prompt, self.config.sampling_params(), seed, SESSION, lambda token, _: tokens.put(token)
        )
        future.add_done_callback(lambda _: tokens.put(None))
        try:
            while (token := tokens.get()) is not None:
                if piece := stream.feed(token):
                    yield piece
            if rest := stream.finish():
                yield rest
        finally:
            self.engine.cancel(future)  # nothing happens to one that is done
            sampled = future.result()
            answer = Answer(stream.text, len(sampled), sampled.end, time.perf_counter() - began)
            self.messages = [*messages, {"role": "assistant", "content": answer.text}]
            self.answers.append(answer)
            self._ids = [*prompt, *sampled.ids.tolist()]
            self._ended = self.frame.ended(sampled)

    def _prompt(self, messages: list[Message]) -> list[int]:
        """The conversation up to the model's turn, if it leaves room for an answer."""
        new = self.frame.following(messages[-1:], self._ended) if self._ids else self.frame.opening(messages)
        ids = [*self._ids, *new]
        limit = self.engine.max_length
        if len(ids) >= limit:
            raise ContextFull(
                f"the conversation would have {len(ids)} tokens, and the model takes {limit} with its answer",
                hint="/reset starts over." if self.answers else "Send a shorter message.",
            )
        return ids
