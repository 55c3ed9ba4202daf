"""A log that is read while it grows, and curves that keep their peaks."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.config import TrainingConfig
from groupwise.service.event_stream import Follower, RunLog, StreamPosition, downsampled
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
    steps, values = log.numbers["step"].column("late")
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


def test_without_its_status_a_run_is_told_from_its_log(tmp_path: Path) -> None:
    path = create_run(TrainingConfig.from_dict({"output_dir": str(tmp_path), "run_name": "r"}))
    writer, runs = EventLog(path / "events.jsonl"), Runs(tmp_path)
    assert runs.info("r") == inspect_run(path)
    writer.append(Event("r", 0, 1, 1.0, 0, "start", {"total_steps": 9}))
    add(writer, 5)
    assert runs.all() == [inspect_run(path)]
    assert (runs.info("r").step, runs.info("r").total, runs.info("r").state) == (5, 9, "interrupted")
    writer.append(Event("r", 6, 2, 3.0, 5, "end", {}))
    assert runs.info("r") == inspect_run(path)
    assert runs.info("r").state == "finished"


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
