"""The service's tables, on SQLite or PostgreSQL, and the translation of what a database refuses."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Float,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    create_engine,
    event,
    text,
)
from sqlalchemy.engine import make_url
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    DisconnectionError,
    IntegrityError,
    InvalidRequestError,
    NoSuchModuleError,
    TimeoutError,
)

from groupwise.errors import ConfigError, StorageError
from groupwise.files import disk

METADATA = MetaData()

JOBS = Table(
    "jobs",
    METADATA,
    Column("id", String(32), primary_key=True),
    Column("folder", Text, nullable=False),  # of the runs: only services that see it may take the job
    Column("run", String(120), nullable=False, unique=True),
    Column("product", String(40), nullable=False),
    Column("request", Text, nullable=False),  # as it was asked for, in JSON
    Column("idempotency_key", String(200), unique=True),
    Column("digest", String(64), nullable=False),
    Column("asked_by", String(80), nullable=False),
    Column("state", String(20), nullable=False, index=True),
    Column("wanted", String(20), nullable=False),
    Column("owner", String(32)),
    Column("lease", Float, nullable=False),
    Column("starts", Integer, nullable=False),  # processes started since the run last made progress
    Column("mark", Integer, nullable=False),  # the run's step at the last start
    Column("since", Integer, nullable=False),  # attempts of the run that were over when the job was last asked for
    Column("error", Text),
    Column("created", Float, nullable=False),
    Column("updated", Float, nullable=False),
)

KEYS = Table(
    "keys",
    METADATA,
    Column("id", String(16), primary_key=True),
    Column("name", String(80), nullable=False),
    Column("hash", String(64), nullable=False, unique=True),
    Column("scope", String(10), nullable=False),
    Column("created", Float, nullable=False),
    Column("revoked", Float),
)


class DatabaseDown(StorageError):
    """The database does not answer; what was asked may be asked again."""

    code = "database"


class Tables:
    """The tables at `url`, made if they are not there."""

    def __init__(self, url: str) -> None:
        self.engine = _open(url)
        self.is_sqlite = self.engine.dialect.name == "sqlite"
        with self.told():
            try:
                METADATA.create_all(self.engine)
            except DBAPIError as error:  # another service was faster
                if "already exists" not in str(error.orig) and "duplicate key" not in str(error.orig):
                    raise

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction: all of it happens, or none."""
        with self.told(), self.engine.connect() as link:
            if self.is_sqlite:
                link.exec_driver_sql("BEGIN IMMEDIATE")
            yield link
            link.commit()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        with self.told(), self.engine.connect() as link:
            yield link

    @contextmanager
    def told(self) -> Iterator[None]:
        try:
            yield
        except IntegrityError:
            raise
        except (
            DBAPIError,
            TimeoutError,
            InvalidRequestError,
        ) as error:  # refused, too many wait, the file keeps changing
            reason = str(getattr(error, "orig", error)).strip().split("\n")[0]
            hint = "Try again. Is the database running, the disk full, or another process writing for long?"
            raise DatabaseDown(f"the service's database cannot be used: {reason}", hint=hint) from error

    def now(self, link: Connection) -> float:
        """The time that all services on this database agree on."""
        if self.is_sqlite:
            return time.time()
        return float(link.execute(text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one())

    def close(self) -> None:
        self.engine.dispose()


def _open(url: str) -> Engine:
    try:
        parsed = make_url(url)
        if parsed.get_backend_name() == "sqlite":
            return _sqlite(Path(parsed.database or ""), url)
        if parsed.get_backend_name() != "postgresql":
            raise ArgumentError
        parsed = parsed.set(drivername="postgresql+psycopg")
        return create_engine(parsed, pool_pre_ping=True, pool_size=8, connect_args={"connect_timeout": 5})
    except (ArgumentError, NoSuchModuleError):
        kind = url.partition(":")[0]
        raise ConfigError(
            f"database = {kind!r}:… is no database this service knows",
            hint="Write sqlite:///FILE or postgresql://USER:PASSWORD@HOST/NAME.",
            field="database",
        ) from None


def _sqlite(path: Path, url: str) -> Engine:
    with disk(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(url, connect_args={"timeout": 10, "check_same_thread": False})

    opened = False

    @event.listens_for(engine, "do_connect")
    def insist_on_a_file(*_: Any) -> None:
        if opened and _identity(path) is None:  # an empty one in its place would be no help
            raise sqlite3.OperationalError(f"{path} is gone")

    @event.listens_for(engine, "connect")
    def prepare(link: Any, record: Any) -> None:
        nonlocal opened
        opened, record.info["file"] = True, _identity(path)
        link.isolation_level = None  # transactions begin where `writing` says so
        link.execute("PRAGMA journal_mode = WAL")
        link.execute("PRAGMA synchronous = FULL")

    @event.listens_for(engine, "checkout")
    def insist_on_the_same(_: Any, record: Any, __: Any) -> None:
        if record.info["file"] != _identity(path):  # what is written to a file that was removed is lost
            raise DisconnectionError

    return engine


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
