"""Contextual memory: what is known about a family of situations, such as a domain, found by name or by similarity."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from groupwise.memory.store import Schema, Store, to_text
from groupwise.memory.vectors import Direction, RecordColumns, similarities

KIND = "context"
SIZE = 1000


@dataclass(frozen=True, slots=True)
class Context:
    """A family of situations: how often it was attempted, how often successfully, and the last performance."""

    id: int
    key: str
    attempts: int
    successes: int
    text: str
    met: int

    @property
    def last_performance(self) -> Any:
        return json.loads(self.text)


class ContextualMemory(Mapping[str, Context]):
    """At most `size` contexts by key. If there are more, the one that was not met for the longest time is removed.

    The features of a context are those of the situation in which its key was first met.
    """

    def __init__(self, store: Store, schema: Schema, size: int = SIZE) -> None:
        self._store, self._schema, self.size = store, schema, size
        store.follow(self._load)

    def __len__(self) -> int:
        return len(self._known)

    def __getitem__(self, key: str) -> Context:
        return self._known[self._by_key[key]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_key)

    def record(self, key: str, features: Direction, performance: Mapping[str, Any], succeeded: bool) -> Context:
        """Record an attempt under a key, with how it went."""
        text, success = to_text(performance, "a performance"), int(bool(succeeded))
        with self._store.transaction():
            if key in self:
                old = self[key]
                new = Context(old.id, key, old.attempts + 1, old.successes + success, text, self._store.now)
                self._store.change(new.id, _state(new))
                self._columns.change(new.id, met=new.met)
                self._known[new.id] = new
            else:
                new = self._add(key, features, success, text)
        return new

    def recall(self, features: Direction, threshold: float, count: int = 1) -> tuple[tuple[Context, float], ...]:
        """The most similar contexts above the threshold, with their similarities, most similar first."""
        similarity = similarities(self._columns["features"], features)
        places = np.flatnonzero(similarity > threshold)
        # Stable: of equally similar ones, the oldest first.
        best = places[np.argsort(-similarity[places], kind="stable")][:count]
        ids = self._columns.ids[best].tolist()
        return tuple(zip((self._known[i] for i in ids), similarity[best].tolist(), strict=True))

    def _add(self, key: str, features: Direction, success: int, text: str) -> Context:
        fresh = Context(0, key, 1, success, text, self._store.now)
        record = self._store.add(self._schema.kind(KIND), to_text(key, "a key"), _state(fresh), features)
        made = Context(record, key, 1, success, text, self._store.now)
        self._hold(made, features)
        while len(self) > self.size:
            self._evict()
        return made

    def _evict(self) -> None:
        oldest = self._columns.remove_lowest("met")
        self._store.remove(oldest)
        del self._by_key[self._known.pop(oldest).key]

    def _hold(self, context: Context, features: Direction) -> None:
        self._columns.append(context.id, features=features, met=context.met)
        self._known[context.id] = context
        self._by_key[context.key] = context.id

    def _load(self) -> None:
        self._columns = RecordColumns(features=(self._schema.width,), met=())
        self._known: dict[int, Context] = {}
        self._by_key: dict[str, int] = {}
        for record in self._store.read(self._schema.kind(KIND)):
            assert record.features is not None
            self._hold(Context(record.id, json.loads(record.body), *record.state), record.features)


def _state(context: Context) -> list[Any]:
    return [context.attempts, context.successes, context.text, context.met]
