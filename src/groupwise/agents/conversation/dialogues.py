"""A database of dialogues, searched for those nearest to a question: examples for an agent.

Search by words finds candidates in SQLite's full-text index of stems and synonyms (`agents/memory/vocabulary`), the
rarest words first, and ranks them by how much of the question they cover:

    score(query, d) = Σ_t idf(t) · worth(t, d) / Σ_t idf(t),    idf(t) = ln(1 + (N − n(t) + ½) / (n(t) + ½))

over the distinct terms t of the query; worth is 1 for the term itself and less for a synonym. N dialogues are stored,
n(t) of them with term t. How much of the dialogue's own question the query has, and how often its terms occur, decide
between dialogues that cover the same. Search by meaning uses an embedding function of yours. Below a floor,
nothing is found; and a user finds only what is shared or their own.
"""

import hashlib
import json
import math
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from groupwise.agents.conversation.chat_format import ROLES
from groupwise.agents.memory.vocabulary import coverage, related, terms
from groupwise.errors import ConfigError, ContractError, MissingExtra
from groupwise.readers import data_limits, json_lines
from groupwise.sqlite import Database
from groupwise.types import Message

Embed: TypeAlias = Callable[[Sequence[str]], Any]
"""Vectors [N, D] of N texts."""

FLOOR = 0.25
RARE = 2000  # dialogues with a term up to which it counts as rare
MOST_POSTINGS = 5000  # of rare terms that one search reads
CANDIDATES = 100  # dialogues that are read and ranked, for each of a few ways to find them
ASKED_BACK, TIMES = 0.2, 0.05  # what the dialogue's own question, and how often terms occur, add to the order
UNHEARD = 0.3  # what a word of the question counts that no dialogue has
SHARED = "shared"
# What an embedding function is recognised by.
PROBES = ("Where is my parcel?", "The screen stays black.", "How much is the blue one?", "Thank you, that helped.")
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
    # An empty scope marks dialogues of version 1, which are indexed when the file is opened.
    """
    DROP TABLE words;
    ALTER TABLE dialogues ADD COLUMN user TEXT;
    ALTER TABLE dialogues ADD COLUMN scope TEXT NOT NULL DEFAULT '';
    ALTER TABLE dialogues ADD COLUMN terms TEXT NOT NULL DEFAULT '';
    CREATE INDEX dialogues_of_users ON dialogues (user) WHERE user IS NOT NULL;
    CREATE INDEX dialogues_not_indexed ON dialogues (id) WHERE scope = '';
    CREATE TABLE vocabulary (term TEXT PRIMARY KEY, dialogues INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE embedding (probe BLOB NOT NULL);
    CREATE VIRTUAL TABLE texts USING fts5 (scope, terms, content = 'dialogues', content_rowid = 'id')
    """,
)


@dataclass(frozen=True, slots=True)
class Dialogue:
    """A search result; its score is at most 1, for a dialogue that has all of the question."""

    id: int
    messages: tuple[Message, ...]
    score: float


@dataclass(frozen=True, slots=True)
class HeldVectors:
    """The vectors of a file at one moment: their dialogues, whose they are, and themselves [N, D]."""

    version: int
    ids: NDArray[np.int64]
    users: Sequence[str | None]
    matrix: NDArray[np.float32]


class DialogueDatabase:
    """Dialogues in the SQLite file at `path`; ":memory:" keeps them as long as the object lives.

    Args:
      path: the file, created if it does not exist.
      embed: texts → vectors [N, D]. With it, `search` uses cosine similarity; without it, words.
      floor: the score below which a dialogue is not found.
    """

    def __init__(self, path: str | Path = ":memory:", *, embed: Embed | None = None, floor: float = FLOOR) -> None:
        self.database, self.embed, self.floor = Database(path, "dialogues", MARK, STEPS), embed, floor
        self._held: HeldVectors | None = None
        self._checked_embedding = False
        try:
            self._index_old()
        except BaseException:
            self.close()
            raise

    def add(self, messages: Sequence[Message], user: str | None = None) -> int:
        """Store a dialogue and return its number. With a `user`, only that user finds it."""
        return self.add_all([messages], user)[0]

    def add_all(self, dialogues: Iterable[Sequence[Message]], user: str | None = None) -> list[int]:
        """Store dialogues: all of them, or none if one is invalid."""
        checked = [_checked(messages) for messages in dialogues]
        vectors = self._vectors([_text(messages) for messages in checked])
        with self.database.transaction() as link:
            made = [_insert(link, messages, user, vector) for messages, vector in zip(checked, vectors, strict=True)]
            _index(link, [(number, user, messages) for number, messages in zip(made, checked, strict=True)])
        self._held = None
        return made

    def import_jsonl(self, path: str | Path, user: str | None = None) -> int:
        """Store every dialogue of a JSON-lines file, or none if one is invalid; return how many there are.

        A line is a list of messages, an object with `messages`, or one with `prompt` and `response`.
        """
        try:
            found = [_read(value, f"{path}, line {number}") for number, value in json_lines(path, data_limits())]
        except ConfigError as error:
            raise ConfigError(f"{path}: {error.message}", hint=error.hint) from None
        return len(self.add_all(found, user))

    def delete(self, number: int) -> bool:
        """Delete a dialogue and overwrite it in the file; return False if there is none with that number."""
        return self._delete("id = ?", number) > 0

    def forget(self, user: str) -> int:
        """Delete all dialogues of a user and overwrite them in the file; return how many there were."""
        return self._delete("user = ?", user)

    def __len__(self) -> int:
        with self.database.transaction(write=False) as link:
            return int(link.execute("SELECT count(*) FROM dialogues").fetchone()[0])

    def search(self, query: str, count: int = 3, user: str | None = None) -> list[Dialogue]:
        """Return the dialogues nearest to a question, nearest first, among the shared ones and those of `user`."""
        scores = self._by_words(query, user) if self.embed is None else self._by_meaning(query, user)
        near = [(number, score) for number, score in scores.items() if score >= self.floor]
        best = sorted(near, key=lambda item: (-item[1], item[0]))[:count]
        # Asked again here, so that no way to find candidates can show another user's dialogue.
        sql = "SELECT messages FROM dialogues WHERE id = ? AND (user IS NULL OR user = ?)"
        with self.database.transaction(write=False) as link:
            rows = [link.execute(sql, (number, user)).fetchone() for number, _ in best]
        found = zip(best, rows, strict=True)
        return [Dialogue(n, tuple(json.loads(row[0])), min(score, 1.0)) for (n, score), row in found if row]

    def close(self) -> None:
        self.database.close()

    def _by_words(self, query: str, user: str | None) -> dict[int, float]:
        asked = list(dict.fromkeys(_plain(terms(query))))
        with self.database.transaction(write=False) as link:
            holders = _holders(link, asked)
            numbers = {n for match in _matches(asked, holders) for n in _candidates(link, match, user)}
            marks = ", ".join("?" * len(numbers))
            rows = link.execute(
                f"SELECT id, terms, messages FROM dialogues WHERE id IN ({marks})", [*numbers]
            ).fetchall()
        total = holders.get("", 0)

        def rarity(term: str) -> float:
            known = holders.get(term, 0)
            whole = math.log(1 + (total - known + 0.5) / (known + 0.5))
            # Nobody here talks about it, nor about anything related: that says less about a dialogue than a miss.
            return whole if known or any(other in holders for other in related(term)) else UNHEARD * whole

        return {row[0]: _score(asked, row[1].split(), json.loads(row[2]), rarity) for row in rows}

    def _by_meaning(self, query: str, user: str | None) -> dict[int, float]:
        self._check_embedding()
        self._fill_in()
        held = self._vectors_held()
        (wanted,) = self._vectors([query])
        if not len(held.ids) or wanted is None:
            return {}
        own = np.array([owner is None or owner == user for owner in held.users])
        return dict(zip(held.ids[own].tolist(), (held.matrix[own] @ wanted).tolist(), strict=True))

    def _vectors_held(self) -> HeldVectors:
        """All vectors, read again only if somebody changed the file."""
        with self.database.transaction(write=False) as link:
            version = link.execute("PRAGMA data_version").fetchone()[0]
            if self._held is None or self._held.version != version:
                rows = link.execute("SELECT id, user, vector FROM dialogues ORDER BY id").fetchall()
                matrix = np.stack([np.frombuffer(row[2], "<f4") for row in rows]) if rows else np.zeros((0, 1), "<f4")
                ids = np.array([row[0] for row in rows], np.int64)
                self._held = HeldVectors(version, ids, [row[1] for row in rows], matrix)
            return self._held

    def _check_embedding(self) -> None:
        """Refuse an embedding function other than the one that made the vectors in the file."""
        if self._checked_embedding:
            return
        probe = np.concatenate([vector for vector in self._vectors(PROBES) if vector is not None])
        with self.database.transaction() as link:
            stored = link.execute("SELECT probe FROM embedding").fetchone()
            known = link.execute("SELECT vector FROM dialogues WHERE vector IS NOT NULL LIMIT 1").fetchone()
            if known and len(known[0]) * len(PROBES) != len(probe.tobytes()):
                width = len(probe) // len(PROBES)
                raise ConfigError(
                    f"vectors in {self.database.path} have {len(known[0]) // 4} numbers, but those of `embed` {width}",
                    hint="Use the function that made them, or import the dialogues into a new file.",
                )
            if stored and known and float(np.frombuffer(stored[0], "<f4") @ probe) < 0.999 * len(PROBES):
                raise ConfigError(
                    f"vectors in {self.database.path} were made by another embedding function than `embed`",
                    hint="Use the function that made them, or import the dialogues into a new file.",
                )
            link.execute("DELETE FROM embedding")
            link.execute("INSERT INTO embedding VALUES (?)", (probe.tobytes(),))
        self._checked_embedding = True

    def _delete(self, where: str, value: Any) -> int:
        with self.database.transaction() as link:
            rows = link.execute(f"SELECT id, scope, terms FROM dialogues WHERE {where}", (value,)).fetchall()
            for row in rows:
                link.execute("INSERT INTO texts (texts, rowid, scope, terms) VALUES ('delete', ?, ?, ?)", tuple(row))
            link.execute(f"DELETE FROM dialogues WHERE {where}", (value,))
            _count(link, Counter(term for row in rows for term in {"", *row["terms"].split()}), -1)
            link.execute("DELETE FROM vocabulary WHERE dialogues <= 0")
            if rows:
                # The index only marks what is deleted; merging it into one piece is what removes the words.
                link.execute("INSERT INTO texts (texts) VALUES ('optimize')")
        if rows:
            self.database.scrub()
            self._held = None
        return len(rows)

    def _index_old(self) -> None:
        """Index dialogues that an earlier version stored."""
        with self.database.transaction(write=False) as link:
            rows = link.execute("SELECT id, messages FROM dialogues WHERE scope = ''").fetchall()
        if rows:
            with self.database.transaction() as link:
                _index(link, [(row[0], None, json.loads(row[1])) for row in rows])

    def _fill_in(self) -> None:
        """Compute vectors for dialogues that were stored without one."""
        with self.database.transaction(write=False) as link:
            rows = link.execute("SELECT id, messages FROM dialogues WHERE vector IS NULL").fetchall()
        if not rows:
            return
        vectors = self._vectors([_text(json.loads(row[1])) for row in rows])
        with self.database.transaction() as link:
            for row, vector in zip(rows, vectors, strict=True):
                assert vector is not None
                link.execute("UPDATE dialogues SET vector = ? WHERE id = ?", (vector.tobytes(), row[0]))
        self._held = None

    def _vectors(self, texts: Sequence[str]) -> Sequence[NDArray[np.float32] | None]:
        """Return a unit vector for every text, or None for each if there is no `embed`."""
        if self.embed is None or not texts:
            return [None] * len(texts)
        made = np.asarray(self.embed(texts), "<f4")
        if made.ndim != 2 or len(made) != len(texts) or not np.isfinite(made).all():
            message = f"`embed` returned an array of shape {made.shape} for {len(texts)} texts"
            raise ContractError(message, hint="It must return one vector of finite numbers per text.")
        return list(made / np.maximum(np.linalg.norm(made, axis=1, keepdims=True), 1e-12))


def _insert(
    link: sqlite3.Connection, messages: Sequence[Message], user: str | None, vector: NDArray[np.float32] | None
) -> int:
    blob = vector.tobytes() if vector is not None else None
    row = (json.dumps([dict(message) for message in messages]), user, blob)
    # The length is no longer used; files of version 1 have it.
    number = link.execute("INSERT INTO dialogues (messages, length, user, vector) VALUES (?, 0, ?, ?)", row).lastrowid
    assert number is not None
    return number


def _index(link: sqlite3.Connection, dialogues: Sequence[tuple[int, str | None, Sequence[Message]]]) -> None:
    """Put dialogues into the full-text index, and count their terms."""
    counted: Counter[str] = Counter()
    for number, user, messages in dialogues:
        found = _plain(terms(_text(messages)))
        counted.update({"", *found})  # the empty term counts the dialogues
        row = (_scope(user), " ".join(found), number)
        link.execute("UPDATE dialogues SET scope = ?, terms = ? WHERE id = ?", row)
        link.execute("INSERT INTO texts (scope, terms, rowid) VALUES (?, ?, ?)", row)
    _count(link, counted, 1)


def _count(link: sqlite3.Connection, counted: Mapping[str, int], sign: int) -> None:
    sql = "INSERT INTO vocabulary VALUES (?, ?) ON CONFLICT DO UPDATE SET dialogues = dialogues + excluded.dialogues"
    link.executemany(sql, [(term, sign * times) for term, times in counted.items()])


def _scope(user: str | None) -> str:
    """A word for the index that stands for a user."""
    return SHARED if user is None else "u" + hashlib.sha256(user.encode()).hexdigest()[:24]


def _plain(found: Iterable[str]) -> list[str]:
    """Terms as the index divides them: without apostrophes."""
    return [term.replace("'", "") for term in found]


def _holders(link: sqlite3.Connection, asked: Sequence[str]) -> dict[str, int]:
    """How many dialogues have each term of a query or a related one; under "" how many there are."""
    wanted = ["", *asked, *(other for term in asked for other in related(term))][:900]
    sql = f"SELECT term, dialogues FROM vocabulary WHERE term IN ({', '.join('?' * len(wanted))})"
    return {row[0]: row[1] for row in link.execute(sql, wanted)}


def _matches(asked: Sequence[str], holders: Mapping[str, int]) -> list[tuple[str, bool]]:
    """What to look up in the index, and whether it is rare enough to be ranked there.

    Ranking reads every dialogue with a term, so that is for rare terms, up to MOST_POSTINGS. Of common terms, the index
    gives the first dialogues that have all of them, or all but the most common ones.
    """
    known = {term: holders[term] for term in asked if term in holders}
    near = {other: holders[other] for term in asked for other in related(term) if other in holders}
    rare: list[str] = []
    room = MOST_POSTINGS
    # The query's own terms first, then what is related to them; the rarest first.
    for some in (known, near):
        for term, number in sorted(some.items(), key=lambda item: item[1]):
            if term not in rare and number <= min(RARE, room):
                rare.append(term)
                room -= number
    common = sorted((term for term in known if known[term] > RARE), key=lambda term: known[term])
    found = [(" OR ".join(f'"{term}"' for term in rare), True)] if rare else []
    return found + [
        (" AND ".join(f'"{term}"' for term in common[:n]), False) for n in {len(common), 2, 1} if 0 < n <= len(common)
    ]


def _candidates(link: sqlite3.Connection, match: tuple[str, bool], user: str | None) -> list[int]:
    words, ranked = match
    if ranked:
        # The scope is not part of the match, or ranking would count every dialogue of the scope.
        sql = (
            "SELECT texts.rowid FROM texts JOIN dialogues ON id = texts.rowid WHERE texts MATCH ? "
            f"AND (user IS NULL OR user = ?) ORDER BY rank LIMIT {CANDIDATES}"
        )
        return [row[0] for row in link.execute(sql, (f"terms : ({words})", user))]
    scopes = SHARED if user is None else f"{SHARED} OR {_scope(user)}"
    sql = f"SELECT rowid FROM texts WHERE texts MATCH ? LIMIT {CANDIDATES}"
    return [row[0] for row in link.execute(sql, (f"scope : ({scopes}) AND terms : ({words})",))]


def _score(
    asked: Sequence[str], found: Sequence[str], messages: Sequence[Message], rarity: Callable[[str], float]
) -> float:
    """How much of a query a dialogue covers; a little more if it asks the same and says the query's terms often."""
    covered = coverage(asked, found, rarity)
    if not covered:
        return 0.0
    question = next((m["content"] for m in messages if m["role"] == "user"), "")
    back = coverage(_plain(terms(question)), asked, rarity)
    times = sum(map(found.count, asked)) / (len(found) or 1)
    return covered * (1 - ASKED_BACK - TIMES + ASKED_BACK * back + TIMES * times)


def sentence_embedder(model_name: str = "sentence-transformers/all-MiniLM-L6-v2") -> Embed:
    """Return an embedding function that uses a sentence-embedding model, by the name of a hub or a folder.

    Without sentence-transformers, a folder's tokens are averaged, which is what most of these models do.
    """
    try:
        model = import_module("sentence_transformers").SentenceTransformer(model_name)
    except ImportError:
        if not Path(model_name).is_dir():
            message = "sentence embeddings need sentence-transformers, or the folder of a model"
            raise MissingExtra(message, hint="pip install sentence-transformers") from None
        return _mean_of_tokens(model_name)
    return lambda texts: model.encode(list(texts))


def _mean_of_tokens(folder: str) -> Embed:
    torch, transformers = import_module("torch"), import_module("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = transformers.AutoModel.from_pretrained(folder, local_files_only=True).eval()

    def embed(texts: Sequence[str]) -> Any:
        given = tokenizer(list(texts), padding=True, truncation=True, max_length=256, return_tensors="pt")
        with torch.no_grad():
            hidden = model(**given).last_hidden_state  # [N, tokens, D]
        mask = given["attention_mask"][:, :, None]
        return ((hidden * mask).sum(1) / mask.sum(1).clamp(min=1)).numpy()

    return embed


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


def _text(messages: Sequence[Message]) -> str:
    """Return the text to search: what user and assistant said, not the system or tools."""
    return "\n".join(m["content"] for m in messages if m["role"] in ("user", "assistant"))
