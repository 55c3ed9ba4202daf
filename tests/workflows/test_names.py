"""Every name that `groupwise.workflows` promises is there, and importing it loads nothing heavy."""

from __future__ import annotations

import subprocess
import sys

import groupwise.workflows as workflows

HEAVY = ("numba", "lxml", "torch", "matplotlib")


def test_every_name_is_there() -> None:
    for name in workflows.__all__:
        assert getattr(workflows, name).__name__ == name


def test_importing_it_loads_nothing_heavy() -> None:
    code = f"import sys, groupwise.workflows.scoring; print([m for m in {HEAVY} if m in sys.modules])"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=True)
    assert child.stdout.strip() == "[]"
