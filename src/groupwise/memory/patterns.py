"""Pattern memory: what worked before, without the particulars, recalled by the similarity of situations.

    similarity = (cosine − usual) / (1 − usual), at least 0
    relevance  = similarity · weight · factor^(generations since last use / unit)
    promise    = relevance · success rate nearby · √(share of what was learned nearby that has the same payload)

Patterns above a threshold of relevance are recalled, most promising first. Features that are never negative point in
similar directions, and a bare cosine would call everything similar: `usual` is the mean cosine of two patterns, or of
the situation with all patterns if that is more. "Nearby" is a kernel over the patterns whose width is the distance of
the situation's NEIGHBOURS-th success, if that is not FAR: one wrong success among several right ones does not win.
"""

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from groupwise.errors import ContractError
from groupwise.memory.store import Schema, Store, to_text
from groupwise.memory.vectors import Decay, Direction, RecordColumns, similarities
from groupwise.types import Array

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
      learned: how many of the successes were learned; the others were reported after the pattern had been recalled.
    """

    id: int
    features: Direction = field(repr=False, compare=False)
    text: str
    successes: int
    uses: int
    weight: float
    used: int
    learned: int = 1
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
    """Patterns as they were at generation `seq`, most promising first.

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
SAME_SITUATION = 0.99
"""From this similarity on, a success with an equal payload strengthens a pattern instead of creating another."""
NEIGHBOURS = 6  # successes that decide together which payload works in a situation
FAR = 3  # 1 − cosine is half the square of a distance: 1.7 times as far
FEW = 8  # so many patterns are as much evidence for the usual cosine as the assumption that it is 0
DOUBT = 0.1  # a success and a failure of this weight are assumed for every payload


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

    def __contains__(self, pattern: object) -> bool:
        return isinstance(pattern, Pattern) and pattern.id in self._known

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
            fresh = Pattern(0, features, text, 1, 1, weight, now, maker=self._maker)
            pattern = replace(fresh, id=self._store.add(self._schema.kind(KIND), text, _state(fresh), features))
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
        """The patterns whose similarity × decayed weight is above the threshold, most promising first."""
        now = self._store.now
        similarity = self._similarity(features)
        weight = self._decay.decayed(self._columns["weight"], self._columns["used"], now)
        # [patterns]: how similar the situation is, times the weight that is left after decay.
        relevance = similarity * weight
        places = np.flatnonzero(relevance > threshold)
        promise = relevance[places] * self._prospects(similarity)[places]
        best = places[np.argsort(-promise, kind="stable")]
        patterns = tuple(self._known[i] for i in self._columns.ids[best].tolist())
        return Recall(now, patterns, tuple(similarity[best].tolist()), tuple(weight[best].tolist()))

    def _similarity(self, features: Direction) -> Array:
        """Cosines [patterns] with a situation, rescaled so that 0 is what is usual in this memory, and 1 stays 1."""
        cosines = similarities(self._columns["features"], features)
        # A situation in the middle of all others has a higher mean than they have among themselves.
        usual = max(self._usual(), float(cosines.sum()) / (len(self) + FEW))
        return np.clip((cosines - usual) / (1 - usual), 0.0, 1.0)

    def _usual(self) -> float:
        """The mean cosine of two patterns, closer to 0 the fewer there are."""
        count = len(self)
        if count < 2:
            return 0.0
        total = self._columns["features"].sum(axis=0)
        # |Σ p|² is the sum of all cosines, count of which are those of a pattern with itself.
        mean = float(total @ total - count) / (count * (count - 1))
        return max(mean, 0.0) * count / (count + FEW)

    def _prospects(self, similarity: Array) -> Array:
        """For each pattern: the success rate of its payload nearby × √(its share of what was learned nearby)."""
        learned, texts = self._columns["learned"], self._columns["payload"].astype(int)
        if not len(learned):
            return learned
        distance = 1 - similarity
        order = np.argsort(distance, kind="stable")
        enough = min(int((np.cumsum(learned[order]) < NEIGHBOURS).sum()), len(order) - 1)
        # Not from another cluster: at most FAR times as far as the nearest, or what counts as the same situation.
        far = max(FAR * distance[order[0]], (1 - SAME_SITUATION) / FAR)
        # To the fourth power, so that the kernel is flat nearby and has no tail: 1/e at the width.
        nearness = np.exp(-((distance / max(min(distance[order[enough]], far), 1e-9)) ** 4))

        def of_payload(numbers: Array) -> Array:
            summed: Array = np.bincount(texts, nearness * numbers)[texts]
            return summed

        successes, uses = of_payload(self._columns["successes"]), of_payload(self._columns["uses"])
        rate = (successes + DOUBT) / (uses + 2 * DOUBT)
        share = (of_payload(learned) + DOUBT) / ((nearness * learned).sum() + 2 * DOUBT)
        prospects: Array = rate * np.sqrt(share)
        return prospects

    def _same(self, features: Direction, text: str) -> Pattern | None:
        """The pattern with an equal payload and the most similar situation, if it is similar enough."""
        ids = self._by_text.get(text, ())
        # -i: of equally similar ones, the oldest.
        near = [(float(self._known[i].features @ features), -i) for i in ids]
        cosine, negative = max(near, default=(0.0, 0))
        usual = self._usual() if near else 0.0
        return self._known[-negative] if (cosine - usual) / (1 - usual) >= SAME_SITUATION else None

    def _succeeded(self, known: Pattern, weight: float) -> Pattern:
        """Count another success; the pattern keeps the larger weight."""
        successes, uses, weight = known.successes + 1, known.uses + 1, max(known.weight, weight)
        stronger = replace(
            known, successes=successes, uses=uses, weight=weight, used=self._store.now, learned=known.learned + 1
        )
        self._change(stronger)
        return stronger

    def _change(self, pattern: Pattern) -> None:
        with self._store.transaction():
            self._store.change(pattern.id, _state(pattern))
            self._columns.change(pattern.id, rank=self._rank(pattern), **_numbers(pattern))
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
        same = self._by_text.setdefault(pattern.text, [])
        # Equal payloads have equal numbers; which number does not matter.
        payload = self._columns["payload"][self._columns.place(same[0])] if same else next(self._payloads)
        self._columns.append(
            pattern.id, features=pattern.features, rank=self._rank(pattern), payload=payload, **_numbers(pattern)
        )
        self._known[pattern.id] = pattern
        same.append(pattern.id)

    def _load(self) -> None:
        self._columns = RecordColumns(
            features=(self._schema.width,), weight=(), used=(), successes=(), uses=(), learned=(), payload=(), rank=()
        )
        self._known: dict[int, Pattern] = {}
        self._by_text: dict[str, list[int]] = {}
        self._payloads = itertools.count()
        for record in self._store.read(self._schema.kind(KIND)):
            assert record.features is not None
            successes, uses, weight, used, *learned = record.state
            # Files from before successes were told apart: all but the first may have been reported.
            known = learned[0] if learned else 1
            body = record.body
            self._hold(Pattern(record.id, record.features, body, successes, uses, weight, used, known, self._maker))


def _state(pattern: Pattern) -> list[Any]:
    return [pattern.successes, pattern.uses, pattern.weight, pattern.used, pattern.learned]


def _numbers(pattern: Pattern) -> dict[str, float]:
    return {name: getattr(pattern, name) for name in ("successes", "uses", "weight", "used", "learned")}
