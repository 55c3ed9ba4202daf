"""The event log, line by line: what is an event, what is a number, and where a log ends."""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from groupwise.errors import RunError
from groupwise.training import events as module
from groupwise.training.events import (
    LARGEST,
    EventLog,
    decode,
    encode,
    is_numbers,
    looked_at_events,
    plain,
    read_events,
    sound_events,
)
from groupwise.types import EVENT_TYPES, Event

LINE = {"v": 1, "run": "r", "seq": 0, "attempt": 1, "time": 5.5, "step": 2, "type": "step", "data": {}}


def line(**changes: Any) -> bytes:
    return json.dumps({**LINE, **changes}).encode() + b"\n"


def event(seq: int, **data: Any) -> Event:
    return Event("run", seq, 1, 5.0, seq, "step", data)


@pytest.mark.parametrize("kind", EVENT_TYPES)
def test_an_event_comes_back_as_it_was_written(kind: str) -> None:
    data = {"error": {}} if kind == "error" else {"metrics": {"a": 1.5, "b": None}, "text": "é\n☃"}
    made = Event("run", 3, 2, 17.25, 9, kind, data)
    assert decode(encode(made)) == made
    assert encode(made).count(b"\n") == 1


@pytest.mark.parametrize(("value", "expected"), [
    (math.nan, None), (math.inf, None), (-math.inf, None), (1e149, 1e149), (LARGEST, None), (-LARGEST, None),
    (np.float32(0.5), 0.5), (np.int64(7), 7.0), (True, True), (10**20, 10**20), ("x", "x"), (None, None),
    ({1: (2, math.nan)}, {"1": [2, None]}), ([], []),
])  # fmt: skip
def test_values_become_what_json_can_express(value: Any, expected: Any) -> None:
    assert plain(value) == expected
    json.dumps(plain(value), allow_nan=False)


@pytest.mark.parametrize("changes", [
    {}, {"step": 0}, {"step": 2**53 - 1}, {"time": 0}, {"time": 9e10}, {"type": "start", "data": {"total_steps": 0}},
    {"type": "start", "data": {"total_steps": 2**53 - 1}}, {"type": "start", "data": {"config": {}}},
    {"data": {"metrics": {"a": 9e149, "b": -9e149, "c": 0, "d": None}}},
    {"type": "error", "data": {"error": {"code": "x"}}},
])  # fmt: skip
def test_an_event_at_the_edge_is_one(changes: dict[str, Any]) -> None:
    assert decode(line(**changes)) is not None


@pytest.mark.parametrize("changes", [
    {"v": 2}, {"v": 0}, {"type": "other"}, {"seq": -1}, {"seq": 1.0}, {"seq": True}, {"attempt": -1}, {"attempt": None},
    {"step": 2**53}, {"step": -1}, {"step": "2"}, {"time": -1}, {"time": 1e11}, {"time": True}, {"time": None},
    {"run": 3}, {"run": None}, {"data": None}, {"data": []}, {"extra": 1}, {"data": {"metrics": 3}},
    {"data": {"metrics": {"a": True}}}, {"data": {"metrics": {"a": "1"}}}, {"data": {"metrics": {"a": [1]}}},
    {"data": {"metrics": {"a": 1e150}}}, {"data": {"timing": {"a": -1e150}}}, {"data": {"totals": {"a": {}}}},
    {"type": "start", "data": {"total_steps": -1}}, {"type": "start", "data": {"total_steps": 2**53}},
    {"type": "start", "data": {"total_steps": 3.0}}, {"type": "start", "data": {"total_steps": True}},
    {"type": "start", "data": {"config": []}}, {"type": "error", "data": {}}, {"type": "error", "data": {"error": "x"}},
], ids=str)  # fmt: skip
def test_an_event_beyond_the_edge_is_none(changes: dict[str, Any]) -> None:
    assert decode(line()) is not None
    assert decode(line(**changes)) is None


@pytest.mark.parametrize("name", LINE)
def test_an_event_lacks_nothing(name: str) -> None:
    lacking = {key: value for key, value in LINE.items() if key != name}
    assert decode(json.dumps(lacking).encode() + b"\n") is None


@pytest.mark.parametrize("content", [b"", b"\n", b"[]\n", b"null\n", b"{\n", b"3\n", b'"x"\n', b'{"v": NaN}\n'])
def test_a_line_of_something_else_is_no_event(content: bytes) -> None:
    assert decode(content) is None


@pytest.mark.parametrize(("table", "sound"), [
    ({}, True), ({"a": 1, "b": 2.5, "c": None, "d": 0, "e": -0.0}, True), ({"a": False}, False), ({"a": ""}, False),
    ({"a": []}, False), ({"a": math.nan}, False), ({"a": math.inf}, False), ({"a": 1e149}, True), ({"a": 1e150}, False),
    ({"a": -1e150}, False), ({"a": 10**200}, False), ([], False), (None, False), ({"a": 1, "b": "x"}, False),
])  # fmt: skip
def test_what_is_a_table_of_numbers(table: Any, sound: bool) -> None:
    assert is_numbers(table) is sound


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of three events."""
    path = tmp_path / "events.jsonl"
    writer = EventLog(path)
    for seq in range(3):
        writer.append(event(seq))
    writer.close()
    return path


def test_offsets_are_where_lines_end(log: Path) -> None:
    content = log.read_bytes()
    found = list(sound_events(log))
    assert [content[:offset].count(b"\n") for _, offset in found] == [1, 2, 3]
    assert found[-1][1] == len(content)
    assert list(sound_events(log.parent / "nothing")) == []


@pytest.mark.parametrize("spoilt", [b"{}\n", b"torn", encode(event(7)), encode(event(2)), b"\n"])
def test_a_log_ends_before_the_first_line_that_is_not_its_next_event(log: Path, spoilt: bytes) -> None:
    with open(log, "ab") as file:
        file.write(spoilt + encode(event(3)))
    assert [e.seq for e in read_events(log)] == [0, 1, 2]


def test_a_log_that_does_not_begin_at_0_is_no_log(log: Path) -> None:
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[1:]))
    assert read_events(log) == []


@pytest.mark.parametrize(("keep", "left"), [(None, 3), (0, 0), (1, 1), (2, 2), (3, 3), (9, 3)])
def test_a_log_is_opened_at_its_end_or_cut_to_the_events_to_keep(log: Path, keep: int | None, left: int) -> None:
    with open(log, "ab") as file:
        file.write(b"torn")
    writer = EventLog(log, keep)
    assert (writer.count, writer.offset) == (left, log.stat().st_size)
    writer.append(event(left))
    writer.close()
    assert [e.seq for e in read_events(log)] == list(range(left + 1))
    assert log.read_bytes().count(b"\n") == left + 1


def test_an_event_out_of_order_is_not_written(log: Path) -> None:
    writer = EventLog(log)
    for seq in (2, 4):
        with pytest.raises(AssertionError, match=f"event {seq} would leave a gap after 2"):
            writer.append(event(seq))
    writer.close()
    assert len(read_events(log)) == 3


def test_a_line_is_written_to_its_end_however_little_the_system_takes_at_once(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: whole(fd, data[:7], offset))
    writer = EventLog(log)
    writer.append(event(3, text="x" * 50))
    writer.append(event(4))
    writer.close()
    assert [e.seq for e in read_events(log)] == [0, 1, 2, 3, 4]


def test_half_a_line_that_a_full_disk_took_is_taken_back(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, before = os.pwrite, log.read_bytes()
    writer = EventLog(log)

    def full(fd: int, data: bytes, offset: int) -> int:
        if offset > len(before):
            raise OSError(28, "No space left on device")
        return whole(fd, data[:7], offset)

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        with pytest.raises(Exception, match="No space left"):
            writer.append(event(3))
    assert log.read_bytes() == before
    writer.append(event(3))
    writer.close()
    assert len(read_events(log)) == 4


def test_a_line_too_long_to_be_an_event_ends_the_log(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    longest = max(len(part) for part in log.read_bytes().splitlines(keepends=True))
    monkeypatch.setattr(module, "LONGEST", longest)
    assert len(read_events(log)) == 3
    monkeypatch.setattr(module, "LONGEST", longest - 1)
    assert read_events(log) == []


@pytest.mark.parametrize(
    ("version", "newer"), [(2, True), (9, True), (1, False), (0, False), ("2", False), (2.0, False)]
)
def test_only_a_newer_version_is_refused(log: Path, version: Any, newer: bool) -> None:
    with open(log, "ab") as file:
        file.write(line(seq=3, v=version, extra=0))
    if not newer:
        assert len(read_events(log)) == 3
        return
    with pytest.raises(RunError, match=f"its events have version {version}, this one reads 1"):
        read_events(log)


@pytest.fixture
def long_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """3,000 steps with an evaluation after every tenth, one hint, and an end; long enough to be read in part."""
    monkeypatch.setattr("groupwise.training.events.LONG", 1000)
    monkeypatch.setattr("groupwise.training.events.THINNED", 50)
    path = tmp_path / "events.jsonl"
    lines: list[bytes] = []

    def add(step: int, kind: str, data: dict[str, Any]) -> None:
        lines.append(encode(Event('a "run"', len(lines), 1, 1.0, step, kind, data)))

    add(0, "start", {"total_steps": 3000})
    for step in range(1, 3001):
        add(step, "step", {"metrics": {"reward/mean": float(step)}, "note": '"type": "hint"'})
        if step % 10 == 0:
            add(step, "eval", {"metrics": {"eval/reward_mean": float(step)}})
            add(step, "checkpoint", {"step": step})
        if step == 1234:
            add(step, "hint", {"code": "x", "message": "m", "remedy": "r"})
    add(3000, "end", {"reason": "finished"})
    path.write_bytes(b"".join(lines))
    return path


def test_a_long_log_is_read_in_part_but_nothing_rare_is_missed(long_log: Path) -> None:
    found = looked_at_events(long_log)
    kinds = Counter(event.type for event in found)
    assert kinds["start"] == kinds["hint"] == kinds["end"] == 1
    assert kinds["checkpoint"] == 0
    steps = [event.step for event in found if event.type == "step"]
    assert (steps[0], steps[-1]) == (1, 3000)
    assert 40 <= len(steps) <= 60
    assert max(later - one for one, later in pairwise(steps)) < 3 * 3000 / 50
    evals = [event.step for event in found if event.type == "eval"]
    assert (evals[0], evals[-1]) == (10, 3000)
    assert 50 <= len(evals) <= 70
    assert [event.seq for event in found] == sorted({event.seq for event in found})


def test_a_long_log_that_is_damaged_ends_where_the_damage_begins(long_log: Path) -> None:
    lines = long_log.read_bytes().splitlines(keepends=True)
    long_log.write_bytes(b"".join(lines[:2000] + lines[2001:]))  # one is missing
    assert looked_at_events(long_log) == read_events(long_log)
    assert len(read_events(long_log)) == 2000
    long_log.write_bytes(b"".join(lines[:-1]) + lines[-1][:20])  # torn
    assert (looked_at_events(long_log)[-1].type, looked_at_events(long_log)[-1].step) == ("eval", 3000)
    long_log.write_bytes(b"".join(lines).replace(b'"v": 1', b'"v": 9'))
    with pytest.raises(RunError, match="newer Groupwise"):
        looked_at_events(long_log)
