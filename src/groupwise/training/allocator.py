"""Memory that training frees and takes again stays with the process.

Every update on a CPU takes and frees the same hundreds of megabytes. The C library hands freed memory back to the
system, which then has to clear each page anew: up to a tenth of an update of a small model.
"""

from __future__ import annotations

import ctypes
import sys

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # names of mallopt(3)
KEPT_BYTES = 1 << 30
LARGE_BYTES = 32 << 20  # a block from here on is always returned, as glibc's own rule comes to have it


def keep_freed_memory() -> None:
    """Let glibc keep up to a gigabyte it could return; other C libraries are left as they are."""
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(MMAP_THRESHOLD, LARGE_BYTES)
