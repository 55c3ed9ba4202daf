"""What training frees it can take again without asking the system."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

FREE_AND_TAKE = """
import resource, torch
from groupwise.training.allocator import keep_freed_memory
keep_freed_memory()
def faults():
    torch.ones(12 << 20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
counts = [faults() for _ in range(4)]
print(counts[-1] - counts[-2])
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told")
def test_memory_taken_again_is_not_cleared_again() -> None:
    found = subprocess.run([sys.executable, "-c", FREE_AND_TAKE], capture_output=True, text=True, check=True)
    assert int(found.stdout) < 1000  # of the 12,288 pages of 48 MiB
