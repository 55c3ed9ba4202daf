"""Run folders from outside: create one, find one, read its settings and its state."""

import errno
import hashlib
import itertools
import json
import os
import re
import shutil
import tomllib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groupwise.config import TrainingConfig
from groupwise.errors import RunError, RunLocked, RunNotFound
from groupwise.files import FileLock, disk, is_locked, lock_file, lock_note, read_small, sync_folder, write_atomic
from groupwise.metrics import true_metrics
from groupwise.training.events import is_numbers, read_events, sound_events
from groupwise.types import Event

STATES = ("created", "running", "interrupted", "stopped", "failed", "finished")
# Seconds to wait for the lock: `is_locked` takes it for an instant too.
LOCK_PATIENCE = 0.1
CHECKSUM = "# The settings of this run. sha256 of what follows: "


@dataclass(frozen=True)
class RunInfo:
    """The state of a run, read without stopping or locking it."""

    id: str
    path: Path
    state: str
    step: int
    total: int
    attempt: int
    updated: float
    metrics: Mapping[str, Any]


def create_run(cfg: TrainingConfig) -> Path:
    """Create an empty run folder and return its path: `run_name`, or the environment and a number."""
    base, name = Path(cfg.run.output_dir), cfg.run.run_name
    if name == "latest":
        raise RunError("run_name 'latest' is reserved for the newest run", hint="Choose another run.run_name.")
    with disk(base):
        base.mkdir(parents=True, exist_ok=True)
    # "CartPole-v1" → "cartpole", "tasks.jsonl" → "tasks", "my_env.py:Corridor-v0" → "corridor".
    loaded = re.sub(r"^.*\.py:", "", cfg.task.environment)
    short = re.sub(r"-v\d+$|\.(jsonl?|parquet)$", "", _slug(Path(loaded).name))
    for path in [base / name] if name else (base / f"{short}-{number}" for number in itertools.count(1)):
        if not os.path.lexists(path) and _appears(path, cfg):
            return path
    raise RunError(
        f"a run named {name!r} already exists in {base}",
        hint=f"Resume it (`groupwise resume {base / str(name)}`) or choose another run.run_name.",
    )


def _appears(path: Path, cfg: TrainingConfig) -> bool:
    """Create the run folder with its settings in one step; false if another process was faster."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with disk(path):
        try:
            temporary.mkdir(exist_ok=True)
            write_config(temporary, cfg)
            # The rename is the test: of two processes that try the same name, one succeeds.
            temporary.rename(path)
            sync_folder(path.parent)
        except OSError as error:
            shutil.rmtree(temporary, ignore_errors=True)
            if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                return False
            raise
    return True


def lock_run(path: Path) -> FileLock:
    """The lock of the run at `path`, which lets one process at a time write to it."""
    lock = lock_file(path / "lock", patience=LOCK_PATIENCE)
    if lock is None:
        raise RunLocked(
            f"run {path.name} is being written by another process ({lock_note(path / 'lock')})",
            hint="Wait for it to finish, or stop it there (Ctrl-C) and resume it here.",
        )
    return lock


def find_run(name: str, output_dir: str = "runs") -> Path:
    """The folder of run `name`: a path, an id below `output_dir`, or `latest`."""
    runs = run_folders(Path(output_dir))
    if name == "latest" and runs:
        return max(runs, key=lambda path: (path / "config.toml").stat().st_mtime)
    for path in (Path(name), Path(output_dir) / name):
        if is_run(path):
            return path
    known = ", ".join(sorted(path.name for path in runs)[-5:]) or "none yet"
    raise RunNotFound(
        f"no run {name!r} here or in {output_dir}", hint=f"Known runs: {known}. `groupwise runs` lists them."
    )


def is_run(path: Path) -> bool:
    """Whether this is the folder of a run, perhaps one that has lost its settings or its log."""
    return any((path / name).exists() for name in ("config.toml", "events.jsonl", "checkpoints"))


def run_folders(base: Path) -> list[Path]:
    # Not those whose creation was cut short, which have a name with a dot in front.
    return sorted(path.parent for path in base.glob("[!.]*/config.toml"))


def write_config(path: Path, cfg: TrainingConfig) -> None:
    text = cfg.to_toml()
    digest = hashlib.sha256(text.encode()).hexdigest()
    write_atomic(path / "config.toml", f"{CHECKSUM}{digest}\n{text}".encode())


def read_config(path: Path) -> TrainingConfig:
    """The run's settings: from config.toml if it is intact, else from the event log."""
    text = sound_config(path)
    if text is not None:
        with suppress(ValueError, RecursionError):
            return TrainingConfig.from_dict(tomllib.loads(text))
    starts = [event for event, _ in sound_events(path / "events.jsonl") if event.type == "start"]
    if starts:
        return TrainingConfig.from_dict(starts[-1].data["config"])
    raise RunError(
        f"{path / 'config.toml'} is missing or damaged, and the event log has no copy",
        hint="This run cannot be resumed; start it again from its original settings file.",
    )


def sound_config(path: Path) -> str | None:
    """The text of config.toml, if it is unchanged since it was written."""
    try:
        head, _, text = read_small(path / "config.toml").decode("utf8").partition("\n")
    except (OSError, UnicodeDecodeError):
        return None
    return text if head == CHECKSUM + hashlib.sha256(text.encode()).hexdigest() else None


def inspect_runs(base: Path, otherwise: Callable[[Path], dict[str, Any]] | None = None) -> list[RunInfo]:
    """All runs in `base`, oldest first; one that cannot be read is listed as damaged."""
    found = []
    for path in run_folders(base):
        try:
            found.append(inspect_run(path, otherwise))
        except (OSError, ValueError, KeyError, TypeError, RunError):
            found.append(RunInfo(path.name, path, "damaged", 0, 0, 0, path.stat().st_mtime, {}))
    return sorted(found, key=lambda run: run.updated)


def inspect_run(path: Path, otherwise: Callable[[Path], dict[str, Any]] | None = None) -> RunInfo:
    """A run's state. A run whose status is `running` but whose lock is free was interrupted.

    Reads status.json; if that is missing or damaged, calls `otherwise`, or reads the full event log.
    """
    status = _read_status(path) or (otherwise or _status_from_events)(path)
    state = str(status["state"])
    if state == "running" and not is_locked(path / "lock"):
        state = "interrupted"
    return RunInfo(
        id=path.name,
        path=path,
        state=state,
        step=int(status["step"]),
        total=int(status["total"]),
        attempt=int(status["attempt"]),
        updated=float(status["updated"]),
        metrics=status["metrics"],
    )


def _read_status(path: Path) -> dict[str, Any] | None:
    """status.json, if it is intact and complete."""
    try:
        status = json.loads(read_small(path / "status.json"))
        numbers = [float(status[name]) for name in ("step", "total", "attempt", "updated")]
        # 1e11: as seconds, a date in the year 5138; as a step, nothing a run reaches.
        sound = all(0 <= number < 1e11 for number in numbers) and status["state"] in STATES
        return status if sound and is_numbers(status["metrics"]) else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _status_from_events(path: Path) -> dict[str, Any]:
    events = read_events(path / "events.jsonl")
    total = next((e.data.get("total_steps", 0) for e in reversed(events) if e.type == "start"), 0)
    return {
        "state": state_after(events[-1] if events else None),
        "step": max((e.step for e in events), default=0),
        "total": total or 0,
        "attempt": events[-1].attempt if events else 0,
        "updated": events[-1].time if events else path.stat().st_mtime,
        "metrics": latest_metrics(events),
    }


def state_after(last: Event | None) -> str:
    """The state of a run judged by its last event alone."""
    return {"end": "finished", "error": "failed"}.get(last.type, "interrupted") if last else "created"


def latest_metrics(events: Iterable[Event]) -> dict[str, Any]:
    """The newest value of every metric of steps and evaluations."""
    metrics: dict[str, Any] = {}
    for event in events:
        if event.type in ("step", "eval"):
            metrics.update(true_metrics(event.data.get("metrics", {})))
    return metrics


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-.") or "run"
