"""The facts that users state, in one file: corrected by newer ones, recalled by relevance, forgotten on request.

    memory = UserMemory("users.sqlite")
    memory.hear("user-17", "My sister's name is Ada.")
    memory.recall("user-17", "What is my sister called?")      # (RecalledFact(fact=..., relevance=1.0),)
    memory.hear("user-17", "Please forget my sister's name.")  # erased, also in the file

    relevance  = of the share of the question that the fact covers and the share of the fact's subject that the question
                 covers, three parts the larger and one the smaller; or the cosine of their meanings if that is more
    promise    = relevance · success rate,    success rate = (helped + 1) / (shown + 2)

Users are told apart by their ids, never by their names. The records are those of `groupwise.memory`: every change
belongs to a generation and can be rewound. What is forgotten is erased from every generation.
"""

import json
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np

from groupwise.agents.memory.facts import Fact, ForgetRequest, forget_request, read_facts
from groupwise.agents.memory.vocabulary import coverage, terms
from groupwise.errors import ContractError
from groupwise.memory import Store
from groupwise.memory.store import to_text

Embed: TypeAlias = Callable[[Sequence[str]], Any]
"""Vectors [N, D] of N texts."""

KIND = "fact"
AND = re.compile(r"\s*(?:,|\band\b|\bor\b|&)\s*", re.IGNORECASE)
FLOOR = 0.3  # relevance below which nothing is recalled
SHOWN = 6  # facts recalled at most
MOST_FACTS = 500  # of one user; the oldest give way


@dataclass(frozen=True, slots=True)
class KeptFact:
    """A fact in the store: its number, how often it was shown, and how often that helped."""

    id: int
    fact: Fact
    shown: int = 0
    helped: int = 0

    @property
    def success_rate(self) -> float:
        """(helped + 1) / (shown + 2), as if it had helped once and failed once before."""
        return (self.helped + 1) / (self.shown + 2)


@dataclass(frozen=True, slots=True)
class RecalledFact:
    """A fact that was recalled, and how relevant it is to the question, from the floor to 1."""

    kept: KeptFact
    relevance: float

    @property
    def text(self) -> str:
        return self.kept.fact.text


@dataclass(frozen=True, slots=True)
class HeardFacts:
    """What became of a message: the facts that are new or changed, and those that were forgotten."""

    learned: tuple[Fact, ...] = ()
    forgotten: tuple[Fact, ...] = ()
    everything: bool = False


class UserMemory:
    """Facts of many users in the SQLite file at `path`; ":memory:" keeps them as long as the object lives.

    It may be used from several threads of one process, but one process at a time uses a file.

    Args:
      path: the file, created if it does not exist.
      embed: texts → vectors, to recall by meaning too. Vectors are not stored, so that another function just works.
      floor: the relevance below which nothing is recalled.
    """

    def __init__(self, path: str | Path = ":memory:", *, embed: Embed | None = None, floor: float = FLOOR) -> None:
        self.embed, self.floor = embed, floor
        self._lock = threading.RLock()
        self._vectors: dict[str, Any] = {}
        self.store = Store(path)
        self.store.follow(self._load)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.store.close()

    def hear(self, user: str, text: str) -> HeardFacts:
        """Take in a user's message: forget what it asks to forget, and keep the facts it states."""
        request = forget_request(text)
        forgotten = self.forget_as_asked(user, request) if request else ()
        learned = [] if request and request.everything else self.learn(user, read_facts(text, self.facts(user)))
        return HeardFacts(tuple(learned), forgotten, bool(request and request.everything))

    def learn(self, user: str, facts: Iterable[Fact]) -> list[Fact]:
        """Keep facts of a user; a newer fact replaces the one with the same subject. Returns what was new."""
        new: list[Fact] = []
        with self._lock, self.store.transaction():
            for fact in facts:
                known = self._of(user).get(fact.key)
                if known is not None and known.fact.value.lower() == fact.value.lower():
                    continue
                if known is not None:
                    self.store.remove(known.id)
                self._add(user, fact)
                new.append(fact)
        return new

    def facts(self, user: str) -> list[Fact]:
        """What is known about a user, oldest first."""
        return [kept.fact for kept in self.kept(user)]

    def kept(self, user: str) -> list[KeptFact]:
        """The same with how often each was shown and helped."""
        with self._lock:
            return sorted(self._of(user).values(), key=lambda kept: kept.id)

    def recall(self, user: str, question: str, count: int = SHOWN) -> tuple[RecalledFact, ...]:
        """The facts of this user that bear on a question, most promising first; none below the floor."""
        known = self.kept(user)
        relevance = self._relevance(question, [kept.fact for kept in known])
        found = [RecalledFact(kept, near) for kept, near in zip(known, relevance, strict=True) if near >= self.floor]
        found.sort(key=lambda one: (-one.relevance * one.kept.success_rate, -one.kept.id))
        return tuple(found[:count])

    def report(self, user: str, shown: Iterable[RecalledFact], helped: bool) -> None:
        """Record that facts were shown to the model, and whether the answer was good."""
        with self._lock, self.store.transaction():
            for one in shown:
                known = self._of(user).get(one.kept.fact.key)
                if known is not None and known.id == one.kept.id:
                    self.store.change(known.id, [known.shown + 1, known.helped + bool(helped)])
                    newer = KeptFact(known.id, known.fact, known.shown + 1, known.helped + bool(helped))
                    self._of(user)[known.fact.key] = newer

    def forget(self, user: str, subject: str | None = None) -> list[Fact]:
        """Erase what is known about a user, or about one subject, also from the file's past; return what it was."""
        known = self.kept(user)
        if subject is not None:
            asked = terms(subject)
            known = [kept for kept in known if _is_about(asked, kept.fact)]
        with self._lock:
            gone = [kept.fact for kept in known]
            keys = {fact.key for fact in gone}
            # Also what newer facts had replaced, which a rewind would bring back.
            self.store.erase(
                [number for number, whose, key in self._ever if whose == user and (subject is None or key in keys)]
            )
        return gone

    def forget_as_asked(self, user: str, request: ForgetRequest) -> tuple[Fact, ...]:
        """Erase what a user's message asks to forget; return what it was."""
        if request.everything:
            return tuple(self.forget(user))
        if request.subject:
            # "My name and my address" are two subjects, unless a fact is about both.
            gone = self.forget(user, request.subject)
            parts = filter(None, AND.split(request.subject))
            return tuple(gone or [fact for part in parts for fact in self.forget(user, part)])
        last = self.facts(user)[-1:]
        return tuple(self.forget(user, last[0].subject)) if last else ()

    def generation(self, seq: int) -> AbstractContextManager[None]:
        """`with memory.generation(7):` everything inside belongs to generation 7, and is undone if the block raises."""
        return self.store.generation(seq)

    def _relevance(self, question: str, facts: Sequence[Fact]) -> list[float]:
        asked = terms(question)
        near = [_nearness(asked, fact) for fact in facts]
        if self.embed is None or not facts:
            return near
        texts = [question, *(fact.text for fact in facts)]
        missing = [text for text in dict.fromkeys(texts) if text not in self._vectors]
        made = np.asarray(self.embed(missing), float) if missing else np.zeros((0, 1))
        if missing and (made.ndim != 2 or len(made) != len(missing) or not np.isfinite(made).all()):
            message = f"`embed` returned an array of shape {made.shape} for {len(missing)} texts"
            raise ContractError(message, hint="It must return one vector of finite numbers per text.")
        unit = made / np.maximum(np.linalg.norm(made, axis=1, keepdims=True), 1e-12)
        found = {**self._vectors, **dict(zip(missing, unit, strict=True))}
        # Facts are asked for again and again, questions are not.
        self._vectors = {text: found[text] for text in [*self._vectors, *texts[1:]]} if len(found) < 10_000 else {}
        return [max(words, float(found[text] @ found[question])) for words, text in zip(near, texts[1:], strict=True)]

    def _of(self, user: str) -> dict[str, KeptFact]:
        # All who have no name would be one user.
        if not isinstance(user, str) or not user.strip():
            message = f"a user is known by a text that is not empty, and this one by {user!r}"
            raise ContractError(message, hint="Pass an id that no other user has, such as an account number as text.")
        return self._known.setdefault(user, {})

    def _add(self, user: str, fact: Fact) -> None:
        body = to_text({"user": user, "fact": [fact.subject, fact.value, fact.text]}, "a fact")
        number = self.store.add(KIND, body, [0, 0])
        self._ever.append((number, user, fact.key))
        mine = self._of(user)
        mine[fact.key] = KeptFact(number, fact)
        if len(mine) > MOST_FACTS:
            oldest = min(mine.values(), key=lambda kept: kept.id)
            self.store.remove(oldest.id)
            del mine[oldest.fact.key]

    def _load(self) -> None:
        self._known: dict[str, dict[str, KeptFact]] = {}
        self._vectors = {}
        for record in self.store.read(KIND):
            user, fact = _fact_of(json.loads(record.body))
            self._known.setdefault(user, {})[fact.key] = KeptFact(record.id, fact, *record.state)
        # (number, user, key) of every fact ever kept, for erasing.
        self._ever = [(n, *_owner(json.loads(body))) for n, body in self.store.ever(KIND)]


def _fact_of(body: Mapping[str, Any]) -> tuple[str, Fact]:
    return str(body["user"]), Fact(*body["fact"])


def _owner(body: Mapping[str, Any]) -> tuple[str, str]:
    user, fact = _fact_of(body)
    return user, fact.key


def _nearness(asked: Sequence[str], fact: Fact) -> float:
    subject = terms(fact.subject)
    less, more = sorted((coverage(asked, [*subject, *terms(fact.text)]), coverage(subject, asked)))
    return 0.75 * more + 0.25 * less


def _is_about(asked: Sequence[str], fact: Fact) -> bool:
    """Whether a fact is meant by a request to forget: its subject has all the words, or its text does."""
    subject = {*terms(fact.subject), *fact.key.split()}
    return coverage(asked, subject) >= 0.8 or {*asked} <= {*terms(fact.text)}
