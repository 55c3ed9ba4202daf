"""One course: a run from its settings to its scores, in a worker process that is handed one after the other.

A worker is `python -m groupwise.control.course`. It reads the paths of jobs from its standard input, a line each, and
answers each with a line once the job has left its file: the course, or why it failed. It ends with its parent.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from groupwise.config import TrainingConfig
from groupwise.control.snapshot import Snapshot, watching
from groupwise.errors import ContractError, GroupwiseError
from groupwise.reporting.courses import Course, FailedCourse
from groupwise.reporting.history import History
from groupwise.training.folder import create_run
from groupwise.training.loop import SCORE
from groupwise.training.session import execute
from groupwise.training.storage import write_atomic

TASK_SCORE = re.compile(r"eval/(?:task/)?(?P<task>.+)/reward_mean")


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker needs to make one course: an algorithm's settings with their seed, and whose product it is.

    `folder` is the comparison's: the run goes to `runs/<name>`, the course to `courses/<name>.json`, a failure to
    `failures/<name>.json`.
    """

    name: str
    folder: str
    algorithm: str
    product: str
    settings: Mapping[str, Any]
    snapshot: bool = False

    @property
    def cfg(self) -> TrainingConfig:
        return TrainingConfig.from_dict(self.settings).replace(run_name=self.name, output_dir=str(self.runs))

    @property
    def runs(self) -> Path:
        return Path(self.folder) / "runs"

    @property
    def result(self) -> Path:
        return Path(self.folder) / "courses" / f"{self.name}.json"

    @property
    def failure(self) -> Path:
        return Path(self.folder) / "failures" / f"{self.name}.json"

    def write(self) -> Path:
        path = Path(self.folder) / "jobs" / f"{self.name}.json"
        write_json(path, asdict(self))
        return path


def write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, (json.dumps(value) + "\n").encode())


def carry_out(job: Job) -> None:
    """Train, or go on training where the run stands, and leave a course; whatever goes wrong is left instead."""
    try:
        courses = train(job)
    except GroupwiseError as error:
        fail(job, error.message, error.hint)
    except Exception as error:
        fail(job, f"{type(error).__name__}: {error}")
    else:
        job.failure.unlink(missing_ok=True)
        write_json(job.result, [course.to_dict() for course in courses])


def fail(job: Job, message: str, hint: str = "") -> None:
    cfg = job.settings
    failure = FailedCourse(job.algorithm, cfg["task"]["environment"], cfg["run"]["seed"], message, hint)
    write_json(job.failure, asdict(failure))


def train(job: Job) -> list[Course]:
    cfg = job.cfg
    path = job.runs / job.name
    if not (path / "config.toml").exists():
        create_run(cfg)
    module = import_module(job.product)
    snapshot = Snapshot(cfg, Path(job.folder) / "snapshots" / f"{job.name}.npz") if job.snapshot else None
    clock = time.process_time()
    for event in execute(path, watching(module.build, snapshot), cfg):
        if snapshot is not None:
            snapshot.see(event)
    return courses_of(History.read(path), job.algorithm, time.process_time() - clock)


def courses_of(history: History, algorithm: str, cpu_seconds: float) -> list[Course]:
    """The evaluations of a run by the samples it had made: one course for every task it names, or one in all."""
    environment, seed = str(history.setting("task.environment")), int(history.setting("run.seed"))
    samples = {0: 0.0, **dict(zip(*history.series("totals/samples"), strict=True))}
    names = {match["task"]: name for name in history.names() if (match := TASK_SCORE.fullmatch(name))}
    wall = sum(history.series("timing/total")[1])
    courses = []
    for task, metric in (names or {environment: SCORE}).items():
        steps, scores = history.series(metric)
        found = {int(samples[step]): score for step, score in zip(steps, scores, strict=True) if step in samples}
        if not found:
            raise ContractError(
                f"the run {history.run} has no evaluation of {task}", hint="Set run.eval_steps to 1 or more."
            )
        course = Course(algorithm, environment, task, seed, tuple(found), tuple(found.values()), wall, cpu_seconds)
        courses.append(course)
    return courses


def end_with_parent(parent: int) -> None:
    """A worker whose parent was killed would go on for nobody, and hold its run's lock against the next one."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    answers, sys.stdout = sys.stdout, sys.stderr
    end_with_parent(os.getppid())
    for line in sys.stdin:
        carry_out(Job(**json.loads(Path(line.strip()).read_text("utf8"))))
        print("done", file=answers, flush=True)


if __name__ == "__main__":
    main()
