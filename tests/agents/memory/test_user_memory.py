"""Facts stay with their user, the newer one holds, and what is forgotten is gone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from groupwise.agents.memory.facts import Fact
from groupwise.agents.memory.redaction import FORGOTTEN, redacted
from groupwise.agents.memory.user_memory import UserMemory
from groupwise.errors import ContractError


def texts(memory: UserMemory, user: str, question: str) -> list[str]:
    return [one.text for one in memory.recall(user, question)]


def test_the_newer_fact_holds_and_the_same_one_is_kept_once() -> None:
    memory = UserMemory()
    for said in ("My sister's name is Ada.", "My sister's name is Ada.", "Actually, my sister's name is Ava."):
        memory.hear("u1", said)
    assert [fact.value for fact in memory.facts("u1")] == ["Ava"]
    assert texts(memory, "u1", "What is my sister called?") == ["my sister's name is Ava."]


def test_two_users_with_one_name_are_two_users() -> None:
    memory = UserMemory()
    for user, city in (("id-1", "Porto"), ("id-2", "Ghent")):
        memory.hear(user, f"My name is Anna. I live in {city}.")
    for user, city, other in (("id-1", "Porto", "Ghent"), ("id-2", "Ghent", "Porto")):
        found = " ".join(texts(memory, user, "Where do I, Anna, live?"))
        assert city in found
        assert other not in found
    assert memory.recall("Anna", "Where do I live?") == ()


def test_below_the_floor_nothing_is_recalled() -> None:
    memory = UserMemory()
    memory.hear("u1", "My card number is 4111 1111. I'm allergic to peanuts.")
    assert memory.recall("u1", "How tall is Mount Everest?") == ()
    assert texts(memory, "u1", "What is my card number?") == ["My card number is 4111 1111."]
    assert texts(memory, "u1", "What should I cook for dinner?") == ["I'm allergic to peanuts."]


def test_facts_that_helped_come_first() -> None:
    memory = UserMemory()
    memory.hear("u1", "My cat is called Minka. My dog is called Rex.")
    cat, dog = sorted(memory.recall("u1", "What is my pet's name?"), key=lambda one: one.text)
    for _ in range(20):
        memory.report("u1", [cat], helped=False)
        memory.report("u1", [dog], helped=True)
    assert [one.kept.id for one in memory.recall("u1", "What is my pet's name?")] == [dog.kept.id, cat.kept.id]
    assert memory.recall("u1", "What is my pet's name?")[0].kept.success_rate == 21 / 22


def test_what_is_forgotten_is_gone_from_the_file_and_its_past(tmp_path: Path) -> None:
    memory = UserMemory(tmp_path / "users.sqlite")
    with memory.generation(1):
        memory.hear("user-17", "I live at 12 Quetzal Street.")
        memory.hear("user-17", "My name is Annabel.")
    with memory.generation(2):
        memory.hear("user-17", "I moved. I live at 9 Zebrafinch Road.")
        memory.hear("other", "I live at 3 Mill Lane.")
    heard = memory.hear("user-17", "Please forget my address.")
    assert [fact.value for fact in heard.forgotten] == ["9 Zebrafinch Road"]
    assert [fact.subject for fact in memory.facts("user-17")] == ["name"]
    assert memory.forget("user-17") == [Fact("name", "Annabel", "My name is Annabel.")]
    memory.store.rewind(1)
    assert memory.facts("user-17") == []
    files = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    for secret in (b"Quetzal", b"Zebrafinch", b"Annabel", b"user-17"):
        assert secret not in files
    memory.close()
    assert UserMemory(tmp_path / "users.sqlite").facts("user-17") == []


def test_two_subjects_are_forgotten_by_one_sentence() -> None:
    memory = UserMemory()
    memory.hear("u1", "My phone number is 555 1234. I live in Porto. My cat is called Tom.")
    memory.hear("u1", "Please forget my phone number and my cat.")
    assert [fact.text for fact in memory.facts("u1")] == ["I live in Porto."]


@pytest.mark.parametrize("user", ["", "  ", None, 7])
def test_who_has_no_id_shares_no_memory_with_others_who_have_none(user: Any) -> None:
    memory = UserMemory()
    with pytest.raises(ContractError, match="a user is known by a text that is not empty"):
        memory.hear(user, "My cat is called Tom.")
    with pytest.raises(ContractError, match="a user is known by a text that is not empty"):
        memory.recall(user, "What is my cat called?")


def test_a_rewind_brings_back_what_was_known_then(tmp_path: Path) -> None:
    with UserMemory(tmp_path / "users.sqlite") as memory:
        with memory.generation(1):
            memory.hear("u1", "My desk is number 12.")
        with memory.generation(2):
            memory.hear("u1", "My desk is number 14.")
        memory.store.rewind(1)
        assert [fact.value for fact in memory.facts("u1")] == ["number 12"]


def test_an_embedding_finds_what_words_do_not() -> None:
    def embed(sentences: list[str]) -> np.ndarray:
        return np.array([[1.0, "fur" in s or "hamster" in s] for s in sentences])

    memory = UserMemory(embed=embed, floor=0.9)
    memory.hear("u1", "My hamster is called Pip.")
    assert texts(memory, "u1", "Who has fur?") == ["My hamster is called Pip."]
    broken = UserMemory(embed=lambda sentences: np.ones(3))
    broken.hear("u1", "My hamster is called Pip.")
    with pytest.raises(ContractError, match=r"`embed` returned an array of shape \(3,\) for 2 texts"):
        broken.recall("u1", "Who?")


def test_messages_lose_the_sentences_that_mention_a_forgotten_fact() -> None:
    fact = Fact("address", "12 Elm Street", "I live at 12 Elm Street.")
    call = {"id": "c1", "type": "function", "function": {"name": "send", "arguments": {"to": "12 Elm Street", "n": 2}}}
    message = {"role": "assistant", "content": "Noted. I send it to 12 Elm Street. Bye!", "tool_calls": [call]}
    clean = redacted(message, [fact])
    assert clean["content"] == f"Noted. {FORGOTTEN} Bye!"
    assert clean["tool_calls"][0]["function"] == {"name": "send", "arguments": {"to": FORGOTTEN, "n": 2}}
    assert redacted({"role": "user", "content": "Hi there."}, [fact])["content"] == "Hi there."
