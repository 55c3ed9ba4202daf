"""A conversation with a language model: messages in, text out as it is made.

The tokens of an answer are carried on as they were sampled; only what the chat template puts after them is made from
text. Where a template rewrites earlier turns (some drop a model's thoughts), the conversation is read anew.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from groupwise.agents.completions import special_tokens
from groupwise.agents.settings import AgentConfig
from groupwise.agents.streaming import TextStream
from groupwise.errors import ConfigError, ContractError
from groupwise.language.engine import EndOfText, Engine, Sampled
from groupwise.language.loading import LanguageModel

SESSION = "conversation"


class ContextFull(ContractError):
    """The conversation no longer fits the model."""

    code = "context_full"


class NotPlainText(ContractError):
    """A message that would change the frame of the conversation."""

    code = "not_plain_text"


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


@dataclass(frozen=True, slots=True)
class Script:
    """A conversation, or the beginning of one, as text and as the tokens of that text."""

    text: str = ""
    ids: list[int] = field(default_factory=list, repr=False)

    def followed_by(self, sampled: Sampled, tokenizer: Any) -> Script:
        raw = tokenizer.decode(sampled.ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return Script(self.text + raw, [*self.ids, *sampled.ids.tolist()])


class Conversation:
    """One conversation in an engine of its own. Use it in a `with` block: it runs a thread.

    Args:
      language: the model and its tokenizer, which must have a chat template.
      config: what it is told first, and how it samples.
      seed: answer n is sampled with seed + n, so that a conversation can be had again.
    """

    def __init__(self, language: LanguageModel, config: AgentConfig, seed: int = 0) -> None:
        if not language.tokenizer.chat_template:
            raise ConfigError(
                f"the tokenizer of '{language.name}' has no chat template, so the model cannot hold a conversation",
                hint="Give it one (tokenizer.chat_template = …) and save it again, or take a model trained to chat.",
            )
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
        self.messages = [{"role": "system", "content": self._plain(system)}] if system else []
        self.answers: list[Answer] = []
        self._so_far = Script()

    def reply(self, message: str) -> Generator[str]:
        """The answer's text, piece by piece; afterwards it is `answers[-1]` and part of the conversation.

        Closing the iterator, or Ctrl-C while it waits, ends the answer where it is: it then counts as cancelled.
        """
        messages = [*self.messages, {"role": "user", "content": self._plain(message)}]
        prompt = self._prompt(messages)
        stream = TextStream(self.tokenizer, self.config.stop)
        tokens: SimpleQueue[int | None] = SimpleQueue()
        seed = self.seed + len(self.answers)
        began = time.perf_counter()
        future = self.engine.submit(
            prompt.ids, self.config.sampling_params(), seed, SESSION, lambda token, _: tokens.put(token)
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
            self._so_far = prompt.followed_by(sampled, self.tokenizer)

    def _plain(self, text: str) -> str:
        """The text, with question marks for what is no character; a special token written out in it is refused."""
        token = next((token for token in special_tokens(self.tokenizer) if token in text), None)
        if token is not None:
            raise NotPlainText(
                f"the text holds {token!r}, which is a special token of the model", hint="Write it otherwise."
            )
        return text.encode("utf8", "replace").decode()

    def _prompt(self, messages: list[dict[str, str]]) -> Script:
        """The conversation up to the model's turn, if it leaves room for an answer."""
        text = self._render(messages, add_generation_prompt=True)
        known = self._so_far if text.startswith(self._so_far.text) else Script()
        ids = [*known.ids, *self.tokenizer.encode(text[len(known.text) :], add_special_tokens=False)]
        limit = self.engine.max_length
        if len(ids) >= limit:
            raise ContextFull(
                f"the conversation would have {len(ids)} tokens, and the model takes {limit} with its answer",
                hint="/reset starts over." if self.answers else "Send a shorter message.",
            )
        return Script(text, ids)

    def _render(self, messages: list[dict[str, str]], **options: Any) -> str:
        try:
            text: str = self.tokenizer.apply_chat_template(messages, tokenize=False, **options) if messages else ""
        except Exception as error:  # a template is a program and raises what it likes
            roles = " then ".join(message["role"] for message in messages[:2])
            raise ConfigError(
                f"the chat template refuses {roles}: {str(error).strip() or type(error).__name__}",
                hint="Leave the system prompt out." if self.config.system_prompt else "",
            ) from error
        return text
