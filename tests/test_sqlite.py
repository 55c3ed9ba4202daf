"""One SQLite file: of the right kind and version, written as a whole or not at all, from any thread and process."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from groupwise.errors import ConfigError, StorageError
from groupwise.sqlite import Database

MARK = 0x1234
STEPS = (
    "CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT UNIQUE)",
    "CREATE TABLE words (note INTEGER REFERENCES notes (id), word TEXT); CREATE INDEX by_word ON words (word)",
)


def opened(path: Path, steps: tuple[str, ...] = STEPS, mark: int = MARK, *, lazy: bool = False) -> Database:
    return Database(path, "notes", mark, steps, lazy=lazy)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = opened(tmp_path / "notes.sqlite")
    yield made
    made.close()


def texts(database: Database) -> list[str]:
    with database.transaction(write=False) as link:
        return [row["text"] for row in link.execute("SELECT text FROM notes ORDER BY id")]


def write(database: Database, text: str) -> None:
    with database.transaction() as link:
        link.execute("INSERT INTO notes (text) VALUES (?)", (text,))


def number(path: Path, pragma: str) -> int:
    with sqlite3.connect(path) as link:
        return int(link.execute(f"PRAGMA {pragma}").fetchone()[0])


def test_a_new_file_has_its_mark_and_version_and_is_read_again(database: Database, tmp_path: Path) -> None:
    write(database, "a")
    path = tmp_path / "notes.sqlite"
    assert (number(path, "application_id"), number(path, "user_version")) == (MARK, 2)
    with sqlite3.connect(path) as link:
        assert link.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    again = opened(path)
    assert texts(again) == ["a"]
    again.close()


def test_an_older_file_is_upgraded_by_the_steps_it_lacks_and_keeps_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite"
    old = opened(path, STEPS[:1])
    write(old, "kept")
    old.close()
    new = opened(path)
    assert texts(new) == ["kept"]
    with new.transaction() as link:
        link.execute("INSERT INTO words VALUES (1, 'kept')")
    new.close()
    assert number(path, "user_version") == 2


def test_a_file_of_a_later_version_or_of_another_kind_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.sqlite"
    opened(path).close()
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="contains notes in version 2, but this Groupwise reads versions up to 1"):
        opened(path, STEPS[:1])
    with pytest.raises(ConfigError, match="is an SQLite file, but not with notes"):
        opened(path, mark=MARK + 1)
    assert path.read_bytes() == before
    foreign = tmp_path / "foreign.sqlite"
    with sqlite3.connect(foreign) as link:
        link.execute("CREATE TABLE x (y)")
    with pytest.raises(ConfigError, match="not with notes"):
        opened(foreign)
    text = tmp_path / "text.sqlite"
    text.write_text("not a database at all " * 100)
    with pytest.raises(ConfigError, match="is not a valid SQLite file") as refused:
        opened(text)
    assert refused.value.hint == "Choose another file."
    with pytest.raises(StorageError, match="cannot be used"):
        opened(tmp_path / "no folder" / "a.sqlite")


def test_an_upgrade_that_fails_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "notes.sqlite"
    opened(path, STEPS[:1]).close()
    with pytest.raises(StorageError, match="no such table: nowhere"):
        opened(path, (STEPS[0], "CREATE TABLE fine (x); INSERT INTO nowhere VALUES (1)"))
    assert number(path, "user_version") == 1
    opened(path).close()


def test_a_transaction_happens_as_a_whole_or_not_at_all(database: Database) -> None:
    write(database, "before")
    with pytest.raises(RuntimeError, match="stop"), database.transaction() as link:
        link.execute("INSERT INTO notes (text) VALUES ('half')")
        raise RuntimeError("stop")
    write(database, "after")
    assert texts(database) == ["before", "after"]


def test_a_broken_constraint_is_for_the_caller_and_undoes_its_transaction(database: Database) -> None:
    write(database, "a")
    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"), database.transaction() as link:
        link.execute("INSERT INTO notes (text) VALUES ('b')")
        link.execute("INSERT INTO notes (text) VALUES ('a')")
    with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"), database.transaction() as link:
        link.execute("INSERT INTO words VALUES (77, 'x')")
    assert texts(database) == ["a"]


def test_a_reader_does_not_wait_for_a_writer_and_a_second_writer_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("groupwise.sqlite.PATIENCE", 0.01)
    first, second = opened(tmp_path / "notes.sqlite"), opened(tmp_path / "notes.sqlite")
    with first.transaction() as link:
        link.execute("INSERT INTO notes (text) VALUES ('unseen')")
        assert texts(second) == []
        with pytest.raises(StorageError, match="database is locked") as refused, second.transaction():
            pass
        assert "another process may block the file" in refused.value.hint
    assert texts(second) == ["unseen"]
    first.close()
    second.close()


def test_threads_share_a_file_and_take_turns(database: Database) -> None:
    def work(name: int) -> None:
        for n in range(20):
            write(database, f"{name}-{n}")

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(texts(database)) == 80


@pytest.mark.parametrize(("lazy", "level"), [(False, 2), (True, 1)])
def test_only_a_lazy_file_waits_for_the_disk_when_it_is_told_to(tmp_path: Path, lazy: bool, level: int) -> None:
    """2 is FULL, 1 is NORMAL; see https://sqlite.org/pragma.html#pragma_synchronous."""
    database = opened(tmp_path / "notes.sqlite", lazy=lazy)
    said: list[str] = []
    assert database._number("synchronous") == level
    database._link.set_trace_callback(said.append)
    write(database, "a")
    database.sync()
    database._link.set_trace_callback(None)
    assert said.index("PRAGMA synchronous = FULL") < len(said) - 1 - said[::-1].index("COMMIT")
    assert database._number("synchronous") == level
    assert (database._number("user_version"), texts(database)) == (2, ["a"])
    database.close()


def test_a_closed_file_says_so(tmp_path: Path) -> None:
    database = opened(tmp_path / "notes.sqlite")
    database.close()
    with pytest.raises(StorageError, match="is closed"):
        write(database, "a")
    memory = Database(":memory:", "notes", MARK, STEPS)
    write(memory, "a")
    assert texts(memory) == ["a"]
    memory.close()


def test_a_damaged_file_is_refused_by_name_when_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "notes.sqlite"
    made = opened(path)
    for letter in "abcdef":
        write(made, letter * 3000)
    made.close()
    content = path.read_bytes()
    # All pages but the first, which has the mark, the version and the tables.
    path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
    damaged = opened(path)
    with pytest.raises(ConfigError, match=r"notes\.sqlite is not a valid SQLite file: .*malformed") as error:
        texts(damaged)
    assert error.value.hint == "Choose another file."
    damaged.close()
