"""How often recalling finds something."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

from groupwise.config import MemorySettings
from groupwise.errors import ConfigError
from groupwise.memory import contexts, patterns
from groupwise.memory.contexts import Context, ContextualMemory
from groupwise.memory.experiences import Experience, ExperienceMemory
from groupwise.memory.patterns import Instantiate, Pattern, PatternMemory, Recall
from groupwise.memory.store import PATIENCE, Schema, Store
from groupwise.memory.vectors import Decay, Direction, direction
from groupwise.memory.working import WorkingMemory

HITS_KIND = "hits"


class Hits:
    """Recalls that were made, and those that returned something; kept with everything else."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.recalls = self.hits = 0
        self._record: int | None = None
        store.follow(self._load)

    @property
    def rate(self) -> float:
        """Hits per recall; 0 before the first."""
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
"""Requirements and a context → a vector of finite numbers that is alike where situations are."""

Generalise: TypeAlias = Callable[[Experience], Mapping[str, Any] | None]
"""An experience → what of it may work elsewhere; None if nothing does."""

DEFAULTS = MemorySettings()


class MemorySystem:
    """Remembers for a run. What is inside a `generation(seq)` is kept as a whole; alone, every call is. For one thread.

    Args:
      path: the SQLite file, made if it is not there; ":memory:" lives as long as the object.
      settings: sizes, decay and the threshold of recall.
      features: the vector that tells how alike two situations are.
      width: how many numbers it has.
      schema: a name for what they mean. Vectors of another width or name stay in the file and are not looked at.
      generalise: makes patterns of experiences, for `learn`.
      instantiate: makes something of a pattern's payload, for `Pattern.instantiate`.
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
        self._schema = Schema(width, schema)
        decay = Decay(settings.decay_factor, settings.decay_unit)
        self.store = Store(path, patience=patience)
        try:
            self.working = WorkingMemory(self.store)
            self.experiences = ExperienceMemory(self.store, settings.experience_memory_size, decay)
            self.patterns = PatternMemory(self.store, settings.pattern_memory_size, decay, self._schema, instantiate)
            self.contexts = ContextualMemory(self.store, self._schema)
            self.hits = Hits(self.store)
            self.ignored = sum(self._schema.strangers(self.store, kind) for kind in (patterns.KIND, contexts.KIND))
            if self.ignored:
                self.store.notice(
                    f"{path} holds {self.ignored} patterns and contexts of other features than the {width} of now: "
                    "they are kept and not looked at"
                )
        except BaseException:
            self.store.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def now(self) -> int:
        """The generation that writes carry."""
        return self.store.now

    @property
    def notices(self) -> tuple[str, ...]:
        """What its user should know: a file that was set aside, vectors that are not looked at."""
        return self.store.notices

    @property
    def hit_rate(self) -> float:
        """Recalls that returned something per recall; 0 before the first."""
        return self.hits.rate

    def generation(self, seq: int) -> AbstractContextManager[None]:
        """`with memory.generation(7):` all inside carries 7, and is kept as a whole or, if it raises, not at all."""
        return self.store.generation(seq)

    def direction(self, requirements: Any, context: Any) -> Direction:
        """The situation as the memories compare it: the direction of its features."""
        return direction(self._features(requirements, context), self._schema.width)

    def recall_patterns(self, requirements: Any, context: Any) -> Recall:
        """What worked in situations like this one. Made once per task, it is the same for the whole group."""
        found = self.patterns.recall(self.direction(requirements, context), self.settings.recall_threshold)
        self.hits.count(len(found) > 0)
        return found

    def store_experience(self, experience: Experience, priority: float) -> int:
        """Keep an attempt, to be replayed by priority; its id."""
        return self.experiences.store(experience, priority)

    def learn(self, experience: Experience, weight: float = 1.0) -> Pattern | None:
        """Make or strengthen a pattern from a success; None if nothing of it can be generalised.

        Args:
          weight: what the pattern counts, above 0 and at most 1: how good the success was.
        """
        if self._generalise is None:
            raise ConfigError(
                "no pattern can be learned: this memory was opened without `generalise`",
                hint="Open it with generalise=FUNCTION of an experience, or give a payload to patterns.learn.",
            )
        payload = self._generalise(experience)
        if payload is None:
            return None
        return self.patterns.learn(self.direction(experience.requirements, experience.context), payload, weight)

    def report(self, pattern: Pattern, succeeded: bool) -> bool:
        """Count a use of a pattern and whether it worked; False if it was forgotten meanwhile."""
        return self.patterns.report(pattern.id, succeeded)

    def record_context(self, key: str, experience: Experience, succeeded: bool) -> Context:
        """Count an attempt under a key, such as its domain, and keep how it went."""
        situation = self.direction(experience.requirements, experience.context)
        return self.contexts.record(key, situation, experience.performance, succeeded)

    def rewind(self, seq: int) -> None:
        """All memories exactly as they were at the end of generation `seq`: for a run that is resumed from there."""
        self.store.rewind(seq)

    def settle(self, seq: int) -> None:
        """Give up the past before generation `seq`, the oldest checkpoint kept, and use its room in the file again."""
        self.store.settle(seq)

    def sync(self) -> None:
        """Wait until all of it is on the disk. Before a checkpoint, so that memory never lies behind it."""
        self.store.sync()

    def close(self) -> None:
        self.store.close()
