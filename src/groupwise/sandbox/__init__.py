"""Runs code that a model wrote, or refuses to. See docs/sandbox.md.

with Monty() as sandbox:
    ran = sandbox.run("def solve(x):\\n    return first(x)", {"x": [3, 1]}, {"first": lambda x: x[0]}, call="solve")
ran.outcome, ran.value      # passed, 3
"""

from groupwise.sandbox.bubblewrap import Bubblewrap
from groupwise.sandbox.monty import Monty
from groupwise.sandbox.opening import TIERS, Sandbox, available, open_sandbox
from groupwise.sandbox.outcome import SandboxLimits, SandboxOutcome, SandboxResult

__all__ = [
    "TIERS",
    "Bubblewrap",
    "Monty",
    "Sandbox",
    "SandboxLimits",
    "SandboxOutcome",
    "SandboxResult",
    "available",
    "open_sandbox",
]
