"""A conversation with a language model: messages in, text out as it is made.

The tokens of an answer are carried on as they were sampled; only what others say is made from text (`agents.frame`).
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from queue import SimpleQueue

from groupwise.agents.environment import Reply
from groupwise.agents.frame import Frame
from groupwise.agents.settings import AgentConfig
from groupwise.agents.streaming import TextStream
from groupwise.agents.toolbox import Outcome, Toolbox, ToolResult
from groupwise.errors import ContractError
from groupwise.event_loop import EventLoop
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
      toolbox: tools the model may call; their results are fed back to it before it answers.
      max_rounds: how often in a row it may call them.
    """

    def __init__(
        self, language: LanguageModel, config: AgentConfig, seed: int = 0, toolbox: Toolbox | None = None,
        max_rounds: int = 8,
    ) -> None:  # fmt: skip
        self.frame = Frame(language.tokenizer, f"'{language.name}'")
        self.tokenizer, self.config, self.seed = language.tokenizer, config, seed
        self.toolbox, self.max_rounds = toolbox, max_rounds
        self._held = self.frame.call_format().begins if toolbox else ()
        self._loop = EventLoop("tools")
        self.reset()
        self.engine = Engine(language.model, language.tokenizer, slots=1).start()

    def __enter__(self) -> Conversation:
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.close()
        self.engine.close()

    def reset(self) -> None:
        """Forget everything but the system prompt."""
        system = self.config.system_prompt
        self.messages: list[Message] = [self.frame.plain({"role": "system", "content": system})] if system else []
        self.answers: list[Answer] = []
        self._unread: list[Message] = []  # what tools answered, until the model has gone on
        self._ids: list[int] = []
        self._ended = True

    def reply(self, message: str) -> Generator[str]:
        """The answer's words, piece by piece; afterwards it is `answers[-1]` and part of the conversation.

        Closing the iterator, or Ctrl-C while it waits, ends the answer where it is: it then counts as cancelled.
        """
        with closing(self.events(message)) as events:
            yield from (event for event in events if isinstance(event, str))

    def events(self, message: str) -> Generator[str | Reply | ToolResult]:
        """The same with what tools do: every turn that calls some, once it is said, and then what came of each call."""
        heard: list[Message] = [{"role": "user", "content": message}]
        for left in reversed(range(self.max_rounds + 1)):
            reply = yield from self._say(heard)
            if self.toolbox is None or not reply.written:
                return
            yield reply
            results = self._run(self.toolbox, reply) if left else [self._refusal(reply)]
            self._unread = [result.as_message() for result in results]
            yield from results
            heard = []

    def _run(self, toolbox: Toolbox, reply: Reply) -> list[ToolResult]:
        """What comes of the calls; where a person will not wait for it, the model is told so when it goes on."""
        stopped = {"role": "tool", "tool_call_id": reply.written[0].id, "content": "error: the person stopped it"}
        self._unread = [stopped]
        return self._loop.run(toolbox.run(reply.calls, reply.broken))

    def _refusal(self, reply: Reply) -> ToolResult:
        problem = f"error: no more than {self.max_rounds} rounds of calls in one answer"
        return ToolResult(reply.written[0], Outcome.TOO_MANY, problem)

    def _say(self, new: list[Message]) -> Generator[str, None, Reply]:
        """One turn of the model, after all that it has not read yet. Calls are held back: they are no words."""
        heard = [self.frame.plain(message) for message in (*self._unread, *new)]
        prompt = self._prompt(heard)
        stream = TextStream(self.tokenizer, self.config.stop, self._held)
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
        finally:
            self.engine.cancel(future)  # nothing happens to one that is done
            sampled, rest = future.result(), stream.finish()
            whole = self.toolbox is not None and sampled.end != "cancelled"
            reply = self.frame.reply(sampled, len(self.answers)) if whole else Reply(stream.text)
            answer = Answer(stream.text, len(sampled), sampled.end, time.perf_counter() - began)
            self.messages = [*self.messages, *heard, {**reply.as_message(), "content": answer.text}]
            self.answers.append(answer)
            self._unread = []
            self._ids = [*prompt, *sampled.ids.tolist()]
            self._ended = self.frame.ended(sampled)
        if rest and not reply.written:
            yield rest
        return reply

    def _prompt(self, heard: list[Message]) -> list[int]:
        """The conversation up to the model's turn, if it leaves room for an answer."""
        if self._ids:
            new = self.frame.following(heard, self._ended)
        else:
            new = self.frame.opening([*self.messages, *heard], self.toolbox.schemas if self.toolbox else ())
        ids = [*self._ids, *new]
        limit = self.engine.max_length
        if len(ids) >= limit:
            raise ContextFull(
                f"the conversation would have {len(ids)} tokens, and the model takes {limit} with its answer",
                hint="/reset starts over." if self.answers else "Send a shorter message.",
            )
        return ids
