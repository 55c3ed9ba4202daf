"""What is remembered, as text: JSON in one canonical form, so that equal things are equal texts."""

from __future__ import annotations

import json
import sqlite3
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import index
from pathlib import Path
from typing import Any

from groupwise.errors import ConfigError, ContractError, StorageError
from groupwise.memory.file import open_database, own
from groupwise.memory.vectors import Direction, from_bytes


def to_text(value: Any, what: str) -> str:
    """The canonical JSON of a value: sorted keys, no spaces, no NaN."""
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, default=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        raise ContractError(
            f"{what} cannot be remembered as JSON: {error}",
            hint="Give mappings with text keys, lists, texts, finite numbers, true, false and None only.",
        ) from error


def _plain(value: Any) -> dict[Any, Any]:
    """Mappings of every kind are written like dictionaries."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{value!r:.60} is of type {type(value).__name__}")


PATIENCE = 5.0
MARK = 0x47574D31
STEPS = (
    """
    CREATE TABLE records (
        id INTEGER PRIMARY KEY, kind TEXT NOT NULL, seq INTEGER NOT NULL, body TEXT NOT NULL, features BLOB
    );
    CREATE TABLE states (
        record INTEGER NOT NULL REFERENCES records (id) ON DELETE CASCADE, seq INTEGER NOT NULL, state TEXT NOT NULL,
        PRIMARY KEY (record, seq)
    ) WITHOUT ROWID;
    CREATE TABLE removals (seq INTEGER NOT NULL, record INTEGER NOT NULL, PRIMARY KEY (seq, record)) WITHOUT ROWID;
    CREATE TABLE clock (now INTEGER NOT NULL, settled INTEGER NOT NULL);
    INSERT INTO clock VALUES (0, 0)
    """,
)
PRESENT = "id NOT IN (SELECT record FROM removals)"


@dataclass(frozen=True, slots=True)
class MemoryRecord:
    """Something remembered, as it is now."""

    id: int
    body: str
    state: Any
    features: Direction | None


class Store:
    """The records of the file at `path`; ":memory:" keeps them as long as the object lives.

    A transaction that has ended survives the process, killed or not. It is not waited for on the disk (`synchronous =
    NORMAL`), which takes longer than all else: `sync` does, before a checkpoint counts on it. One process at a time
    uses a file. A file that is damaged, foreign or of a newer version is kept under another name and a fresh one begun;
    `notices` says so, and so does a warning.

    Args:
      path: the file, made if it is not there.
      patience: seconds to wait while another process uses it.
      steps: how to make it: the SQL that leads from every version of its tables to the next.
    """

    def __init__(
        self, path: str | Path = ":memory:", *, patience: float = PATIENCE, steps: tuple[str, ...] = STEPS
    ) -> None:
        self.path = str(path)
        self.notices: tuple[str, ...] = ()
        self._followers: list[Callable[[], None]] = []
        self._link: sqlite3.Connection | None = None  # while a transaction is open
        self._owner = own(Path(path), patience) if self.path != ":memory:" else None
        try:
            self._database = open_database(self.path, MARK, steps, self.notice)
            self.now, self.settled = self._clock()
        except BaseException:
            self._release()
            raise

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All that is written inside is kept, or none of it if an exception leaves the block. Blocks may be nested."""
        if self._link is not None:
            if not self._link.in_transaction:
                raise StorageError(f"{self.path} lost what this transaction wrote", hint="Leave the block: try anew.")
            yield self._link
            return
        try:
            with self._database.transaction() as link:
                self._link = link
                try:
                    yield link
                finally:
                    self._link = None
        except BaseException:
            self._reload()
            raise

    @contextmanager
    def generation(self, seq: int) -> Iterator[None]:
        """One transaction whose writes carry `seq`, which never falls but by `rewind`."""
        seq = index(seq)
        if seq < self.now:
            raise ConfigError(
                f"{self.path} is at generation {self.now}, and {seq} lies before it",
                hint=f"Call rewind({seq}) first to forget what came later.",
            )
        with self.transaction() as link:
            link.execute("UPDATE clock SET now = ?", (seq,))
            self.now = seq
            yield

    def add(self, kind: str, body: str, state: Any, features: Direction | None = None) -> int:
        """A new record; its id, above all others."""
        blob = None if features is None else features.tobytes()
        with self.transaction() as link:
            made = link.execute(
                "INSERT INTO records (kind, seq, body, features) VALUES (?, ?, ?, ?)", (kind, self.now, body, blob)
            )
            assert made.lastrowid is not None
            self.change(made.lastrowid, state)
        return made.lastrowid

    def change(self, record: int, state: Any) -> None:
        """A record's state from now on."""
        with self.transaction() as link:
            link.execute(
                "INSERT OR REPLACE INTO states VALUES (?, ?, ?)", (record, self.now, to_text(state, "a state"))
            )

    def remove(self, record: int) -> None:
        with self.transaction() as link:
            link.execute("INSERT INTO removals VALUES (?, ?)", (self.now, record))

    def read(self, kind: str) -> list[MemoryRecord]:
        """What there is of a kind, oldest first."""
        # SQLite takes a bare column beside max() from the row that has the maximum.
        query = (
            "SELECT id, body, state, features, max(states.seq) FROM records JOIN states ON record = id "
            f"WHERE kind = ? AND {PRESENT} GROUP BY id ORDER BY id"
        )
        with self._reading() as link:
            rows = link.execute(query, (kind,)).fetchall()
        return [MemoryRecord(i, body, json.loads(state), blob and from_bytes(blob)) for i, body, state, blob, _ in rows]

    def bodies(self, records: Sequence[int]) -> list[str]:
        """The bodies of records, in the order given."""
        query = "SELECT body FROM records WHERE id = ?"
        with self._reading() as link:
            return [link.execute(query, (record,)).fetchone()[0] for record in records]

    def counts(self) -> dict[str, int]:
        """How many records there are of every kind."""
        query = f"SELECT kind, count(*) FROM records WHERE {PRESENT} GROUP BY kind ORDER BY kind"
        with self._reading() as link:
            return {kind: number for kind, number in link.execute(query)}

    def follow(self, load: Callable[[], None]) -> None:
        """Call `load` now, and whenever records change behind its back: after a rewind or a failed transaction."""
        self._followers.append(load)
        load()

    def rewind(self, seq: int) -> None:
        """Everything as it was at the end of generation `seq`."""
        if seq < self.settled:
            raise ConfigError(
                f"{self.path} cannot go back to generation {seq}: what came before {self.settled} was settled",
                hint=f"Rewind to {self.settled} or later, or begin with a fresh file.",
            )
        with self.transaction() as link:
            for table in ("records", "states", "removals"):
                link.execute(f"DELETE FROM {table} WHERE seq > ?", (seq,))
            link.execute("UPDATE clock SET now = min(now, ?)", (seq,))
        self._reload()

    def settle(self, seq: int) -> None:
        """Give up the past before generation `seq`, to which nobody will rewind, and use its room again."""
        seq = min(seq, self.now)
        if seq <= self.settled:
            return
        with self.transaction() as link:
            # The newest record stays, so that ids go on as if nothing had been settled.
            link.execute(
                "DELETE FROM records WHERE id IN (SELECT record FROM removals WHERE seq <= ?) "
                "AND id < (SELECT max(id) FROM records WHERE seq <= ?)",
                (seq, seq),
            )
            link.execute("DELETE FROM removals WHERE record NOT IN (SELECT id FROM records)")
            link.execute(
                "DELETE FROM states WHERE seq < "
                "(SELECT max(seq) FROM states AS later WHERE later.record = states.record AND later.seq <= ?)",
                (seq,),
            )
            link.execute("UPDATE clock SET settled = ?", (seq,))
            self.settled = seq

    def sync(self) -> None:
        """Wait until all of it is on the disk, safe even if the power fails."""
        if self._link is not None:
            raise ConfigError(
                f"{self.path} cannot sync inside generation {self.now}", hint="Call it when the block has ended."
            )
        self._database.sync()

    def notice(self, words: str) -> None:
        """Something its user should know, kept and warned of."""
        self.notices += (words,)
        warnings.warn(words, stacklevel=2)

    def close(self) -> None:
        self._database.close()
        self._release()

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        if self._link is not None:
            yield self._link
            return
        with self._database.transaction(write=False) as link:
            yield link

    def _clock(self) -> tuple[int, int]:
        with self._reading() as link:
            now, settled = link.execute("SELECT now, settled FROM clock").fetchone()
        return int(now), int(settled)

    def _reload(self) -> None:
        self.now, self.settled = self._clock()
        for load in self._followers:
            load()

    def _release(self) -> None:
        if self._owner:
            self._owner.release()


@dataclass(frozen=True, slots=True)
class Schema:
    """`width` numbers whose meaning is called `name`, such as a hash of the features' names."""

    width: int
    name: str = ""

    def __post_init__(self) -> None:
        if self.width < 1:
            raise ConfigError(f"features have a width of {self.width}, and need 1 at least", hint="Give their number.")

    def kind(self, kind: str) -> str:
        """What records of a kind are called when their vectors are of this schema."""
        return f"{kind} {self.width} {self.name}"

    def strangers(self, store: Store, kind: str) -> int:
        """Records of a kind whose vectors are of another schema: they stay in the file and are not looked at."""
        counts = store.counts()
        return sum(n for name, n in counts.items() if name.startswith(f"{kind} ") and name != self.kind(kind))
