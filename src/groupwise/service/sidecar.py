"""A worker process beside the service for work it must not do itself, such as running models and designing workflows.

`Sidecar` is the asynchronous face of `groupwise.workers`: requests are answered piece by piece, many at a time.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from groupwise.errors import GroupwiseError
from groupwise.workers import WorkerLost, Workers

MOST_WAITING = 64


class SidecarLost(GroupwiseError):
    """The process ended while it was working on a request."""

    code = "generation_lost"


class Sidecar:
    """The process whose handler `module.make_handler(*words)` makes; requests name an operation and its argument."""

    def __init__(self, module: str, words: Sequence[str]) -> None:
        # JSON: the process works on what strangers send, and must not be able to make the service unpickle anything.
        most = MOST_WAITING
        self._workers = Workers(f"{module}:make_handler", args=words, at_once=most, most=most, json=True, threads=None)

    @property
    def waiting(self) -> int:
        return self._workers.pending

    @property
    def starts(self) -> int:
        return self._workers.starts

    @property
    def pid(self) -> int | None:
        return next(iter(self._workers.pids), None)

    async def ask(self, what: str, request: Mapping[str, Any], seconds: float | None = None) -> AsyncIterator[Any]:
        """The answer to a request, piece by piece. If the caller stops listening, the work stops.

        A request that takes longer than `seconds` costs the process: what runs there cannot be interrupted.
        """
        loop, pieces = asyncio.get_running_loop(), asyncio.Queue[tuple[Any] | None]()

        def hear(piece: tuple[Any] | None) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(pieces.put_nowait, piece)

        future = self._workers.submit([what, request], seconds=seconds, on_event=lambda event: hear((event,)))
        future.add_done_callback(lambda _: hear(None))
        try:
            while (piece := await pieces.get()) is not None:
                yield piece[0]
            future.result()
        except WorkerLost as error:
            raise SidecarLost("the process that was working on this request ended", hint="Ask again.") from error
        finally:
            future.cancel()

    async def answer(self, what: str, request: Mapping[str, Any], seconds: float | None = None) -> Any:
        """The last piece of an answer; for operations that answer in one."""
        found = [event async for event in self.ask(what, request, seconds)]
        return found[-1]

    async def close(self) -> None:
        await asyncio.to_thread(self._workers.close, 0.0)
