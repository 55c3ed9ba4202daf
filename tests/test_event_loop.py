"""The event loop in a thread ends when it is closed."""

from __future__ import annotations

import asyncio
import contextvars
import threading

import pytest

from groupwise.event_loop import EventLoop, contained


@pytest.mark.parametrize("stubborn", [False, True])
def test_closing_ends_even_work_that_will_not_be_cancelled(stubborn: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("groupwise.event_loop.PATIENCE", 0.1 if stubborn else 60.0)
    release, left = threading.Event(), []

    async def wait() -> None:
        while not release.is_set():
            try:
                await asyncio.sleep(0.02)
            except asyncio.CancelledError:
                if not stubborn:
                    raise

    async def start() -> None:
        left.append(asyncio.ensure_future(wait()))
        await asyncio.sleep(0)

    loop = EventLoop("test")
    loop.run(start())
    loop.close()  # must return although stubborn work goes on: nothing has released it yet
    assert left[0].done() is not stubborn
    release.set()
    left[0]._log_destroy_pending = False


def test_results_and_errors_come_back_and_the_loop_is_the_same_from_call_to_call() -> None:
    loop = EventLoop("test")

    async def where() -> tuple[str, int]:
        return threading.current_thread().name, id(asyncio.get_running_loop())

    async def fail() -> None:
        raise LookupError("lost")

    first = loop.run(where())
    assert first[0] == "test"
    with pytest.raises(LookupError, match="lost"):
        loop.run(fail())
    assert loop.run(where()) == first
    assert loop.submit(where()).result() == first
    loop.close()
    loop.close()  # a second time, nothing happens
    assert loop.run(where())[0] == "test", "it starts again when it is needed"
    loop.close()


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_work_that_tries_to_end_the_program_reaches_whoever_waits_and_the_loop_goes_on(
    error: type[BaseException],
) -> None:
    loop = EventLoop("test")

    async def end() -> None:
        raise error("now")

    async def one() -> int:
        return 1

    async def interrupted() -> int:
        return await contained(end())  # type: ignore[func-returns-value]

    with pytest.raises(error, match="now"):
        loop.run(interrupted())
    assert loop.run(contained(one())) == 1
    loop.close()


def test_it_works_inside_a_running_loop() -> None:
    loop = EventLoop("test")

    async def inner() -> int:
        await asyncio.sleep(0)
        return 3

    async def outer() -> int:
        return loop.run(inner())

    assert asyncio.run(outer()) == 3
    loop.close()


def test_what_a_caller_has_set_is_seen_by_the_work() -> None:
    setting: contextvars.ContextVar[int] = contextvars.ContextVar("setting", default=0)
    setting.set(5)
    loop = EventLoop("test")

    async def look() -> int:
        return setting.get()

    assert loop.run(look()) == 5
    loop.close()
