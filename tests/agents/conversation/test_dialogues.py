"""The dialogue database finds what is near, by words and by meaning."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from groupwise.agents.conversation.dialogues import (
    ASKED_BACK,
    MARK,
    STEPS,
    TIMES,
    UNHEARD,
    DialogueDatabase,
    sentence_embedder,
)
from groupwise.errors import ConfigError, ContractError, GroupwiseError, MissingExtra
from groupwise.sqlite import Database
from groupwise.types import Message

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))
from context_cases import PARAPHRASES


def talk(asked: str, answered: str = "") -> list[Message]:
    return [{"role": "user", "content": asked}, {"role": "assistant", "content": answered}]


def test_scores_are_those_worked_out_by_hand() -> None:
    """Three dialogues; the query's terms are red (in two) and pen (in one)."""
    database = DialogueDatabase()
    first, second, third = (database.add(talk(text)) for text in ("red pen", "blue ink", "red ink paper"))
    red, pen = (math.log(1 + (3 - n + 0.5) / (n + 0.5)) for n in (2, 1))
    unasked = UNHEARD * math.log(1 + (3 + 0.5) / 0.5)  # a word of the dialogue that the query does not have
    rest = 1 - ASKED_BACK - TIMES
    by_hand = {
        first: rest + ASKED_BACK + TIMES * 2 / 2,
        third: red / (red + pen) * (rest + ASKED_BACK * red / (red + 2 * unasked) + TIMES * 1 / 3),
    }
    database.floor = 0.0
    found = database.search("Red PEN, red?")
    assert [dialogue.id for dialogue in found] == [first, third]
    assert {d.id: d.score for d in found} == pytest.approx(by_hand)
    assert second not in by_hand


def test_forms_and_synonyms_of_a_word_are_found() -> None:
    database = DialogueDatabase()
    parcel = database.add(talk("My parcel is late"))
    database.add(talk("How do I cancel my membership?"))
    for asked in ("Two parcels were delayed", "Where is my package?", "my parsel is late"):
        assert database.search(asked)[0].id == parcel, asked


def test_paraphrases_are_found_first_more_often_than_not() -> None:
    database = DialogueDatabase()
    numbers = {question: database.add(talk(question, "Let me see.")) for question, _ in PARAPHRASES}
    first = [database.search(asked, 1) for _, asked in PARAPHRASES]
    right = sum(bool(found) and found[0].id == n for found, n in zip(first, numbers.values(), strict=True))
    assert right >= 0.6 * len(PARAPHRASES)


def test_below_the_floor_nothing_is_found() -> None:
    database = DialogueDatabase()
    database.add(talk("What is the number of my card?", "It is 4111 1111."))
    assert database.search("What is the weather like today?") == []
    assert len(DialogueDatabase(embed=letters, floor=0.5).search("anything")) == 0
    by_meaning = DialogueDatabase(embed=letters, floor=0.9)
    by_meaning.add(talk("zzzz"))
    assert by_meaning.search("aaaa") == []


@pytest.mark.parametrize("meaning", [False, True])
def test_a_user_finds_what_is_shared_and_their_own_and_nothing_of_others(meaning: bool) -> None:
    database = DialogueDatabase(embed=letters if meaning else None)
    shared = database.add(talk("where is my parcel"))
    own = {user: database.add(talk(f"where is my parcel {user}"), user=user) for user in ("ann", "bob")}
    for user, wanted in (("ann", {shared, own["ann"]}), ("bob", {shared, own["bob"]}), (None, {shared})):
        assert {dialogue.id for dialogue in database.search("where is my parcel", 9, user=user)} == wanted
    assert database.forget("ann") == 1
    assert {dialogue.id for dialogue in database.search("where is my parcel", 9, user="ann")} == {shared}


def test_what_is_deleted_leaves_no_bytes_in_the_file(tmp_path: Path) -> None:
    database = DialogueDatabase(tmp_path / "talks.db")
    secret = database.add(talk("My card number is quetzalcoatl"), user="ann-7731")
    for n in range(50):
        database.add(talk(f"question number {n}"))
    assert database.delete(secret)
    files = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"quetzal" not in files
    assert b"ann-7731" not in files
    assert database.search("question number 7", 1)[0].messages[0]["content"] == "question number 7"


def test_a_file_of_the_first_version_is_upgraded_and_searched(tmp_path: Path) -> None:
    old = Database(tmp_path / "old.db", "dialogues", MARK, STEPS[:1])
    with old.transaction() as link:
        link.execute("INSERT INTO dialogues (messages, length) VALUES (?, 4)", (json.dumps(talk("My parcel is late")),))
        link.execute("INSERT INTO words VALUES ('parcel', 1, 1)")
    old.close()
    for _ in range(2):
        database = DialogueDatabase(tmp_path / "old.db")
        assert [dialogue.id for dialogue in database.search("a late parcel", user="ann")] == [1]
        database.close()


def test_another_embedding_of_the_same_width_is_noticed_in_one_sentence(tmp_path: Path) -> None:
    first = DialogueDatabase(tmp_path / "talks.db", embed=letters)
    first.add(talk("abc"))
    first.search("abc")
    first.close()
    other = DialogueDatabase(tmp_path / "talks.db", embed=lambda texts: letters(texts)[:, ::-1] + 1)
    with pytest.raises(ConfigError, match="were made by another embedding function than `embed`"):
        other.search("abc")


def test_what_is_added_is_found_until_it_is_deleted_and_outlives_the_process(tmp_path: Path) -> None:
    database = DialogueDatabase(tmp_path / "talks.db")
    refund = database.add(talk("How do I get a refund?", "Send it back within 30 days."))
    other = database.add(talk("What are your opening hours?", "Nine to five."))
    (found,) = DialogueDatabase(tmp_path / "talks.db").search("I want a refund", 1)
    assert (found.id, found.messages) == (refund, tuple(talk("How do I get a refund?", "Send it back within 30 days.")))
    assert database.delete(refund)
    assert not database.delete(refund)
    assert database.search("refund") == []
    assert len(database) == 1
    assert database.add(talk("refund")) not in (refund, other), "a number is never given twice"


def test_a_search_without_words_or_dialogues_finds_nothing() -> None:
    database = DialogueDatabase()
    assert database.search("anything") == []
    database.add(talk(""))
    assert database.search("?! ...") == []
    assert database.search("'; DROP TABLE words; --") == []


def letters(texts: Sequence[str]) -> np.ndarray:
    """How often each letter is in a text: a vector that anybody can check."""
    return np.array([[text.lower().count(chr(97 + n)) for n in range(26)] for text in texts], float)


@pytest.mark.parametrize("embed", [None, letters])
def test_of_dialogues_that_are_equally_near_the_first_ones_stored_are_found(embed: Any) -> None:
    database = DialogueDatabase(embed=embed)
    equal = [database.add(talk("ab" if embed else "ab cd")) for _ in range(4)]
    near = database.add(talk("abb" if embed else "ab"))
    query = "ab" if embed is None else "abb"
    for count in range(1, 6):
        assert [dialogue.id for dialogue in database.search(query, count)] == [near, *equal][:count]


def test_with_vectors_it_goes_by_meaning(tmp_path: Path) -> None:
    plain = DialogueDatabase(tmp_path / "talks.db")
    numbers = [plain.add(talk(text)) for text in ("aab", "zzz", "ab")]
    database = DialogueDatabase(tmp_path / "talks.db", embed=letters)
    added = database.add(talk("abb"))
    found = database.search("bba", 3)
    assert [dialogue.id for dialogue in found] == [added, numbers[2], numbers[0]]
    assert found[0].score == pytest.approx(1.0)
    assert found[1].score == pytest.approx(3 / math.sqrt(10))
    with pytest.raises(ConfigError, match="have 26 numbers, but those of `embed` 2"):
        DialogueDatabase(tmp_path / "talks.db", embed=lambda texts: np.ones((len(texts), 2))).search("x")
    with pytest.raises(ContractError, match=r"returned an array of shape \(3,\) for 1 texts"):
        DialogueDatabase(embed=lambda texts: np.ones(3)).add(talk("x"))


def test_without_sentence_transformers_it_says_how_to_get_them() -> None:
    try:
        import sentence_transformers  # noqa: F401
    except ImportError:
        with pytest.raises(MissingExtra, match="pip install sentence-transformers"):
            sentence_embedder()


def test_a_file_of_lines_is_imported_whole_or_not_at_all(tmp_path: Path) -> None:
    file, database = tmp_path / "talks.jsonl", DialogueDatabase()
    sound = '[{"role": "user", "content": "one"}]\n\n{"messages": [{"role": "user", "content": "two"}]}\n'
    file.write_text(sound + '{"prompt": "three", "response": "drei"}\n')
    assert database.import_jsonl(file) == 3
    assert [m["content"] for m in database.search("three")[0].messages] == ["three", "drei"]
    for wrong, said in (
        ("{", "line 4: not valid JSON"),
        ('{"text": "x"}', "line 4: KeyError: 'messages'"),
        ("[]", "line 4: a dialogue is a list of at least one message"),
        ('[{"role": "boss", "content": "x"}]', "line 4: a message of the dialogue is {'role': 'boss'"),
        ('[{"role": "user", "content": 3}]', "line 4: a message"),
    ):
        file.write_text(sound + wrong)
        with pytest.raises(GroupwiseError, match=said):
            database.import_jsonl(file)
    assert len(database) == 3
