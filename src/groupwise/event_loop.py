"""Run coroutines from ordinary code: one event loop in a thread of its own."""

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextvars import ContextVar
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")
PATIENCE = 2.0  # seconds for cancelled work to end when the loop is closed
Calls = SimpleQueue[Callable[[], object] | None]
_CALLER: ContextVar[Calls | None] = ContextVar("caller", default=None)


class EventLoop:
    """Runs coroutines for callers that wait. It starts with the first one and lives until it is closed.

    Whatever they keep (a client, a semaphore, a cache) therefore lasts from one call to the next. It also works inside
    a running event loop, which it blocks.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for the result of the work; interrupting the waiting thread cancels it.

        Meanwhile this thread makes the calls that the work hands to it with `in_caller`.
        """
        calls: Calls = SimpleQueue()
        before = _CALLER.set(calls)
        try:
            waiting = self.submit(work)
        finally:
            _CALLER.reset(before)
        try:
            waiting.add_done_callback(lambda _: calls.put(None))
            while (call := calls.get()) is not None:
                call()
            return waiting.result()
        # The work itself tried to end the program: raise what it raised.
        except Stopped as stopped:
            raise stopped.error from None
        except BaseException:
            waiting.cancel()
            raise

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start the work, from any thread, and return a future for its result."""
        return asyncio.run_coroutine_threadsafe(work, self._running())

    def close(self) -> None:
        """End the loop and its thread; work that is still under way is cancelled."""
        if self._thread is not None:
            self.stop()
            self._thread.join()
            self._loop = self._thread = None

    def stop(self) -> None:
        """Like `close`, without waiting: for finalizers, which may run in any thread, even the loop's own."""
        if self._loop is not None and not self._loop.is_closed():
            asyncio.run_coroutine_threadsafe(_cancel_others_and_stop(), self._loop)

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._starting:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                target = (contextvars.copy_context().run, _run_until_stopped, self._loop)
                self._thread = threading.Thread(target=target[0], args=target[1:], name=self.name, daemon=True)
                self._thread.start()
            return self._loop


class Stopped(BaseException):
    """Carries KeyboardInterrupt or SystemExit out of an event loop, which they would otherwise tear down."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


async def in_caller(function: Callable[[], T]) -> T:
    """Call the function in the thread that waits in `EventLoop.run`, one call at a time; without one, right here.

    For code that is bound to the thread of its program: signals, SQLite connections, whatever is not thread-safe.
    """
    calls = _CALLER.get()
    if calls is None:
        return function()
    done: Future[T] = Future()

    def call() -> None:
        if not done.set_running_or_notify_cancel():
            return
        try:
            done.set_result(function())
        except Exception as error:
            done.set_exception(error)

    calls.put(call)
    return await asyncio.wrap_future(done)


async def contained(work: Awaitable[T]) -> T:
    """Await the work. If it tries to end the program, the loop survives and the caller of `run` gets the exception."""
    try:
        return await work
    except (KeyboardInterrupt, SystemExit) as error:
        raise Stopped(error) from None


def _run_until_stopped(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


async def _cancel_others_and_stop() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    # Some may refuse to be cancelled.
    done = (await asyncio.wait(others, timeout=PATIENCE))[0] if others else ()
    for task in done:
        task.cancelled() or task.exception()
    asyncio.get_running_loop().stop()
