"""The file under the memories: killed, shared, damaged, of another version, on a full disk."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from groupwise.errors import ConfigError, StorageError
from groupwise.memory import Experience, MemorySystem, Store
from groupwise.memory.store import STEPS

WRITER = Path(__file__).parent / "writer.py"
MOST = 10_000  # experiences that a memory keeps


def start(*args: object) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, str(WRITER), *map(str, args)], stdout=subprocess.PIPE, text=True)


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def kill(process: subprocess.Popen[str]) -> list[str]:
    """Kill it, as `kill -9` does; what it had said that nobody read yet."""
    process.send_signal(signal.SIGKILL)
    left, _ = process.communicate()
    return left.split()


def check_whole(path: Path, least: int) -> int:
    """Every generation is there as a whole: those that were said to be kept, and at most one more."""
    store = Store(path)
    notes, experiences = store.read("working"), store.read("experience")
    store.close()
    assert store.notices == ()
    assert least <= store.now <= least + 1
    assert len(experiences) == min(4 * store.now, MOST)
    assert [note.body for note in notes] == [f'{{"seq":{seq}}}' for seq in range(1, store.now + 1)][-100:]
    return store.now


def test_killed_at_any_moment_it_opens_again_and_lost_only_what_was_not_finished(tmp_path: Path) -> None:
    path, now, chance = tmp_path / "memory.sqlite", 0, random.Random(0)
    for _ in range(3):
        process = start(path)
        first = int(said(process))
        assert first == now + 1
        time.sleep(chance.uniform(0, 0.15))
        now = check_whole(path, max(map(int, kill(process)), default=first))


def test_killed_in_the_middle_of_a_generation_nothing_of_it_is_there(tmp_path: Path) -> None:
    path = tmp_path / "memory.sqlite"
    process = start(path, "half")
    assert said(process) == "half"
    kill(process)
    assert check_whole(path, 0) == 0


def test_a_second_process_waits_and_is_told_who_has_the_file(tmp_path: Path) -> None:
    path = tmp_path / "memory.sqlite"
    process = start(path, "half")
    said(process)
    begun = time.monotonic()
    with pytest.raises(StorageError, match=f"is in use by process {process.pid} and was not free within 0.2 seconds"):
        Store(path, patience=0.2)
    assert time.monotonic() - begun >= 0.2
    kill(process)
    Store(path, patience=2).close()


def test_two_objects_of_one_process_do_not_share_a_file_either(open_memory: Callable[..., MemorySystem]) -> None:
    first = open_memory()
    with pytest.raises(StorageError, match=f"in use by process {os.getpid()}"):
        open_memory(patience=0)
    first.close()
    open_memory(patience=0)


def test_a_forked_worker_does_not_keep_the_file(tmp_path: Path) -> None:
    store = Store(tmp_path / "memory.sqlite")
    reading, writing = os.pipe()
    if not (worker := os.fork()):
        os.read(reading, 1)
        os._exit(0)
    try:
        store.close()
        Store(tmp_path / "memory.sqlite", patience=5).close()  # the worker may only just have begun
    finally:
        os.write(writing, b".")
        os.waitpid(worker, 0)
        os.close(reading)
        os.close(writing)


def test_others_may_read_the_file_while_it_is_written(open_memory: Callable[..., MemorySystem], tmp_path: Path) -> None:
    memory = open_memory()
    memory.working.note({"seq": 1})
    link = sqlite3.connect(f"file:{tmp_path}/memory.sqlite?mode=ro", uri=True)
    with memory.generation(2):
        memory.working.note({"seq": 2})
        assert link.execute("SELECT count(*) FROM records").fetchone() == (1,)
    assert link.execute("SELECT count(*) FROM records").fetchone() == (2,)
    link.close()


def test_an_older_version_is_led_on(open_memory: Callable[..., MemorySystem], tmp_path: Path) -> None:
    memory = open_memory()
    memory.working.note({"seq": 1})
    memory.close()
    step = "ALTER TABLE clock ADD COLUMN zone TEXT NOT NULL DEFAULT 'UTC'"
    led_on = Store(tmp_path / "memory.sqlite", steps=(*STEPS, step))
    with led_on.transaction() as link:
        assert link.execute("SELECT zone FROM clock").fetchone()[0] == "UTC"
        assert link.execute("PRAGMA user_version").fetchone()[0] == len(STEPS) + 1
    assert [note.body for note in led_on.read("working")] == ['{"seq":1}']
    assert led_on.notices == ()
    led_on.close()


def test_a_newer_version_is_set_aside_under_its_number_and_never_destroyed(tmp_path: Path) -> None:
    path = tmp_path / "memory.sqlite"
    for expected in ("memory.sqlite.v7", "memory.sqlite.v7.2"):
        store = Store(path)
        store.add("working", '"kept"', None)
        store.close()
        link = sqlite3.connect(path)
        link.execute("PRAGMA user_version = 7")
        link.close()
        with pytest.warns(UserWarning, match=f"is in version 7 and cannot be used: it was renamed to {expected},"):
            fresh = Store(path)
        assert fresh.counts() == {}
        assert len(fresh.notices) == 1
        fresh.close()
        link = sqlite3.connect(tmp_path / expected)
        assert link.execute("SELECT body FROM records").fetchall() == [('"kept"',)]
        link.close()


def foreign(path: Path) -> None:
    link = sqlite3.connect(path)
    link.execute("CREATE TABLE things (x)")
    link.close()


def text(path: Path) -> None:
    path.write_text("not a database, but long enough to be looked at " * 40)


def torn_page(path: Path) -> None:
    filled(path)
    with path.open("r+b") as file:
        file.seek(3 * 4096)
        file.write(os.urandom(4096))


def cut(path: Path) -> None:
    filled(path)
    os.truncate(path, path.stat().st_size // 2)


def changed_bytes(path: Path) -> None:
    """Bytes inside a text, which SQLite itself cannot know of."""
    filled(path)
    data = path.read_bytes()
    assert b'{"number":77,' in data
    path.write_bytes(data.replace(b'{"number":77,', b'{"number":\0\1,'))


def filled(path: Path) -> None:
    store = Store(path)
    with store.transaction():
        for number in range(200):
            store.add("working", f'{{"number":{number},"text":"{"x" * 200}"}}', None)
    store.close()


@pytest.mark.parametrize(
    ("harm", "reason"),
    [(foreign, "foreign"), (text, "damaged"), (torn_page, "damaged"), (cut, "damaged"), (changed_bytes, "damaged")],
)
def test_what_is_no_sound_memory_is_set_aside_byte_for_byte(
    tmp_path: Path, harm: Callable[[Path], Any], reason: str
) -> None:
    path = tmp_path / "memory.sqlite"
    harm(path)
    before = path.read_bytes()
    with pytest.warns(UserWarning, match=f"is {reason} and cannot be used: it was renamed to memory.sqlite.{reason}"):
        store = Store(path)
    store.add("working", '"fresh"', None)
    store.close()
    assert path.with_name(f"memory.sqlite.{reason}").read_bytes() == before
    again = Store(path)
    assert [record.body for record in again.read("working")] == ['"fresh"']
    again.close()


def test_an_empty_file_is_a_fresh_one(tmp_path: Path) -> None:
    path = tmp_path / "memory.sqlite"
    path.touch()
    store = Store(path)
    assert (store.counts(), store.notices, store.now) == ({}, (), 0)
    store.close()


def test_a_full_disk_is_told_and_the_generation_is_undone_in_file_and_memory(
    open_memory: Callable[..., MemorySystem], attempt: Callable[..., Experience], all_of: Callable[..., dict[str, Any]]
) -> None:
    memory = open_memory()
    with memory.generation(1):
        memory.learn(attempt(1, 0, 0, 0, split="and"))
    before = all_of(memory)
    with memory.store.transaction() as link:
        pages = link.execute("PRAGMA page_count").fetchone()[0]
        link.execute(f"PRAGMA max_page_count = {pages + 4}")
    full = pytest.raises(StorageError, match=r"memory\.sqlite cannot be used: database or disk is full")
    with full, memory.generation(2):
        for _ in range(100):
            memory.store_experience(attempt(1, 0, 0, 0, text="x" * 1000), 1.0)
    assert all_of(memory) == before
    with memory.generation(2):
        memory.working.note({"room": "for little"})
    memory.close()
    assert open_memory().working.recent() == ({"room": "for little"},)


def test_an_exception_in_a_generation_undoes_it(
    memory: MemorySystem, attempt: Callable[..., Experience], all_of: Callable[..., dict[str, Any]]
) -> None:
    before = all_of(memory)
    with pytest.raises(ZeroDivisionError), memory.generation(4):
        memory.store_experience(attempt(1, 0, 0, 0), 1.0)
        memory.learn(attempt(1, 0, 0, 0, split="and"))
        memory.recall_patterns({"at": [1, 0, 0, 0]}, {})
        _ = 1 / 0
    assert all_of(memory) == before


def test_a_folder_that_is_not_there_and_a_folder_in_its_place_are_told(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be used: No such file or directory"):
        Store(tmp_path / "nowhere" / "memory.sqlite")
    (tmp_path / "folder").mkdir()
    with pytest.raises(StorageError, match="folder cannot be used: unable to open"):
        Store(tmp_path / "folder")
    Store(tmp_path / "other.sqlite", patience=0).close()


def test_a_sync_waits_for_the_end_of_the_generation(open_memory: Callable[..., MemorySystem]) -> None:
    memory = open_memory()
    with memory.generation(3):
        memory.working.note({"seq": 3})
        with pytest.raises(ConfigError, match="cannot sync inside generation 3"):
            memory.sync()
    memory.sync()
    with memory.store.transaction() as link:
        assert link.execute("PRAGMA synchronous").fetchone()[0] == 1, "and then no commit waits again"
        assert link.execute("PRAGMA user_version").fetchone()[0] == len(STEPS)


def test_a_closed_memory_says_so(open_memory: Callable[..., MemorySystem]) -> None:
    memory = open_memory()
    memory.close()
    memory.close()
    with pytest.raises(StorageError, match="is closed"):
        memory.working.note({})
