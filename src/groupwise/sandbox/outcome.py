"""What may happen when code that a model wrote is run, and how much it may use."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from groupwise.errors import ConfigError

LONGEST = 500
"""Characters of a message."""


class SandboxOutcome(StrEnum):
    """How a run ended. Every ending has a name."""

    PASSED = "passed"
    """It ran to its end, and every test held."""
    WRONG = "wrong"
    """A test did not hold, or what came back is not plain data."""
    RAISED = "raised"
    """It raised, exited, or is no Python at all."""
    TIMED_OUT = "timed_out"
    """It ran longer than its limit."""
    MEMORY = "memory"
    """It wanted more memory than its limit, or wrote more output."""
    FORBIDDEN = "forbidden"
    """It tried what no program in a sandbox may: files, network, processes."""


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """What one run may use. Time in host functions is theirs and does not count as the code's."""

    seconds: float = 1.0
    memory_mb: int = 64
    output_kb: int = 64
    processes: int = 1
    """Processes and threads at once; the first tier has none to give."""
    calls: int = 1000
    """Calls of host functions."""

    def __post_init__(self) -> None:
        for name in ("seconds", "memory_mb", "output_kb", "processes", "calls"):
            value = getattr(self, name)
            if not 0 < value < float("inf"):
                raise ConfigError(f"limits.{name} is {value!r}, and must be finite and above 0", field=f"limits.{name}")


def readable(words: str) -> str:
    """Words of hostile code without what would steer a terminal, and not too many."""
    return "".join(letter if letter.isprintable() else " " for letter in words[:LONGEST])


@dataclass(frozen=True, slots=True)
class SandboxResult:
    """One run: how it ended, what came back, what it printed, a sentence for the reader, and how long it took.

    `value` is plain data, and None unless the run passed; `message` is empty if it did.
    """

    outcome: SandboxOutcome
    value: Any = None
    stdout: str = ""
    message: str = ""
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        return self.outcome is SandboxOutcome.PASSED
