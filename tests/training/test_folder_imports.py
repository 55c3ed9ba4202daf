"""Run folders can be found, shown and locked where nothing heavy is installed."""

from __future__ import annotations

import subprocess
import sys

LIGHT = ("files", "training.folder", "training.events", "training.control_file", "training.stop_conditions",
         "training.hints", "training.formatting", "training.machine")  # fmt: skip
HEAVY = ("torch", "transformers", "safetensors", "pyarrow", "threadpoolctl")


def test_reading_a_run_folder_needs_none_of_the_libraries_of_training() -> None:
    code = f"""
import sys
for name in {HEAVY}:
    sys.modules[name] = None  # any import of it fails
for name in {LIGHT}:
    __import__("groupwise." + name)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
