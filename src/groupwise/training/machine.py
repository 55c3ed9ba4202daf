"""What a run or a benchmark ran on, and the one JSON shape of a measured result."""

import ctypes
import functools
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import groupwise

PACKAGES = ("torch", "numpy", "safetensors", "pyarrow", "gymnasium", "transformers", "peft")


def describe_machine() -> dict[str, Any]:
    return {
        "groupwise": groupwise.__version__,
        "commit": source_commit(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]) if sys.argv else "",
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
    }


@functools.cache
def resident_memory() -> int:
    """Bytes of memory that this process holds; 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def source_commit() -> str | None:
    """The commit of the source tree Groupwise runs from, marked if files were changed since; None outside a tree."""
    here = ["git", "-C", str(Path(__file__).parent)]
    try:
        subprocess.run([*here, "ls-files", "--error-unmatch", Path(__file__).name], capture_output=True, check=True)
        answer = subprocess.run(
            [*here, "describe", "--always", "--dirty=-changed", "--exclude=*"],
            capture_output=True, text=True, timeout=2, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip() or None


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


# Parameters of mallopt(3).
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
KEPT_BYTES = 1 << 30
# Larger blocks are always returned: the limit that glibc's own rule ends up with.
LARGE_BYTES = 32 << 20


def keep_freed_memory() -> None:
    """Let glibc keep up to a gigabyte of freed memory; other C libraries are left alone.

    Every update on a CPU takes and frees the same hundreds of megabytes. Returned to the system, every page must be
    cleared again: up to a tenth of an update of a small model.
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(MMAP_THRESHOLD, LARGE_BYTES)


def bench_result(
    name: str,
    command: str,
    claims: Mapping[str, Any],
    *,
    seeds: Sequence[int] = (),
    intervals: Mapping[str, Sequence[float | None]] | None = None,
    peers: Mapping[str, str] | None = None,
    raw: Any = None,
    not_run: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The result of a benchmark or a paper as plain values, ready for JSON."""
    machine = describe_machine()
    return {
        "v": 1,
        "name": name,
        "command": command,
        "commit": source_commit(),
        "machine": {
            "cpus": machine["cpus"],
            "cpu": platform.processor() or platform.machine(),
            "python": machine["python"],
        },
        "peers": dict(peers or {}),
        "seeds": list(seeds),
        "claims": dict(claims),
        "intervals": dict(intervals or {}),
        "raw": raw,
        "not_run": dict(not_run or {}),
    }
