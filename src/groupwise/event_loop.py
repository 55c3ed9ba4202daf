"""Asynchronous work from ordinary code: one event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")
PATIENCE = 2.0


class EventLoop:
    """Runs coroutines for whoever waits. It starts with the first and lives until it is closed.

    What they keep (a client, a semaphore, a cache) therefore lasts from one to the next. It works inside a running
    event loop too, which it blocks.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of the work; an interrupt of the waiting thread cancels it."""
        waiting = self.submit(work)
        try:
            return waiting.result()
        except Stopped as stopped:
            raise stopped.error from None
        except BaseException:
            waiting.cancel()
            raise

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start the work; its result comes with the future."""
        return asyncio.run_coroutine_threadsafe(work, self._running())

    def close(self) -> None:
        """End the loop and its thread; what is still at work is cancelled."""
        if self._loop is None or self._thread is None:
            return
        asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._loop = self._thread = None

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            context = contextvars.copy_context()
            self._thread = threading.Thread(
                target=context.run, args=(self._loop.run_forever,), name=self.name, daemon=True
            )
            self._thread.start()
        return self._loop


class Stopped(BaseException):
    """A wish to stop the program, on its way out of an event loop that it would otherwise tear down."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


async def contained(work: Awaitable[T]) -> T:
    """The work; where it wishes to stop the program, the loop survives and whoever waits is told."""
    try:
        return await work
    except (KeyboardInterrupt, SystemExit) as error:
        raise Stopped(error) from None


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    # Some may not let themselves be cancelled.
    done = (await asyncio.wait(others, timeout=PATIENCE))[0] if others else ()
    for task in done:
        task.cancelled() or task.exception()
