"""What training frees it can take again without asking the system."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

FREE_AND_TAKE = """
import random, resource, torch
from groupwise.training.machine import keep_freed_memory
keep_freed_memory()
draw = random.Random(0)
def faults(rounds):
    for _ in range(rounds):
        [torch.ones(draw.randrange(1 << 16, 1 << 20)) for _ in range(10)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
print(-faults(30) + faults(30))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told")
def test_memory_taken_again_is_not_cleared_again() -> None:
    found = subprocess.run([sys.executable, "-c", FREE_AND_TAKE], capture_output=True, text=True, check=True)
    assert int(found.stdout) < 2000  # of 150,000 pages
