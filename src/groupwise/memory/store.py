"""Records with a history, in one SQLite file under all memories.

Every write carries the current generation (`seq`), and nothing is overwritten: a record's state is a new row, its
removal too. Rewinding to a generation therefore means deleting the rows after it. `settle` gives up the past before a
generation. Bodies are JSON in canonical form, so that equal values are equal texts.
"""

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
        hint = "Use only dicts with string keys, lists, strings, finite numbers, True, False and None."
        raise ContractError(f"{what} cannot be stored as JSON: {error}", hint=hint) from error


def _plain(value: Any) -> dict[Any, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{value!r:.60} is of type {type(value).__name__}")


PATIENCE = 5.0  # seconds
MARK = 0x47574D31  # "GWM1"
# Append-only: records never change, a state is valid from its `seq` on, a removal is a row of its own.
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
    """A record with its present state."""

    id: int
    body: str
    state: Any
    features: Direction | None


class Store:
    """The records of the file at `path`; ":memory:" keeps them as long as the object lives.

    A finished transaction survives the end of the process, even if it is killed. It does not wait for the disk
    (`synchronous = NORMAL`), which would take longer than everything else; `sync` does, before a checkpoint relies on
    it. One process at a time uses a file. A file that is damaged, foreign or of a newer version is renamed and an empty
    one started; `notices` says so, and so does a warning.

    Args:
      path: the file, created if it does not exist.
      patience: seconds to wait while another process uses it.
      steps: the SQL that upgrades each version of the tables to the next, from nothing.
    """

    def __init__(
        self, path: str | Path = ":memory:", *, patience: float = PATIENCE, steps: tuple[str, ...] = STEPS
    ) -> None:
        self.path = str(path)
        self.notices: tuple[str, ...] = ()
        # The memories, which keep copies in arrays and must reload them when records change behind their back.
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
        """Keep everything written inside, or nothing if an exception leaves the block. Blocks can be nested."""
        if self._link is not None:
            # SQLite rolls back by itself, for example when the disk is full: what follows must not look kept.
            if not self._link.in_transaction:
                raise StorageError(f"{self.path} lost this transaction", hint="Leave the block and try again.")
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
        """One transaction whose writes carry `seq`, which never decreases except by `rewind`."""
        seq = index(seq)
        if seq < self.now:
            message = f"{self.path} is already at generation {self.now}, later than {seq}"
            raise ConfigError(message, hint=f"Call rewind({seq}) first to discard what came later.")
        with self.transaction() as link:
            link.execute("UPDATE clock SET now = ?", (seq,))
            self.now = seq
            yield

    def add(self, kind: str, body: str, state: Any, features: Direction | None = None) -> int:
        """Add a record and return its id, which is larger than all others."""
        blob = None if features is None else features.tobytes()
        with self.transaction() as link:
            query = "INSERT INTO records (kind, seq, body, features) VALUES (?, ?, ?, ?)"
            made = link.execute(query, (kind, self.now, body, blob))
            assert made.lastrowid is not None
            self.change(made.lastrowid, state)
        return made.lastrowid

    def change(self, record: int, state: Any) -> None:
        """Set a record's state from this generation on."""
        with self.transaction() as link:
            row = (record, self.now, to_text(state, "a state"))
            link.execute("INSERT OR REPLACE INTO states VALUES (?, ?, ?)", row)

    def remove(self, record: int) -> None:
        with self.transaction() as link:
            link.execute("INSERT INTO removals VALUES (?, ?)", (self.now, record))

    def erase(self, records: Sequence[int]) -> None:
        """Delete records with their history, now and for every rewind, and overwrite what they said in the file."""
        if not records:
            return
        if self._link is not None:
            hint = "Call it after the block."
            raise ConfigError(f"{self.path} cannot erase inside generation {self.now}", hint=hint)
        with self.transaction() as link:
            for record in records:
                # The newest record's number must not be given again, so it stays without its words.
                link.execute(
                    "UPDATE records SET body = 'null', features = NULL, kind = 'erased' WHERE id = ?", (record,)
                )
                link.execute("DELETE FROM states WHERE record = ?", (record,))
                link.execute("DELETE FROM removals WHERE record = ?", (record,))
                link.execute("DELETE FROM records WHERE id = ? AND id < (SELECT max(id) FROM records)", (record,))
        self._database.scrub()
        self._reload()

    def read(self, kind: str) -> list[MemoryRecord]:
        """The present records of a kind, oldest first."""
        # In SQLite, a bare column beside max() comes from the row with the maximum: the latest state.
        query = (
            "SELECT id, body, state, features, max(states.seq) FROM records JOIN states ON record = id "
            f"WHERE kind = ? AND {PRESENT} GROUP BY id ORDER BY id"
        )
        with self._reading() as link:
            rows = link.execute(query, (kind,)).fetchall()
        return [MemoryRecord(i, body, json.loads(state), blob and from_bytes(blob)) for i, body, state, blob, _ in rows]

    def ever(self, kind: str) -> list[tuple[int, str]]:
        """The ids and bodies of all records of a kind that a rewind could bring back, oldest first."""
        with self._reading() as link:
            rows = link.execute("SELECT id, body FROM records WHERE kind = ? ORDER BY id", (kind,))
            return [(row[0], row[1]) for row in rows]

    def bodies(self, records: Sequence[int]) -> list[str]:
        """The bodies of records, in the order given."""
        query = "SELECT body FROM records WHERE id = ?"
        with self._reading() as link:
            return [link.execute(query, (record,)).fetchone()[0] for record in records]

    def counts(self) -> dict[str, int]:
        """How many records of every kind are present."""
        query = f"SELECT kind, count(*) FROM records WHERE {PRESENT} GROUP BY kind ORDER BY kind"
        with self._reading() as link:
            return {kind: number for kind, number in link.execute(query)}

    def follow(self, load: Callable[[], None]) -> None:
        """Call `load` now, and again after every rewind and failed transaction."""
        self._followers.append(load)
        load()

    def rewind(self, seq: int) -> None:
        """Restore everything as it was at the end of generation `seq`."""
        if seq < self.settled:
            message = f"{self.path} cannot go back to generation {seq}: history before {self.settled} was discarded"
            raise ConfigError(message, hint=f"Rewind to {self.settled} or later, or start with a new file.")
        with self.transaction() as link:
            # States and removals go too, so that what was changed or removed later is back as it was.
            for table in ("records", "states", "removals"):
                link.execute(f"DELETE FROM {table} WHERE seq > ?", (seq,))
            # min: rewinding to a later generation changes nothing.
            link.execute("UPDATE clock SET now = min(now, ?)", (seq,))
        self._reload()

    def settle(self, seq: int) -> None:
        """Discard the history before generation `seq`, which is no longer needed for rewinding, and reuse its space."""
        seq = min(seq, self.now)
        if seq <= self.settled:
            return
        with self.transaction() as link:
            # The newest record stays, so that new ids are the same as without settling.
            link.execute(
                "DELETE FROM records WHERE id IN (SELECT record FROM removals WHERE seq <= ?) "
                "AND id < (SELECT max(id) FROM records WHERE seq <= ?)",
                (seq, seq),
            )
            link.execute("DELETE FROM removals WHERE record NOT IN (SELECT id FROM records)")
            link.execute(
                # Of the states up to `seq`, only the latest can ever be read again.
                "DELETE FROM states WHERE seq < "
                "(SELECT max(seq) FROM states AS later WHERE later.record = states.record AND later.seq <= ?)",
                (seq,),
            )
            link.execute("UPDATE clock SET settled = ?", (seq,))
            self.settled = seq

    def sync(self) -> None:
        """Wait until everything is on disk, safe even from a power failure."""
        if self._link is not None:
            raise ConfigError(f"{self.path} cannot sync inside generation {self.now}", hint="Call it after the block.")
        self._database.sync()

    def notice(self, words: str) -> None:
        """Keep something that the user should know, and warn of it."""
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
    """What vectors consist of: `width` numbers, whose meaning has a `name`, such as a hash of the features' names.

    Only vectors of the same schema can be compared.
    """

    width: int
    name: str = ""

    def __post_init__(self) -> None:
        if self.width < 1:
            message = f"features have width {self.width}, but need at least 1"
            raise ConfigError(message, hint="Pass the number of features.")

    def kind(self, kind: str) -> str:
        """The kind of a record with vectors of this schema, as it is stored."""
        return f"{kind} {self.width} {self.name}"

    def ignored(self, store: Store, kind: str) -> int:
        """How many records of a kind have another schema: they stay in the file but are ignored."""
        counts = store.counts()
        return sum(n for name, n in counts.items() if name.startswith(f"{kind} ") and name != self.kind(kind))
