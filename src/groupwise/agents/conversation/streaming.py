"""Sampled tokens as text while they arrive: everything is given as soon as no later token can change it.

TextStream      tokens → text, without special tokens and up to a stop string
SpeechStream    tokens → thoughts and words apart, tool calls held back
Utterance       one answer of an engine, as it is sampled
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from groupwise.agents.conversation.chat_format import Frame
from groupwise.language.engine import Sampled, SamplingParams
from groupwise.language.samplers.token_engine import TokenEngine
from groupwise.language.thought_formats import hidden_tokens, prompt_end, thought_format
from groupwise.thoughts import SplitText, open_end

BROKEN = "�"  # what a tokenizer prints for a character whose remaining bytes have not been sampled yet


class TextStream:
    """Turns growing tokens into text and releases it as soon as no later token can change it.

    Text that may be the beginning of a stop string is held back until that is decided. Special tokens are not text,
    except those that delimit thoughts or are in `marks`.
    """

    def __init__(self, tokenizer: Any, stop: Sequence[str] = (), marks: Sequence[str] = ()) -> None:
        self.tokenizer, self.stop = tokenizer, tuple(stop)
        self.text = ""
        self.tokens = 0  # how many were fed
        self._hidden = hidden_tokens(tokenizer, marks)
        self._ids: list[int] = []

    def feed(self, token: int) -> str:
        """Return the text that this token makes final, perhaps none."""
        self.tokens += 1
        if token not in self._hidden:
            self._ids.append(token)
        whole, stopped = self._whole()
        return self._give(whole if stopped else whole[: self._certain(whole)])

    def finish(self) -> str:
        """Return what was held back, now that no token follows."""
        return self._give(self._whole()[0])

    def _whole(self) -> tuple[str, bool]:
        """Return all text up to the first stop string, and whether there is one."""
        text: str = self.tokenizer.decode(self._ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        found = [place for stop in self.stop if (place := text.find(stop)) >= 0]
        return (text[: min(found)], True) if found else (text, False)

    def _certain(self, text: str) -> int:
        """Return how much of `text` is final: no later token can change it or make it part of a stop string."""
        return open_end(text.rstrip(BROKEN), self.stop)

    def _give(self, text: str) -> str:
        new = text[len(self.text) :]
        self.text += new
        return new


@dataclass(frozen=True, slots=True)
class ThoughtPiece:
    """A piece of what the model thinks."""

    text: str


class SpeechStream:
    """Turns growing tokens into pieces of thought and of text.

    From the first mark in `held` onwards (a newline there also matches the start of the text), text is held back to the
    end: it may be a tool call. Marks inside a thought do not count.
    """

    def __init__(
        self, tokenizer: Any, prompt: Sequence[int], stop: Sequence[str] = (), held: Sequence[str] = ()
    ) -> None:
        self.raw, self.held = TextStream(tokenizer, stop, held), tuple(held)
        self.format = thought_format(tokenizer)
        self.opened = self.format.opened(prompt_end(tokenizer, prompt))
        self.reasoning = self.content = ""

    @property
    def said(self) -> SplitText:
        """What was thought and said, if nothing follows."""
        return self.format.split(self.raw.text, self.opened)

    def feed(self, token: int) -> list[str | ThoughtPiece]:
        """Return the pieces that this token makes final, perhaps none."""
        if not self.raw.feed(token):
            return []
        text = self.raw.text
        said, _ = self.format.so_far(text[: self.format.certain(text)], self.opened)
        return self._give(said.reasoning, said.content[: self._certain(said.content)])

    def finish(self) -> list[str | ThoughtPiece]:
        """Return what was held back, now that no token follows."""
        self.raw.finish()
        said, _ = self.format.so_far(self.raw.text, self.opened)
        return self._give(said.reasoning, said.content)

    def _certain(self, text: str) -> int:
        """Return how much of `text` is no tool call, nor becomes one. Spaces may turn out to surround a thought."""
        # The newline in front lets a mark such as "\n{" match at the very start; places shift by one for it.
        marks = [place for mark in self.held if (place := f"\n{text}".find(mark)) >= 0]
        end = min([len(text.rstrip()), *(max(0, place - 1) for place in marks)])
        return open_end(text[:end], self.held)

    def _give(self, reasoning: str, content: str) -> list[str | ThoughtPiece]:
        thought, words = reasoning[len(self.reasoning) :], content[len(self.content) :]
        self.reasoning, self.content = reasoning, content
        return [*([ThoughtPiece(thought)] if thought else []), *([words] if words else [])]


class Utterance:
    """One answer of the model while it is being sampled. Iterate over `pieces`; afterwards `sampled` is set.

    Text from the first mark in `held` onwards is not streamed but collected in `rest`: it may be a tool call.
    """

    def __init__(
        self, engine: TokenEngine, frame: Frame, ids: Sequence[int], params: SamplingParams, seed: int,
        session: Hashable | None = None, held: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.engine, self.ids, self.params, self.seed, self.session = engine, ids, params, seed, session
        self.stream = SpeechStream(frame.tokenizer, ids, params.stop, held)
        self.rest: list[str | ThoughtPiece] = []
        self.sampled: Sampled | None = None
        self.seconds = 0.0

    @property
    def said(self) -> SplitText:
        """What was thought and said so far, without the token or stop string that ended it."""
        return self.stream.said

    async def pieces(self) -> AsyncGenerator[str | ThoughtPiece]:
        """Yield what is final. Closing the generator, or cancelling the awaiting task, ends the answer there."""
        loop, tokens = asyncio.get_running_loop(), asyncio.Queue[int | None]()

        def tell(token: int | None) -> None:
            loop.call_soon_threadsafe(tokens.put_nowait, token)

        began = time.perf_counter()
        future = self.engine.submit(self.ids, self.params, self.seed, self.session, lambda token, _: tell(token))
        future.add_done_callback(lambda _: tell(None))
        try:
            while (token := await tokens.get()) is not None:
                for piece in self.stream.feed(token):
                    yield piece
        finally:
            self.rest = self.stream.finish()
            self.engine.cancel(future)  # does nothing if the answer is finished
            self.sampled = self._heard(await asyncio.shield(asyncio.wrap_future(future)))
            self.seconds = time.perf_counter() - began

    def _heard(self, sampled: Sampled) -> Sampled:
        """Cut the sample to the tokens we consumed: the engine may have been ahead when it was stopped."""
        n = self.stream.raw.tokens
        if n == len(sampled):
            return sampled
        cut = {name: getattr(sampled, name)[:n] for name in ("ids", "logp", "versions")}
        return replace(sampled, end="cancelled", **cut)
