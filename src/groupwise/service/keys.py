"""Who may do what: bearer keys, stored only as hashes.

A key is `gw_` followed by 256 random bits. It is shown once, when it is created; the table stores its SHA-256. Each
scope includes the one before: read < train < admin. A key sees, stops and deletes its own jobs and runs, an
administrator all. A service that only this machine can reach needs no key until the first one is created: requests then
have scope `train`, or `admin` with the token that the service printed when it started. From the first key on, or when
other machines can reach it, every request needs a key.
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
    owner: str
    """The key whose jobs and runs it sees: usually itself."""

    def may(self, scope: str) -> bool:
        return SCOPES.index(self.scope) >= SCOPES.index(scope)

    def owns(self, owner: str | None) -> bool:
        """Whether it may see and change what belongs to `owner`; None is whoever runs the service."""
        return self.may("admin") or owner == self.owner

    @property
    def view(self) -> str:
        """The same for callers who see the same jobs and runs."""
        return "" if self.may("admin") else self.owner


LOCAL = Who("local", "local", "train", "local")
OPERATOR = Who("operator", "operator", "admin", "operator")


@dataclass(frozen=True)
class Key:
    id: str
    name: str
    scope: str
    created: float
    revoked: float | None
    owner: str


class Keys:
    """The keys of a service; `local` if only this machine can reach it. Without keys, `token` makes the operator."""

    def __init__(self, tables: Tables, local: bool = True, token: str = "") -> None:
        self.tables, self.local, self.token = tables, local, token
        self._known: dict[str, Who] = {}
        self._any = False
        # Stale from the start, so that the first request reads the keys.
        self._read = -FRESH

    def add(self, name: str, scope: str, owner: str | None = None) -> tuple[str, Key]:
        """Create a key; with `owner`, one for the jobs and runs of that key. Its text cannot be shown again."""
        if scope not in SCOPES:
            raise ConfigError(f"scope = {scope!r} is not a scope", hint=f"One of {', '.join(SCOPES)}.", field="scope")
        if not name.strip() or len(name) > 80 or not name.isprintable():
            raise ConfigError(f"name = {name!r:.100} must be a single line of 1 to 80 characters", field="name")
        if owner is not None and owner not in {key.id for key in self.all()}:
            raise _no_key(owner, "owner")
        text = PREFIX + secrets.token_urlsafe(32)
        row = {"id": secrets.token_hex(4), "name": name, "hash": _hash(text), "scope": scope, "owner": owner}
        with self.tables.writing() as link:
            now = self.tables.now(link)
            link.execute(KEYS.insert().values(**row, created=now))
        key_id = str(row["id"])
        return text, Key(key_id, name, scope, now, None, owner or key_id)

    def all(self) -> Sequence[Key]:
        with self.tables.reading() as link:
            rows = link.execute(select(KEYS).order_by(KEYS.c.created))
            return [Key(row.id, row.name, row.scope, row.created, row.revoked, row.owner or row.id) for row in rows]

    def revoke(self, key_id: str) -> Key:
        with self.tables.writing() as link:
            change = update(KEYS).where(KEYS.c.id == key_id, KEYS.c.revoked.is_(None))
            link.execute(change.values(revoked=self.tables.now(link)))
        found = [key for key in self.all() if key.id == key_id]
        if not found:
            raise _no_key(key_id, "id")
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
            self._known = {
                row.hash: Who(row.id, row.name, row.scope, row.owner or row.id) for row in rows if row.revoked is None
            }
        self._read = time.monotonic()

    def name_of(self, owner: str) -> str:
        """What to call the owner of a job; empty for the operator."""
        if owner in (LOCAL.owner, OPERATOR.owner):
            return ""
        return next((who.name for who in self._known.values() if who.id == owner), owner)

    @property
    def is_stale(self) -> bool:
        return time.monotonic() - self._read > FRESH

    @property
    def required(self) -> bool:
        return self._any or not self.local

    def who(self, text: str | None) -> Who:
        """Whose key this is. If no key is needed, every caller is the local user, unless it sends the token."""
        if not self.required:
            # Bytes, because comparing texts that are not ASCII is an error.
            is_token = bool(self.token) and hmac.compare_digest(
                (text or "").encode("utf8", "replace"), self.token.encode()
            )
            return OPERATOR if is_token else LOCAL
        if text is None:
            hint = "Send the header Authorization: Bearer gw_…; `groupwise keys add` creates a key."
            raise Unauthorised("an API key is required", hint=hint)
        # Keys are found by their hash, so the time this takes says nothing about how much of a guess was right.
        found = self._known.get(_hash(text))
        if found is None:
            hint = "Was the key copied in full? Has it been revoked? `groupwise keys add` creates a new one."
            raise Unauthorised("unknown key", hint=hint)
        return found


def insist(who: Who, scope: str) -> None:
    if not who.may(scope):
        raise Forbidden(f"this needs scope {scope!r}, but {_caller(who)} has scope {who.scope!r}", hint=remedy(who))


def remedy(who: Who) -> str:
    """How to get the scope that is missing."""
    if who == LOCAL:
        return "Open the address that the service printed when it started, or send its token as Authorization: Bearer …"
    return "Use a key with that scope."


def _caller(who: Who) -> str:
    return "a request without the service's token" if who == LOCAL else f"key {who.name!r}"


def _no_key(key_id: str, field: str) -> ConfigError:
    return ConfigError(f"there is no key {key_id!r:.40}", hint="`groupwise keys list` lists them.", field=field)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf8", "replace")).hexdigest()
