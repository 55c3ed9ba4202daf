"""Without Numba there is one clear sentence, and only when something is evaluated."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
sys.modules["numba"] = None
from groupwise.errors import MissingExtra
from groupwise.workflows.blocks import Activity, Design
from groupwise.workflows.evaluation import evaluate
from groupwise.workflows.requirements import parse_requirements
requirements = parse_requirements({"name": "r", "activities": {"a": {"duration": {"mean": 1}}}})
try:
    evaluate(Design("d", Activity("a")), requirements)
except MissingExtra as error:
    print(error)
"""


def test_without_numba_the_extra_is_named() -> None:
    found = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=600, check=True)
    assert found.stdout.startswith("evaluating workflows needs Numba, which cannot be imported")
    assert "pip install 'groupwise[workflows]'" in found.stdout


COMMAND = """
import sys
sys.modules["numba"] = None
from groupwise.cli import run
sys.exit(run(["simulate", "examples/workflows/loan.bpmn", "--requirements", "examples/workflows/loan.yaml"]))
"""


def test_without_numba_simulate_ends_with_one_sentence() -> None:
    found = subprocess.run([sys.executable, "-c", COMMAND], capture_output=True, text=True, timeout=600)
    assert found.returncode == 1
    assert found.stderr.startswith("error: evaluating workflows needs Numba")
    assert "pip install 'groupwise[workflows]'" in found.stderr
    assert len(found.stderr.splitlines()) == 2
