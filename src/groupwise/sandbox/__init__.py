"""Runs code that a model wrote, or refuses to. See docs/sandbox.md.

    with Monty() as sandbox:
        ran = sandbox.run("def solve(x):\\n    return first(x)", {"x": [3, 1]}, {"first": lambda x: x[0]}, call="solve")
    ran.outcome, ran.value      # passed, 3

There are two tiers. Open `monty.py` or `bubblewrap.py` first; in the order data flows:

    source_code         code that is worth running, and the lines around it that make its value leave as text
    monty               first tier: an interpreter without files or network, and the host functions code may call
    bubblewrap          second tier: full CPython in sandboxes of the Linux kernel, one per run or one per group
    bubblewrap_process  one such sandbox: how it starts, takes jobs and reports
    bubblewrap_command  what the second tier needs from this machine: the command line of its wall, packages
    seccomp             its system call filters
    program_tests       tests of programs, read before they run: the names they expect, and what they import
    wire                plain data as bytes, and messages, between processes that do not trust each other
    inside/             what is sent into a sandbox and runs there: the dispatcher, the judge and the code
    plain_data          plain data is all that leaves a sandbox: what counts as plain, and a reader of literals
    limits_and_outcomes how a run may end, and what its caller lets it use (`SandboxLimits`)
    fixed_limits        every other number that bounds a run: memory, seconds, sizes of values and messages

Where a machine cannot give a tier, opening it raises with the remedy; nothing falls back to running code in the open.
"""

from collections.abc import Callable

from groupwise.errors import ConfigError, GroupwiseError
from groupwise.sandbox.bubblewrap import Bubblewrap, JudgedProgram, proved_interpreter
from groupwise.sandbox.limits_and_outcomes import SandboxLimits, SandboxOutcome, SandboxResult
from groupwise.sandbox.monty import Monty, monty_library

__all__ = [
    "TIERS",
    "Bubblewrap",
    "JudgedProgram",
    "Monty",
    "SandboxLimits",
    "SandboxOutcome",
    "SandboxResult",
    "available",
    "open_sandbox",
]  # fmt: skip

TIERS = ("monty", "bubblewrap")


def open_sandbox(tier: str, workers: int | None = None) -> Monty | Bubblewrap:
    """The sandbox of that tier; raises, with a remedy, where this machine cannot give it."""
    if tier not in TIERS:
        raise ConfigError(f"there is no sandbox {tier!r}", hint=f"Choose one of {', '.join(TIERS)}.")
    return Monty(workers) if tier == "monty" else Bubblewrap(workers)


def available() -> dict[str, str]:
    """For each tier an empty string if it works on this machine, otherwise why not and what would help."""
    return {"monty": _fault(monty_library), "bubblewrap": _fault(proved_interpreter)}


def _fault(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except GroupwiseError as error:
        return str(error)
    return ""
