"""How a run of model-written code may end, what it may use, and its result."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import groupwise.sandbox.fixed_limits as limits
from groupwise.errors import ConfigError


class SandboxOutcome(StrEnum):
    """How a run ended. Every ending has a name."""

    PASSED = "passed"
    """It ran to the end, and every test passed."""
    WRONG = "wrong"
    """A test failed, or the value is not plain data."""
    RAISED = "raised"
    """It raised an exception, exited, or is not valid Python."""
    TIMED_OUT = "timed_out"
    """It ran longer than its limit."""
    MEMORY = "memory"
    """It needed more memory than its limit, or wrote more output."""
    FORBIDDEN = "forbidden"
    """It tried something that is forbidden in a sandbox: files, network, processes."""


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """What one run may use. Time spent in host functions does not count."""

    seconds: float = 1.0
    memory_mb: int = 64
    output_kb: int = 64
    processes: int = 1
    """Processes and threads at once; the first tier has neither."""
    calls: int = 1000
    """Calls of host functions (first tier)."""

    def __post_init__(self) -> None:
        for name in ("seconds", "memory_mb", "output_kb", "processes", "calls"):
            value = getattr(self, name)
            if not 0 < value < float("inf"):
                raise ConfigError(f"limits.{name} is {value!r} but must be finite and above 0", field=f"limits.{name}")

    def of_kernel(self, packages: int = 0) -> dict[str, int]:
        """What the kernel enforces, by the names of its RLIMIT_… constants; `packages` is memory for imported ones."""
        memory = (int(self.memory_mb) << 20) + packages
        room = {"AS": memory + limits.PYTHON_ADDRESSES, "DATA": memory + limits.PYTHON_DATA}
        time_and_files = {"CPU": int(self.seconds) + limits.PROCESSOR_GRACE, "FSIZE": 0, "NOFILE": limits.OPEN_FILES}
        several = {"NPROC": int(self.processes) + limits.OTHER_PROCESSES} if self.processes > 1 else {}
        return {**room, **time_and_files, **several}


def readable(words: str) -> str:
    """A message from hostile code, shortened and without characters that could control a terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in words[: limits.LONGEST_MESSAGE])


@dataclass(frozen=True, slots=True)
class SandboxResult:
    """One run: how it ended, its value, what it printed, a sentence for the reader, and how long it took.

    `value` is plain data, and None unless the run passed; `message` is empty if it passed. `calls` counts how often the
    tests called the program.
    """

    outcome: SandboxOutcome
    value: Any = None
    stdout: str = ""
    message: str = ""
    seconds: float = 0.0
    calls: int = 0

    @property
    def passed(self) -> bool:
        return self.outcome is SandboxOutcome.PASSED
