"""The four memories over one file, as runs use them: what just happened, experiences, patterns, and contexts."""

import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Self, TypeAlias

from groupwise.config import MemorySettings
from groupwise.errors import ConfigError
from groupwise.memory.contexts import KIND as CONTEXTS
from groupwise.memory.contexts import Context, ContextualMemory
from groupwise.memory.experiences import Experience, ExperienceMemory
from groupwise.memory.fingerprint import FeatureFingerprint
from groupwise.memory.patterns import KIND as PATTERNS
from groupwise.memory.patterns import Instantiate, Pattern, PatternMemory, Recall
from groupwise.memory.store import PATIENCE, Schema, Store, to_text
from groupwise.memory.vectors import Decay, Direction, direction

KIND = "working"
SIZE = 100


class WorkingMemory:
    """The last `size` notes; older ones are removed."""

    def __init__(self, store: Store, size: int = SIZE) -> None:
        self._store, self.size = store, size
        self._notes: deque[tuple[int, str]] = deque()
        store.follow(self._load)

    def __len__(self) -> int:
        return len(self._notes)

    def note(self, activity: Mapping[str, Any]) -> None:
        """Add a note on what was just done."""
        body = to_text(activity, "an activity")
        with self._store.transaction():
            self._notes.append((self._store.add(KIND, body, None), body))
            while len(self._notes) > self.size:
                self._store.remove(self._notes.popleft()[0])

    def recent(self, count: int | None = None) -> tuple[Mapping[str, Any], ...]:
        """The last `count` notes, or all of them, oldest first."""
        first = 0 if count is None else max(len(self._notes) - count, 0)
        return tuple(json.loads(body) for _, body in list(self._notes)[first:])

    def _load(self) -> None:
        self._notes = deque((record.id, record.body) for record in self._store.read(KIND))


HITS_KIND = "hits"


class Hits:
    """Counts recalls, and those that found something; stored like everything else."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.recalls = self.hits = 0
        self._record: int | None = None
        store.follow(self._load)

    @property
    def rate(self) -> float:
        """The share of recalls that found something; 0 before the first."""
        return self.hits / self.recalls if self.recalls else 0.0

    def count(self, hit: bool) -> None:
        recalls, hits = self.recalls + 1, self.hits + hit
        if self._record is None:
            self._record = self._store.add(HITS_KIND, "null", [recalls, hits])
        else:
            self._store.change(self._record, [recalls, hits])
        self.recalls, self.hits = recalls, hits

    def _load(self) -> None:
        (self._record, self.recalls, self.hits) = (None, 0, 0)
        for record in self._store.read(HITS_KIND):
            self._record, (self.recalls, self.hits) = record.id, record.state


Features: TypeAlias = Callable[[Any, Any], Any]
"""Requirements and a context → a vector of finite numbers, similar for similar situations."""

Generalise: TypeAlias = Callable[[Experience], Mapping[str, Any] | None]
"""An experience → the part that may work elsewhere; None if there is none."""

DEFAULTS = MemorySettings()


class MemorySystem:
    """The memory of a run, for one thread. All calls inside a `generation(seq)` are one transaction.

    Args:
      path: the SQLite file, created if it does not exist; ":memory:" lives as long as the object.
      settings: sizes, decay and the threshold of recall.
      features: computes the vector that says how similar two situations are.
      width: the length of that vector.
      schema: a name for its meaning. Vectors of another width or name stay in the file but are ignored; so do vectors
        of a function that computes other features for the first situations that were learned from (`fingerprint`).
      generalise: makes patterns from experiences, for `learn`.
      instantiate: applies a pattern's payload to a context, for `Pattern.instantiate`.
      patience: seconds to wait while another process uses the file.
    """

    def __init__(
        self,
        path: str | Path = ":memory:",
        settings: MemorySettings = DEFAULTS,
        *,
        features: Features,
        width: int,
        schema: str = "",
        generalise: Generalise | None = None,
        instantiate: Instantiate | None = None,
        patience: float = PATIENCE,
    ) -> None:
        self.settings = settings
        self._features, self._generalise = features, generalise
        decay = Decay(settings.decay_factor, settings.decay_unit)
        self._width = width
        self.store = Store(path, patience=patience)
        try:
            self._fingerprint = FeatureFingerprint(self.store, Schema(width, schema), self.direction)
            self._schema = self._fingerprint.schema
            self.working = WorkingMemory(self.store)
            self.experiences = ExperienceMemory(self.store, settings.experience_memory_size, decay)
            self.patterns = PatternMemory(self.store, settings.pattern_memory_size, decay, self._schema, instantiate)
            self.contexts = ContextualMemory(self.store, self._schema)
            self.hits = Hits(self.store)
            self.ignored = sum(self._schema.ignored(self.store, kind) for kind in (PATTERNS, CONTEXTS))
            if self.ignored:
                other = "features that were computed differently" if self._fingerprint.changed else "other features"
                self.store.notice(
                    f"{path} contains {self.ignored} patterns and contexts with {other} than these {width}, "
                    "which are kept but ignored"
                )
        # The file is locked already: a memory that cannot be opened must not keep it.
        except BaseException:
            self.store.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def now(self) -> int:
        """The current generation."""
        return self.store.now

    @property
    def notices(self) -> tuple[str, ...]:
        """What the user should know: a file that was set aside, vectors that are ignored."""
        return self.store.notices

    @property
    def hit_rate(self) -> float:
        """The share of recalls that found something; 0 before the first."""
        return self.hits.rate

    def generation(self, seq: int) -> AbstractContextManager[None]:
        """`with memory.generation(7):` everything inside belongs to generation 7, and is undone if the block raises."""
        return self.store.generation(seq)

    def direction(self, requirements: Any, context: Any) -> Direction:
        """The direction of a situation's features, which is what memories compare."""
        return direction(self._features(requirements, context), self._width)

    def recall_patterns(self, requirements: Any, context: Any) -> Recall:
        """Recall what worked in similar situations. Call it once per task, so that the group shares it."""
        found = self.patterns.recall(self.direction(requirements, context), self.settings.recall_threshold)
        self.hits.count(len(found) > 0)
        return found

    def store_experience(self, experience: Experience, priority: float) -> int:
        """Store an attempt, to be replayed by priority, and return its id."""
        return self.experiences.store(experience, priority)

    def learn(self, experience: Experience, weight: float = 1.0) -> Pattern | None:
        """Make or strengthen a pattern from a success; None if nothing in it can be generalised.

        Args:
          weight: the weight of the pattern, in (0, 1]: how good the success was.
        """
        if self._generalise is None:
            hint = "Open it with generalise=FUNCTION of an experience, or pass a payload to patterns.learn."
            raise ConfigError("this memory cannot learn patterns: it was opened without `generalise`", hint=hint)
        payload = self._generalise(experience)
        if payload is None:
            return None
        return self.patterns.learn(self._situation(experience), payload, weight)

    def report(self, pattern: Pattern, succeeded: bool) -> bool:
        """Record that a pattern was used, and whether it worked; False if it has been forgotten."""
        return self.patterns.report(pattern.id, succeeded)

    def record_context(self, key: str, experience: Experience, succeeded: bool) -> Context:
        """Record an attempt under a key, such as its domain, with how it went."""
        return self.contexts.record(key, self._situation(experience), experience.performance, succeeded)

    def forget(
        self, *, patterns: Iterable[Pattern] = (), experiences: Iterable[int] = (), contexts: Iterable[str] = ()
    ) -> int:
        """Erase patterns, experiences by id and contexts by key, with their history; return how many there were.

        Nothing of them stays in the file, and no rewind brings them back.
        """
        known = self.experiences.priorities()
        gone = [pattern.id for pattern in patterns if pattern in self.patterns]
        gone += [number for number in experiences if number in known]
        gone += [self.contexts[key].id for key in contexts if key in self.contexts]
        self.store.erase(gone)
        return len(gone)

    def _situation(self, experience: Experience) -> Direction:
        """The direction of an attempt's features, which also tell later whether the features are still the same."""
        found = self.direction(experience.requirements, experience.context)
        self._fingerprint.note(experience.requirements, experience.context, found)
        return found

    def rewind(self, seq: int) -> None:
        """Restore all memories exactly as at the end of generation `seq`, to resume a run from there."""
        self.store.rewind(seq)

    def settle(self, seq: int) -> None:
        """Discard the history before generation `seq`, the oldest checkpoint, and reuse its space in the file."""
        self.store.settle(seq)

    def sync(self) -> None:
        """Wait until everything is on disk. Call it before a checkpoint, so that memory is never behind it."""
        self.store.sync()

    def close(self) -> None:
        self.store.close()
