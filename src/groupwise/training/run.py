"""The run folder: everything one run leaves behind, and the one process that may write to it.

    runs/<id>/  config.toml  env.json  lock  status.json  events.jsonl  control.jsonl
                groups/<step>.parquet  report.html  checkpoints/<step>/

The event log and the checkpoints are the truth; status.json, env.json and report.html are made from them.
Resuming goes back to the newest sound checkpoint and forgets whatever was written after it.
"""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import json
import os
import re
import time
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groupwise.config import TrainingConfig
from groupwise.errors import CheckpointError, RunError, RunLocked, RunNotFound
from groupwise.training.checkpoint import (
    Checkpoint,
    checkpoint_folders,
    drop_unfinished,
    later_checkpoints,
    load_checkpoint,
    prune_checkpoints,
    save_checkpoint,
)
from groupwise.training.control import Command, pending_commands, send_command
from groupwise.training.events import EventLog, plain, read_events, sound_events
from groupwise.training.groups import damaged_groups, groups_after, write_groups
from groupwise.training.machine import describe_machine
from groupwise.training.storage import disk, sync_file, write_atomic
from groupwise.types import Event, GroupRecord

LOCK_TRIES = 5
CHECKSUM = "# The settings of this run. sha256 of what follows: "


@dataclass(frozen=True)
class RunInfo:
    """What can be said of a run from outside, without stopping or locking it."""

    id: str
    path: Path
    state: str
    step: int
    total: int
    attempt: int
    updated: float
    metrics: Mapping[str, Any]


def create_run(cfg: TrainingConfig) -> Path:
    """Make a new, empty run folder and return its path: `run_name`, or the environment and a number."""
    base, name = Path(cfg.run.output_dir), cfg.run.run_name
    if name == "latest":
        raise RunError("run_name 'latest' means the newest run everywhere", hint="Choose another run.run_name.")
    with disk(base):
        base.mkdir(parents=True, exist_ok=True)
    short = re.sub(r"-v\d+$", "", _slug(cfg.task.environment))
    for path in [base / name] if name else (base / f"{short}-{number}" for number in itertools.count(1)):
        with disk(path), suppress(FileExistsError):
            path.mkdir()
            write_config(path, cfg)
            return path
    raise RunError(
        f"a run named {name!r} exists already in {base}",
        hint=f"Go on with it (`groupwise resume {base / str(name)}`) or choose another run.run_name.",
    )


def find_run(name: str, output_dir: str = "runs") -> Path:
    """The folder of run `name`: a path, an id below `output_dir`, or `latest`."""
    runs = run_folders(Path(output_dir))
    if name == "latest" and runs:
        return max(runs, key=lambda path: (path / "config.toml").stat().st_mtime)
    for path in (Path(name), Path(output_dir) / name):
        if path in runs or (path.is_dir() and (path / "events.jsonl").exists()):
            return path
    known = ", ".join(sorted(path.name for path in runs)[-5:]) or "none yet"
    raise RunNotFound(
        f"no run {name!r} here or in {output_dir}", hint=f"Known runs: {known}. `groupwise runs` lists them."
    )


def run_folders(base: Path) -> list[Path]:
    return sorted(path.parent for path in base.glob("*/config.toml"))


def write_config(path: Path, cfg: TrainingConfig) -> None:
    text = cfg.to_toml()
    digest = hashlib.sha256(text.encode()).hexdigest()
    write_atomic(path / "config.toml", f"{CHECKSUM}{digest}\n{text}".encode())


def read_config(path: Path) -> TrainingConfig:
    """The run's settings: from config.toml if it is whole, else as the event log recorded them."""
    text = sound_config(path)
    if text is not None:
        with suppress(ValueError):
            return TrainingConfig.from_dict(tomllib.loads(text))
    starts = [event for event, _ in sound_events(path / "events.jsonl") if event.type == "start"]
    if starts:
        return TrainingConfig.from_dict(starts[-1].data["config"])
    raise RunError(
        f"{path / 'config.toml'} is missing or damaged and the event log holds no copy",
        hint="Nothing of this run can be resumed; start it again from its original file.",
    )


def sound_config(path: Path) -> str | None:
    """The text of config.toml, if it is as it was written."""
    try:
        head, _, text = (path / "config.toml").read_text("utf8").partition("\n")
    except (OSError, UnicodeDecodeError):
        return None
    return text if head == CHECKSUM + hashlib.sha256(text.encode()).hexdigest() else None


def inspect_runs(base: Path) -> list[RunInfo]:
    """All runs below `base`, oldest first; one that cannot be read is listed as damaged."""
    found = []
    for path in run_folders(base):
        try:
            found.append(inspect_run(path))
        except (OSError, ValueError, KeyError, TypeError):
            found.append(RunInfo(path.name, path, "damaged", 0, 0, 0, path.stat().st_mtime, {}))
    return sorted(found, key=lambda run: run.updated)


def inspect_run(path: Path) -> RunInfo:
    """A run's state from outside. A run that says `running` but is held by nobody was interrupted.

    It reads status.json, and the whole event log only where that is missing or damaged.
    """
    status = _read_status(path) or _status_from_events(path)
    state = str(status["state"])
    if state == "running" and not _is_locked(path / "lock"):
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
    """status.json, if it is whole and says everything it should."""
    try:
        status = json.loads((path / "status.json").read_text("utf8"))
        numbers = [float(status[name]) for name in ("step", "total", "attempt", "updated")]
        sound = all(0 <= number < 1e11 for number in numbers) and isinstance(status["metrics"], dict)
        return {**status, "state": str(status["state"])} if sound else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _status_from_events(path: Path) -> dict[str, Any]:
    events = read_events(path / "events.jsonl")
    ends = {"end": "finished", "error": "failed"}
    total = next((e.data.get("total_steps", 0) for e in reversed(events) if e.type == "start"), 0)
    return {
        "state": ends.get(events[-1].type, "interrupted") if events else "created",
        "step": max((e.step for e in events), default=0),
        "total": total or 0,
        "attempt": events[-1].attempt if events else 0,
        "updated": events[-1].time if events else path.stat().st_mtime,
        "metrics": latest_metrics(events),
    }


def latest_metrics(events: Iterable[Event]) -> dict[str, Any]:
    """The newest value of every metric of steps and evaluations."""
    metrics: dict[str, Any] = {}
    for event in events:
        if event.type in ("step", "eval"):
            metrics.update(event.data.get("metrics", {}))
    return metrics


class Run:
    """A run folder opened for writing by the one process that holds its lock.

    What a crash left behind the newest sound checkpoint is forgotten: it will be made again. What is damaged
    is never deleted but set aside, in `damaged/<attempt>/`.
    """

    def __init__(self, path: Path, by_hand: bool = False) -> None:
        """Open the run; `by_hand`, orders to stop that came before are void."""
        for name in ("checkpoints", "groups", "damaged", "events.jsonl", "control.jsonl"):
            if (path / name).is_symlink():
                raise RunError(f"{path / name} is a link", hint="A run keeps its files in its own folder; remove it.")
        self.path = path
        self.id = path.name
        self.warnings: list[str] = []
        self._unsynced: list[Path] = []
        self._metrics: dict[str, Any] = {}
        self._lock = _acquire(path / "lock")
        try:
            if by_hand:
                send_command(path, "resume")
            events = read_events(path / "events.jsonl")
            if events and sound_config(path) is None:
                self.warnings.append("config.toml was edited or damaged; the recorded settings are used (see --set)")
            self.attempt = 1 + max((event.attempt for event in events), default=0)
            self.attempt = max(self.attempt, 1 + _read_lock(self._lock))
            _write_lock(self._lock, self.attempt)
            self.checkpoint = self._newest_sound_checkpoint(len(events))
            self._log = self._forget_after_checkpoint(len(events))
            kept = events[: self._log.count]
            self._handled = {str(e.data.get("id")) for e in kept if e.type == "control"}
            self._metrics = latest_metrics(kept)
            write_atomic(path / "env.json", _json(describe_machine()))
        except BaseException:
            os.close(self._lock)
            raise

    def _newest_sound_checkpoint(self, events: int) -> Checkpoint | None:
        """The newest checkpoint that can be read, if possible one that the log of `events` events reaches.

        A damaged log costs no weights: where no checkpoint comes before the damage, the newest is taken and
        the log begins anew.
        """
        folders = list(checkpoint_folders(self.path / "checkpoints"))
        newest = None
        for folder in folders:
            try:
                checkpoint = load_checkpoint(folder)
            except CheckpointError as error:
                self.warnings.append(error.message)
                continue
            if checkpoint.seq <= events:
                return checkpoint
            newest = newest or folder
        if newest is None and folders:
            raise CheckpointError(
                f"none of the {len(folders)} checkpoints of run {self.id} can be read: {'; '.join(self.warnings)}",
                hint="Nothing was changed. To start the run over, move its checkpoints folder away.",
            )
        return load_checkpoint(newest) if newest else None

    def _forget_after_checkpoint(self, events: int) -> EventLog:
        step, seq = (self.checkpoint.step, self.checkpoint.seq) if self.checkpoint else (0, 0)
        checkpoints, groups, log = (self.path / name for name in ("checkpoints", "groups", "events.jsonl"))
        with disk(self.path):
            checkpoints.mkdir(exist_ok=True)
            groups.mkdir(exist_ok=True)
            drop_unfinished(checkpoints)
            for path in groups_after(groups, step):
                path.unlink()
            for path in later_checkpoints(checkpoints, step):
                self._set_aside(path, f"checkpoint {path.name} was set aside: the run goes on from step {step}")
            for path in damaged_groups(groups):
                self._set_aside(path, f"groups/{path.name} is damaged; training does not need it")
            if seq > events:
                self._set_aside(log, f"the event log is damaged after event {events}; a new one begins at step {step}")
                return EventLog(log)
        return EventLog(log, keep=seq)

    def _set_aside(self, path: Path, warning: str) -> None:
        place = self.path / "damaged" / str(self.attempt) / path.relative_to(self.path)
        place.parent.mkdir(parents=True, exist_ok=True)
        path.rename(place)
        self.warnings.append(warning)

    @property
    def seq(self) -> int:
        """The number of events so far, and the number of the next one."""
        return self._log.count

    def emit(self, kind: str, step: int, data: Mapping[str, Any]) -> Event:
        """Append an event to the log and return it."""
        event = Event(self.id, self._log.count, self.attempt, time.time(), step, kind, plain(data))
        self._log.append(event)
        self._metrics.update(latest_metrics([event]))
        return event

    def save(self, step: int, model: Mapping[str, Any], state: Mapping[str, Any], limit: int) -> Path:
        """Take a checkpoint that agrees with the event log as it is now."""
        self._log.sync()
        with disk(self.path / "groups"):
            while self._unsynced:
                sync_file(self._unsynced.pop())
        folder = self.path / "checkpoints"
        path = save_checkpoint(folder, step, self._log.count, model, state)
        prune_checkpoints(folder, limit)
        return path

    def write_groups(self, step: int, records: Sequence[GroupRecord]) -> None:
        path = self.path / "groups" / f"{step:06d}.parquet"
        write_groups(path, step, records)
        self._unsynced.append(path)

    def set_status(self, state: str, step: int, total: int, **more: Any) -> None:
        status = {
            "v": 1, "run": self.id, "state": state, "step": step, "total": total, "seq": self.seq,
            "attempt": self.attempt, "pid": os.getpid(), "updated": time.time(), "metrics": self._metrics, **more,
        }  # fmt: skip
        write_atomic(self.path / "status.json", _json(status), durable=state != "running")

    def commands(self) -> Iterable[Command]:
        """The orders in control.jsonl that nobody has carried out yet; each is given out once."""
        for command in pending_commands(self.path / "control.jsonl", self._handled):
            self._handled.add(command.id)
            yield command

    def close(self) -> None:
        self._log.close()
        _held.discard(self._lock)
        os.close(self._lock)


def _acquire(path: Path) -> int:
    """Take the lock, trying for a moment: whoever asks for a run's state holds it for an instant too."""
    with disk(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    for _ in range(LOCK_TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(0.02)
        else:
            _held.add(descriptor)
            return descriptor
    holder = os.pread(descriptor, 4096, 0).decode("utf8", "replace").strip()
    os.close(descriptor)
    raise RunLocked(
        f"run {path.parent.name} is being written by another process ({holder or 'unknown'})",
        hint="Wait for it, or stop it (Ctrl-C there) and resume here.",
    )


_held: set[int] = set()


def _close_held() -> None:
    """A forked worker must not keep the lock of a run whose own process is gone."""
    while _held:
        with suppress(OSError):
            os.close(_held.pop())


os.register_at_fork(after_in_child=_close_held)


def _is_locked(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _read_lock(descriptor: int) -> int:
    try:
        return int(json.loads(os.pread(descriptor, 4096, 0))["attempt"])
    except (ValueError, KeyError, TypeError):
        return 0


def _write_lock(descriptor: int, attempt: int) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, _json({"pid": os.getpid(), "attempt": attempt}), 0)


def _json(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(plain(value), ensure_ascii=False) + "\n").encode()


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-.") or "run"
