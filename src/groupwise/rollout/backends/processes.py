"""Workers as child processes of this one, over the protocol of `groupwise.workers`."""

from __future__ import annotations

import os
import pickle
import pkgutil
import shutil
import tempfile
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groupwise.errors import ConfigError
from groupwise.machine_memory import in_words, memory_limit
from groupwise.workers import Entry, Workers

# A worker that imports torch takes about this much memory of its own, and one core can wait for this many workers.
WORKER_MEMORY, WORKERS_PER_CORE = 256 << 20, 64


class ProcessWorkers:
    """Worker processes on this machine. Each starts with its first request, and again after it died."""

    def __init__(self, entry: Entry, args: Sequence[Any], size: int, per_worker: int) -> None:
        insist_picklable(entry, args)
        self.size = size
        self._workers = Workers(WorkerHandler, size, args=(entry, tuple(args)), at_once=per_worker)
        self._folder: Path | None = None
        self._shared = 0

    @property
    def most(self) -> int:
        return max(1, min(memory_limit() // WORKER_MEMORY, WORKERS_PER_CORE * (os.cpu_count() or 1)))

    @property
    def room(self) -> str:
        cores = os.cpu_count() or 1
        limit = f"at most {WORKERS_PER_CORE} for each core"
        return f"this machine has {cores} cores ({limit}) and {in_words(memory_limit())} of memory"

    def submit(self, worker: int, request: Any, seconds: float | None) -> Future[Any]:
        return self._workers.submit(request, worker=worker, seconds=seconds)

    def start(self, worker: int) -> Future[None]:
        return self._workers.start(worker)

    def share(self, value: Any) -> SharedFile:
        """Write the value once; each worker reads it when it first needs it. The version before it goes."""
        self._folder = self._folder or Path(tempfile.mkdtemp(prefix="groupwise-shared-"))
        self._shared += 1
        path = self._folder / str(self._shared)
        path.write_bytes(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL))
        (self._folder / str(self._shared - 1)).unlink(missing_ok=True)
        return SharedFile(str(path))

    def resize(self, size: int) -> None:
        self._workers.resize(size)
        self.size = size

    @property
    def pids(self) -> list[int]:
        return self._workers.pids

    def close(self) -> None:
        self._workers.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


class WorkerHandler:
    """The handler in a worker, around the one that `entry` makes. None asks only whether it still answers."""

    def __init__(self, entry: Entry, args: Sequence[Any]) -> None:
        self.handler: Any = (pkgutil.resolve_name(entry) if isinstance(entry, str) else entry)(*args)
        self.close = getattr(self.handler, "close", lambda: None)

    def __call__(self, request: Any) -> Any:
        return None if request is None else self.handler(request)


def insist_picklable(entry: Entry, args: Sequence[Any]) -> None:
    try:
        pickle.dumps((entry, tuple(args)))
    except Exception as error:
        raise ConfigError(
            f"what the workers should run cannot be sent to a process: {' '.join(str(error).split())}",
            hint='Define it at the top of a module instead of inside a function, or set rollout.backend = "local".',
            field="rollout.backend",
        ) from error


_read: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class SharedFile:
    """A value in a file; a worker keeps the one that it read last."""

    path: str

    def get(self) -> Any:
        if self.path not in _read:
            value = pickle.loads(Path(self.path).read_bytes())  # noqa: S301 (our own file)
            _read.clear()
            _read[self.path] = value
        return _read[self.path]
