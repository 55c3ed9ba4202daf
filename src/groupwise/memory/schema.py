"""Which features vectors are made of: only those of one schema can be compared."""

from __future__ import annotations

from dataclasses import dataclass

from groupwise.errors import ConfigError
from groupwise.memory.store import Store


@dataclass(frozen=True, slots=True)
class Schema:
    """`width` numbers whose meaning is called `name`, such as a hash of the features' names."""

    width: int
    name: str = ""

    def __post_init__(self) -> None:
        if self.width < 1:
            raise ConfigError(f"features have a width of {self.width}, and need 1 at least", hint="Give their number.")

    def kind(self, kind: str) -> str:
        """What records of a kind are called when their vectors are of this schema."""
        return f"{kind} {self.width} {self.name}"

    def strangers(self, store: Store, kind: str) -> int:
        """Records of a kind whose vectors are of another schema: they stay in the file and are not looked at."""
        counts = store.counts()
        return sum(n for name, n in counts.items() if name.startswith(f"{kind} ") and name != self.kind(kind))
