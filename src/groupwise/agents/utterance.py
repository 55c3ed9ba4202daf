"""One answer of a model as it is made: tokens from the engine's thread, text for whoever listens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Hashable, Sequence
from dataclasses import replace

from groupwise.agents.frame import Frame
from groupwise.agents.streaming import TextStream
from groupwise.language.engine import Engine, Sampled, SamplingParams


class Utterance:
    """What the model says to some tokens. `pieces` makes it; when they end, however they do, `sampled` is there.

    From a mark in `held` on, text is held back; it is `rest` then, and whoever listens knows whether it is words.
    """

    def __init__(
        self, engine: Engine, frame: Frame, ids: Sequence[int], params: SamplingParams, seed: int,
        session: Hashable | None = None, held: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.engine, self.ids, self.params, self.seed, self.session = engine, ids, params, seed, session
        self.stream = TextStream(frame.tokenizer, params.stop, held)
        self.rest = ""
        self.sampled: Sampled | None = None
        self.seconds = 0.0

    @property
    def text(self) -> str:
        """What has been said so far, without the token or the text that ended it."""
        return self.stream.text

    async def pieces(self) -> AsyncGenerator[str]:
        """The text, as soon as it is certain. Closing it, or cancelling whoever waits, ends the answer where it is."""
        loop, tokens = asyncio.get_running_loop(), asyncio.Queue[int | None]()

        def tell(token: int | None) -> None:
            loop.call_soon_threadsafe(tokens.put_nowait, token)

        began = time.perf_counter()
        future = self.engine.submit(self.ids, self.params, self.seed, self.session, lambda token, _: tell(token))
        future.add_done_callback(lambda _: tell(None))
        try:
            while (token := await tokens.get()) is not None:
                if piece := self.stream.feed(token):
                    yield piece
        finally:
            self.rest = self.stream.finish()
            self.engine.cancel(future)  # nothing happens to one that is done
            self.sampled = self._heard(await asyncio.shield(asyncio.wrap_future(future)))
            self.seconds = time.perf_counter() - began

    def _heard(self, sampled: Sampled) -> Sampled:
        """What was sampled, as far as somebody listened: the engine may have been ahead when it was stopped."""
        n = self.stream.tokens
        if n == len(sampled):
            return sampled
        cut = {name: getattr(sampled, name)[:n] for name in ("ids", "logp", "versions")}
        return replace(sampled, end="cancelled", **cut)
