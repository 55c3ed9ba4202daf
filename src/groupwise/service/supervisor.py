"""The supervisor thread: it claims jobs, starts their processes and records how they end."""

import logging
import signal
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from groupwise.errors import CheckpointError, GroupwiseError, RunError, StorageError
from groupwise.files import disk, is_locked, write_atomic
from groupwise.service.job_settings import write_settings
from groupwise.service.job_slots import JobProcess, JobSlots, error_facts
from groupwise.service.jobs import CANCELLED, FAILED, FINISHED, Job, Jobs, OverQuota, RunTaken
from groupwise.service.ownership import Ownership
from groupwise.service.schemas import TrainRequest
from groupwise.service.settings import GIB, ServiceSettings
from groupwise.training.control_file import send_command
from groupwise.training.events import sound_events
from groupwise.training.folder import RunInfo, inspect_run, read_config

logger = logging.getLogger(__name__)

MOST_STARTS = 10  # processes that may end without progress before the job counts as failed
ASK_AGAIN = 3.0  # seconds between two stop commands: a run that is still starting misses the first
FAREWELL = 10.0  # seconds processes have to save when the service shuts down
MEASURE = 5.0  # seconds between two looks at what a job has used
SMALLEST_FILE = 1 << 20  # bytes that a job may write to one file, even if little is left of its key's disk


class Supervisor:
    """Runs up to `settings.workers` jobs at a time, from `start` to `close`."""

    def __init__(self, jobs: Jobs, settings: ServiceSettings, ownership: Ownership) -> None:
        self.jobs, self.settings, self.ownership = jobs, settings, ownership
        self.id = uuid.uuid4().hex
        self.places = JobSlots(settings.folder / "jobs", settings.niceness)
        self.failing: str | None = None
        self._children: dict[str, JobProcess] = {}
        self._not_before: dict[str, float] = {}
        self._asked: dict[str, float] = {}
        self._measured: dict[str, float] = {}
        self._spent_before: dict[str, float] = {}
        self._over: dict[str, OverQuota] = {}
        self._end = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="supervisor", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Check the jobs now instead of at the next poll."""
        self._wake.set()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def close(self) -> None:
        """Let the processes save and exit. One that does not exit in time keeps running and is found again later."""
        self._end.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        # All are asked first and then waited for, so that they save at the same time.
        deadline = time.monotonic() + FAREWELL
        for child in self._children.values():
            child.ask_to_stop()
        ended = [job_id for job_id, child in self._children.items() if child.wait(deadline - time.monotonic())]
        try:
            for job in self.jobs.beat(self.id, self.settings.lease):
                if job.id in ended and self._outcome(job):
                    ended.remove(job.id)
            self.jobs.release(self.id, ended)
        except StorageError as error:
            logger.warning("could not release jobs: %s", error.message)

    def _run(self) -> None:
        while not self._end.is_set():
            try:
                self._tick()
                self.failing = None
            except StorageError as error:  # disk or database trouble: the processes and the service keep running
                if self.failing is None:
                    logger.error("cannot supervise jobs: %s", error.message)
                self.failing = error.message
            except Exception:
                logger.exception("unexpected error in the supervisor; it keeps running")
                self.failing = "an unexpected error; see the log"
            self._wake.wait(self.settings.poll)
            self._wake.clear()

    def _tick(self) -> None:
        # The heartbeat comes first: whatever else fails in this tick, the leases are renewed.
        mine = list(self.jobs.beat(self.id, self.settings.lease))
        for lost in self._children.keys() - {job.id for job in mine}:  # claimed by another service, or over
            if self._children[lost].exit_status is not None:
                self._forget(lost)
        free = self.settings.workers - len(mine)
        if free > 0:
            mine += self.jobs.claim(self.id, free, self.settings.lease)
        failed: list[Exception] = []
        for job in mine:
            try:
                self._look_after(job)
            except Exception as error:  # one job's trouble must not hold up the others
                failed.append(error)
        if failed:
            raise failed[0]

    def _look_after(self, job: Job) -> None:
        child = self._children.get(job.id)
        # A process may be ours, or one that an earlier service started: the lock knows both.
        if (child is not None and child.exit_status is None) or self.places.is_alive(job.id):
            self._measure(job, child)
            if job.wanted == "cancel" or job.id in self._over:
                self._ask_to_stop(job)
            return
        if child is not None and child.exit_status == -signal.SIGXCPU:
            self._over[job.id] = self._over_time()
        if job.id in self._over:
            self._settle(job, FAILED, self._over[job.id].as_dict()["error"])
            self._forget(job.id)
        elif self._outcome(job):
            self._forget(job.id)
        elif time.monotonic() >= self._not_before.get(job.id, 0.0):
            self._begin(job)

    def _outcome(self, job: Job) -> bool:
        """Record the outcome of a job without a process; False if it has to continue."""
        info = self._info(job)
        # Attempts up to `since` belong to an earlier request for this job; their outcome says nothing about this one.
        if info is not None and info.attempt > job.since:
            if info.state == "finished":
                return self._settle(job, FINISHED)
            if info.state == "failed":
                return self._settle(job, FAILED, _error_of(info.path) or self.places.last_error(job.id))
            if info.state == "stopped" and (job.wanted == "cancel" or _was_ordered_to_stop(info)):
                return self._settle(job, CANCELLED)
        if job.wanted == "cancel":
            return self._settle(job, CANCELLED)
        if info is not None and job.starts and self._is_beyond_repair(job, info):
            self._set_aside(job)
            return False
        # Without a run folder the process failed at its settings, which no retry mends. Storage errors and a locked
        # run are worth retrying.
        error = self.places.last_error(job.id) if job.starts and (info is None or job.starts >= MOST_STARTS) else None
        if error is not None and (error["code"] not in ("storage", "run") or job.starts >= MOST_STARTS):
            return self._settle(job, FAILED, error)
        if job.starts >= MOST_STARTS:
            last = " ".join(self.places.last_words(job.id).split()[-80:]) or "it printed nothing"
            message = f"its process ended {job.starts} times without progress; last output: {last[-500:]}"
            hint = "Check the run's report or log, then resume the job."
            return self._settle(job, FAILED, error_facts({"code": "job_dies", "message": message, "hint": hint}))
        return False

    def _is_beyond_repair(self, job: Job, info: RunInfo) -> bool:
        """Whether the run cannot be resumed: its settings or all of its checkpoints are gone."""
        try:
            read_config(info.path)
        except RunError:
            return True
        error = self.places.last_error(job.id)
        return error is not None and error["code"] == CheckpointError.code

    def _set_aside(self, job: Job) -> None:
        """Move the damaged run aside; the job still has its request, so the run starts again from scratch."""
        place = self.settings.folder / "damaged" / f"{job.run}-{uuid.uuid4().hex[:8]}"
        with disk(place):
            place.parent.mkdir(parents=True, exist_ok=True)
            self._path(job).rename(place)
        self.places.output(job.id).unlink(missing_ok=True)
        logger.warning("job %s: run %s is beyond repair; moved to %s, starting again", job.id, job.run, place)

    def _measure(self, job: Job, child: JobProcess | None) -> None:
        """Record the processor time of a job with quotas, and notice when its key has filled its disk."""
        now = time.monotonic()
        if job.scope == "admin" or now - self._measured.get(job.id, -MEASURE) < MEASURE:
            return
        self._measured[job.id] = now
        if child is not None:
            spent = self._spent_before.get(job.id, 0.0) + child.cpu_seconds
            write_atomic(self.places.cpu(job.id), f"{spent:.2f}".encode())
        used, most = self.ownership.disk_used(job.asked_by), self.settings.quotas.disk_per_key
        if used > most:
            self._over[job.id] = OverQuota(
                f"the runs of its key take {used / GIB:.2f} GiB on disk, and the limit is {most / GIB:.2f} GiB",
                hint="Delete runs, then resume the job.",
            )

    def _limits(self, job: Job) -> dict[str, int]:
        """What the kernel holds the job's process to; nothing for an administrator's."""
        if job.scope == "admin":
            return {}
        quotas = self.settings.quotas
        self._spent_before[job.id] = spent = self.places.cpu_spent(job.id)
        left = quotas.cpu_hours_per_job * 3600 - spent
        if left <= 0:
            raise self._over_time()
        room = quotas.disk_per_key - self.ownership.disk_used(job.asked_by)
        return {
            # Private memory that can be written: address space that is only reserved, as by CUDA, does not count.
            "RLIMIT_DATA": quotas.memory(self.settings.workers),
            "RLIMIT_CPU": max(1, int(left)),
            "RLIMIT_FSIZE": max(SMALLEST_FILE, room),
            "RLIMIT_CORE": 0,
        }

    def _over_time(self) -> OverQuota:
        hours = self.settings.quotas.cpu_hours_per_job
        return OverQuota(
            f"the job used its {hours:g} hours of processor time",
            hint="Ask the operator for more (groupwise serve --cpu-hours), then resume the job.",
        )

    def _begin(self, job: Job) -> None:
        info = self._info(job)
        try:
            words = self._words(job, info)
            child = self.places.start(job.id, words, self._limits(job))
        except GroupwiseError as error:
            if isinstance(error, StorageError):
                self._not_before[job.id] = time.monotonic() + 1.0
                raise
            self._settle(job, FAILED, error.as_dict()["error"])
            return
        if child is None:
            return
        self._children[job.id] = child
        starts = self.jobs.started(job, info.step if info else 0)
        # 0, 0, 0.5, 1, 2, … 30 s: a job that dies at once must not keep the machine busy.
        pause = 0.0 if starts < 3 else min(30.0, 0.5 * 2.0 ** (starts - 3))
        self._not_before[job.id] = time.monotonic() + pause
        logger.info("job %s: process %d started on run %s", job.id, child.pid, job.run)

    def _words(self, job: Job, info: RunInfo | None) -> list[str]:
        """The command line that starts the run or resumes it."""
        path = self._path(job).resolve()
        if info is not None and not job.has_begun and not _began(info.path, job.id):
            message = f"a run named {job.run!r} was made elsewhere while the job waited"
            raise RunTaken(message, hint="Start it again under another name.", field="name")
        if info is not None:
            # --quiet: what the process prints is kept only to find its error.
            return ["resume", str(path), "--json", "--quiet"]
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()  # a process was killed between creating the folder and filling it
        config = self.places.config(job.id)
        request = TrainRequest.model_validate(job.request)
        runs, reach = self.settings.runs_dir.resolve(), self.ownership.reach(job.asked_by, job.scope)
        write_settings(request, reach, job.run, runs, config, self.places.prompts(job.id))
        return ["train", str(config), "--json", "--quiet"]

    def _ask_to_stop(self, job: Job) -> None:
        now, path = time.monotonic(), self._path(job)
        if now - self._asked.get(job.id, -ASK_AGAIN) >= ASK_AGAIN and is_locked(path / "lock"):
            self._asked[job.id] = now
            send_command(path, "stop")

    def _settle(self, job: Job, state: str, error: Mapping[str, str] | None = None) -> bool:
        self.jobs.settle(job, state, error)
        logger.info("job %s is %s", job.id, state)
        return True

    def _forget(self, job_id: str) -> None:
        tables: Sequence[dict[str, Any]] = (
            self._children, self._not_before, self._asked, self._measured, self._spent_before, self._over,
        )  # fmt: skip
        for table in tables:
            table.pop(job_id, None)

    def _path(self, job: Job) -> Path:
        return self.settings.runs_dir / job.run

    def _info(self, job: Job) -> RunInfo | None:
        """The run's state; None if it has not started."""
        path = self._path(job)
        if not any((path / name).exists() for name in ("config.toml", "events.jsonl")):
            return None
        return inspect_run(path)


def _was_ordered_to_stop(info: RunInfo) -> bool:
    """Whether someone stopped the run itself, and not just its process."""
    orders = [e for e, _ in sound_events(info.path / "events.jsonl") if e.type == "control"]
    return bool(orders) and orders[-1].data.get("op") == "stop" and orders[-1].attempt == info.attempt


def _error_of(path: Path) -> dict[str, str] | None:
    for event, _ in reversed(list(sound_events(path / "events.jsonl"))):
        if event.type == "error":
            return error_facts(event.data["error"])
    return None


def _began(path: Path, job_id: str) -> bool:
    """Whether a process of the job made the run, although the service died before it could note that."""
    try:
        return job_id in (path / "env.json").read_text(encoding="utf8", errors="replace")
    except OSError:
        return False
