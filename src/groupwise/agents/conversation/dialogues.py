"""A database of dialogues, searched for those nearest to a question: examples for an agent.

Search by words uses BM25 (Robertson and Zaragoza 2009, with Lucene's inverse document frequency, never negative):

    score(query, d) = Σ_t idf(t) · f(t, d) · (k₁ + 1) / (f(t, d) + k₁ · (1 − b + b · |d| / mean |d|))
    idf(t) = ln(1 + (N − n(t) + ½) / (n(t) + ½)),    k₁ = 1.2, b = 0.75

over the distinct words t of the query; f(t, d) counts word t in dialogue d. Search by meaning uses an embedding
function of yours.
"""

import json
import math
import re
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from groupwise.agents.conversation.chat_format import ROLES
from groupwise.errors import ConfigError, ContractError, MissingExtra
from groupwise.readers import data_limits, json_lines
from groupwise.sqlite import Database
from groupwise.types import Message

Embed: TypeAlias = Callable[[Sequence[str]], Any]
"""Vectors [N, D] of N texts."""

K1, B = 1.2, 0.75
WORD = re.compile(r"\w+")
MARK = 0x47574431  # "GWD1", SQLite's application id of such a file
STEPS = (
    """
    CREATE TABLE dialogues (
        id INTEGER PRIMARY KEY AUTOINCREMENT, messages TEXT NOT NULL, length INTEGER NOT NULL, vector BLOB
    );
    CREATE TABLE words (
        word TEXT NOT NULL, dialogue INTEGER NOT NULL REFERENCES dialogues (id) ON DELETE CASCADE,
        times INTEGER NOT NULL, PRIMARY KEY (word, dialogue)
    ) WITHOUT ROWID;
    CREATE INDEX words_of_dialogues ON words (dialogue)
    """,
)


@dataclass(frozen=True, slots=True)
class Dialogue:
    """A search result; a higher score means a nearer dialogue."""

    id: int
    messages: tuple[Message, ...]
    score: float


class DialogueDatabase:
    """Dialogues in the SQLite file at `path`; ":memory:" keeps them as long as the object lives.

    Args:
      path: the file, created if it does not exist.
      embed: texts → vectors [N, D]. With it, `search` uses cosine similarity; without it, BM25.
    """

    def __init__(self, path: str | Path = ":memory:", *, embed: Embed | None = None) -> None:
        self.database, self.embed = Database(path, "dialogues", MARK, STEPS), embed

    def add(self, messages: Sequence[Message]) -> int:
        """Store a dialogue and return its number."""
        return self.add_all([messages])[0]

    def add_all(self, dialogues: Iterable[Sequence[Message]]) -> list[int]:
        """Store dialogues: all of them, or none if one is invalid."""
        checked = [_checked(messages) for messages in dialogues]
        vectors = self._vectors([_text(messages) for messages in checked])
        with self.database.transaction() as link:
            return [_insert(link, messages, vector) for messages, vector in zip(checked, vectors, strict=True)]

    def import_jsonl(self, path: str | Path) -> int:
        """Store every dialogue of a JSON-lines file, or none if one is invalid; return how many there are.

        A line is a list of messages, an object with `messages`, or one with `prompt` and `response`.
        """
        try:
            found = [_read(value, f"{path}, line {number}") for number, value in json_lines(path, data_limits())]
        except ConfigError as error:
            raise ConfigError(f"{path}: {error.message}", hint=error.hint) from None
        return len(self.add_all(found))

    def delete(self, number: int) -> bool:
        """Delete a dialogue; return False if there is none with that number."""
        with self.database.transaction() as link:
            return link.execute("DELETE FROM dialogues WHERE id = ?", (number,)).rowcount > 0

    def __len__(self) -> int:
        with self.database.transaction(write=False) as link:
            return int(link.execute("SELECT count(*) FROM dialogues").fetchone()[0])

    def search(self, query: str, count: int = 3) -> list[Dialogue]:
        """Return the nearest dialogues, nearest first. BM25 only finds those that share a word with the query."""
        scores = self._by_words(query) if self.embed is None else self._by_meaning(query)
        best = sorted(scores.items(), key=lambda item: (-item[1], item[0]))[:count]
        sql = "SELECT messages FROM dialogues WHERE id = ?"
        with self.database.transaction(write=False) as link:
            rows = [link.execute(sql, (number,)).fetchone() for number, _ in best]
        return [Dialogue(n, tuple(json.loads(row[0])), s) for (n, s), row in zip(best, rows, strict=True) if row]

    def close(self) -> None:
        self.database.close()

    def _by_words(self, query: str) -> dict[int, float]:
        scores: dict[int, float] = defaultdict(float)
        sql = "SELECT dialogue, times, length FROM words JOIN dialogues ON id = dialogue WHERE word = ?"
        with self.database.transaction(write=False) as link:
            total, mean = link.execute("SELECT count(*), avg(length) FROM dialogues").fetchone()
            # Sorted, so that sums do not depend on the hash order of a set.
            for word in sorted({*_words(query)}):
                rows = link.execute(sql, (word,)).fetchall()
                for number, times, length in rows:
                    scores[number] += bm25(times, length, len(rows), total, mean)
        return scores

    def _by_meaning(self, query: str) -> dict[int, float]:
        self._fill_in()
        with self.database.transaction(write=False) as link:
            rows = link.execute("SELECT id, vector FROM dialogues").fetchall()
        (wanted,) = self._vectors([query])
        if not rows or wanted is None:
            return {}
        sizes = {len(row[1]) for row in rows}
        # Vectors are stored as float32, four bytes a number.
        if sizes != {len(wanted.tobytes())}:
            raise ConfigError(
                f"vectors in {self.database.path} have {max(sizes) // 4} numbers, but those of `embed` {len(wanted)}",
                hint="Use the function that made them, or import the dialogues into a new file.",
            )
        matrix = np.stack([np.frombuffer(row[1], "<f4") for row in rows])
        return dict(zip((row[0] for row in rows), (matrix @ wanted).tolist(), strict=True))

    def _fill_in(self) -> None:
        """Compute vectors for dialogues that were stored without one."""
        with self.database.transaction(write=False) as link:
            rows = link.execute("SELECT id, messages FROM dialogues WHERE vector IS NULL").fetchall()
        vectors = self._vectors([_text(json.loads(row[1])) for row in rows])
        with self.database.transaction() as link:
            for row, vector in zip(rows, vectors, strict=True):
                assert vector is not None
                link.execute("UPDATE dialogues SET vector = ? WHERE id = ?", (vector.tobytes(), row[0]))

    def _vectors(self, texts: Sequence[str]) -> Sequence[NDArray[np.float32] | None]:
        """Return a unit vector for every text, or None for each if there is no `embed`."""
        if self.embed is None or not texts:
            return [None] * len(texts)
        made = np.asarray(self.embed(texts), "<f4")
        if made.ndim != 2 or len(made) != len(texts) or not np.isfinite(made).all():
            message = f"`embed` returned an array of shape {made.shape} for {len(texts)} texts"
            raise ContractError(message, hint="It must return one vector of finite numbers per text.")
        return list(made / np.maximum(np.linalg.norm(made, axis=1, keepdims=True), 1e-12))


def bm25(times: int, length: int, holders: int, total: int, mean: float) -> float:
    """Return what one query word adds to the score of a dialogue.

    It occurs `times` in this dialogue of `length` words, and in `holders` of `total` dialogues of `mean` length.
    """
    rarity = math.log(1 + (total - holders + 0.5) / (holders + 0.5))
    return rarity * times * (K1 + 1) / (times + K1 * (1 - B + B * length / mean))


def sentence_embedder(model_name: str = "sentence-transformers/all-MiniLM-L6-v2") -> Embed:
    """Return an embedding function that uses a sentence-transformers model."""
    try:
        model = import_module("sentence_transformers").SentenceTransformer(model_name)
    except ImportError:
        message = "sentence embeddings need sentence-transformers"
        raise MissingExtra(message, hint="pip install sentence-transformers") from None
    return lambda texts: model.encode(list(texts))


def _insert(link: sqlite3.Connection, messages: Sequence[Message], vector: NDArray[np.float32] | None) -> int:
    counts = Counter(_words(_text(messages)))
    blob = vector.tobytes() if vector is not None else None
    row = (json.dumps([dict(message) for message in messages]), counts.total(), blob)
    number = link.execute("INSERT INTO dialogues (messages, length, vector) VALUES (?, ?, ?)", row).lastrowid
    assert number is not None
    link.executemany("INSERT INTO words VALUES (?, ?, ?)", [(word, number, times) for word, times in counts.items()])
    return number


def _checked(messages: Sequence[Message]) -> Sequence[Message]:
    if not isinstance(messages, list | tuple) or not messages:
        raise ContractError(f"a dialogue is a list of at least one message, not {messages!r:.60}")
    for message in messages:
        sound = isinstance(message, dict) and message.get("role") in ROLES and isinstance(message.get("content"), str)
        if not sound:
            hint = f"It needs a role ({', '.join(ROLES)}) and text as content."
            raise ContractError(f"a message of the dialogue is {message!r:.60}", hint=hint)
    return messages


def _read(value: Any, place: str) -> Sequence[Message]:
    try:
        if isinstance(value, dict) and {"prompt", "response"} <= value.keys():
            value = [{"role": "user", "content": value["prompt"]}, {"role": "assistant", "content": value["response"]}]
        return _checked(value["messages"] if isinstance(value, dict) else value)
    except ContractError as error:
        raise ContractError(f"{place}: {error.message}", hint=error.hint) from None
    except (ValueError, KeyError, TypeError) as error:
        hint = "A line is a list of messages, or an object with messages, or with prompt and response."
        raise ContractError(f"{place}: {type(error).__name__}: {error}", hint=hint) from None


def _words(text: str) -> list[str]:
    return WORD.findall(text.lower())


def _text(messages: Sequence[Message]) -> str:
    """Return the text to search: what user and assistant said, not the system or tools."""
    return "\n".join(m["content"] for m in messages if m["role"] in ("user", "assistant"))
