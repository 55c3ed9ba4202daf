"""The dialogue database finds what is near, by words and by meaning."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from groupwise.agents.conversation.dialogues import DialogueDatabase, bm25, sentence_embedder
from groupwise.errors import ConfigError, ContractError, GroupwiseError, MissingExtra
from groupwise.types import Message


def talk(asked: str, answered: str = "") -> list[Message]:
    return [{"role": "user", "content": asked}, {"role": "assistant", "content": answered}]


def test_scores_are_those_worked_out_by_hand() -> None:
    """Three dialogues of 3, 2 and 4 words, mean 3; the query's words are red (in two) and pen (in one)."""
    database = DialogueDatabase()
    first, second, third = (database.add(talk(text)) for text in ("red pen red", "blue ink", "red ink and paper"))
    red, pen = math.log(1 + 1.5 / 2.5), math.log(1 + 2.5 / 1.5)
    by_hand = {
        first: red * 2 * 2.2 / (2 + 1.2) + pen * 1 * 2.2 / (1 + 1.2),
        third: red * 1 * 2.2 / (1 + 1.2 * (0.25 + 0.75 * 4 / 3)),
    }
    found = database.search("Red PEN, red?")
    assert [dialogue.id for dialogue in found] == [first, third]
    assert {d.id: d.score for d in found} == pytest.approx(by_hand)
    assert found[0].score == pytest.approx(1.627084, abs=1e-6)
    assert found[1].score == pytest.approx(0.413603, abs=1e-6)
    assert second not in by_hand


def test_rare_words_and_short_dialogues_count_more() -> None:
    assert bm25(1, 10, 1, 100, 10) > bm25(1, 10, 50, 100, 10) > bm25(1, 10, 100, 100, 10) > 0
    assert bm25(1, 5, 1, 100, 10) > bm25(1, 20, 1, 100, 10)
    assert bm25(1, 10, 1, 100, 10) < bm25(2, 10, 1, 100, 10) < 2 * bm25(1, 10, 1, 100, 10)


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
    equal = [database.add(talk("ab")) for _ in range(4)]
    near = database.add(talk("ab ab ab" if embed is None else "abb"))
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
