"""Batches for all ranks from a source that works in one process: rank 0's, which the others receive."""

from collections.abc import Mapping
from typing import Any

from groupwise.training.ranks.communication import Ranks
from groupwise.types import Batch, Hint, Policy, Source


def joined_source(source: Source, ranks: Ranks) -> Source:
    """The source as all ranks use it: shared if it can be, else rank 0's for all."""
    if ranks.alone or (hasattr(source, "join") and source.join(ranks)):
        return source
    return FirstRankSource(source, ranks)


class FirstRankSource:
    """Rank 0's batches. The source of any other rank is never asked, and keeps no state."""

    def __init__(self, source: Source, ranks: Ranks) -> None:
        self.source, self.ranks = source, ranks

    def next(self) -> Batch:
        return self.ranks.on_first(self.source.next)

    def publish(self, policy: Policy) -> None:
        if self.ranks.first:
            self.source.publish(policy)

    def state_dict(self) -> dict[str, Any]:
        return self.source.state_dict() if self.ranks.first else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if self.ranks.first:
            self.source.load_state_dict(state)

    def take_hints(self) -> tuple[Hint, ...]:
        """Hints that did not come with a batch."""
        take = getattr(self.source, "take_hints", None)
        return tuple(take()) if callable(take) else ()

    def close(self) -> None:
        self.source.close()
