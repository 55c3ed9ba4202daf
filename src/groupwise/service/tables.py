"""The service's tables on SQLite or PostgreSQL, and the translation of database errors."""

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
    Column("folder", Text, nullable=False),  # where the runs are: only services with this folder may claim the job
    Column("run", String(120), nullable=False, unique=True),
    Column("product", String(40), nullable=False),
    Column("request", Text, nullable=False),  # the request as JSON
    Column("idempotency_key", String(200), unique=True),
    Column("digest", String(64), nullable=False),
    Column("asked_by", String(80), nullable=False),
    Column("state", String(20), nullable=False, index=True),
    Column("wanted", String(20), nullable=False),
    Column("owner", String(32)),
    Column("lease", Float, nullable=False),
    Column("starts", Integer, nullable=False),  # processes started since the run last made progress
    Column("mark", Integer, nullable=False),  # the run's step at the last start
    Column("since", Integer, nullable=False),  # attempts of the run that had ended when the job was last requested
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
            except DBAPIError as error:  # another service created them first
                if "already exists" not in str(error.orig) and "duplicate key" not in str(error.orig):
                    raise

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction: all or nothing."""
        with self._translated_errors(), self.engine.connect() as link:
            if self.is_sqlite:
                link.exec_driver_sql("BEGIN IMMEDIATE")
            yield link
            link.commit()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        with self._translated_errors(), self.engine.connect() as link:
            yield link

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except IntegrityError:
            raise
        except (
            DBAPIError,
            TimeoutError,
            InvalidRequestError,
        ) as error:  # an error, an exhausted pool, or a file that keeps changing
            reason = str(getattr(error, "orig", error)).strip().split("\n")[0]
            hint = "Is the database running? Is the disk full? Is another process holding a long write? Then try again."
            raise DatabaseDown(f"cannot use the service's database: {reason}", hint=hint) from error

    def now(self, link: Connection) -> float:
        """The database's clock, which all services on it share."""
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
        # Whatever driver the URL names, psycopg 3 is the one that is installed.
        parsed = parsed.set(drivername="postgresql+psycopg")
        return create_engine(parsed, pool_pre_ping=True, pool_size=8, connect_args={"connect_timeout": 5})
    except (ArgumentError, NoSuchModuleError):
        kind = url.partition(":")[0]
        raise ConfigError(
            f"database = {kind!r}:… is not a supported database",
            hint="Use sqlite:///FILE or postgresql://USER:PASSWORD@HOST/NAME.",
            field="database",
        ) from None


def _sqlite(path: Path, url: str) -> Engine:
    with disk(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(url, connect_args={"timeout": 10, "check_same_thread": False})

    opened = False

    @event.listens_for(engine, "do_connect")
    def insist_on_a_file(*_: Any) -> None:
        if opened and _identity(path) is None:  # connecting would create an empty database in its place
            raise sqlite3.OperationalError(f"{path} is gone")

    @event.listens_for(engine, "connect")
    def prepare(link: Any, record: Any) -> None:
        nonlocal opened
        opened, record.info["file"] = True, _identity(path)
        link.isolation_level = None  # `writing` begins transactions itself
        link.execute("PRAGMA journal_mode = WAL")
        # A job that was answered with 202 must survive a power cut.
        link.execute("PRAGMA synchronous = FULL")

    @event.listens_for(engine, "checkout")
    def insist_on_the_same(_: Any, record: Any, __: Any) -> None:
        if record.info["file"] != _identity(path):  # writes to a removed file would be lost
            raise DisconnectionError

    return engine


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
