"""Which sandboxes this machine can give; where none is safe, nothing runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from groupwise.errors import ConfigError, GroupwiseError
from groupwise.sandbox.bubblewrap import Bubblewrap, proved_interpreter
from groupwise.sandbox.monty import Monty, monty_library
from groupwise.sandbox.outcome import SandboxLimits, SandboxResult

TIERS = ("monty", "bubblewrap")


class Sandbox(Protocol):
    """What both tiers do. `Monty` also takes host functions, `Bubblewrap` tests and standard input."""

    def run(
        self,
        code: str,
        inputs: Mapping[str, Any] | None = None,
        *,
        limits: SandboxLimits = SandboxLimits(),
        call: str = "",
    ) -> SandboxResult: ...
    def close(self) -> None: ...


def open_sandbox(tier: str, workers: int | None = None) -> Monty | Bubblewrap:
    """The sandbox of that tier; raises, with a remedy, where this machine cannot give it."""
    if tier not in TIERS:
        raise ConfigError(f"there is no sandbox {tier!r}", hint=f"Take one of {', '.join(TIERS)}.")
    return Monty(workers) if tier == "monty" else Bubblewrap(workers)


def available() -> dict[str, str]:
    """For each tier, empty if it can be had here, or why not and what would help."""
    return {"monty": _fault(monty_library), "bubblewrap": _fault(proved_interpreter)}


def _fault(attempt: Any) -> str:
    try:
        attempt()
    except GroupwiseError as error:
        return str(error)
    return ""
