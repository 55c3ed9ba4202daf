"""One SQLite file: opened, checked, and written in whole transactions from any thread."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from groupwise.errors import ConfigError, StorageError

PATIENCE = 5.0  # seconds to wait while another process writes


class Database:
    """A file of one kind in SQLite's write-ahead log; ":memory:" lives as long as the object.

    What a transaction wrote is there once it has ended, even if the process is killed right after or, unless `lazy`,
    the power fails; of one that has not ended, nothing is. Several processes may share a file on one machine.

    Args:
      path: the file, made if it is not there.
      kind: what it holds, for people.
      mark: the number that tells such a file from SQLite files of others.
      steps: how to make it: the SQL that leads from every version of its tables to the next.
      lazy: do not wait for the disk at the end of a transaction, only at `sync`. A power failure may then cost the
        transactions since, in order from the last; the file stays sound.
    """

    def __init__(self, path: str | Path, kind: str, mark: int, steps: tuple[str, ...], *, lazy: bool = False) -> None:
        self.path, self.kind, self.lazy = str(path), kind, lazy
        self._lock = threading.RLock()
        with self._told():
            self._link = sqlite3.connect(self.path, PATIENCE, isolation_level=None, check_same_thread=False)
        try:
            self._prepare(mark, steps)
        except BaseException:
            self._link.close()
            raise

    @contextmanager
    def transaction(self, *, write: bool = True) -> Iterator[sqlite3.Connection]:
        """All that is done inside happens, or none of it if an exception leaves the block."""
        with self._lock, self._told():
            self._link.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            try:
                yield self._link
                self._link.execute("COMMIT")
            except BaseException:
                if self._link.in_transaction:
                    self._link.execute("ROLLBACK")
                raise

    def sync(self) -> None:
        """Wait until the disk has what all transactions wrote."""
        with self._lock, self._told():
            self._link.execute("PRAGMA synchronous = FULL")
            try:
                with self.transaction() as link:  # a page is written, and with it all before it are synced
                    link.execute(f"PRAGMA user_version = {self._number('user_version')}")
            finally:
                self._set_pace()

    def close(self) -> None:
        with self._lock:
            self._link.close()

    def _prepare(self, mark: int, steps: tuple[str, ...]) -> None:
        with self._lock, self._told():
            self._link.row_factory = sqlite3.Row
            self._link.execute("PRAGMA foreign_keys = ON")
            self._set_pace()
            found, version = (self._number(name) for name in ("application_id", "user_version"))
            empty = not self._number("schema_version")
        if not empty and found != mark:
            raise ConfigError(
                f"{self.path} is a database of something else, not {self.kind}", hint="Name another file."
            )
        if version > len(steps):
            raise ConfigError(
                f"{self.path} holds {self.kind} in version {version}, and this version of Groupwise reads up to "
                f"{len(steps)}",
                hint="Use a newer Groupwise, or name another file.",
            )
        if version == len(steps):
            return
        with self._lock, self._told():
            self._link.execute("PRAGMA journal_mode = WAL")
        with self.transaction() as link:
            for step in steps[self._number("user_version") :]:  # another process may have been faster
                for statement in step.split(";"):
                    link.execute(statement)
            link.execute(f"PRAGMA application_id = {mark}")
            link.execute(f"PRAGMA user_version = {len(steps)}")

    def _set_pace(self) -> None:
        self._link.execute(f"PRAGMA synchronous = {'NORMAL' if self.lazy else 'FULL'}")

    def _number(self, pragma: str) -> int:
        return int(self._link.execute(f"PRAGMA {pragma}").fetchone()[0])

    @contextmanager
    def _told(self) -> Iterator[None]:
        """What SQLite refuses, in words."""
        try:
            yield
        except sqlite3.IntegrityError:
            raise
        except sqlite3.ProgrammingError as error:
            raise StorageError(f"{self.path} is closed: {error}") from error
        except sqlite3.DatabaseError as error:
            if "not a database" in str(error) or "malformed" in str(error):
                raise ConfigError(f"{self.path} is no sound SQLite file: {error}", hint="Name another file.") from error
            hint = "Is the disk full, the folder there and writable, or another process writing for long?"
            raise StorageError(f"{self.path} cannot be used: {error}", hint=hint) from error
