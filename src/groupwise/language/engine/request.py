"""One request on its way through the engine."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from groupwise.language.engine.params import EndOfText, Sampled, SamplingParams
from groupwise.language.engine.stops import StopStrings

OnToken: TypeAlias = Callable[[int, float], object]


class Request:
    """What was asked, where the answer goes, and whether it is still wanted."""

    def __init__(
        self,
        ids: NDArray[np.int64],
        params: SamplingParams,
        seed: int,
        *,
        session: Hashable | None = None,
        on_token: OnToken | None = None,
        stops: StopStrings | None = None,
        limit: int,
    ) -> None:
        self.ids = ids
        self.key = ids.tobytes()
        self.params = params
        self.seed = seed
        self.session = session
        self.on_token = on_token
        self.stops = stops
        self.limit = limit  # new tokens that fit: max_new_tokens, or fewer where the context ends first
        self.cancelled = False
        self.future: Future[Sampled] = Future()

    @property
    def full_end(self) -> EndOfText:
        """Why the request ends when its tokens are used up."""
        return "length" if self.limit == self.params.max_new_tokens else "context"

    @property
    def watched(self) -> bool:
        """Whether every token needs a look in Python."""
        return self.on_token is not None or self.stops is not None

    def resolve(self, outcome: Sampled | BaseException) -> None:
        """Hands over the answer, unless whoever waited has cancelled the future meanwhile."""
        if not self.future.set_running_or_notify_cancel():
            return
        if isinstance(outcome, BaseException):
            self.future.set_exception(outcome)
        else:
            self.future.set_result(outcome)


Outcome: TypeAlias = tuple[Request, Sampled | BaseException]
