"""What products ask of whoever generates tokens: the engine of this process, or one that drives servers."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Protocol, Self

from groupwise.language.engine.request import OnToken, Sampled, SamplingParams

if TYPE_CHECKING:
    from torch import nn


class TokenEngine(Protocol):
    """Token ids in, token ids with log-probabilities and versions out. `engine.engine.Engine` explains the methods."""

    @property
    def max_length(self) -> int: ...
    @property
    def version(self) -> int: ...
    @property
    def on_accelerator(self) -> bool:
        """Whether it leaves this machine's processors free for other work."""
        ...

    def submit(
        self,
        ids: Sequence[int],
        params: SamplingParams,
        seed: int,
        session: Hashable | None = None,
        on_token: OnToken | None = None,
    ) -> Future[Sampled]: ...
    def generate(self, prompts: Sequence[tuple[Sequence[int], int]], params: SamplingParams) -> list[Sampled]: ...
    def load(self, weights: nn.Module, version: int) -> None: ...
    def cancel(self, future: Future[Sampled]) -> None: ...
    def start(self) -> Self: ...
    def close(self) -> None: ...
