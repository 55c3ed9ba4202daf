"""Notices when the function that computes features has changed, also if its vectors are as wide as before.

The first few situations that are learned from are kept with their features. When the file is opened again, the features
of those situations are computed anew. If they are not the same, what was learned before cannot be compared with what is
asked now: it is kept under its own epoch and ignored, until a function comes that computes the same features again.
"""

import json
from collections.abc import Callable
from typing import Any

from groupwise.memory.store import Schema, Store, to_text
from groupwise.memory.vectors import Direction

KIND = "fingerprint"
PROBES = 4  # situations kept for each epoch
AGREES = 0.999  # the cosine of two vectors that count as the same, rounding aside


class FeatureFingerprint:
    """Which epoch of a schema the present features belong to.

    Args:
      store: the file.
      schema: the width and name of the vectors, as the user gives them.
      direct: requirements and a context → the direction of their features.
    """

    def __init__(self, store: Store, schema: Schema, direct: Callable[[Any, Any], Direction]) -> None:
        self._store, self._kind, self._direct = store, schema.kind(KIND), direct
        epochs: dict[int, list[bool]] = {}
        for record in store.read(self._kind):
            assert record.features is not None
            epochs.setdefault(record.state, []).append(self._agrees(record.body, record.features))
        same = [epoch for epoch, agreed in epochs.items() if all(agreed)]
        self.changed = bool(epochs) and not same
        self.epoch = min(same) if same else 1 + max(epochs) if epochs else 0
        # Epoch 0 has the name that files had before there were epochs.
        self.schema = Schema(schema.width, f"{schema.name} #{self.epoch}".lstrip()) if self.epoch else schema
        store.follow(self._load)

    def note(self, requirements: Any, context: Any, features: Direction) -> None:
        """Keep a situation to check the features by, if there are too few and JSON can say what it is."""
        body = to_text([requirements, context], "a situation")
        # A function that reads what JSON does not keep would seem to have changed at every start.
        if self._probes < PROBES and self._agrees(body, features):
            self._store.add(self._kind, body, self.epoch, features)
            self._probes += 1

    def _agrees(self, body: str, features: Direction) -> bool:
        try:
            return float(self._direct(*json.loads(body)) @ features) > AGREES
        except Exception:  # the user's function, on a situation that it may no longer understand
            return False

    def _load(self) -> None:
        self._probes = sum(record.state == self.epoch for record in self._store.read(self._kind))
