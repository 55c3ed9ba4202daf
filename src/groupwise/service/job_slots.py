"""The files of a job, and its process: how it is started, within which limits, and what it last printed.

`python -m groupwise.service.job_slots LIMITS COMMAND…` is the process: it takes on the limits, which the kernel
enforces, and runs a `groupwise` command.
"""

import json
import os
import resource
import runpy
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from groupwise.files import disk, is_locked, lock_file

LONGEST_OUTPUT = 64_000
GRACE = 5  # seconds of processor time between the signal that ends a process and the one that it cannot ignore


class JobProcess:
    """A job's process, started by this service."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process, self.pid = process, process.pid

    @property
    def exit_status(self) -> int | None:
        """Its exit status; None while it runs."""
        return self._process.poll()

    @property
    def cpu_seconds(self) -> float:
        """Processor time so far, with that of its children that have ended; 0 once it is gone."""
        try:
            facts = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        # utime, stime, cutime and cstime are fields 14 to 17 of proc(5); the text before ")" holds the first two.
        return sum(int(ticks) for ticks in facts[11:15]) / os.sysconf("SC_CLK_TCK")

    def ask_to_stop(self) -> None:
        """Ask it to finish its step, save and exit."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)

    def wait(self, seconds: float) -> bool:
        try:
            self._process.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired:
            return False
        return True


class JobSlots:
    """The files of jobs in `folder`, and how their processes are started (at lower priority by `niceness`)."""

    def __init__(self, folder: Path, niceness: int = 0) -> None:
        self.folder, self._niceness = folder.resolve(), niceness
        # `nice` as a command, because a function run between fork and exec is not safe in a threaded process.
        self._politely = ("nice", "-n", str(niceness)) if niceness and shutil.which("nice") else ()
        self.empty = self.folder / "empty"
        with disk(folder):
            self.empty.mkdir(parents=True, exist_ok=True)

    def config(self, job_id: str) -> Path:
        return self.folder / f"{job_id}.json"

    def prompts(self, job_id: str) -> Path:
        return self.folder / f"{job_id}.prompts.jsonl"

    def output(self, job_id: str) -> Path:
        return self.folder / f"{job_id}.out"

    def lock(self, job_id: str) -> Path:
        return self.folder / f"{job_id}.lock"

    def cpu(self, job_id: str) -> Path:
        return self.folder / f"{job_id}.cpu"

    def cpu_spent(self, job_id: str) -> float:
        """Seconds of processor time that the job's processes have used, as far as they were recorded."""
        try:
            return float(self.cpu(job_id).read_text())
        except (OSError, ValueError):
            return 0.0

    def is_alive(self, job_id: str) -> bool:
        """Whether any process is working on the job."""
        return is_locked(self.lock(job_id))

    def start(self, job_id: str, words: Sequence[str], limits: Mapping[str, int]) -> JobProcess | None:
        """Run `groupwise WORDS` within `limits`; None if a process is already working on the job."""
        lock = lock_file(self.lock(job_id), mode=0o600)
        if lock is None:
            return None
        # The process inherits the lock, and the kernel releases it when the process ends, however it ends.
        try:
            with disk(self.output(job_id)), open(self.output(job_id), "wb") as output:
                # -P: modules are never looked for in the folder that the service was started in. A job with limits
                # starts in a folder without files of others, so that no relative path leads to one.
                process = subprocess.Popen(
                    [*self._politely, sys.executable, "-P", "-m", "groupwise.service.job_slots", json.dumps(limits),
                     *words],
                    stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, pass_fds=[lock.descriptor],
                    start_new_session=True, env=_environment(), cwd=self.empty if limits else None,
                )  # fmt: skip
        finally:
            lock.release()
        # Linux schedules each session as a group, and niceness only counts within one, so the group gets it too.
        with suppress(OSError):
            Path(f"/proc/{process.pid}/autogroup").write_text(str(self._niceness))
        return JobProcess(process)

    def last_error(self, job_id: str) -> dict[str, str] | None:
        """The error the last process printed, for a job that failed before it had a run folder."""
        # With --json the last line of a failed command is the error as one JSON object.
        for line in reversed(self.last_words(job_id).splitlines()):
            with suppress(ValueError):
                said: Any = json.loads(line)
                if isinstance(said, Mapping) and isinstance(said.get("error"), Mapping):
                    return error_facts(said["error"])
        return None

    def last_words(self, job_id: str) -> str:
        try:
            with open(self.output(job_id), "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - LONGEST_OUTPUT))
                return file.read().decode("utf8", "replace")
        except OSError:
            return ""


def _environment() -> dict[str, str]:
    """The service's environment (so that a judge's API keys reach the run), with unbuffered output."""
    # A job may start in another folder, where a relative path would lead elsewhere.
    path = os.pathsep.join(os.path.abspath(part) for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part)
    return {**os.environ, "PYTHONUNBUFFERED": "1", **({"PYTHONPATH": path} if path else {})}


def error_facts(said: Mapping[str, Any]) -> dict[str, str]:
    """The parts of an error that every job shows."""
    return {name: str(said.get(name, "")) for name in ("code", "message", "hint", "field")}


def take_limits(limits: Mapping[str, int]) -> None:
    """Set `resource` limits of this process by name; a stricter one that is already in force stays."""
    for name, most in limits.items():
        kind = getattr(resource, name)
        _, hard = resource.getrlimit(kind)
        above = most + (GRACE if kind == resource.RLIMIT_CPU else 0)
        ceiling = above if hard == resource.RLIM_INFINITY else min(above, hard)
        resource.setrlimit(kind, (min(most, ceiling), ceiling))


if __name__ == "__main__":
    take_limits(json.loads(sys.argv[1]))
    sys.argv = ["groupwise", *sys.argv[2:]]
    runpy.run_module("groupwise.cli", run_name="__main__", alter_sys=True)
