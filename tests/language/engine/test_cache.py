"""Rows of the cache: they grow, move and change owners, and every session keeps its own keys and values."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from groupwise.language.engine.cache import FIRST_LENGTH, FIRST_ROWS, Cache, CacheRows, ParkedSession


def cache_of(rows: int, length: int) -> Cache:
    return Cache(2, 1, 2, rows=rows, length=length, like=torch.zeros(1))


def write(cache: Cache, row: int, length: int, mark: float) -> None:
    """`mark` in every position up to `length`, keys and values apart."""
    cache.ensure(row + 1, length)
    for part in (0, 1):
        cache.store[:, part, row, :, :length] = mark + part / 2


def assert_marked(cache: Cache, row: int, length: int, mark: float) -> None:
    for part in (0, 1):
        assert (cache.store[:, part, row, :, :length] == mark + part / 2).all(), f"row {row} is no longer {mark}"


@pytest.mark.parametrize(
    ("rows", "length", "room"),
    [
        (1, 1, (FIRST_ROWS, FIRST_LENGTH)),
        (FIRST_ROWS, FIRST_LENGTH, (FIRST_ROWS, FIRST_LENGTH)),
        (FIRST_ROWS + 1, 1, (2 * FIRST_ROWS, FIRST_LENGTH)),
        (1, FIRST_LENGTH + 1, (FIRST_ROWS, 2 * FIRST_LENGTH)),
        (20, 300, (20, 300)),  # no further than the limits
    ],
)
def test_room_doubles_up_to_the_limits(rows: int, length: int, room: tuple[int, int]) -> None:
    cache = cache_of(20, 300)
    cache.ensure(rows, length)
    assert (cache.rows, cache.length) == room
    assert cache.store.shape == (2, 2, room[0], 1, room[1], 2)
    assert not cache.store.any()


@pytest.mark.parametrize(("rows", "length"), [(12, 1), (1, 200), (12, 200)])
def test_what_is_stored_stays_when_either_side_grows(rows: int, length: int) -> None:
    cache = cache_of(64, 1024)
    write(cache, 3, FIRST_LENGTH, 7.0)
    cache.ensure(rows, length)
    assert cache.rows >= rows
    assert cache.length >= length
    assert_marked(cache, 3, FIRST_LENGTH, 7.0)
    assert not cache.store[:, :, 3, :, FIRST_LENGTH:].any()
    assert not cache.store[:, :, [0, 1, 2, 4]].any()
    for layer in range(2):
        cache.keys[layer][0, 0, 0], cache.values[layer][0, 0, 0] = 1 + layer, 5 + layer
    assert cache.store[:, :, 0, 0, 0, 0].tolist() == [[1, 5], [2, 6]]
    assert torch.stack(cache.layers)[:, :, 0, 0, 0, 0].tolist() == [[1, 5], [2, 6]]
    before = cache.store
    cache.ensure(cache.rows, cache.length)
    assert cache.store is before


def test_rows_are_copied_exchanged_kept_and_wiped_up_to_a_length() -> None:
    cache = cache_of(8, 8)
    for row in range(4):
        write(cache, row, 5, row + 1.0)
    cache.copy([1, 0], [0, 1], 3)
    assert cache.store[0, 0, :2, 0, :, 0].tolist() == [[2, 2, 2, 1, 1, 0, 0, 0], [1, 1, 1, 2, 2, 0, 0, 0]]
    cache.exchange([2], [3], 4)
    assert cache.store[1, 1, 2:4, 0, :, 1].tolist() == [[4.5] * 4 + [3.5, 0, 0, 0], [3.5] * 4 + [4.5, 0, 0, 0]]
    logits = torch.ones(3)
    kept = cache.snapshot(2, 5, logits)
    cache.wipe(2)
    logits.zero_()
    assert not cache.store[:, :, 2].any()
    assert cache.store[:, :, 3, :, :5].all()
    cache.restore(kept, 6)
    assert cache.store[1, 1, 6, 0, :, 1].tolist() == [4.5] * 4 + [3.5, 0, 0, 0]
    assert kept.logits.tolist() == [1, 1, 1]
    cache.wipe()
    assert not cache.store.any()


@pytest.mark.parametrize(
    ("cached", "prompt", "shared"),
    [
        ([1, 2, 3], [1, 2, 3, 4, 5], 3),
        ([1, 2, 3], [1, 2, 3, 4], 3),
        ([1, 2, 3], [1, 2, 3], 2),  # the last token is read again
        ([1, 2, 3], [1, 2], 1),
        ([1, 2, 3], [1], 0),
        ([1, 2, 3], [9, 2, 3, 4], 0),
        ([1, 2, 3], [1, 9, 3, 4], 1),
        ([1, 2, 3], [1, 2, 9, 4], 2),
        ([], [1, 2], 0),
    ],
)
def test_a_session_shares_its_common_beginning(cached: list[int], prompt: list[int], shared: int) -> None:
    assert ParkedSession(0, np.array(cached, np.int64)).shared_with(np.array(prompt)) == shared


TURNS = st.lists(st.tuples(st.integers(0, 7), st.integers(1, 6)), max_size=6)  # session and length


@given(slots=st.integers(1, 6), rounds=st.lists(st.tuples(TURNS, st.integers(0, 6)), max_size=12))
def test_sessions_keep_their_own_wherever_they_are_moved(
    slots: int, rounds: list[tuple[list[tuple[int, int]], int]]
) -> None:
    """Each round some sessions begin a turn, and some of the running rows, the last ones, end theirs."""
    rows = CacheRows(cache_of(slots, 8), slots)
    running: list[tuple[int, int, float]] = []  # session, length, mark
    known: dict[int, tuple[int, float]] = {}  # length and mark of the parked sessions, least recently used first
    for number, (turns, ending) in enumerate(rounds):
        first, busy = len(running), {session for session, *_ in running}
        lengths = {session: length for session, length in turns if session not in busy}
        entering = list(lengths)[: slots - first]
        taken = {session: parked for session in entering if (parked := rows.take(session)) is not None}
        assert list(taken) == [session for session in entering if session in known]
        rows.make_room(first, len(entering), list(taken.values()))
        for row, (session, parked) in enumerate(taken.items(), start=first):
            assert parked.row == row
            assert_marked(rows.cache, row, *known.pop(session))
        while len(known) > slots - first - len(entering):
            known.pop(next(iter(known)))
        assert list(rows.parked) == list(known)
        assert len({parked.row for parked in rows.parked.values()}) == len(known)
        for session, parked in rows.parked.items():
            assert first + len(entering) <= parked.row < slots
            assert_marked(rows.cache, parked.row, *known[session])
        for row, (_, length, mark) in enumerate(running):
            assert_marked(rows.cache, row, length, mark)
        for session in [*taken, *(session for session in entering if session not in taken)]:
            running.append((session, lengths[session], 10.0 * number + session + 1))
            write(rows.cache, len(running) - 1, *running[-1][1:])
        for _ in range(min(ending, len(running))):
            session, length, mark = running.pop()
            rows.park(session, len(running), np.zeros(length, np.int64))
            known[session] = length, mark


def test_only_a_session_that_was_parked_is_taken_and_only_once() -> None:
    rows = CacheRows(cache_of(4, 8), 4)
    rows.park("a", 2, np.arange(3))
    rows.park("b", 3, np.arange(4))
    assert rows.take(None) is None
    assert rows.take("c") is None
    taken = rows.take("a")
    assert taken is not None
    assert (taken.row, taken.ids.tolist()) == (2, [0, 1, 2])
    assert rows.take("a") is None
    rows.park("a", 1, np.arange(2))
    rows.park("b", 0, np.arange(5))  # a second request of the session, which ended later
    assert [(session, parked.row, len(parked.ids)) for session, parked in rows.parked.items()] == [
        ("a", 1, 2),
        ("b", 0, 5),
    ]
    rows.forget()
    assert rows.take("b") is None
