"""Working memory: the latest activities, in order."""

import json
from collections import deque
from collections.abc import Mapping
from typing import Any

from groupwise.memory.store import Store, to_text

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
