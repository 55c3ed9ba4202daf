"""How often recalling finds something."""

from __future__ import annotations

from groupwise.memory.store import Store

KIND = "hits"


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
            self._record = self._store.add(KIND, "null", [recalls, hits])
        else:
            self._store.change(self._record, [recalls, hits])
        self.recalls, self.hits = recalls, hits

    def _load(self) -> None:
        (self._record, self.recalls, self.hits) = (None, 0, 0)
        for record in self._store.read(KIND):
            self._record, (self.recalls, self.hits) = record.id, record.state
