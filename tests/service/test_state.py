"""Many ask how something stands, and it is looked at once."""

from __future__ import annotations

import asyncio
import threading

import pytest

from groupwise.service.state import StatusCache


def test_all_who_ask_at_once_share_one_look() -> None:
    looks: list[int] = []

    def look() -> bytes:
        looks.append(len(looks))
        return b"%d" % len(looks)

    async def ask() -> list[bytes]:
        glances = StatusCache()
        return await asyncio.gather(*(glances.of("job", look) for _ in range(32)), glances.of("other", look))

    told = asyncio.run(ask())
    assert len(looks) == 2
    assert len(set(told[:-1])) == 1
    assert told[-1] != told[0]


def test_what_was_changed_during_a_look_is_looked_at_again() -> None:
    begun, changed = threading.Event(), threading.Event()

    def slow() -> bytes:
        begun.set()
        changed.wait(10)
        return b"before"

    async def ask() -> tuple[bytes, bytes, bytes]:
        glances = StatusCache()
        first = asyncio.create_task(glances.of("job", slow))
        await asyncio.to_thread(begun.wait, 10)
        glances.forget("job")
        changed.set()
        second = await glances.of("job", lambda: b"after")
        return await first, second, await glances.of("job", lambda: b"again")

    assert asyncio.run(ask()) == (b"before", b"after", b"after")


def test_a_look_that_fails_is_told_to_all_and_made_anew() -> None:
    def fail() -> bytes:
        raise LookupError("no such job")

    async def ask() -> bytes:
        glances = StatusCache()
        told = await asyncio.gather(*(glances.of("job", fail) for _ in range(3)), return_exceptions=True)
        assert [str(one) for one in told] == ["no such job"] * 3
        return await glances.of("job", lambda: b"there")

    assert asyncio.run(ask()) == b"there"


def test_one_who_goes_away_does_not_end_the_others_look() -> None:
    go_on = threading.Event()

    async def ask() -> bytes:
        glances = StatusCache()
        first = asyncio.create_task(glances.of("job", lambda: b"found" if go_on.wait(10) else b""))
        second = asyncio.create_task(glances.of("job", lambda: b"unused"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        first.cancel()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await first
        return await second

    assert asyncio.run(ask()) == b"found"
