"""A share of `benchmarks/fuzz_files.py`, always the same cases: readers refuse what they cannot read, in a sentence."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
CASES = 420


def test_no_damaged_or_hostile_file_brings_a_reader_down():
    command = [sys.executable, "benchmarks/fuzz_files.py", "--cases", str(CASES), "--seed", "19"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["claims"] == {"cases": CASES, "failures": 0}
    for name, reader in result["raw"]["readers"].items():
        assert reader["read"] + reader["refused"] == reader["cases"] >= 15, name
        # If no damage were ever noticed, nothing would be checked.
        assert reader["refused"] > 0, name
