"""Stores conversations in one SQLite file, every turn in two transactions.

A user's message is written before it is answered, and the answer when it is complete. If the process is killed in
between, the question is there and no partial answer is.
"""

import json
import sqlite3
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from groupwise.errors import ContractError
from groupwise.sqlite import Database
from groupwise.types import Message

MARK = 0x47574331  # "GWC1", SQLite's application id of such a file
STEPS = (
    """
    CREATE TABLE conversations (
        id TEXT PRIMARY KEY, user_id TEXT NOT NULL, strategy TEXT, state TEXT NOT NULL, seed INTEGER NOT NULL,
        draws INTEGER NOT NULL, ids BLOB NOT NULL, heard INTEGER NOT NULL, ended INTEGER NOT NULL, frame TEXT NOT NULL,
        version INTEGER NOT NULL, created REAL NOT NULL, updated REAL NOT NULL
    );
    CREATE INDEX conversations_of_users ON conversations (user_id, updated);
    CREATE TABLE messages (
        conversation TEXT NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
        number INTEGER NOT NULL, body TEXT NOT NULL, PRIMARY KEY (conversation, number)
    ) WITHOUT ROWID
    """,
)
CHANGING = ("strategy", "state", "draws", "ids", "heard", "ended", "frame")


class ConversationNotFound(ContractError):
    code = "conversation_not_found"


class ConversationExists(ContractError):
    code = "conversation_exists"


class ConversationBusy(ContractError):
    """Somebody else wrote to the conversation in the meantime; their change stays, and this one is not written."""

    code = "conversation_busy"


@dataclass(frozen=True, slots=True)
class ConversationContext:
    """A conversation at one moment; every turn makes a new value.

    `messages` are all messages of all sides. `ids` are the exact tokens the model has read and sampled: those of the
    first `heard` messages, or of their compressed form. `ended` says whether the last answer ended with an end-of-turn
    token, `frame` identifies the chat format of the tokens, and `draws` counts the model's answers: answer n is sampled
    with `seed + n`. `state` belongs to the strategy (`agents/strategies`).
    """

    conversation_id: str
    user_id: str
    strategy: str | None = None
    state: Mapping[str, Any] = field(default_factory=dict)
    messages: tuple[Message, ...] = ()
    seed: int = 0
    draws: int = 0
    ids: tuple[int, ...] = field(default=(), repr=False)
    heard: int = 0
    ended: bool = True
    frame: str = field(default="", repr=False)
    version: int = 0
    created: float = 0.0
    updated: float = 0.0

    @property
    def turns(self) -> int:
        """How often a user has spoken."""
        return sum(message["role"] == "user" for message in self.messages)

    @property
    def unanswered(self) -> tuple[Message, ...]:
        """The messages since the model last spoke."""
        return self.messages[self.heard :]


class ConversationStore:
    """Conversations in the SQLite file at `path`; ":memory:" keeps them as long as the object lives.

    Every write names the version it continues. Of two writers on one version the first wins; the other gets
    `ConversationBusy`, and nothing of its change is written.
    """

    def __init__(self, path: str | Path = ":memory:") -> None:
        self.database = Database(path, "conversations", MARK, STEPS)

    def create(self, context: ConversationContext) -> ConversationContext:
        """Store a new conversation as version 1."""
        now = time.time()
        new = replace(context, version=1, created=now, updated=now)
        try:
            with self.database.transaction() as link:
                row = {**_changing(new), "id": new.conversation_id, "user_id": new.user_id, "seed": new.seed}
                row |= {"version": 1, "created": now, "updated": now}
                places = ", ".join(f":{name}" for name in row)
                link.execute(f"INSERT INTO conversations ({', '.join(row)}) VALUES ({places})", row)
                _append(link, new, 0)
        except sqlite3.IntegrityError:
            message = f"conversation {new.conversation_id!r} already exists"
            raise ConversationExists(message, hint="Continue it, or choose another id.") from None
        return new

    def load(self, conversation_id: str) -> ConversationContext:
        """Return the conversation as it was last stored."""
        query = "SELECT body FROM messages WHERE conversation = ? ORDER BY number"
        with self.database.transaction(write=False) as link:
            found = link.execute("SELECT * FROM conversations WHERE id = ?", (conversation_id,)).fetchone()
            bodies = link.execute(query, (conversation_id,)).fetchall()
        if found is None:
            message = f"there is no conversation {conversation_id!r}"
            raise ConversationNotFound(message, hint="start_conversation creates one and returns its id.")
        row = dict(found)
        row["conversation_id"] = row.pop("id")
        row["state"] = json.loads(row["state"])
        row["ids"] = tuple(np.frombuffer(row["ids"], "<i4").tolist())
        row["ended"] = bool(row["ended"])
        return ConversationContext(**row, messages=tuple(json.loads(body["body"]) for body in bodies))

    def save(self, context: ConversationContext) -> ConversationContext:
        """Store what is new since `context.version`, as the next version."""
        now = time.time()
        new = replace(context, version=context.version + 1, updated=now)
        row = {**_changing(new), "version": new.version, "updated": now}
        with self.database.transaction() as link:
            # Nothing is updated if another writer has raised the version since.
            changed = link.execute(
                f"UPDATE conversations SET {', '.join(f'{name} = :{name}' for name in row)} "
                "WHERE id = :id AND version = :before",
                {**row, "id": context.conversation_id, "before": context.version},
            ).rowcount
            if changed:
                known = link.execute("SELECT count(*) FROM messages WHERE conversation = ?", (new.conversation_id,))
                _append(link, new, known.fetchone()[0])
        if not changed:
            raise self._conflict(context)
        return new

    def rewrite(self, context: ConversationContext) -> ConversationContext:
        """Store a conversation whose earlier messages have changed, as the next version, and overwrite those."""
        with self.database.transaction() as link:
            known = link.execute(
                "SELECT version FROM conversations WHERE id = ?", (context.conversation_id,)
            ).fetchone()
            if known is not None and known[0] == context.version:
                link.execute("DELETE FROM messages WHERE conversation = ?", (context.conversation_id,))
                _append(link, context, 0)
        new = self.save(context)
        self.database.scrub()
        return new

    def delete(self, conversation_id: str) -> bool:
        """Delete a conversation and overwrite it in the file; return False if it does not exist."""
        with self.database.transaction() as link:
            deleted = link.execute("DELETE FROM conversations WHERE id = ?", (conversation_id,)).rowcount > 0
        self.database.scrub()
        return deleted

    def of_user(self, user_id: str) -> list[str]:
        """Return the ids of a user's conversations, newest first."""
        query = "SELECT id FROM conversations WHERE user_id = ? ORDER BY updated DESC, rowid DESC"
        with self.database.transaction(write=False) as link:
            return [row[0] for row in link.execute(query, (user_id,)).fetchall()]

    def close(self) -> None:
        self.database.close()

    def _conflict(self, context: ConversationContext) -> ContractError:
        now = self.load(context.conversation_id)  # raises ConversationNotFound if it was deleted
        return ConversationBusy(
            f"conversation {context.conversation_id!r} was changed in the meantime: this change continues version "
            f"{context.version}, but the stored one is {now.version}",
            hint="Their change was kept and this one was not stored; load the conversation again and repeat it.",
        )


def _changing(context: ConversationContext) -> dict[str, Any]:
    row = {name: getattr(context, name) for name in CHANGING}
    row["state"] = json.dumps(row["state"])
    # Little-endian on every machine, so that files can be moved.
    row["ids"] = np.array(context.ids, "<i4").tobytes()
    row["ended"] = int(context.ended)
    return row


def _append(link: sqlite3.Connection, context: ConversationContext, known: int) -> None:
    """Insert the new messages; stored ones never change."""
    new = enumerate(context.messages[known:], start=known)
    rows = [(context.conversation_id, number, json.dumps(dict(message))) for number, message in new]
    link.executemany("INSERT INTO messages (conversation, number, body) VALUES (?, ?, ?)", rows)
