"""Files that cannot be gone on with: found out before they are used, and kept under another name."""

from __future__ import annotations

import sqlite3
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
    link = sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True)
    try:
        found = {name: _number(link, name) for name in ("schema_version", "application_id", "user_version")}
        if not found["schema_version"]:
            return ""
        if found["application_id"] != mark:
            return "foreign"
        if found["user_version"] > version:
            return f"v{found['user_version']}"
        return "" if _sound(link) else "damaged"
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            return "damaged"
        raise StorageError(f"{path} cannot be used: {error}", hint="Is the file readable and writable?") from error
    finally:
        link.close()


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


def _number(link: sqlite3.Connection, pragma: str) -> int:
    return int(link.execute(f"PRAGMA {pragma}").fetchone()[0])


def _sound(link: sqlite3.Connection) -> bool:
    return str(link.execute("PRAGMA quick_check(1)").fetchone()[0]) == "ok"
