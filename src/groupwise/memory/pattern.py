"""A pattern: what worked in a kind of situation, without what was particular to one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from groupwise.errors import ContractError
from groupwise.memory.directions import Direction

Instantiate: TypeAlias = Callable[[Mapping[str, Any], Any], Any]
"""A payload and a context → what the pattern means there."""

PRIOR_SUCCESSES, PRIOR_USES = 1, 2


@dataclass(frozen=True, slots=True)
class Pattern:
    """What worked, where, and how often.

    Attributes:
      id: its number in the store.
      features: the situation it is about, as a direction (length 1).
      text: the payload in canonical JSON; equal payloads have equal texts.
      successes, uses: how often it worked and was tried, the success it was learned from included.
      weight: what it weighed at its last use.
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
        """What was generalised: a copy, so that nobody changes the pattern."""
        return json.loads(self.text)

    @property
    def success_rate(self) -> float:
        """(successes + 1) / (uses + 2): Laplace's rule, one imagined success and one failure before any other."""
        return (self.successes + PRIOR_SUCCESSES) / (self.uses + PRIOR_USES)

    def instantiate(self, context: Any) -> Any:
        """What the pattern means in a context, by the function the memory was opened with."""
        if self.maker is None:
            raise ContractError(
                f"pattern {self.id} cannot be instantiated: its memory was opened without `instantiate`",
                hint="Open the memory with instantiate=FUNCTION of a payload and a context.",
            )
        return self.maker(self.payload, context)
