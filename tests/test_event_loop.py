"""The event loop in a thread ends when it is closed."""

from __future__ import annotations

import asyncio
import threading

import pytest

from groupwise.event_loop import EventLoop


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
