"""Who may do what: bearer keys, stored only as hashes.

A key is `gw_` followed by 256 random bits. It is shown once, when it is created; the table stores its SHA-256. Each
scope includes the one before: read < train < admin. A service that only this machine can reach needs no key until the
first one is created; from then on, or when other machines can reach it, every request needs one.
"""

import hashlib
import hmac
import logging
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select, update

from groupwise.errors import ConfigError, GroupwiseError, StorageError
from groupwise.service.tables import KEYS, Tables

logger = logging.getLogger(__name__)

SCOPES = ("read", "train", "admin")
PREFIX = "gw_"
FRESH = 1.0  # seconds between re-reads of the keys: a revoked key may keep working this long


class Unauthorised(GroupwiseError):
    code = "unauthorised"


class Forbidden(GroupwiseError):
    code = "forbidden"


@dataclass(frozen=True)
class Who:
    """Whoever asks."""

    id: str
    name: str
    scope: str

    def may(self, scope: str) -> bool:
        return SCOPES.index(self.scope) >= SCOPES.index(scope)


LOCAL = Who("local", "local", "admin")


@dataclass(frozen=True)
class Key:
    id: str
    name: str
    scope: str
    created: float
    revoked: float | None


class Keys:
    """The keys of a service; `local` if only this machine can reach it."""

    def __init__(self, tables: Tables, local: bool = True) -> None:
        self.tables, self.local = tables, local
        self._known: dict[str, Who] = {}
        self._any = False
        # Stale from the start, so that the first request reads the keys.
        self._read = -FRESH

    def add(self, name: str, scope: str) -> tuple[str, Key]:
        """Create a key. Its text cannot be shown again."""
        if scope not in SCOPES:
            raise ConfigError(f"scope = {scope!r} is not a scope", hint=f"One of {', '.join(SCOPES)}.", field="scope")
        if not name.strip() or len(name) > 80 or not name.isprintable():
            raise ConfigError(f"name = {name!r:.100} must be a single line of 1 to 80 characters", field="name")
        text = PREFIX + secrets.token_urlsafe(32)
        row = {"id": secrets.token_hex(4), "name": name, "hash": _hash(text), "scope": scope}
        with self.tables.writing() as link:
            now = self.tables.now(link)
            link.execute(KEYS.insert().values(**row, created=now))
        return text, Key(row["id"], name, scope, now, None)

    def all(self) -> Sequence[Key]:
        with self.tables.reading() as link:
            rows = link.execute(select(KEYS).order_by(KEYS.c.created))
            return [Key(row.id, row.name, row.scope, row.created, row.revoked) for row in rows]

    def revoke(self, key_id: str) -> Key:
        with self.tables.writing() as link:
            change = update(KEYS).where(KEYS.c.id == key_id, KEYS.c.revoked.is_(None))
            link.execute(change.values(revoked=self.tables.now(link)))
        found = [key for key in self.all() if key.id == key_id]
        if not found:
            raise ConfigError(f"there is no key {key_id!r:.40}", hint="`groupwise keys list` lists them.", field="id")
        return found[0]

    def refresh(self) -> None:
        """Read the keys again. While the database is down, the keys already known keep working."""
        try:
            with self.tables.reading() as link:
                rows = list(link.execute(select(KEYS)))
        except StorageError as error:
            logger.warning("could not refresh the keys: %s", error.message)
        else:
            self._any = bool(rows)
            self._known = {row.hash: Who(row.id, row.name, row.scope) for row in rows if row.revoked is None}
        self._read = time.monotonic()

    @property
    def is_stale(self) -> bool:
        return time.monotonic() - self._read > FRESH

    @property
    def required(self) -> bool:
        return self._any or not self.local

    def who(self, text: str | None) -> Who:
        """Whose key this is. If no key is needed, every caller is the local user, whatever key it sends."""
        if not self.required:
            return LOCAL
        if text is None:
            hint = "Send the header Authorization: Bearer gw_…; `groupwise keys add` creates a key."
            raise Unauthorised("an API key is required", hint=hint)
        digest = _hash(text)
        found = self._known.get(digest)
        if found is None or not hmac.compare_digest(digest, _hash(text)):
            hint = "Was the key copied in full? Has it been revoked? `groupwise keys add` creates a new one."
            raise Unauthorised("unknown key", hint=hint)
        return found


def insist(who: Who, scope: str) -> None:
    if not who.may(scope):
        hint = "Use a key with that scope."
        raise Forbidden(f"this needs scope {scope!r}, but key {who.name!r} has scope {who.scope!r}", hint=hint)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf8", "replace")).hexdigest()
