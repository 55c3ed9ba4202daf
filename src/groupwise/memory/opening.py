"""A memory's file, opened: led on if it is old, set aside for a fresh one if it cannot be gone on with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from groupwise.database import Database
from groupwise.memory.setting_aside import set_aside, unfit


def open_database(path: str, mark: int, steps: tuple[str, ...], notice: Callable[[str], None]) -> Database:
    """The database at `path`; whoever calls owns it. What had to be set aside is told to `notice`."""

    def begin_afresh(reason: str) -> None:
        why = f"in version {reason[1:]}" if reason.startswith("v") else reason
        kept = set_aside(Path(path), reason)
        notice(f"{path} is {why} and cannot be gone on with: it is kept as {kept.name}, and memory begins afresh")

    if path != ":memory:" and (reason := unfit(Path(path), mark, len(steps))):
        begin_afresh(reason)
    database = Database(path, "memories", mark, steps, lazy=True)
    if not _readable(database):
        database.close()
        begin_afresh("damaged")
        database = Database(path, "memories", mark, steps, lazy=True)
    return database


def _readable(database: Database) -> bool:
    """Whether every text is the JSON it should be: SQLite itself does not know of bytes that changed inside a text."""
    query = (
        "SELECT NOT EXISTS (SELECT 1 FROM records WHERE NOT json_valid(body)) "
        "AND NOT EXISTS (SELECT 1 FROM states WHERE NOT json_valid(state)) AND (SELECT count(*) FROM clock) = 1"
    )
    with database.transaction(write=False) as link:
        return bool(link.execute(query).fetchone()[0])
