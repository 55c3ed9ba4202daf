"""Keys: who has which scope, what they own, and which texts are worth something."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import select

from groupwise.errors import ConfigError
from groupwise.service.keys import LOCAL, OPERATOR, SCOPES, Forbidden, Keys, Unauthorised, Who, insist
from groupwise.service.tables import KEYS, Tables


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[Tables]:
    made = Tables(f"sqlite:///{tmp_path / 'keys.sqlite'}")
    yield made
    made.close()


def read(tables: Tables, local: bool = True, token: str = "") -> Keys:
    keys = Keys(tables, local, token)
    keys.refresh()
    return keys


def test_each_scope_includes_those_before_it() -> None:
    allowed = {"read": ["read"], "train": ["read", "train"], "admin": ["read", "train", "admin"]}
    for scope in SCOPES:
        who = Who("id", "name", scope, "id")
        assert [other for other in SCOPES if who.may(other)] == allowed[scope]
        for other in SCOPES:
            if who.may(other):
                insist(who, other)
                continue
            with pytest.raises(Forbidden, match=f"needs scope '{other}', but key 'name' has scope '{scope}'") as told:
                insist(who, other)
            assert told.value.hint == "Use a key with that scope."
    with pytest.raises(Forbidden, match="a request without the service's token has scope 'train'") as told:
        insist(LOCAL, "admin")
    assert "address that the service printed" in told.value.hint
    insist(OPERATOR, "admin")


def test_a_key_owns_its_own_and_an_administrator_everything() -> None:
    ann, watcher, admin = Who("a", "a", "train", "a"), Who("w", "w", "read", "a"), Who("x", "x", "admin", "x")
    assert [ann.owns(owner) for owner in ("a", "w", "", None)] == [True, False, False, False]
    assert [watcher.owns(owner) for owner in ("a", "w", None)] == [True, False, False]
    assert [admin.owns(owner) for owner in ("a", "x", None)] == [True, True, True]
    assert ann.view == watcher.view == "a"
    assert admin.view == OPERATOR.view == ""
    assert LOCAL.view != ""


@pytest.mark.parametrize("name", ["", " ", "x" * 81, "a\nb", "a\tb", "\x00"])
def test_a_name_is_one_line(tables: Tables, name: str) -> None:
    with pytest.raises(ConfigError, match="must be a single line of 1 to 80 characters") as refused:
        Keys(tables).add(name, "read")
    assert refused.value.field == "name"
    assert Keys(tables).all() == []


def test_a_key_has_a_scope_there_is_and_an_owner_there_is(tables: Tables) -> None:
    keys = Keys(tables)
    with pytest.raises(ConfigError, match="scope = 'root' is not a scope") as refused:
        keys.add("a", "root")
    assert refused.value.hint == "One of read, train, admin."
    with pytest.raises(ConfigError, match="there is no key 'nobody'") as refused:
        keys.add("a", "read", "nobody")
    assert refused.value.field == "owner"
    assert keys.all() == []
    _, ann = keys.add("x" * 80, "train")
    text, watcher = keys.add("watcher", "read", ann.id)
    for wrong in ("nobody", "", "x" * 80, ann.id.upper() + "x"):
        with pytest.raises(ConfigError, match="there is no key"):
            keys.add("a", "read", wrong)
    assert (ann.owner, watcher.owner) == (ann.id, ann.id)
    keys.refresh()
    assert keys.who(text) == Who(watcher.id, "watcher", "read", ann.id)


def test_keys_differ_and_are_listed_as_they_were_made(tables: Tables) -> None:
    keys = Keys(tables)
    made = [keys.add(f"key-{n}", SCOPES[n % 3]) for n in range(6)]
    assert keys.all() == [key for _, key in made]
    texts = [text for text, _ in made]
    assert len({*texts, *(key.id for _, key in made)}) == 12
    assert all(text.startswith("gw_") and len(text) == 46 for text in texts)  # 256 bits in base 64
    with tables.reading() as link:
        stored = [row.hash for row in link.execute(select(KEYS).order_by(KEYS.c.created))]
    assert stored == [hashlib.sha256(text.encode()).hexdigest() for text in texts]


def test_revoking_one_key_leaves_the_others_and_keeps_its_first_date(tables: Tables) -> None:
    keys = Keys(tables)
    (first, one), (second, other) = keys.add("one", "read"), keys.add("other", "train")
    revoked = keys.revoke(one.id)
    assert revoked.id == one.id
    assert revoked.revoked is not None
    assert revoked.revoked >= one.created
    assert keys.revoke(one.id) == revoked
    assert keys.all() == [revoked, other]
    keys.refresh()
    assert keys.who(second).id == other.id
    with pytest.raises(Unauthorised, match="unknown key"):
        keys.who(first)


def test_no_key_is_needed_on_this_machine_until_the_first_was_made_even_if_it_was_revoked(tables: Tables) -> None:
    assert not read(tables, local=True).required
    assert read(tables, local=False).required
    _, key = Keys(tables).add("one", "read")
    assert read(tables, local=True).required
    Keys(tables).revoke(key.id)
    assert read(tables, local=True).required


def test_without_keys_the_token_makes_the_operator_and_nothing_else_does(tables: Tables) -> None:
    keys = read(tables, token="secret")
    for text in (None, "", "secre", "secrets", "SECRET", " secret", "sécret", "\ud800"):
        assert keys.who(text) == LOCAL, text
    assert keys.who("secret") == OPERATOR
    unset = read(tables)
    assert [unset.who(text) for text in (None, "", "x")] == [LOCAL] * 3
    others = read(tables, local=False, token="secret")
    for text in (None, "", "secret"):
        with pytest.raises(Unauthorised):
            others.who(text)


def test_what_is_missing_and_what_is_wrong_are_told_apart(tables: Tables) -> None:
    text, _ = Keys(tables).add("one", "read")
    keys = read(tables, token="secret")
    with pytest.raises(Unauthorised, match="an API key is required"):
        keys.who(None)
    for wrong in (
        "",
        "secret",
        text[:-1],
        text + "x",
        text.upper(),
        hashlib.sha256(text.encode()).hexdigest(),
        "\ud800",
    ):
        with pytest.raises(Unauthorised, match="unknown key"):
            keys.who(wrong)
    assert keys.who(text).name == "one"


def test_keys_are_read_again_once_they_are_a_second_old(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.5]  # a machine that has just started
    monkeypatch.setattr("groupwise.service.keys.time.monotonic", lambda: now[0])
    keys = Keys(tables)
    assert keys.is_stale
    keys.refresh()
    stale = []
    for now[0] in (0.5, 1.5, 1.6):
        stale.append(keys.is_stale)
    assert stale == [False, False, True]


def test_while_the_database_is_down_known_keys_go_on_working(tables: Tables, tmp_path: Path) -> None:
    text, _ = Keys(tables).add("one", "read")
    keys = read(tables)
    (tmp_path / "keys.sqlite").rename(tmp_path / "away")
    keys.refresh()
    assert keys.who(text).name == "one"
    assert not keys.is_stale
    (tmp_path / "away").rename(tmp_path / "keys.sqlite")
