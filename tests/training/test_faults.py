"""A share of `benchmarks/faults.py`, which disturbs every write of every product."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FAULTS = Path(__file__).parents[2] / "benchmarks" / "faults.py"


@pytest.mark.skipif(not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler on this machine")
@pytest.mark.parametrize("seed", [0])
def test_a_run_survives_a_fault_at_any_write_and_damage_to_any_file(seed: int) -> None:
    command = [sys.executable, str(FAULTS), "--json", "--products", "control", "service"]
    done = subprocess.run([*command, "--points", "40", "--seed", str(seed)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["raw"]["failures"] == []
    assert (found["claims"]["points"], found["claims"]["survived"]) == (40, 40)
    assert found["claims"]["unseen_files"] == {}
    # SQLite and torch write below Python: their files are counted all the same.
    assert found["claims"]["calls"]["service"] > found["claims"]["calls"]["control"] > 100
