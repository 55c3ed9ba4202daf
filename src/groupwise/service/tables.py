"""The service's tables on SQLite or PostgreSQL, and the translation of database errors."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.engine import make_url

from groupwise.errors import ConfigError, StorageError
from groupwise.files import disk

METADATA = sa.MetaData()

JOBS = sa.Table(
    "jobs",
    METADATA,
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("folder", sa.Text, nullable=False),  # of the runs: only services that have it may claim the job
    sa.Column("run", sa.String(120), nullable=False, unique=True),
    sa.Column("product", sa.String(40), nullable=False),
    sa.Column("request", sa.Text, nullable=False),  # the request as JSON
    sa.Column("idempotency_key", sa.String(200), unique=True),
    sa.Column("digest", sa.String(64), nullable=False),
    sa.Column("asked_by", sa.String(80), nullable=False),  # the key that owns the job and its run
    # What its settings may name was decided for this scope.
    sa.Column("scope", sa.String(10), nullable=False, server_default="train"),
    sa.Column("state", sa.String(20), nullable=False, index=True),
    sa.Column("wanted", sa.String(20), nullable=False),
    sa.Column("owner", sa.String(32)),
    sa.Column("lease", sa.Float, nullable=False),
    sa.Column("starts", sa.Integer, nullable=False),  # processes started since the run last made progress
    sa.Column("mark", sa.Integer, nullable=False),  # the run's step at the last start
    sa.Column("since", sa.Integer, nullable=False),  # attempts of the run that had ended at the last request
    sa.Column("error", sa.Text),
    sa.Column("created", sa.Float, nullable=False),
    sa.Column("updated", sa.Float, nullable=False),
)

KEYS = sa.Table(
    "keys",
    METADATA,
    sa.Column("id", sa.String(16), primary_key=True),
    sa.Column("name", sa.String(80), nullable=False),
    sa.Column("hash", sa.String(64), nullable=False, unique=True),
    sa.Column("scope", sa.String(10), nullable=False),
    sa.Column("owner", sa.String(16)),  # the key whose jobs and runs it sees; null: its own
    sa.Column("created", sa.Float, nullable=False),
    sa.Column("revoked", sa.Float),
)
ADDED = (JOBS.c.scope, KEYS.c.owner)
"""Columns that databases of earlier versions do not have."""


class DatabaseDown(StorageError):
    """The database does not answer; the request may be repeated."""

    code = "database"


class Tables:
    """The tables at `url`, created if missing."""

    def __init__(self, url: str) -> None:
        self.engine = _open(url)
        self.is_sqlite = self.engine.dialect.name == "sqlite"
        with self._translated_errors():
            try:
                METADATA.create_all(self.engine)
                self._upgrade()
            except exc.DBAPIError as error:  # another service created them first
                if not any(told in str(error.orig) for told in ("already exists", "duplicate")):
                    raise

    def _upgrade(self) -> None:
        for column in ADDED:
            known = {found["name"] for found in sa.inspect(self.engine).get_columns(column.table.name)}
            if column.name not in known:
                kind = sa.schema.CreateColumn(column).compile(self.engine)
                with self.engine.begin() as link:
                    link.exec_driver_sql(f"ALTER TABLE {column.table.name} ADD COLUMN {kind}")

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """A transaction: all or nothing."""
        with self._translated_errors(), self.engine.connect() as link:
            if self.is_sqlite:
                link.exec_driver_sql("BEGIN IMMEDIATE")
            yield link
            link.commit()

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        with self._translated_errors(), self.engine.connect() as link:
            yield link

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except exc.IntegrityError:
            raise
        except (exc.DBAPIError, exc.TimeoutError, exc.InvalidRequestError) as error:
            # An error, an exhausted pool, or a file that keeps changing.
            reason = str(getattr(error, "orig", error)).strip().split("\n")[0]
            hint = "Is the database running? Is the disk full? Is another process holding a long write? Then try again."
            raise DatabaseDown(f"cannot use the service's database: {reason}", hint=hint) from error

    def now(self, link: sa.Connection) -> float:
        """The database's clock, which all services on it share."""
        if self.is_sqlite:
            return time.time()
        return float(link.execute(sa.text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one())

    def close(self) -> None:
        self.engine.dispose()


def _open(url: str) -> sa.Engine:
    try:
        parsed = make_url(url)
        if parsed.get_backend_name() == "sqlite":
            return _sqlite(Path(parsed.database or ""), url)
        if parsed.get_backend_name() != "postgresql":
            raise exc.ArgumentError
        # Whatever driver the URL names, psycopg 3 is the one that is installed.
        parsed = parsed.set(drivername="postgresql+psycopg")
        return sa.create_engine(parsed, pool_pre_ping=True, pool_size=8, connect_args={"connect_timeout": 5})
    except (exc.ArgumentError, exc.NoSuchModuleError):
        kind = url.partition(":")[0]
        hint = "Use sqlite:///FILE or postgresql://USER:PASSWORD@HOST/NAME."
        raise ConfigError(f"database = {kind!r}:… is not a supported database", hint=hint, field="database") from None


def _sqlite(path: Path, url: str) -> sa.Engine:
    with disk(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    engine = sa.create_engine(url, connect_args={"timeout": 10, "check_same_thread": False})

    opened = False

    @sa.event.listens_for(engine, "do_connect")
    def insist_on_a_file(*_: Any) -> None:
        if opened and _identity(path) is None:  # connecting would create an empty database in its place
            raise sqlite3.OperationalError(f"{path} is gone")

    @sa.event.listens_for(engine, "connect")
    def prepare(link: Any, record: Any) -> None:
        nonlocal opened
        opened, record.info["file"] = True, _identity(path)
        link.isolation_level = None  # `writing` begins transactions itself
        link.execute("PRAGMA journal_mode = WAL")
        # A job that was answered with 202 must survive a power cut.
        link.execute("PRAGMA synchronous = FULL")

    @sa.event.listens_for(engine, "checkout")
    def insist_on_the_same(_: Any, record: Any, __: Any) -> None:
        if record.info["file"] != _identity(path):  # writes to a removed file would be lost
            raise exc.DisconnectionError

    return engine


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
