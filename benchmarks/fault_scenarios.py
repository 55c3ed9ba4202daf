"""The short runs that `faults.py` disturbs: how each is begun, how it is taken up again, and what it must end with.

Everything happens in the current folder, under relative names, so that every run writes the same settings.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from groupwise import cli
from groupwise.config import TrainingConfig
from groupwise.errors import CheckpointError, GroupwiseError, RunError, StorageError
from groupwise.files import disk, lock_file
from groupwise.reporting import live_run
from groupwise.service.job_slots import JobProcess, JobSlots
from groupwise.service.jobs import FAILED, FINISHED, Jobs
from groupwise.service.keys import LOCAL
from groupwise.service.ownership import Ownership
from groupwise.service.settings import ServiceSettings
from groupwise.service.supervisor import Supervisor
from groupwise.service.tables import Tables
from groupwise.training.checkpoint import load_checkpoint
from groupwise.training.events import DAMAGE, read_events
from groupwise.training.group_files import read_groups

RUN = Path("runs/run")
START = "FAULTS_START"  # the environment variable that names the run a language run starts from
SHORT: dict[str, Any] = {
    "num_generations": 4, "tasks_per_step": 2, "num_episodes": 2, "save_steps": 1, "eval_steps": 2, "eval_episodes": 2,
    "per_device_train_batch_size": 64, "gradient_accumulation_steps": 1, "num_epochs": 1, "threads": 1,
    "warmup_ratio": 0.0, "lr_scheduler_type": "constant",
}  # fmt: skip
CONTROL = {
    **SHORT, "environment": "CartPole-v1", "hidden_sizes": [8], "max_episode_steps": 20, "estimator": "group_rtg",
    "advantage_scale": "batch_std", "replay_groups": 1, "replay_size": 4, "num_episodes": 3, "save_total_limit": 2,
}  # fmt: skip
WARM_START = {
    **SHORT, "product": "warm-start", "environment": "addition", "model_name": "tiny", "max_new_tokens": 5,
}  # fmt: skip
# An adapter on the weights of another run, a reference and a reward with parts: all that such a run keeps.
LANGUAGE = {
    **SHORT, "product": "language", "environment": "../prompts.jsonl", "options": {"check": "none"}, "lora_rank": 4,
    "reward_name": "multi_objective", "reward_options": {"components": ["length", "keywords"]}, "beta": 0.05,
    "use_reference_model": True, "max_new_tokens": 6, "learning_rate": 1e-2,
}  # fmt: skip
AGENT = {
    **SHORT, "product": "agent", "environment": "orders", "model_name": "tiny", "max_new_tokens": 6,
    "reward_name": "length", "conversations_in_flight": 1, "max_conversation_turns": 2,
}  # fmt: skip
DESIGNER = {
    **SHORT, "product": "designer", "environment": "worlds", "estimator": "outcome", "advantage_scale": "group_std",
    "exploration_share": 0.5, "options": {"memory": "memory.sqlite"},
}  # fmt: skip
PROGRAMS = {
    **SHORT, "product": "code", "environment": "programs", "estimator": "outcome", "advantage_scale": "group_std",
    "max_new_tokens": 16, "eval_samples": 2,
    "options": {"families": "word_problems", "problems": 20, "levels": 1, "warm_steps": 1, "search_every": 2,
                "search_problems": 2, "first_search": 1, "imitate_rows": 4, "programs": "programs"},
}  # fmt: skip


@dataclass(frozen=True)
class Scenario:
    """One short run: `begin` and `recover` work in the current folder and return an exit status."""

    settings: Mapping[str, Any]
    begin: Callable[[Mapping[str, Any]], int]
    recover: Callable[[Mapping[str, Any]], int]


def train(settings: Mapping[str, Any]) -> int:
    """`groupwise train`, as a user calls it."""
    return cli.run(["train", str(settings_file(settings)), "--quiet"])


def settings_file(settings: Mapping[str, Any]) -> Path:
    """The settings beside the folder: what is written there is not the run's, and is not disturbed."""
    own = {**settings, "output_dir": "runs", "run_name": "run"}
    if own.get("product") == "language":
        own["model_name"] = os.environ[START]
        (Path.cwd().parent / "prompts.jsonl").write_text(
            "".join(json.dumps({"prompt": f"Hello {n}"}) + "\n" for n in range(24))
        )
    path = Path.cwd().with_suffix(".json")
    path.write_text(json.dumps(TrainingConfig.from_dict(own).to_dict()))
    return path


def resume(settings: Mapping[str, Any]) -> int:
    """`groupwise resume`, or `groupwise train` again where nothing was begun."""
    # The figures of the report cost more than the run, and whoever wants them calls `groupwise report`.
    live_run.write_run_report = lambda run_dir: run_dir
    if not RUN.exists():
        return train(settings)
    return cli.run(["resume", str(RUN), "--quiet"])


class ForkedSlots(JobSlots):
    """Starts the processes of jobs by forking this one, which has imported everything, instead of a new Python."""

    go: int | None = None

    def start(self, job_id: str, words: Sequence[str], limits: Mapping[str, int]) -> JobProcess | None:
        lock = lock_file(self.lock(job_id), mode=0o600)
        if lock is None:
            return None
        wait, self.go = os.pipe()
        try:
            with disk(self.output(job_id)), open(self.output(job_id), "wb") as output:
                kept = os.dup(lock.descriptor)  # the child's share of the lock; its own descriptor ends with the fork
                child = os.fork()
                if child == 0:
                    os.close(self.go)
                    # Until the service is done with its tick, or dead: the clock must not decide the order of points.
                    os.read(wait, 1)
                    os.dup2(output.fileno(), 1)
                    os.dup2(output.fileno(), 2)
                    os.chdir(self.empty)  # as a job with limits; the limits themselves are for a process of its own
                    leave(lambda: cli.run(words))
                os.close(kept)
        finally:
            os.close(wait)
            lock.release()
        return JobProcess(ForkedProcess(child))  # type: ignore[arg-type]

    def let_go(self) -> None:
        if self.go is not None:
            os.close(self.go)
            self.go = None


class ForkedProcess:
    """The part of `subprocess.Popen` that a supervisor uses."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self._look(os.WNOHANG)

    def wait(self, timeout: float | None = None) -> int:
        return int(self._look(0) or 0)

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def _look(self, options: int) -> int | None:
        if self.returncode is None:
            found, status = os.waitpid(self.pid, options)
            self.returncode = os.waitstatus_to_exitcode(status) if found else None
        return self.returncode


def serve_job(settings: Mapping[str, Any]) -> int:
    """A service from start to end: submit the job under one key, or find it again; look after it until it is over."""
    live_run.write_run_report = lambda run_dir: run_dir
    # The shortest lease: the next service takes the job over at once.
    service = ServiceSettings(runs_dir=Path("runs"), lease=1e-6, niceness=0)
    try:
        with disk(service.folder):
            service.folder.mkdir(parents=True, exist_ok=True)
        tables = Tables(service.url)
        jobs = Jobs(tables, str(service.runs_dir.resolve()))
        job, new = jobs.add("run", "control", {"config": dict(settings)}, LOCAL, "the key")
        if not new and job.state == FAILED:
            jobs.resume(job.id, attempts(RUN))
        supervisor = Supervisor(jobs, service, Ownership(service, jobs))
        supervisor.places = slots = ForkedSlots(service.folder / "jobs")
    except GroupwiseError as error:
        return refusal(error)
    troubles = 0
    while troubles < 3:
        try:
            try:
                supervisor._tick()
            finally:
                slots.let_go()
            for child in supervisor._children.values():
                child.wait(0)
                troubles += child.exit_status != 0
            if (now := jobs.get(job.id)).is_over:
                supervisor.close()
                tables.close()
                return 0 if now.state == FINISHED else refusal(GroupwiseError(str((now.error or {}).get("message"))))
            if not supervisor._children:
                time.sleep(0.01)  # a process of an earlier service works on it
        except StorageError as error:
            troubles += 1
            refusal(error)
    return 1


def attempts(run: Path) -> int:
    return max((event.attempt for event in read_events(run / "events.jsonl")), default=0)


def refusal(error: Exception) -> int:
    """What the command line makes of an error."""
    cli.complain(cli._as_message(error), ())
    return 1


SCENARIOS: Mapping[str, Scenario] = {
    "control": Scenario(CONTROL, train, resume),
    "language": Scenario(LANGUAGE, train, resume),
    "agent": Scenario(AGENT, train, resume),
    "designer": Scenario(DESIGNER, train, resume),
    "programs": Scenario(PROGRAMS, train, resume),
    "service": Scenario({**CONTROL, "num_episodes": 2}, serve_job, serve_job),
}


def leave(work: Callable[[], int]) -> None:
    """Do the work of a forked child and end the process with its status, whatever happens."""
    status = 99
    try:
        status = work()
    except BaseException as error:
        print(f"Traceback: {type(error).__name__}: {error}", file=sys.stderr)
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def facts(folder: Path) -> dict[str, Any]:
    """All that an undisturbed run and a recovered one must agree on, by the file it comes from."""
    run = folder / RUN
    events = read_events(run / "events.jsonl")
    lines = (run / "events.jsonl").read_bytes().splitlines() if events else []
    found: dict[str, Any] = {"runs/run/events.jsonl": [told(event) for event in events if told(event) is not None]}
    found["runs/run/events.jsonl: one line per event"] = len(lines) == len(events)
    for path in sorted((run / "groups").glob("*.parquet")):
        try:
            found[str(path.relative_to(folder))] = digest(read_groups(path))
        except RunError as error:
            found[str(path.relative_to(folder))] = error.message
    for path in sorted((run / "checkpoints").glob("[0-9]*")):
        try:
            checkpoint = load_checkpoint(path)
        except CheckpointError as error:
            found[str(path.relative_to(folder))] = error.message
            continue
        # The number of events before it grows with every resume, and the folder is the case's own.
        state = {name: value for name, value in checkpoint.state.items() if name not in ("seq", "config")}
        found[str(path.relative_to(folder))] = digest([dict(checkpoint.model), state])
    for path in sorted((folder / "programs").rglob("*.py")):
        found[str(path.relative_to(folder))] = digest(path.read_bytes())
    if (folder / "memory.sqlite").exists():
        found["memory.sqlite"] = rows(folder / "memory.sqlite")
    # A report is not the run's: it is drawn again by whoever asks for it.
    crumbs = [p for p in run.rglob(".*.tmp") if not p.name.startswith(".report.html")]
    found["half-written files"] = sorted(str(p.relative_to(folder)) for p in crumbs)
    return found


def told(event: Any) -> Any:
    """What an event says of learning; None where it is about this attempt only."""
    if event.type in ("step", "eval"):
        return [event.type, event.step, event.data["metrics"], event.data.get("totals"), event.data.get("samples")]
    if event.type == "hint" and event.data["code"] not in (DAMAGE, "notice", "settings_changed"):
        return [event.type, event.step, event.data["code"], event.data["message"]]
    return [event.type, event.step, event.data["reason"]] if event.type == "end" else None


def digest(value: Any) -> str:
    """A hash of nested plain values and tensors, to the last bit."""
    found = hashlib.sha256()

    def add(item: Any) -> None:
        if isinstance(item, torch.Tensor):
            found.update(f"{item.dtype}{tuple(item.shape)}".encode())
            found.update(item.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        elif isinstance(item, Mapping):
            for key in sorted(item, key=repr):
                found.update(repr(key).encode())
                add(item[key])
        elif isinstance(item, list | tuple):
            found.update(f"[{len(item)}".encode())
            for inner in item:
                add(inner)
        else:
            found.update(repr(item).encode())

    add(value)
    return found.hexdigest()


def rows(path: Path) -> str:
    """A hash of everything in an SQLite file."""
    with closing(sqlite3.connect(path)) as link:
        names = [name for (name,) in link.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        return digest([[name, *link.execute(f"SELECT * FROM {name} ORDER BY 1, 2")] for name in names])


def build_library(source: Path, target: Path) -> str | None:
    """Compile the library that is preloaded; None if it worked, else why not."""
    for compiler in ("cc", "gcc", "clang"):
        with suppress(FileNotFoundError):
            command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(target), str(source), "-ldl"]
            made = subprocess.run(command, capture_output=True, text=True)
            return made.stderr.strip()[:500] if made.returncode else None
    return "no C compiler here"
