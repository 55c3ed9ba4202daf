"""Conversations that outlive the process: one SQLite file, every turn in two whole steps.

What a user says is written before it is answered, the answer once it is made. Whoever kills the process in between
finds the question there, and nothing of half an answer.
"""

from __future__ import annotations

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

MARK = 0x47574331
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
    """Somebody else wrote to the conversation meanwhile; theirs stays, and nothing of this is written."""

    code = "conversation_busy"


@dataclass(frozen=True, slots=True)
class ConversationContext:
    """A conversation as it stands: a value, new after every turn.

    `messages` is all that was said, by anyone. `ids` are the tokens the model has read and sampled, as they were: those
    of the first `heard` messages, or of what compression made of them. `ended` says whether the last answer ended with
    its own token, `frame` which chat format the tokens are in, `draws` how often the model has spoken: answer n is
    sampled with `seed + n`. `state` is the strategy's (`agents.strategies`).
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
        """What was said since the model last spoke."""
        return self.messages[self.heard :]


class ConversationStore:
    """Conversations in the SQLite file at `path`; ":memory:" keeps them as long as the object lives.

    Every write says which version it goes on from. Of two writers on one version the first wins; the other is told
    (`ConversationBusy`), and nothing of it is written.
    """

    def __init__(self, path: str | Path = ":memory:") -> None:
        self.database = Database(path, "conversations", MARK, STEPS)

    def create(self, context: ConversationContext) -> ConversationContext:
        """Write a new conversation down; it is at version 1 then."""
        now = time.time()
        new = replace(context, version=1, created=now, updated=now)
        try:
            with self.database.transaction() as link:
                row = {**_changing(new), "id": new.conversation_id, "user_id": new.user_id, "seed": new.seed}
                row |= {"version": 1, "created": now, "updated": now}
                link.execute(
                    f"INSERT INTO conversations ({', '.join(row)}) VALUES ({', '.join(':' + name for name in row)})",
                    row,
                )
                _append(link, new, 0)
        except sqlite3.IntegrityError:
            raise ConversationExists(
                f"there is a conversation {new.conversation_id!r} already", hint="Go on with it, or take another id."
            ) from None
        return new

    def load(self, conversation_id: str) -> ConversationContext:
        """The conversation as it was last written."""
        with self.database.transaction(write=False) as link:
            found = link.execute("SELECT * FROM conversations WHERE id = ?", (conversation_id,)).fetchone()
            bodies = link.execute(
                "SELECT body FROM messages WHERE conversation = ? ORDER BY number", (conversation_id,)
            ).fetchall()
        if found is None:
            raise ConversationNotFound(
                f"there is no conversation {conversation_id!r}",
                hint="start_conversation begins one; its context has the id.",
            )
        row = dict(found)
        row["conversation_id"] = row.pop("id")
        row["state"] = json.loads(row["state"])
        row["ids"] = tuple(np.frombuffer(row["ids"], "<i4").tolist())
        row["ended"] = bool(row["ended"])
        return ConversationContext(**row, messages=tuple(json.loads(body["body"]) for body in bodies))

    def save(self, context: ConversationContext) -> ConversationContext:
        """Write down what is new since `context.version`; it is at the next one then."""
        now = time.time()
        new = replace(context, version=context.version + 1, updated=now)
        row = {**_changing(new), "version": new.version, "updated": now}
        with self.database.transaction() as link:
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

    def delete(self, conversation_id: str) -> bool:
        """Forget a conversation; False if there is none of that name."""
        with self.database.transaction() as link:
            return link.execute("DELETE FROM conversations WHERE id = ?", (conversation_id,)).rowcount > 0

    def of_user(self, user_id: str) -> list[str]:
        """The ids of a user's conversations, the newest first."""
        with self.database.transaction(write=False) as link:
            rows = link.execute(
                "SELECT id FROM conversations WHERE user_id = ? ORDER BY updated DESC, rowid DESC", (user_id,)
            )
            return [row[0] for row in rows.fetchall()]

    def close(self) -> None:
        self.database.close()

    def _conflict(self, context: ConversationContext) -> ContractError:
        now = self.load(context.conversation_id)  # if it is gone, this says so
        return ConversationBusy(
            f"conversation {context.conversation_id!r} was changed by somebody else meanwhile: this goes on from "
            f"version {context.version}, and it is at {now.version}",
            hint="Nothing of theirs is lost and nothing of this was written; load it and say it again.",
        )


def _changing(context: ConversationContext) -> dict[str, Any]:
    row = {name: getattr(context, name) for name in CHANGING}
    row["state"] = json.dumps(row["state"])
    row["ids"] = np.array(context.ids, "<i4").tobytes()
    row["ended"] = int(context.ended)
    return row


def _append(link: sqlite3.Connection, context: ConversationContext, known: int) -> None:
    """Messages are only ever added."""
    new = enumerate(context.messages[known:], start=known)
    rows = [(context.conversation_id, number, json.dumps(dict(message))) for number, message in new]
    link.executemany("INSERT INTO messages (conversation, number, body) VALUES (?, ?, ?)", rows)
