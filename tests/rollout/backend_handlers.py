"""What rollout workers run in tests; a worker must be able to import it."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groupwise.errors import ContractError

if TYPE_CHECKING:  # so that a worker starts fast
    from groupwise.rollout.backends import Shared


@dataclass(frozen=True)
class Versioned:
    """A request with a value for all workers."""

    shared: Shared


class Echo:
    """Answers with what it got and where; `("die once", FILE)` ends the worker the first time, `die` every time."""

    def __init__(self, *refused: str) -> None:
        if refused:
            raise ContractError(refused[0])
        self.answered = 0

    async def __call__(self, request: Any) -> Any:
        if isinstance(request, Versioned):
            return request.shared.get(), id(request.shared.get()), os.getpid()
        what, given = request
        if what == "die once" and not Path(given).exists():
            Path(given).touch()
            os._exit(3)
        if what == "die":
            os._exit(4)
        if what == "wait":
            await asyncio.sleep(given)
        if what == "block":
            time.sleep(given)
        if what == "raise":
            raise ContractError(given, hint="Do better.")
        self.answered += 1
        return given, os.getpid(), self.answered
