"""Every (algorithm, environment, seed) of a comparison, in worker processes: one per core, resumable.

    <folder>/jobs/<name>.json      the settings                courses/<name>.json     the scores over steps
             runs/<name>/          the run folder              failures/<name>.json    or why it failed
             snapshots/<name>.npz  a few of its groups         log.txt                 output of the workers

A finished run leaves a file, so a comparison that was killed continues where it stopped; unfinished runs resume from
their checkpoints. A run that fails is recorded and tried again next time, without affecting the others.
"""

import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import asdict, dataclass
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Self, TypeVar

from pydantic import TypeAdapter, ValidationError

from groupwise.config import TrainingConfig
from groupwise.control.comparison.worker import CourseJob, fail, write_json
from groupwise.errors import ConfigError, StorageError
from groupwise.files import disk
from groupwise.products import product_of
from groupwise.readers import read_record
from groupwise.reporting.advantage_figures import Moment, Shares, shares_of
from groupwise.reporting.comparison import Course, FailedCourse, read_courses
from groupwise.reporting.comparison_page import Extras
from groupwise.reporting.history import History
from groupwise.training.folder import inspect_run, lock_run
from groupwise.training.loop import changes
from groupwise.workers import RequestFailed, WorkerLost, Workers, how_it_ended

Recorded = TypeVar("Recorded")

# Seconds between looks at the progress of the runs.
POLL = 0.2
Progress = Callable[[float, int, int], None] | None


@dataclass(frozen=True, slots=True)
class Entry:
    """An algorithm in an environment: its name, its settings, and the module that implements its product."""

    algorithm: str
    cfg: TrainingConfig
    product: str = "groupwise.control.grpo"

    @property
    def environment(self) -> str:
        return self.cfg.task.environment


@dataclass(frozen=True, slots=True)
class CampaignOutcome:
    """The results of a campaign: scores of finished runs, and the failures."""

    courses: tuple[Course, ...]
    failures: tuple[FailedCourse, ...]


class Campaign:
    """A folder of runs that this process alone works on, and worker processes that start when they are needed.

    Several batches of runs may be carried out one after the other: later ones may depend on earlier results.
    """

    def __init__(self, folder: Path, jobs: int | None = None) -> None:
        self.folder, self.jobs = folder, jobs or os.cpu_count() or 1

    def __enter__(self) -> Self:
        with disk(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        # Two commands on one folder would train the same runs twice.
        self._lock = lock_run(self.folder)
        try:
            self._log = (self.folder / "log.txt").open("ab")
        except OSError:
            self._lock.release()
            raise
        self._workers = Workers("groupwise.control.comparison.worker:make_handler", self.jobs, stderr=self._log)
        return self

    def __exit__(self, *_: object) -> None:
        self._workers.close(grace=0)  # unfinished runs keep their folders and can be resumed
        self._log.close()
        self._lock.release()

    def carry_out(self, wanted: Sequence[CourseJob], tell: Callable[[], None]) -> None:
        """Train every run that has no scores yet, and record those whose process died."""
        for job in wanted:
            settle(job)
        open_jobs = {self._workers.submit(job): job for job in wanted if not job.result.exists()}
        while open_jobs:
            tell()
            for done in wait(open_jobs, POLL).done:
                settle_up(open_jobs.pop(done), done)
        tell()


def run_campaign(
    folder: Path, entries: Sequence[Entry], seeds: Sequence[int], *, jobs: int | None = None, progress: Progress = None
) -> CampaignOutcome:
    """Train every run that is not finished yet and return the scores of all.

    `progress(done, finished, total)` is called now and then with numbers of runs; `done` includes the finished share of
    unfinished runs.
    """
    check(entries)
    # Seeds first: if it is interrupted, all algorithms have about as many seeds.
    wanted = [job_of(folder, entry, seed, snapshot=seed == seeds[0]) for seed in seeds for entry in entries]
    with Campaign(folder, jobs) as campaign:
        campaign.carry_out(wanted, lambda: tell(progress, wanted))
    return gather(wanted)


def check(entries: Sequence[Entry]) -> None:
    """Refuse entries that cannot be compared, before anything runs."""
    names = [(entry.algorithm, entry.environment) for entry in entries]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{name[0]!r} is given twice for {name[1]}", hint="Name them: NAME=FILE.")
    for entry in entries:
        if entry.cfg.run.eval_steps == 0:
            message = f"{entry.algorithm} is never evaluated (run.eval_steps = 0), so there is nothing to compare"
            raise ConfigError(message, hint="Set run.eval_steps to 1 or more.", field="run.eval_steps")


def job_of(folder: Path, entry: Entry, seed: int, snapshot: bool) -> CourseJob:
    """The entry's settings with this seed, one thread and no trackers."""
    cfg = entry.cfg.replace(seed=seed, threads=entry.cfg.run.threads or 1, report_to=(), run_name=None)
    name = f"{entry.algorithm}--{entry.environment}"
    slug = re.sub(r"[^A-Za-z0-9._+=@-]+", "-", name).lstrip(".-+=@")[:80]
    # Two names that differ only in replaced characters must not share a file.
    if slug != name:
        slug = f"{slug}-{sha256(name.encode()).hexdigest()[:6]}"
    return CourseJob(f"{slug}--{seed}", str(folder), entry.algorithm, entry.product, cfg.to_dict(), snapshot)


def settle(job: CourseJob) -> None:
    """Write the job down; refuse to mix it with results of other settings."""
    if job.record.exists():
        before = _record(CourseJob, job.record)
        differing = changes(before.settings, job.settings)
        if differing or before.product != job.product:
            message = f"{job.folder} has results of {job.algorithm} with other settings ({'; '.join(differing[:3])})"
            raise ConfigError(message, hint="Choose another folder (--out) or delete this one.")
    write_json(job.record, asdict(job))


def _record(form: type[Recorded], path: Path) -> Recorded:
    """What an earlier attempt wrote down."""
    hint = "Delete this file: its run is trained again."
    try:
        return TypeAdapter(form).validate_python(read_record(path, hint))
    except ValidationError as error:
        raise StorageError(f"{path} is damaged: {error.errors()[0]['msg']}", hint=hint) from None


def available(product: str) -> bool:
    """Whether a module is installed."""
    try:
        return find_spec(product) is not None
    except ModuleNotFoundError:
        return False


def settle_up(job: CourseJob, done: Future[None]) -> None:
    """Record a job whose worker could not record anything itself."""
    try:
        done.result()
    except WorkerLost as error:
        log = Path(job.folder) / "log.txt"
        fail(job, f"its process {how_it_ended(error.status)}", f"See {log}. Signal 9 often means out of memory.")
    except RequestFailed as error:
        fail(job, error.message, error.hint)


def tell(progress: Progress, jobs: Sequence[CourseJob], total: int | None = None) -> None:
    """Report the progress of the jobs, of which `total` there will be in the end."""
    if progress is None:
        return
    shares = [1.0 if job.result.exists() or job.failure.exists() else share_done(job) for job in jobs]
    progress(sum(shares), sum(share == 1.0 for share in shares), total or len(jobs))


def share_done(job: CourseJob) -> float:
    """The finished share of a run, by its own status; less than 1 until its scores are written."""
    path = job.runs / job.name
    if not (path / "status.json").exists():
        return 0.0
    run = inspect_run(path)
    # Its scores are written only after the last step.
    return min(run.step / max(run.total, 1), 0.99)


def gather(jobs: Sequence[CourseJob]) -> CampaignOutcome:
    """The scores and failures that the jobs left."""
    courses, failures = [], []
    for job in jobs:
        if job.result.exists():
            courses += read_courses(job.result)
        elif job.failure.exists():
            failures.append(_record(FailedCourse, job.failure))
    return CampaignOutcome(tuple(courses), tuple(failures))


def product_module(cfg: TrainingConfig) -> str:
    """The module that implements a run's product; for an unknown product its name, which is never `available`."""
    try:
        return product_of(cfg).implementation
    except ConfigError:
        return cfg.task.product


def compare(
    folder: Path, entries: Sequence[Entry], seeds: Sequence[int], *, jobs: int | None = None, progress: Progress = None
) -> CampaignOutcome:
    """Run the entries whose product is installed; the others count as failures."""
    there = [entry for entry in entries if available(entry.product)]
    missing = [
        FailedCourse(one.algorithm, one.environment, seed, f"not available: {one.product} is not installed")
        for one in entries if one not in there for seed in seeds
    ]  # fmt: skip
    outcome = run_campaign(folder, there, seeds, jobs=jobs, progress=progress)
    return CampaignOutcome(outcome.courses, (*outcome.failures, *missing))


def extras_of(folder: Path, entries: Sequence[Entry], seed: int, **words: str) -> Extras:
    """What the report shows besides scores, from the runs of one seed: groups, weights over time, settings."""
    moments: dict[str, Moment] = {}
    shares: dict[str, Shares] = {}
    for entry in entries:
        job = job_of(folder, entry, seed, snapshot=True)
        name = f"{entry.algorithm} in {entry.environment}"
        kept = folder / "snapshots" / f"{job.name}.npz"
        if kept.exists():
            moments[name] = Moment.read(kept)
        if (job.runs / job.name).is_dir() and (found := shares_of(History.read(job.runs / job.name))):
            shares[name] = found
    settings = {entry.algorithm: entry.cfg.to_dict() for entry in entries}
    return Extras(dict(list(moments.items())[:1]), shares, settings, **words)
