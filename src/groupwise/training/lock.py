"""The lock of a run folder: one process writes, and says which attempt it is."""

from __future__ import annotations

import fcntl
import json
import os
import time
from contextlib import suppress
from pathlib import Path

from groupwise.errors import RunLocked
from groupwise.training.storage import disk

LOCK_TRIES = 5


def acquire(path: Path) -> int:
    """Take the lock, trying for a moment: whoever asks for a run's state holds it for an instant too."""
    with disk(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    for _ in range(LOCK_TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(0.02)
        else:
            _held.add(descriptor)
            return descriptor
    holder = os.pread(descriptor, 4096, 0).decode("utf8", "replace").strip()
    os.close(descriptor)
    raise RunLocked(
        f"run {path.parent.name} is being written by another process ({holder or 'unknown'})",
        hint="Wait for it, or stop it (Ctrl-C there) and resume here.",
    )


_held: set[int] = set()


def _close_held() -> None:
    """A forked worker must not keep the lock of a run whose own process is gone."""
    while _held:
        with suppress(OSError):
            os.close(_held.pop())


os.register_at_fork(after_in_child=_close_held)


def is_locked(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def read_attempt(descriptor: int) -> int:
    try:
        return int(json.loads(os.pread(descriptor, 4096, 0))["attempt"])
    except (ValueError, KeyError, TypeError):
        return 0


def write_attempt(descriptor: int, attempt: int) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "attempt": attempt}).encode(), 0)


def release(descriptor: int) -> None:
    _held.discard(descriptor)
    os.close(descriptor)
