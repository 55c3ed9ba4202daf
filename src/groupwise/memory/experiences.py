"""Experience memory: what was tried for which requirements and how it went, replayed by priority.

    P(i) = priorityᵢ^α / Σ priority^α,    wᵢ = (n · P(i))^−β / max w

Schaul et al. 2016, "Prioritized Experience Replay" (arXiv:1511.05952), proportional variant. The weights undo the bias
of the sampling, completely at β = 1; max w is over the whole memory, so a weight does not depend on the other draws.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from groupwise.errors import ContractError
from groupwise.memory.store import Store, to_text
from groupwise.memory.vectors import Decay, RecordColumns

KIND = "experience"
ALPHA, BETA = 0.6, 0.4


@dataclass(frozen=True, slots=True)
class Experience:
    """One attempt: the requirements, the result, its performance and the circumstances, all as JSON values."""

    requirements: Mapping[str, Any]
    workflow: Mapping[str, Any]
    performance: Mapping[str, Any]
    context: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ReplayedExperiences:
    """The experiences that were drawn: their ids, themselves, and their importance weights in (0, 1]."""

    ids: tuple[int, ...]
    experiences: tuple[Experience, ...]
    weights: tuple[float, ...]

    def __len__(self) -> int:
        return len(self.ids)


class ExperienceMemory:
    """At most `size` experiences. If there are more, the one with the lowest decayed priority is removed.

    A priority decays from when it was last set: when the experience was stored, or by `reprioritise`.
    """

    def __init__(self, store: Store, size: int, decay: Decay) -> None:
        self._store, self.size, self._decay = store, size, decay
        store.follow(self._load)

    def __len__(self) -> int:
        return len(self._columns)

    def store(self, experience: Experience, priority: float) -> int:
        """Store an experience and return its id."""
        priority = _checked(priority)
        body = to_text({name: getattr(experience, name) for name in Experience.__slots__}, "an experience")
        with self._store.transaction():
            made = self._store.add(KIND, body, [priority, self._store.now])
            self._columns.append(made, priority=priority, rank=self._decay.rank(priority, self._store.now))
            while len(self) > self.size:
                self._store.remove(self._columns.remove_lowest("rank"))
        return made

    def sample(
        self, count: int, rng: np.random.Generator, *, alpha: float = ALPHA, beta: float = BETA
    ) -> ReplayedExperiences:
        """Draw `count` experiences with replacement; none from an empty memory."""
        if not len(self):
            return ReplayedExperiences((), (), ())
        priority = self._columns["priority"]
        # Divided by the largest first, so that no power overflows; tiny, so that every experience can be drawn.
        shares = np.maximum((priority / priority.max()) ** alpha, np.finfo(float).tiny)
        chances = shares / shares.sum()
        places = rng.choice(len(chances), count, p=chances)
        # (n · P(i))^−β over its maximum, which the smallest P has: n cancels.
        weights = (chances[places] / chances.min()) ** -beta
        ids = self._columns.ids[places].tolist()
        drawn = tuple(Experience(**json.loads(body)) for body in self._store.bodies(ids))
        return ReplayedExperiences(tuple(ids), drawn, tuple(weights.tolist()))

    def reprioritise(self, ids: Sequence[int], priorities: Sequence[float]) -> None:
        """Set new priorities for replayed experiences; those that are no longer there are skipped."""
        checked = [_checked(priority) for priority in priorities]
        here = set(self._columns.ids.tolist())
        with self._store.transaction():
            for record, priority in zip(ids, checked, strict=True):
                if record in here:
                    self._store.change(record, [priority, self._store.now])
                    rank = self._decay.rank(priority, self._store.now)
                    self._columns.change(record, priority=priority, rank=rank)

    def priorities(self) -> dict[int, float]:
        """The priority of every experience, as last set."""
        return dict(zip(self._columns.ids.tolist(), self._columns["priority"].tolist(), strict=True))

    def _load(self) -> None:
        self._columns = RecordColumns(priority=(), rank=())
        for record in self._store.read(KIND):
            priority, used = record.state
            self._columns.append(record.id, priority=priority, rank=self._decay.rank(priority, used))


def _checked(priority: float) -> float:
    if not (math.isfinite(priority) and priority > 0):
        message = f"a priority is {priority}, but must be finite and above 0"
        raise ContractError(message, hint="Add a small constant to errors of 0.")
    return float(priority)
