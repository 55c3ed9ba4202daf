"""One SQLite file: opened, checked and upgraded, and written in transactions from any thread."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from groupwise.errors import ConfigError, StorageError

PATIENCE = 5.0  # seconds to wait while another process writes


class Database:
    """A database of one kind, in SQLite's write-ahead mode; ":memory:" lives as long as the object.

    What a transaction wrote survives if the process is killed right after it and, unless `lazy`, a power failure; an
    unfinished transaction leaves nothing. Several processes on one machine may share a file.

    Args:
      path: the file, created if it does not exist.
      kind: what it contains, for messages.
      mark: the application id that distinguishes such files from other SQLite files.
      steps: the SQL that upgrades each version of the tables to the next, from nothing.
      lazy: wait for the disk only in `sync`, not after every transaction. A power failure can then undo the latest
        transactions, but never damages the file.
    """

    def __init__(self, path: str | Path, kind: str, mark: int, steps: tuple[str, ...], *, lazy: bool = False) -> None:
        self.path, self.kind, self.lazy = str(path), kind, lazy
        # Reentrant, because `sync` opens a transaction while it holds the lock.
        self._lock = threading.RLock()
        with self._translated():
            self._link = sqlite3.connect(self.path, PATIENCE, isolation_level=None, check_same_thread=False)
        try:
            self._prepare(mark, steps)
        except BaseException:
            self._link.close()
            raise

    @contextmanager
    def transaction(self, *, write: bool = True) -> Iterator[sqlite3.Connection]:
        """Everything inside happens, or nothing if an exception leaves the block."""
        with self._lock, self._translated():
            # IMMEDIATE takes the write lock now; upgrading a read lock later fails if another process writes.
            self._link.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            try:
                yield self._link
                self._link.execute("COMMIT")
            except BaseException:
                if self._link.in_transaction:
                    self._link.execute("ROLLBACK")
                raise

    def sync(self) -> None:
        """Wait until everything written is on disk."""
        with self._lock, self._translated():
            self._link.execute("PRAGMA synchronous = FULL")
            try:
                with self.transaction() as link:  # writing one page syncs all pages before it
                    link.execute(f"PRAGMA user_version = {self._number('user_version')}")
            finally:
                self._set_durability()

    def scrub(self) -> None:
        """Move what was written into the file itself, so that no copy of deleted rows stays in the write-ahead log."""
        with self._lock, self._translated():
            self._link.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        with self._lock:
            self._link.close()

    def _prepare(self, mark: int, steps: tuple[str, ...]) -> None:
        with self._lock, self._translated():
            self._link.row_factory = sqlite3.Row
            self._link.execute("PRAGMA foreign_keys = ON")
            # Deleted rows are overwritten, whatever this SQLite was compiled with.
            self._link.execute("PRAGMA secure_delete = ON")
            self._set_durability()
            found, version = (self._number(name) for name in ("application_id", "user_version"))
            # 0 in a file without any table: a new one, and nobody's yet.
            empty = not self._number("schema_version")
        if not empty and found != mark:
            raise ConfigError(f"{self.path} is an SQLite file, but not with {self.kind}", hint="Choose another file.")
        if version > len(steps):
            raise ConfigError(
                f"{self.path} contains {self.kind} in version {version}, but this Groupwise reads versions up to "
                f"{len(steps)}",
                hint="Use a newer Groupwise, or choose another file.",
            )
        if version == len(steps):
            return
        with self._lock, self._translated():
            # Outside a transaction, because SQLite does not change its journal mode inside one.
            self._link.execute("PRAGMA journal_mode = WAL")
        with self.transaction() as link:
            for step in steps[self._number("user_version") :]:  # read again: another process may have upgraded it
                for statement in step.split(";"):
                    link.execute(statement)
            link.execute(f"PRAGMA application_id = {mark}")
            link.execute(f"PRAGMA user_version = {len(steps)}")

    def _set_durability(self) -> None:
        self._link.execute(f"PRAGMA synchronous = {'NORMAL' if self.lazy else 'FULL'}")

    def _number(self, pragma: str) -> int:
        return int(self._link.execute(f"PRAGMA {pragma}").fetchone()[0])

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        # A broken constraint is for the caller to understand; the file is fine.
        except sqlite3.IntegrityError:
            raise
        except sqlite3.ProgrammingError as error:
            raise StorageError(f"{self.path} is closed: {error}") from error
        except sqlite3.DatabaseError as error:
            if "not a database" in str(error) or "malformed" in str(error):
                raise ConfigError(
                    f"{self.path} is not a valid SQLite file: {error}", hint="Choose another file."
                ) from error
            hint = "The disk may be full, the folder missing or read-only, or another process may block the file."
            raise StorageError(f"{self.path} cannot be used: {error}", hint=hint) from error
