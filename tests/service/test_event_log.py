"""A log that is read while it grows, and curves that keep their peaks."""

from __future__ import annotations

import asyncio
import itertools
import json
import operator
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.config import TrainingConfig
from groupwise.service import event_stream
from groupwise.service.event_stream import (
    AXES,
    Follower,
    Followers,
    RunLog,
    RunLogs,
    Series,
    StreamPosition,
    downsampled,
)
from groupwise.service.runs import Runs
from groupwise.training.events import EventLog, read_events
from groupwise.training.folder import create_run, inspect_run
from groupwise.types import Event


def add(log: EventLog, count: int, attempt: int = 1) -> None:
    for _ in range(count):
        metrics = {"reward/mean": float(log.count), **({"late": 1.0} if log.count > 3 else {})}
        log.append(Event("r", log.count, attempt, time.time(), log.count, "step", {"metrics": metrics}))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


def test_only_what_is_new_is_read_and_the_lines_are_the_events(path: Path) -> None:
    writer, log = EventLog(path), RunLog(path)
    log.refresh()
    assert len(log) == 0
    for count in (3, 4, 0, 1):
        add(writer, count)
        log.refresh()
    assert len(log) == 8
    assert b"\n".join(log.lines(0, 8)) + b"\n" == path.read_bytes()
    assert log.lines(6, 100) == log.chosen([6, 7])
    steps, values, _ = log.numbers["step"].column("late")
    assert steps.tolist() == [4, 5, 6, 7]
    assert values.tolist() == [1.0] * 4


def test_a_torn_end_waits_until_it_is_whole(path: Path) -> None:
    writer, log = EventLog(path), RunLog(path)
    add(writer, 2)
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    log.refresh()
    assert len(log) == 1
    path.write_bytes(whole)
    log.refresh()
    assert len(log) == 2
    assert log.rewinds == []


@pytest.mark.parametrize("again", [0, 2, 3, 9])
def test_a_rewind_is_noticed_however_long_the_log_is_by_then(path: Path, again: int) -> None:
    add(EventLog(path), 6)
    log = RunLog(path)
    log.refresh()
    add(EventLog(path, keep=3), again, attempt=2)
    log.refresh()
    assert len(log) == 3 + again == len(read_events(path))
    log.refresh()
    assert log.rewinds == [3]
    assert log.known_until(1) == 3
    assert log.attempt == (2 if again else 1)


def test_a_log_that_is_gone_is_a_rewind_to_the_beginning(path: Path) -> None:
    add(EventLog(path), 2)
    log = RunLog(path)
    log.refresh()
    path.unlink()
    log.refresh()
    assert log.rewinds == [0]
    assert len(log) == 0


def test_what_another_reader_saw_first_is_no_news_before_it_can_be_sent(path: Path) -> None:
    """A client with news that it is not given asks for them again at once: the service would do nothing else."""

    async def follow() -> None:
        writer = EventLog(path)
        add(writer, 2)
        follower = Follower("r", RunLog(path))
        await follower._look()
        place = StreamPosition(follower, 2, 0)
        add(writer, 1)
        follower.log.refresh()
        assert not place.has_news
        await follower._look()
        assert place.has_news
        assert [json.loads(str(told))["event"]["seq"] async for _, told in place.news()] == [2]

    asyncio.run(follow())


FACTS = operator.attrgetter("state", "step", "total", "attempt", "updated", "metrics")


def stands(runs: Runs) -> tuple[Any, ...]:
    runs.index.refresh()
    return tuple(FACTS(runs.index.cards["r"]))


def expected(path: Path) -> tuple[Any, ...]:
    return tuple(FACTS(inspect_run(path)))


def test_without_its_status_a_run_is_told_from_its_log(tmp_path: Path) -> None:
    path = create_run(TrainingConfig.from_dict({"output_dir": str(tmp_path), "run_name": "r"}))
    writer, runs = EventLog(path / "events.jsonl"), Runs(tmp_path)
    assert stands(runs) == expected(path)
    writer.append(Event("r", 0, 1, 1.0, 0, "start", {"total_steps": 9}))
    add(writer, 5)
    assert stands(runs) == expected(path)
    assert stands(runs)[:3] == ("interrupted", 5, 9)
    writer.append(Event("r", 6, 2, 3.0, 5, "end", {}))
    assert stands(runs) == expected(path)
    assert stands(runs)[0] == "finished"


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=400), st.integers(4, 60))
def test_thinning_keeps_the_ends_and_the_extremes(values: list[float], points: int) -> None:
    given_ = np.array(values)
    chosen = downsampled(given_, points)
    assert len(chosen) <= max(points, 4)
    assert chosen[0] == 0
    assert chosen[-1] == len(values) - 1
    assert sorted(set(chosen)) == list(chosen)
    assert given_[chosen].max() == given_.max()
    assert given_[chosen].min() == given_.min()


@given(st.lists(st.integers(-9, 9), max_size=40), st.integers(2, 12))
def test_no_more_points_are_drawn_than_asked_for_and_each_stretch_has_its_extremes(
    values: list[int], points: int
) -> None:
    given_ = np.array(values, dtype=float)
    chosen = downsampled(given_, points)
    assert len(chosen) <= points
    assert sorted(set(chosen)) == list(chosen)
    if len(values) <= points:
        assert chosen.tolist() == list(range(len(values)))
        return
    assert (chosen[0], chosen[-1]) == (0, len(values) - 1)
    if points >= 4:
        edges = np.linspace(0, len(values), (points - 2) // 2 + 1).astype(int)
        for begin, end in itertools.pairwise(edges):
            stretch = given_[begin:end]
            inside = given_[[one for one in chosen if begin <= one < end]]
            assert (inside.min(), inside.max()) == (stretch.min(), stretch.max())


def event(seq: int, kind: str, data: Any, step: int = 0, attempt: int = 1) -> Event:
    return Event("r", seq, attempt, 1.0, step, kind, data)


def test_columns_stay_as_long_as_their_events_whatever_these_report() -> None:
    series = Series()
    for seq, metrics in enumerate([{"a": 1.0}, {"b": 2.0}, {"a": None, "b": 3.0}, {}, {"c": 4, "a": 5.0}]):
        series.add(event(seq + 10, "step", {"metrics": metrics}, step=seq * 2), dict.fromkeys(AXES, seq / 2))
    series.add(event(15, "step", {}, step=99), dict.fromkeys(AXES, 9.0))
    assert series.seqs.tolist() == [10, 11, 12, 13, 14, 15]
    assert {len(column) for column in series.columns.values()} == {6}
    found = {name: [part.tolist() for part in series.column(name)] for name in "abcd"}
    assert {name: parts[:2] for name, parts in found.items()} == {
        "a": [[0, 8], [1, 5]], "b": [[2, 4], [2, 3]], "c": [[8], [4]], "d": [[], []],
    }  # fmt: skip
    assert series.column("a", "time")[2].tolist() == [0.0, 2.0]


def test_a_log_knows_where_its_run_stands(path: Path) -> None:
    writer, log = EventLog(path), RunLog(path)
    for kind, data, step, attempt in (
        ("start", {"total_steps": 9}, 0, 1), ("step", {"metrics": {"a": 1.0, "b": 2.0}}, 1, 1),
        ("checkpoint", {}, 1, 1), ("eval", {"metrics": {"b": 3.0}}, 1, 1), ("hint", {}, 0, 1),
        ("start", {"total_steps": 12}, 1, 2), ("error", {"error": {}}, 1, 2),
    ):  # fmt: skip
        writer.append(event(writer.count, kind, data, step, attempt))
    log.refresh()
    assert log.rare == [0, 4, 5, 6]
    assert (log.step, log.total, log.attempt, len(log)) == (1, 12, 2, 7)
    assert log.metrics == {"a": 1.0, "b": 3.0}
    assert log.last is not None
    assert log.last.type == "error"
    assert [log.known_until(attempt) for attempt in (0, 1, 2, 3)] == [0, 5, 7, 7]


def numbers(lines: list[bytes]) -> list[int]:
    return [json.loads(line)["seq"] for line in lines]


def test_any_part_of_a_log_can_be_had(path: Path) -> None:
    add(EventLog(path), 6)
    log = RunLog(path)
    log.refresh()
    for begin in range(-1, 8):
        for end in range(8):
            assert numbers(log.lines(begin, end)) == list(range(6))[max(0, begin) : end]
    assert numbers(log.chosen([0, 2, 5, 6, 99])) == [0, 2, 5]
    assert log.chosen([]) == []
    path.unlink()
    assert (log.lines(0, 6), log.chosen([1])) == ([], [])


@pytest.mark.parametrize(("count", "most", "begin"), [(0, 99, 0), (4, 99, 4), (6, 99, 6), (0, 2, 4), (5, 2, 5)])
def test_a_client_gets_what_it_is_missing_and_of_that_the_newest(path: Path, count: int, most: int, begin: int) -> None:
    add(EventLog(path), 6)
    rewinds, first, lines = RunLog(path).news(count, 0, most)
    assert (rewinds, first, numbers(lines)) == (0, begin, list(range(begin, 6)))


def test_a_client_gets_again_what_was_replaced_since_it_last_looked(path: Path) -> None:
    log = RunLog(path)
    add(EventLog(path), 6)
    assert log.news(0, 0, 99)[:2] == (0, 0)
    for keep in (4, 2):
        writer = EventLog(path, keep=keep)
        add(writer, 6 - keep, attempt=9 - keep)
        writer.close()
        log.refresh()
    assert log.rewinds == [4, 2]
    assert [log.news(6, seen, 99)[:2] for seen in (0, 1, 2)] == [(2, 2), (2, 2), (2, 6)]
    assert log.news(1, 0, 99)[1] == 1


def test_the_logs_used_last_are_kept(tmp_path: Path) -> None:
    logs = RunLogs(most=2)
    first = logs.of(tmp_path / "a")
    logs.of(tmp_path / "b")
    assert logs.of(tmp_path / "a") is first
    logs.of(tmp_path / "c")  # b was not used for longest
    assert logs.of(tmp_path / "a") is first
    assert logs.of(tmp_path / "a").path == tmp_path / "a" / "events.jsonl"
    logs.of(tmp_path / "b")
    logs.of(tmp_path / "c")
    assert logs.of(tmp_path / "a") is not first


def follow(path: Path, work: Any) -> Any:
    """What `work` makes of a follower that has looked at the log once."""

    async def run() -> Any:
        follower = Follower("r", RunLog(path))
        await follower._look()
        return await work(follower)

    return asyncio.run(run())


async def told(place: StreamPosition) -> list[Any]:
    """What the client is sent: numbers of events, and other messages."""
    found: list[Any] = []
    async for kind, message in place.news():
        text = json.loads(message) if isinstance(message, str) else message
        found.append(text["event"]["seq"] if kind == "event" else {name: text[name] for name in text if name != "run"})
    return found


def test_a_client_that_catches_up_reads_page_by_page_and_misses_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "PAGE", 3)
    monkeypatch.setattr(event_stream, "LAG", 4)
    add(EventLog(path), 11)

    async def work(follower: Follower) -> list[Any]:
        place, pages = StreamPosition(follower, 1, 0), []
        while place.has_news:
            assert not place.live
            pages.append(await told(place))
        assert (place.live, place.next) == (True, 11)
        assert await told(place) == []
        return pages

    pages = follow(path, work)
    assert [seq for page in pages for seq in page] == list(range(1, 11))
    assert max(map(len, pages)) == 3


@pytest.mark.parametrize(("more", "expected"), [
    (4, [5, 6, 7, 8]), (5, [{"type": "dropped", "from": 5, "to": 7}, 8, 9]),
    (9, [{"type": "dropped", "from": 5, "to": 11}, 12, 13]),
])  # fmt: skip
def test_a_client_that_was_up_to_date_may_fall_behind_so_far_and_no_further(
    path: Path, monkeypatch: pytest.MonkeyPatch, more: int, expected: list[Any]
) -> None:
    monkeypatch.setattr(event_stream, "LAG", 4)
    writer = EventLog(path)
    add(writer, 5)

    async def work(follower: Follower) -> list[Any]:
        place = StreamPosition(follower, 5, 0, live=True)
        add(writer, more)
        await follower._look()
        return await told(place)

    assert follow(path, work) == expected


def test_a_rewind_is_told_to_those_who_have_what_was_replaced(path: Path) -> None:
    add(EventLog(path), 6)

    async def work(follower: Follower) -> list[Any]:
        ahead, level, behind = (StreamPosition(follower, number, 0) for number in (6, 3, 2))
        add(EventLog(path, keep=3), 2, attempt=2)
        await follower._look()
        assert follower.count == 5
        assert ahead.has_news
        return [await told(ahead), await told(level), await told(behind), ahead.has_news, behind.has_news]

    assert follow(path, work) == [[{"type": "rewind", "from": 3}, 3, 4], [3, 4], [2, 3, 4], False, False]


@pytest.mark.parametrize(("begin", "attempt", "next_", "rewind"), [
    (0, None, 0, None), (5, None, 5, None), (6, None, 6, None), (9, None, 6, 6), (2, 1, 2, None), (4, 1, 4, None),
    (5, 1, 4, 4), (6, 2, 6, None), (0, 0, 0, None), (1, 0, 0, 0), (9, 7, 6, 6),
])  # fmt: skip
def test_a_client_begins_where_it_left_off_unless_that_was_replaced(
    path: Path, begin: int, attempt: int | None, next_: int, rewind: int | None
) -> None:
    writer = EventLog(path)
    add(writer, 4, attempt=1)
    add(writer, 2, attempt=2)

    async def join() -> Any:
        followers, changed = Followers(lambda _: RunLog(path)), asyncio.Event()
        place, back = await followers.join("r", begin, attempt, changed)
        await followers.leave(place, changed)
        return place.next, back

    assert asyncio.run(join()) == (next_, rewind)


def test_clients_of_one_run_share_its_follower_until_the_last_has_left(path: Path) -> None:
    add(EventLog(path), 2)
    opened: list[str] = []

    def log_of(run: str) -> RunLog:
        opened.append(run)
        return RunLog(path)

    async def work() -> None:
        followers, events = Followers(log_of), [asyncio.Event() for _ in range(3)]
        first, second, other = [
            (await followers.join(run, 0, None, one))[0] for run, one in zip("aab", events, strict=True)
        ]
        assert first.follower is second.follower is not other.follower
        await followers.leave(first, events[0])
        assert first.follower.changed == {events[1]}
        assert set(followers._open) == {"a", "b"}
        await followers.leave(second, events[1])
        assert set(followers._open) == {"b"}
        again, _ = await followers.join("a", 0, None, events[0])
        assert again.follower is not first.follower
        followers.close()

    asyncio.run(work())
    assert opened == ["a", "b", "a"]


def test_whoever_follows_is_woken_by_what_is_new_and_by_nothing_else(path: Path) -> None:
    writer = EventLog(path)
    add(writer, 2)

    async def work(follower: Follower) -> list[bool]:
        changed, woken = asyncio.Event(), []
        follower.changed.add(changed)
        for count in (0, 1, 0):
            add(writer, count)
            await follower._look()
            woken.append(changed.is_set())
            changed.clear()
        return woken

    assert follow(path, work) == [False, True, False]


def test_a_follower_notices_a_rewind_that_leaves_the_log_as_long_as_it_was(path: Path) -> None:
    def write(attempt: int, *words: str) -> None:
        writer = EventLog(path, keep=2) if attempt > 1 else EventLog(path)
        for word in words:
            writer.append(event(writer.count, "hint", {"word": word}, attempt=attempt))
        writer.close()

    write(1, "a", "b", "c", "d")
    size = path.stat().st_size

    async def work(follower: Follower) -> list[Any]:
        place = StreamPosition(follower, 4, 0)
        write(2, "e", "f")
        assert path.stat().st_size == size
        await follower._look()
        return await told(place)

    assert follow(path, work) == [{"type": "rewind", "from": 2}, 2, 3]


def test_a_page_that_is_replaced_while_it_is_sent_is_not_sent_to_its_end(path: Path) -> None:
    add(EventLog(path), 6)

    async def work(follower: Follower) -> list[Any]:
        place, found = StreamPosition(follower, 1, 0), []
        async for _, message in place.news():
            found.append(json.loads(str(message))["event"]["seq"])
            if len(found) == 2:
                add(EventLog(path, keep=2), 3, attempt=2)
                await follower._look()
        assert (place.next, place.live, place.has_news) == (3, False, True)
        return [found, await told(place), place.live]

    # Event 2 is the last it was sent of what was replaced.
    assert follow(path, work) == [[1, 2], [{"type": "rewind", "from": 2}, 2, 3, 4], True]


def test_two_rewinds_at_once_lead_back_to_the_earlier_event(path: Path) -> None:
    add(EventLog(path), 6)

    async def work(follower: Follower) -> list[Any]:
        first, second = (StreamPosition(follower, number, 0) for number in (6, 3))
        for keep, attempt in ((4, 2), (2, 3)):
            writer = EventLog(path, keep=keep)
            add(writer, 6 - keep, attempt=attempt)
            writer.close()
            follower.log.refresh()  # as another reader of the same log does
        await follower._look()
        return [await told(first), await told(second)]

    back = [{"type": "rewind", "from": 4}, {"type": "rewind", "from": 2}]
    assert follow(path, work) == [[*back, 2, 3, 4, 5], [back[1], 2, 3, 4, 5]]


def test_a_client_that_was_up_to_date_once_does_not_catch_up_page_by_page(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "PAGE", 2)
    monkeypatch.setattr(event_stream, "LAG", 4)
    writer = EventLog(path)
    add(writer, 1)

    async def work(follower: Follower) -> list[Any]:
        place, found = StreamPosition(follower, 0, 0), []
        for more in (3, 5):
            found.append(await told(place))
            assert place.live
            add(writer, more)
            await follower._look()
        return [*found, await told(place)]

    assert follow(path, work) == [[0], [1, 2], [{"type": "dropped", "from": 3, "to": 6}, 7, 8]]


def test_a_log_that_has_not_begun_has_no_news_until_it_does(path: Path) -> None:
    async def work(follower: Follower) -> list[Any]:
        place = StreamPosition(follower, 0, 0)
        assert (follower.count, place.has_news, await told(place), place.live) == (0, False, [], True)
        add(EventLog(path), 2)
        await follower._look()
        assert place.has_news
        return await told(place)

    assert follow(path, work) == [0, 1]


def test_the_tasks_of_all_followers_end_when_the_service_does(path: Path) -> None:
    add(EventLog(path), 1)

    async def work() -> None:
        followers = Followers(lambda _: RunLog(path))
        tasks = [(await followers.join(run, 0, None, asyncio.Event()))[0].follower._task for run in "ab"]
        left, _ = await followers.join("c", 0, None, changed := asyncio.Event())
        await followers.leave(left, changed)
        followers.close()
        ended = await asyncio.gather(*(task for task in (*tasks, left.follower._task) if task), return_exceptions=True)
        assert [type(one) for one in ended] == [asyncio.CancelledError] * 3

    asyncio.run(work())
