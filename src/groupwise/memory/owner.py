"""Whose a file is: one process keeps a memory in step with its file, and says which process it is."""

from __future__ import annotations

import fcntl
import os
import time
import weakref
from contextlib import suppress
from pathlib import Path

from groupwise.errors import StorageError

PAUSE = 0.02


class Owner:
    """Holds `<file>.lock` until it is released or the process ends, however it ends.

    Args:
      path: the file that is owned.
      patience: seconds to wait while another process, or another object of this one, owns it.
    """

    def __init__(self, path: Path, patience: float) -> None:
        try:
            self._descriptor = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StorageError(
                f"{path} cannot be used: {error.strerror}", hint="Is the folder there and writable?"
            ) from error
        try:
            self._wait(path, patience)
        except BaseException:
            self.release()
            raise
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, str(os.getpid()).encode(), 0)
        _owners.add(self)

    def release(self) -> None:
        _owners.discard(self)
        with suppress(OSError):
            os.close(self._descriptor)

    def _wait(self, path: Path, patience: float) -> None:
        end = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() >= end:
                    break
                time.sleep(PAUSE)
        holder = os.pread(self._descriptor, 32, 0).decode("ascii", "replace") or "unknown"
        raise StorageError(
            f"{path} is in use by process {holder} and was not free within {patience:g} seconds",
            hint="Wait for that process or end it, or name another file.",
        )


_owners: weakref.WeakSet[Owner] = weakref.WeakSet()


def _release_all() -> None:
    """A forked worker must not keep a file whose own process is gone."""
    for owner in list(_owners):
        owner.release()


os.register_at_fork(after_in_child=_release_all)
