"""The process of a job: the command line itself, in a session of its own, with a lock that tells whether it lives.

The service takes the lock of a job's file and hands the open file to the child. The lock is free again when the child
is gone, however that came about; whether the service that started it still lives does not matter. So a service that
takes a job over knows whether to wait for a process or to start one, and never starts a second.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from groupwise.training.storage import disk

LONGEST_OUTPUT = 64_000


class Child:
    """A process that works on a job and that this service started."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path) -> None:
        self._process, self._output = process, output
        self.pid = process.pid

    @property
    def exit_status(self) -> int | None:
        """How it ended; None while it lives."""
        return self._process.poll()

    def ask_to_stop(self) -> None:
        """It finishes its step, saves and ends."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)

    def wait(self, seconds: float) -> bool:
        try:
            self._process.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired:
            return False
        return True


class Places:
    """The files that the service keeps of its jobs, in `folder`, and the processes that it starts, so much nicer."""

    def __init__(self, folder: Path, niceness: int = 0) -> None:
        self.folder = folder
        self._niceness = niceness
        self._politely = ("nice", "-n", str(niceness)) if niceness and shutil.which("nice") else ()
        with disk(folder):
            folder.mkdir(parents=True, exist_ok=True)

    def config(self, job_id: str) -> Path:
        return self.folder / f"{job_id}.json"

    def prompts(self, job_id: str) -> Path:
        return self.folder / f"{job_id}.prompts.jsonl"

    def output(self, job_id: str) -> Path:
        return self.folder / f"{job_id}.out"

    def lock(self, job_id: str) -> Path:
        return self.folder / f"{job_id}.lock"

    def is_alive(self, job_id: str) -> bool:
        """Whether some process works on the job."""
        descriptor = _locked(self.lock(job_id))
        if descriptor is None:
            return True
        os.close(descriptor)
        return False

    def start(self, job_id: str, words: Sequence[str]) -> Child | None:
        """Run `groupwise WORDS`; None if some process works on the job already."""
        descriptor = _locked(self.lock(job_id))
        if descriptor is None:
            return None
        try:
            with disk(self.output(job_id)), open(self.output(job_id), "wb") as output:
                process = subprocess.Popen(
                    [*self._politely, sys.executable, "-m", "groupwise.cli", *words],
                    stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, pass_fds=[descriptor],
                    start_new_session=True, env=_environment(),
                )  # fmt: skip
        finally:
            os.close(descriptor)
        # A session of its own is a scheduling group of its own, and inside one niceness says nothing to the others.
        with suppress(OSError):
            Path(f"/proc/{process.pid}/autogroup").write_text(str(self._niceness))
        return Child(process, self.output(job_id))

    def last_error(self, job_id: str) -> dict[str, str] | None:
        """The error that the last process reported before anything else could hold it."""
        for line in reversed(self.last_words(job_id).splitlines()):
            with suppress(ValueError):
                said: Any = json.loads(line)
                if isinstance(said, Mapping) and isinstance(said.get("error"), Mapping):
                    return {name: str(said["error"].get(name, "")) for name in ("code", "message", "hint", "field")}
        return None

    def last_words(self, job_id: str) -> str:
        try:
            with open(self.output(job_id), "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - LONGEST_OUTPUT))
                return file.read().decode("utf8", "replace")
        except OSError:
            return ""


def _locked(path: Path) -> int | None:
    """The open file, locked; None if somebody else has it."""
    with disk(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _environment() -> dict[str, str]:
    """The service's own, so that a judge's keys reach the run; nothing buffers what a process says."""
    return {**os.environ, "PYTHONUNBUFFERED": "1"}
