"""A pattern: what worked in a kind of situation, without what was particular to one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from groupwise.errors import ContractError
from groupwise.memory.store import MemoryRecord, Schema, Store, to_text
from groupwise.memory.vectors import Decay, Direction, RecordColumns, similarities

Instantiate: TypeAlias = Callable[[Mapping[str, Any], Any], Any]
"""A payload and a context → what the pattern means there."""

PRIOR_SUCCESSES, PRIOR_USES = 1, 2


@dataclass(frozen=True, slots=True)
class Pattern:
    """What worked, where, and how often.

    Attributes:
      id: its number in the store.
      features: the situation it is about, as a direction (length 1).
      text: the payload in canonical JSON; equal payloads have equal texts.
      successes, uses: how often it worked and was tried, the success it was learned from included.
      weight: what it weighed at its last use.
      used: the generation of its last use.
    """

    id: int
    features: Direction = field(repr=False, compare=False)
    text: str
    successes: int
    uses: int
    weight: float
    used: int
    maker: Instantiate | None = field(default=None, repr=False, compare=False)

    @property
    def payload(self) -> Any:
        """What was generalised: a copy, so that nobody changes the pattern."""
        return json.loads(self.text)

    @property
    def success_rate(self) -> float:
        """(successes + 1) / (uses + 2): Laplace's rule, one imagined success and one failure before any other."""
        return (self.successes + PRIOR_SUCCESSES) / (self.uses + PRIOR_USES)

    def instantiate(self, context: Any) -> Any:
        """What the pattern means in a context, by the function the memory was opened with."""
        if self.maker is None:
            raise ContractError(
                f"pattern {self.id} cannot be instantiated: its memory was opened without `instantiate`",
                hint="Open the memory with instantiate=FUNCTION of a payload and a context.",
            )
        return self.maker(self.payload, context)


@dataclass(frozen=True, slots=True)
class Recall:
    """Patterns with what they had at generation `seq`, best first: the highest similarity × weight.

    Later successes, decay and evictions change the memory, never a recall.
    """

    seq: int
    patterns: tuple[Pattern, ...] = ()
    similarities: tuple[float, ...] = ()
    weights: tuple[float, ...] = ()

    def __len__(self) -> int:
        return len(self.patterns)

    def __iter__(self) -> Iterator[Pattern]:
        return iter(self.patterns)

    def draw(self, rng: np.random.Generator) -> tuple[Pattern, ...]:
        """Each pattern with the probability of its success rate, independently; best first."""
        chances = rng.random(len(self.patterns))
        return tuple(p for p, chance in zip(self.patterns, chances, strict=True) if chance < p.success_rate)


KIND = "pattern"
SAME_SITUATION = 0.95
"""Least cosine at which a success with an equal payload strengthens a pattern instead of making another."""


class PatternMemory:
    """At most `size` patterns. The one with the least faded weight × success rate goes when a new one needs its place.

    A pattern is used when it is learned again or reported on; being recalled is no use.
    """

    def __init__(
        self, store: Store, size: int, decay: Decay, schema: Schema, instantiate: Instantiate | None = None
    ) -> None:
        self._store, self.size, self._decay, self._schema = store, size, decay, schema
        self._maker = instantiate
        self._clear()
        store.follow(self._load)

    def __len__(self) -> int:
        return len(self._columns)

    def __iter__(self) -> Iterator[Pattern]:
        return iter(list(self._known.values()))

    def learn(self, features: Direction, payload: Mapping[str, Any], weight: float = 1.0) -> Pattern:
        """Keep what worked in a situation, or strengthen the pattern that says so already."""
        if not 0 < weight <= 1:
            raise ContractError(
                f"the weight of a pattern is {weight}, and must be above 0 and at most 1", hint="1 is full weight."
            )
        text, weight = to_text(payload, "a pattern's payload"), float(weight)
        same = self._same(features, text)
        if same is not None:
            return self._succeeded(same, weight)
        with self._store.transaction():
            now = self._store.now
            made = self._store.add(self._schema.kind(KIND), text, [1, 1, weight, now], features)
            pattern = Pattern(made, features, text, 1, 1, weight, now, self._maker)
            self._hold(pattern)
            while len(self) > self.size:
                self._evict()
        return pattern

    def report(self, pattern: int, succeeded: bool) -> bool:
        """Count a use; False if the pattern went meanwhile."""
        known = self._known.get(pattern)
        if known is None:
            return False
        self._change(
            replace(known, successes=known.successes + bool(succeeded), uses=known.uses + 1, used=self._store.now)
        )
        return True

    def recall(self, features: Direction, threshold: float) -> Recall:
        """Patterns whose similarity × faded weight is above the threshold."""
        now = self._store.now
        similarity = similarities(self._columns["features"], features)
        weight = self._decay.faded(self._columns["weight"], self._columns["used"], now)
        relevance = similarity * weight
        places = np.flatnonzero(relevance > threshold)
        best = places[np.argsort(-relevance[places], kind="stable")]
        patterns = tuple(self._known[i] for i in self._columns.ids[best].tolist())
        return Recall(now, patterns, tuple(similarity[best].tolist()), tuple(weight[best].tolist()))

    def _same(self, features: Direction, text: str) -> Pattern | None:
        """The pattern of an equal payload whose situation is nearest, if it is near enough."""
        ids = self._by_text.get(text, ())
        near = [(float(self._known[i].features @ features), -i) for i in ids]
        cosine, negative = max(near, default=(0.0, 0))
        return self._known[-negative] if cosine >= SAME_SITUATION else None

    def _succeeded(self, known: Pattern, weight: float) -> Pattern:
        """A success seen again counts as a use; the better weight stays."""
        stronger = replace(
            known,
            successes=known.successes + 1,
            uses=known.uses + 1,
            weight=max(known.weight, weight),
            used=self._store.now,
        )
        self._change(stronger)
        return stronger

    def _change(self, pattern: Pattern) -> None:
        with self._store.transaction():
            self._store.change(pattern.id, [pattern.successes, pattern.uses, pattern.weight, pattern.used])
            self._columns.change(pattern.id, weight=pattern.weight, used=pattern.used, rank=self._rank(pattern))
            self._known[pattern.id] = pattern

    def _evict(self) -> None:
        weakest = int(self._columns.ids[np.argmin(self._columns["rank"])])
        self._store.remove(weakest)
        self._columns.remove(weakest)
        gone = self._known.pop(weakest)
        self._by_text[gone.text].remove(weakest)
        if not self._by_text[gone.text]:
            del self._by_text[gone.text]

    def _rank(self, pattern: Pattern) -> float:
        return self._decay.rank(pattern.weight * pattern.success_rate, pattern.used)

    def _hold(self, pattern: Pattern) -> None:
        self._columns.append(
            pattern.id,
            features=pattern.features,
            weight=pattern.weight,
            used=pattern.used,
            rank=self._rank(pattern),
        )
        self._known[pattern.id] = pattern
        self._by_text.setdefault(pattern.text, []).append(pattern.id)

    def _clear(self) -> None:
        self._columns = RecordColumns(features=(self._schema.width,), weight=(), used=(), rank=())
        self._known: dict[int, Pattern] = {}
        self._by_text: dict[str, list[int]] = {}

    def _load(self) -> None:
        self._clear()
        for record in self._store.read(self._schema.kind(KIND)):
            self._hold(self._pattern(record))

    def _pattern(self, record: MemoryRecord) -> Pattern:
        assert record.features is not None
        successes, uses, weight, used = record.state
        return Pattern(record.id, record.features, record.body, successes, uses, weight, used, self._maker)
