"""Pattern memory: what worked before, without the particulars, recalled by the similarity of situations.

relevance = similarity · weight · factor^(generations since last use / unit)
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from groupwise.errors import ContractError
from groupwise.memory.store import Schema, Store, to_text
from groupwise.memory.vectors import Decay, Direction, RecordColumns, similarities

Instantiate: TypeAlias = Callable[[Mapping[str, Any], Any], Any]
"""A payload and a context → the pattern applied to that context."""

PRIOR_SUCCESSES, PRIOR_USES = 1, 2  # Laplace's rule of succession


@dataclass(frozen=True, slots=True)
class Pattern:
    """What worked, where, and how often.

    Attributes:
      id: its number in the store.
      features: the direction (length 1) of the situation it was learned in.
      text: the payload as canonical JSON; equal payloads have equal texts.
      successes, uses: how often it worked and was tried, including the success it was learned from.
      weight: its weight at its last use.
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
        """A copy of the payload, so that nobody changes the pattern."""
        return json.loads(self.text)

    @property
    def success_rate(self) -> float:
        """(successes + 1) / (uses + 2), as if there had been one success and one failure before."""
        return (self.successes + PRIOR_SUCCESSES) / (self.uses + PRIOR_USES)

    def instantiate(self, context: Any) -> Any:
        """The pattern applied to a context, by the function that the memory was opened with."""
        if self.maker is None:
            message = f"pattern {self.id} cannot be instantiated: its memory was opened without `instantiate`"
            raise ContractError(message, hint="Open the memory with instantiate=FUNCTION of a payload and a context.")
        return self.maker(self.payload, context)


@dataclass(frozen=True, slots=True)
class Recall:
    """Patterns as they were at generation `seq`, highest similarity × weight first.

    It never changes: later successes, decay and evictions change only the memory.
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
        """Draw each pattern independently, with its success rate as the probability; best first."""
        chances = rng.random(len(self.patterns))
        return tuple(p for p, chance in zip(self.patterns, chances, strict=True) if chance < p.success_rate)


KIND = "pattern"
SAME_SITUATION = 0.95
"""From this cosine on, a success with an equal payload strengthens a pattern instead of creating another."""


class PatternMemory:
    """At most `size` patterns. If there are more, the one with the lowest decayed weight × success rate is removed.

    Learning a pattern again or reporting on it counts as a use; recalling it does not.
    """

    def __init__(
        self, store: Store, size: int, decay: Decay, schema: Schema, instantiate: Instantiate | None = None
    ) -> None:
        self._store, self.size, self._decay, self._schema = store, size, decay, schema
        self._maker = instantiate
        store.follow(self._load)

    def __len__(self) -> int:
        return len(self._columns)

    def __iter__(self) -> Iterator[Pattern]:
        return iter(list(self._known.values()))

    def learn(self, features: Direction, payload: Mapping[str, Any], weight: float = 1.0) -> Pattern:
        """Store what worked in a situation, or strengthen the pattern that already says so."""
        if not 0 < weight <= 1:
            message = f"the weight of a pattern is {weight}, but must be in (0, 1]"
            raise ContractError(message, hint="Use 1 for full weight.")
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
        """Record a use; False if the pattern is no longer there."""
        known = self._known.get(pattern)
        if known is None:
            return False
        self._change(
            replace(known, successes=known.successes + bool(succeeded), uses=known.uses + 1, used=self._store.now)
        )
        return True

    def recall(self, features: Direction, threshold: float) -> Recall:
        """The patterns whose similarity × decayed weight is above the threshold."""
        now = self._store.now
        similarity = similarities(self._columns["features"], features)
        weight = self._decay.decayed(self._columns["weight"], self._columns["used"], now)
        # [patterns]: cosine with the situation, times the weight that is left after decay.
        relevance = similarity * weight
        places = np.flatnonzero(relevance > threshold)
        best = places[np.argsort(-relevance[places], kind="stable")]
        patterns = tuple(self._known[i] for i in self._columns.ids[best].tolist())
        return Recall(now, patterns, tuple(similarity[best].tolist()), tuple(weight[best].tolist()))

    def _same(self, features: Direction, text: str) -> Pattern | None:
        """The pattern with an equal payload and the most similar situation, if it is similar enough."""
        ids = self._by_text.get(text, ())
        # -i: of equally similar ones, the oldest.
        near = [(float(self._known[i].features @ features), -i) for i in ids]
        cosine, negative = max(near, default=(0.0, 0))
        return self._known[-negative] if cosine >= SAME_SITUATION else None

    def _succeeded(self, known: Pattern, weight: float) -> Pattern:
        """Count another success; the pattern keeps the larger weight."""
        successes, uses, weight = known.successes + 1, known.uses + 1, max(known.weight, weight)
        stronger = replace(known, successes=successes, uses=uses, weight=weight, used=self._store.now)
        self._change(stronger)
        return stronger

    def _change(self, pattern: Pattern) -> None:
        with self._store.transaction():
            self._store.change(pattern.id, [pattern.successes, pattern.uses, pattern.weight, pattern.used])
            self._columns.change(pattern.id, weight=pattern.weight, used=pattern.used, rank=self._rank(pattern))
            self._known[pattern.id] = pattern

    def _evict(self) -> None:
        weakest = self._columns.remove_lowest("rank")
        self._store.remove(weakest)
        gone = self._known.pop(weakest)
        self._by_text[gone.text].remove(weakest)
        if not self._by_text[gone.text]:
            del self._by_text[gone.text]

    def _rank(self, pattern: Pattern) -> float:
        return self._decay.rank(pattern.weight * pattern.success_rate, pattern.used)

    def _hold(self, pattern: Pattern) -> None:
        self._columns.append(
            pattern.id, features=pattern.features, weight=pattern.weight, used=pattern.used, rank=self._rank(pattern)
        )
        self._known[pattern.id] = pattern
        self._by_text.setdefault(pattern.text, []).append(pattern.id)

    def _load(self) -> None:
        self._columns = RecordColumns(features=(self._schema.width,), weight=(), used=(), rank=())
        self._known: dict[int, Pattern] = {}
        self._by_text: dict[str, list[int]] = {}
        for record in self._store.read(self._schema.kind(KIND)):
            assert record.features is not None
            successes, uses, weight, used = record.state
            self._hold(Pattern(record.id, record.features, record.body, successes, uses, weight, used, self._maker))
