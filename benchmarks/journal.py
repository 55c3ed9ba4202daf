"""Campaigns of many hours, a JSON line for each finished job: stopped anywhere, even by kill -9, they go on from there.

    {"arm", "seed", "steps", "settings", ..., "cpu_seconds", "commit", "versions", "ended"}

A journal is small, can be committed, and can be continued on another machine. `settings` is a fingerprint of what a job
was told; rows of other settings are kept but not read. A line that was cut off by a kill is dropped. A benchmark makes
its table from whatever is there, and says what is missing and how many hours of one processor that takes.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from groupwise.reporting.statistics import student_quantile
from groupwise.training.machine import source_commit

FOLDER = Path(__file__).parent / "journals"
PACKAGES = ("torch", "numpy", "gymnasium", "mujoco", "ale-py", "metaworld", "stable-baselines3")


@dataclass(frozen=True)
class Job:
    """One training run. `steps` is its budget; `settings` is everything else that it is told, except for the code."""

    arm: str
    seed: int
    steps: int
    settings: Mapping[str, Any]

    @cached_property
    def key(self) -> tuple[str, int, int, str]:
        text = json.dumps(self.settings, sort_keys=True, default=str)
        return self.arm, self.seed, self.steps, hashlib.sha256(text.encode()).hexdigest()[:12]


Rows = dict[tuple[str, int, int, str], dict[str, Any]]
Train = Callable[[Job], dict[str, Any]]


class Journal:
    """The file of a campaign."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def rows(self) -> Rows:
        """What is done, by job; the first line counts if a job was done twice."""
        found: Rows = {}
        text = self.path.read_text() if self.path.is_file() else ""
        for line in text.splitlines():
            try:
                row = json.loads(line)
            except ValueError:
                continue
            found.setdefault((row["arm"], row["seed"], row["steps"], row["settings"]), row)
        return found

    def add(self, job: Job, found: Mapping[str, Any]) -> None:
        arm, seed, steps, settings = job.key
        line = json.dumps({"arm": arm, "seed": seed, "steps": steps, "settings": settings, **found})
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            # A line that was cut off stays by itself, so that it cannot spoil the next.
            cut = file.tell() > 0 and (file.seek(-1, os.SEEK_END), file.read(1))[1] != b"\n"
            file.write(b"\n" * cut + line.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


def run(journal: Journal, jobs: Sequence[Job], train: Train, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Do what is missing, in order, and return what is done. A job that raises ends the campaign."""
    began, commit = time.monotonic(), source_commit()
    missing = [] if options.plan else [job for job in jobs if job.key not in journal.rows()]
    with ProcessPoolExecutor(options.processes, max_tasks_per_child=1) as pool:
        under_way: set[Future[None]] = set()
        while missing or under_way:
            while missing and len(under_way) < options.processes:
                under_way.add(pool.submit(_do, journal, missing.pop(0), train, commit))
            ended, under_way = wait(under_way, return_when=FIRST_COMPLETED)
            for job in ended:
                job.result()
            if options.minutes is not None and time.monotonic() - began > options.minutes * 60:
                missing = []
    rows = journal.rows()
    return [rows[job.key] for job in jobs if job.key in rows]


def _do(journal: Journal, job: Job, train: Train, commit: str | None) -> None:
    # Written by the worker itself: it is not lost if only the parent is killed.
    began = time.process_time()
    found = train(job)
    stamp = {"cpu_seconds": round(time.process_time() - began, 2), "commit": commit, "versions": versions()}
    # A job that goes on after a kill knows better what it has cost.
    row = {**stamp, **found, "ended": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    journal.add(job, row)
    print(job.arm, job.seed, row, file=sys.stderr, flush=True)


def versions() -> dict[str, str]:
    found = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def left_over(journal: Journal, jobs: Sequence[Job], guess: float) -> dict[str, Any]:
    """How much is missing, and its hours of one processor by what each arm took so far (`guess` seconds before)."""
    rows = journal.rows()
    took: dict[str, list[float]] = {}
    for job in jobs:
        if job.key in rows:
            took.setdefault(job.arm, []).append(rows[job.key]["cpu_seconds"])
    missing = [job for job in jobs if job.key not in rows]
    seconds = sum(sum(took[job.arm]) / len(took[job.arm]) if job.arm in took else guess for job in missing)
    spent = sum(rows[job.key]["cpu_seconds"] for job in jobs if job.key in rows)
    return {
        "jobs_done": len(jobs) - len(missing), "jobs": len(jobs), "cpu_hours_spent": round(spent / 3600, 2),
        "cpu_hours_left": round(seconds / 3600, 2),
    }  # fmt: skip


def over_seeds(values: Sequence[float]) -> tuple[float, list[float | None]]:
    """The mean with Student's 95% interval, which a single seed does not have."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return round(mean, 4), [None, None]
    reach = student_quantile(0.975, len(values) - 1) * float(np.std(values, ddof=1)) / len(values) ** 0.5
    return round(mean, 4), [round(mean - reach, 4), round(mean + reach, 4)]


def add_options(parser: argparse.ArgumentParser, name: str) -> None:
    """The options that all campaigns share."""
    parser.add_argument("--journal", type=Path, default=FOLDER / f"{name}.jsonl", help="where finished jobs are kept")
    parser.add_argument("--processes", type=int, default=1, help="runs at a time")
    parser.add_argument("--minutes", type=float, help="start no further run after this time")
    parser.add_argument("--plan", action="store_true", help="run nothing; say what is done and what is missing")
    parser.add_argument("--json", action="store_true", help="accepted for uniformity: JSON is printed always")
