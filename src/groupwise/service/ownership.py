"""Whose jobs and runs are whose: what a key sees, what it may name, how much it has stored, and what it deletes.

The owner of a run is the key that asked for its job. Runs without a job, such as those started from the command line,
belong to the operator.
"""

import os
import re
import shutil
import time
import uuid
from pathlib import Path

from groupwise.config.nameable import Reach
from groupwise.errors import RunNotFound
from groupwise.files import disk, is_locked
from groupwise.service.jobs import Job, JobNotFound, Jobs, JobState, OverQuota
from groupwise.service.keys import Who
from groupwise.service.schemas import RUN_NAME
from groupwise.service.settings import GIB, ServiceSettings

FRESH = 5.0  # seconds that a measured size stays valid: a key may have thousands of runs


class Ownership:
    """The owners of the jobs and runs of one service."""

    def __init__(self, settings: ServiceSettings, jobs: Jobs) -> None:
        self.settings, self.jobs = settings, jobs
        self._sizes: dict[str, tuple[float, int]] = {}

    def job(self, job_id: str, who: Who) -> Job:
        """The job, if `who` may see it. A job of another key looks like one that does not exist."""
        job = self.jobs.get(job_id)
        if not who.owns(job.asked_by):
            raise JobNotFound(f"there is no job {job_id!r:.60}", hint="GET /api/jobs lists them.")
        return job

    def run(self, run: str, who: Who) -> str:
        """The name of a run, if `who` may see it."""
        if not who.may("admin"):
            job = self.jobs.of_run(run)
            if job is None or not who.owns(job.asked_by) or self.is_anothers(job):
                raise RunNotFound(f"there is no run {run!r:.100}", hint="GET /api/runs lists them.")
        return run

    def is_anothers(self, job: Job) -> bool:
        """Whether the run that has the job's name was made by somebody else, such as from the command line.

        A job may wait for days under a name whose run it has not begun.
        """
        return not job.has_begun and (self.settings.runs_dir / job.run).exists()

    def reach(self, owner: str, scope: str) -> Reach | None:
        """What the settings of a job may name; None if anything."""
        if scope == "admin":
            return None
        return Reach(
            self.settings.data_dir, lambda name: self._own_folder(name, owner), self._models(), self._workers()
        )

    def insist_on_space(self, who: Who) -> None:
        """Refuse a job whose key has filled its share of the disk."""
        used, most = self.disk_used(who.owner), self.settings.quotas.disk_per_key
        if used >= most and not who.may("admin"):
            raise OverQuota(
                f"your runs take {used / GIB:.2f} GiB on disk, and the limit is {most / GIB:.2f} GiB",
                hint="Delete runs that you no longer need: DELETE /api/runs/{run}.",
            )

    def disk_used(self, owner: str) -> int:
        """Bytes in the folders of the owner's runs, measured at most `FRESH` seconds ago."""
        measured, size = self._sizes.get(owner, (-FRESH, 0))
        if time.monotonic() - measured >= FRESH:
            own = [run for run, of in self.jobs.owners().items() if of == owner]
            size = sum(_size(self.settings.runs_dir / run) for run in own)
            self._sizes[owner] = (time.monotonic(), size)
        return size

    def delete(self, run: str, who: Who) -> None:
        """Delete a run and its job. Neither may have a process."""
        path = self.settings.runs_dir / self.run(run, who)
        job = self.jobs.of_run(run)
        if job is None and not path.is_dir():
            raise RunNotFound(f"there is no run {run!r:.100}", hint="GET /api/runs lists them.")
        trash = self.settings.folder / "deleted" / uuid.uuid4().hex
        if job is None:
            _move(path, trash)
        else:
            self.jobs.delete(job, lambda: _move(path, trash))
            for file in (self.settings.folder / "jobs").glob(f"{job.id}.*"):
                file.unlink(missing_ok=True)
        if trash.is_symlink():
            trash.unlink()
        shutil.rmtree(trash, ignore_errors=True)
        self._sizes.clear()

    def _own_folder(self, name: str, owner: str) -> Path | None:
        path = self.settings.runs_dir / name
        # A link in the folder of runs could lead anywhere.
        if not re.fullmatch(RUN_NAME, name) or path.is_symlink() or not path.is_dir():
            return None
        job = self.jobs.of_run(name)
        own = job is not None and job.asked_by == owner and not self.is_anothers(job)
        return path if own else None

    def _workers(self) -> int:
        """Worker processes of a job: as many as the machine has cores, and a few on a small one."""
        return max(16, os.cpu_count() or 1)

    def _models(self) -> tuple[str, ...]:
        return (self.settings.model, *self.settings.allow_models)


def _move(path: Path, trash: Path) -> None:
    """Take a run's folder away in one step, so that nobody sees half of it."""
    if is_locked(path / "lock"):
        raise JobState(f"run {path.name} is running", hint="Stop it first.")
    with disk(path):
        trash.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink() or path.exists():
            path.rename(trash)


def _size(folder: Path) -> int:
    """Bytes of all files below a folder; files that vanish meanwhile count as nothing."""
    total = 0
    for place, _, files in os.walk(folder):
        for file in files:
            try:
                total += os.lstat(os.path.join(place, file)).st_size
            except OSError:
                continue
    return total
