"""Conversations on disk: whole or not there, and of two writers one is told."""

from __future__ import annotations

import sqlite3
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from groupwise.agents.conversation.store import (
    ConversationBusy,
    ConversationContext,
    ConversationExists,
    ConversationNotFound,
    ConversationStore,
)
from groupwise.errors import ConfigError, StorageError
from groupwise.types import Message

HELLO: Message = {"role": "user", "content": "hello ☃ \udcff"}
CALL: Message = {
    "role": "assistant", "content": "",
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": {"order": 4711}}}],
}  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> ConversationStore:
    return ConversationStore(tmp_path / "talks.db")


def said(context: ConversationContext, *messages: Message) -> ConversationContext:
    return replace(context, messages=(*context.messages, *messages))


def test_a_conversation_comes_back_as_it_was_from_another_process(store: ConversationStore, tmp_path: Path) -> None:
    begun = store.create(ConversationContext("a", "ann", "sales", {"stage": "needs"}, (HELLO,), seed=2**55))
    saved = store.save(replace(said(begun, CALL), ids=(1, 70_000, 3), heard=2, ended=False, draws=1, frame="f"))
    assert saved.version == 2
    again = ConversationStore(tmp_path / "talks.db").load("a")
    assert again == saved
    assert again.unanswered == ()
    assert again.turns == 1


def test_of_two_writers_the_first_wins_and_the_other_is_told(store: ConversationStore) -> None:
    begun = store.create(ConversationContext("a", "ann"))
    store.save(said(begun, {"role": "user", "content": "mine"}))
    with pytest.raises(ConversationBusy, match="continues version 1, but the stored one is 2"):
        store.save(said(begun, {"role": "user", "content": "theirs"}))
    assert [m["content"] for m in store.load("a").messages] == ["mine"]


def test_many_writers_lose_nothing_that_was_accepted(tmp_path: Path) -> None:
    """Every writer in a connection of its own, as processes have; each tries until it is let in."""
    ConversationStore(tmp_path / "talks.db").create(ConversationContext("a", "ann"))
    conflicts = []

    def write(number: int) -> None:
        own = ConversationStore(tmp_path / "talks.db")
        for turn in range(5):
            while True:
                try:
                    own.save(said(own.load("a"), {"role": "user", "content": f"{number}/{turn}"}))
                    break
                except ConversationBusy as error:
                    conflicts.append(error)
        own.close()

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept = ConversationStore(tmp_path / "talks.db").load("a")
    assert sorted(m["content"] for m in kept.messages) == sorted(f"{n}/{t}" for n in range(4) for t in range(5))
    assert kept.version == 21


def test_conversations_are_found_by_user_and_forgotten(store: ConversationStore) -> None:
    for name, user in (("a", "ann"), ("b", "bob"), ("c", "ann")):
        store.create(ConversationContext(name, user, messages=(HELLO,)))
    store.save(store.load("a"))
    assert store.of_user("ann") == ["a", "c"]
    assert store.delete("a")
    assert not store.delete("a")
    with pytest.raises(ConversationNotFound, match="no conversation 'a'"):
        store.load("a")
    store.create(ConversationContext("a", "ann"))
    assert store.load("a").messages == (), "nothing of the old one is left"


def test_a_conversation_that_was_deleted_meanwhile_is_not_there(store: ConversationStore) -> None:
    begun = store.create(ConversationContext("a", "ann"))
    store.delete("a")
    with pytest.raises(ConversationNotFound):
        store.save(begun)


def test_an_id_that_is_taken_is_refused_and_the_first_stays(store: ConversationStore) -> None:
    store.create(ConversationContext("a", "ann", messages=(HELLO,)))
    with pytest.raises(ConversationExists, match="'a' already"):
        store.create(ConversationContext("a", "bob"))
    assert store.load("a").user_id == "ann"


def test_a_file_of_another_kind_is_not_touched(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("not a database, but long enough to be looked at " * 40)
    with pytest.raises(ConfigError, match="is not a valid SQLite file"):
        ConversationStore(text)
    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("CREATE TABLE things (x)")
    other.close()
    with pytest.raises(ConfigError, match="is an SQLite file, but not with conversations"):
        ConversationStore(tmp_path / "other.db")
    with pytest.raises(StorageError, match="cannot be used: unable to open"):
        ConversationStore(tmp_path / "nowhere" / "talks.db")


def test_a_file_of_a_newer_version_is_refused(store: ConversationStore, tmp_path: Path) -> None:
    store.close()
    link = sqlite3.connect(tmp_path / "talks.db")
    link.execute("PRAGMA user_version = 7")
    link.close()
    with pytest.raises(ConfigError, match="in version 7, but this Groupwise reads versions up to 1"):
        ConversationStore(tmp_path / "talks.db")


def test_a_transaction_that_fails_writes_nothing(store: ConversationStore) -> None:
    begun = store.create(ConversationContext("a", "ann"))
    with pytest.raises(TypeError):
        store.save(said(begun, HELLO, {"role": "user", "content": object()}))
    assert store.load("a") == begun
    assert store.save(said(begun, HELLO)).messages == (HELLO,)


def test_stored_fields_are_those_that_change_and_the_rest_stays(store: ConversationStore) -> None:
    begun = store.create(ConversationContext("a", "ann", seed=7, version=9, created=1.0, updated=2.0))
    assert (begun.version, begun.created) == (1, begun.updated)
    assert begun.created > 2.0
    changed = replace(
        begun, strategy="sales", state={"n": 1}, draws=3, ids=(2**31 - 1, 0), heard=1, ended=False, frame="f"
    )
    saved = store.save(replace(said(changed, HELLO), user_id="bob", seed=8, created=5.0))
    again = store.load("a")
    assert (again.user_id, again.seed, again.created) == ("ann", 7, begun.created)
    assert again == replace(saved, user_id="ann", seed=7, created=begun.created)
    assert again.updated >= begun.updated
    assert store.save(replace(again, ended=True, strategy=None, ids=())).version == 3
    assert (store.load("a").ended, store.load("a").strategy, store.load("a").ids) == (True, None, ())


def test_turns_count_users_messages_and_unanswered_are_those_since_the_model_spoke() -> None:
    context = ConversationContext("a", "ann", messages=(HELLO, CALL, HELLO, HELLO), heard=2)
    assert context.turns == 3
    assert context.unanswered == (HELLO, HELLO)
    assert ConversationContext("a", "ann").turns == 0


def test_messages_keep_their_order_and_stored_ones_never_change(store: ConversationStore) -> None:
    many = tuple({"role": "user", "content": str(n)} for n in range(12))
    begun = store.create(ConversationContext("a", "ann", messages=many[:3]))
    store.create(ConversationContext("b", "ann", messages=many[:1]))
    saved = store.save(replace(begun, messages=({"role": "user", "content": "other"}, *many[1:])))
    assert store.load("a").messages == many
    store.save(replace(saved, messages=(*many, HELLO)))
    assert store.load("a").messages == (*many, HELLO)
    assert store.load("b").messages == many[:1]
    assert store.of_user("nobody") == []
