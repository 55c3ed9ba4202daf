"""Files that cannot be gone on with: found out before they are used, and kept under another name."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from groupwise.errors import StorageError

COMPANIONS = ("", "-wal", "-shm")


def unfit(path: Path, mark: int, version: int) -> str:
    """Why a file cannot be gone on with: "foreign", "damaged", or "v7" for a version newer than ours; "" if it can.

    Args:
      mark: the number that tells such a file from SQLite files of others.
      version: the newest version that can be read; older ones are led on to it.
    """
    if not path.exists() or not path.stat().st_size:
        return ""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True)) as link:
            return _look(link, mark, version)
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            return "damaged"
        raise StorageError(f"{path} cannot be used: {error}", hint="Is it a file, readable and writable?") from error


def set_aside(path: Path, reason: str) -> Path:
    """Rename a file, and what SQLite keeps beside it, to a name that is free; the new name."""
    target = path.with_name(f"{path.name}.{reason}")
    number = 2
    while target.exists():
        target = path.with_name(f"{path.name}.{reason}.{number}")
        number += 1
    try:
        for companion in reversed(COMPANIONS):  # the log first: beside a fresh file it would be played into that
            old = path.with_name(path.name + companion)
            if old.exists():
                old.rename(target.with_name(target.name + companion))
    except OSError as error:
        raise StorageError(
            f"{path} cannot be set aside as {target.name}: {error.strerror}", hint="Rename it, or name another file."
        ) from error
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
