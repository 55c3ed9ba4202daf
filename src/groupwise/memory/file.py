"""A memory's SQLite file: locked by one process, upgraded if it is old, set aside if it cannot be used."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from groupwise.errors import StorageError
from groupwise.files import FileLock, lock_file, lock_note
from groupwise.sqlite import Database

COMPANIONS = ("", "-wal", "-shm")  # SQLite's own files beside the database


def unfit(path: Path, mark: int, version: int) -> str:
    """Why a file cannot be used: "foreign", "damaged", or "v7" if that version is newer than ours; "" if it can.

    Args:
      mark: the application id that distinguishes our files from other SQLite files.
      version: the newest version we can read; older files are upgraded.
    """
    if not path.exists() or not path.stat().st_size:
        return ""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True)) as link:
            return _look(link, mark, version)
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            return "damaged"
        raise StorageError(f"{path} cannot be used: {error}", hint="It must be a readable, writable file.") from error


def set_aside(path: Path, reason: str) -> Path:
    """Rename a file and SQLite's companions of it to a free name, and return that name."""
    target = path.with_name(f"{path.name}.{reason}")
    number = 2
    while target.exists():
        target = path.with_name(f"{path.name}.{reason}.{number}")
        number += 1
    try:
        for companion in reversed(COMPANIONS):  # the log first: SQLite would replay it into a new file
            old = path.with_name(path.name + companion)
            if old.exists():
                old.rename(target.with_name(target.name + companion))
    except OSError as error:
        message = f"{path} cannot be set aside as {target.name}: {error.strerror}"
        raise StorageError(message, hint="Rename it, or use another file.") from error
    return target


def _look(link: sqlite3.Connection, mark: int, version: int) -> str:
    tables, found_mark, found_version = (
        int(link.execute(f"PRAGMA {name}").fetchone()[0])
        for name in ("schema_version", "application_id", "user_version")
    )
    if tables and found_mark != mark:
        return "foreign"
    if found_version > version:
        return f"v{found_version}"
    return "" if link.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok" else "damaged"


def own(path: Path, patience: float) -> FileLock:
    """Lock `<file>.lock`, which makes this process the owner of a memory file.

    Args:
      path: the memory file.
      patience: seconds to wait while another process, or another object in this one, owns it.
    """
    place = Path(f"{path}.lock")
    try:
        lock = lock_file(place, patience=patience)
    except StorageError as error:
        cause = error.__cause__
        reason = cause.strerror if isinstance(cause, OSError) else error.message
        raise StorageError(f"{path} cannot be used: {reason}", hint="Its folder must exist and be writable.") from error
    if lock is None:
        message = f"{path} is in use by process {lock_note(place)} and was not free within {patience:g} seconds"
        raise StorageError(message, hint="Wait for that process, end it, or choose another file.")
    lock.write(str(os.getpid()).encode())
    return lock


def open_database(path: str, mark: int, steps: tuple[str, ...], notice: Callable[[str], None]) -> Database:
    """Open the database at `path`, which the caller has locked. `notice` is called if a file had to be set aside."""

    def start_empty(reason: str) -> None:
        why = f"in version {reason[1:]}" if reason.startswith("v") else reason
        kept = set_aside(Path(path), reason)
        notice(f"{path} is {why} and cannot be used: it was renamed to {kept.name}, and memory starts empty")

    # Checked before our tables are created, so that a foreign file is never changed.
    if path != ":memory:" and (reason := unfit(Path(path), mark, len(steps))):
        start_empty(reason)
    database = Database(path, "memories", mark, steps, lazy=True)
    if not _readable(database):
        database.close()
        start_empty("damaged")
        database = Database(path, "memories", mark, steps, lazy=True)
    return database


def _readable(database: Database) -> bool:
    """Whether every text is valid JSON: SQLite does not notice bytes that changed inside a text."""
    query = (
        "SELECT NOT EXISTS (SELECT 1 FROM records WHERE NOT json_valid(body)) "
        "AND NOT EXISTS (SELECT 1 FROM states WHERE NOT json_valid(state)) AND (SELECT count(*) FROM clock) = 1"
    )
    with database.transaction(write=False) as link:
        return bool(link.execute(query).fetchone()[0])
