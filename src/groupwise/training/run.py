"""The run folder: everything one run leaves behind, and the one process that may write to it.

    runs/<id>/  config.toml  env.json  lock  status.json  events.jsonl  control.jsonl
                groups/<step>.parquet and <first>-<last>.parquet  report.html  checkpoints/<step>/

The event log and the checkpoints are the truth; status.json, env.json and report.html are derived from them.
Resuming goes back to the newest sound checkpoint and drops everything written after it.
"""

import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from groupwise.errors import RunError
from groupwise.files import FileLock, disk, write_atomic
from groupwise.training.checkpoint import (
    drop_unfinished,
    later_checkpoints,
    load_checkpoint,
    log_reaches,
    newest_sound_checkpoint,
    prune_checkpoints,
    save_checkpoint,
)
from groupwise.training.control_file import ControlCommand, pending_commands, send_command
from groupwise.training.events import EventLog, plain, sound_events
from groupwise.training.folder import latest_metrics, lock_run, sound_config
from groupwise.training.group_files import GroupFolder, damaged_groups, forget_after, kept_steps, read_step, rewards_of
from groupwise.training.machine import describe_machine
from groupwise.types import Event, GroupRecord

NOTHING: Mapping[str, Any] = {}


class Run:
    """A run folder opened for writing by the one process that has its lock.

    Whatever came after the newest sound checkpoint is dropped: the run will make it again. Damaged files are never
    deleted but moved to `damaged/<attempt>/`.
    """

    def __init__(self, path: Path, by_hand: bool = False) -> None:
        """Open the run; `by_hand` ignores pending commands to stop."""
        # Resuming deletes and renames below these: a link could make it do so elsewhere.
        for name in ("checkpoints", "groups", "damaged", "events.jsonl", "control.jsonl"):
            if (path / name).is_symlink():
                hint = "A run keeps its files in its own folder. Remove the link."
                raise RunError(f"{path / name} is a symbolic link", hint=hint)
        self.path = path
        self.id = path.name
        self.warnings: list[str] = []
        self.notes: list[str] = []
        self._metrics: dict[str, Any] = {}
        self._lock = lock_run(path)
        try:
            if by_hand:
                send_command(path, "resume")
            events = _outline(path / "events.jsonl")
            if events and sound_config(path) is None:
                self.warnings.append("config.toml was edited or damaged; using the recorded settings (see --set)")
            # The lock may know of an attempt that died before its first event.
            self.attempt = 1 + max((event.attempt for event in events), default=0)
            self.attempt = max(self.attempt, 1 + _last_attempt(self._lock))
            self._lock.write(json.dumps({"pid": os.getpid(), "attempt": self.attempt}).encode())
            self.checkpoint = newest_sound_checkpoint(path, events, self.warnings)
            self._log = self._forget_after_checkpoint(events)
            kept = events[: self._log.count]
            if self.checkpoint is not None and not kept:
                self._rebuild_log(self.checkpoint.step)
            self._handled = {str(e.data.get("id")) for e in kept if e.type == "control"}
            if kept:
                self._metrics = latest_metrics(event for event, _ in sound_events(path / "events.jsonl"))
            self._groups = GroupFolder(path / "groups")
            write_atomic(path / "env.json", _json(describe_machine()))
        except BaseException:
            self._lock.release()
            raise

    def _forget_after_checkpoint(self, events: Sequence[Event]) -> EventLog:
        step, seq = (self.checkpoint.step, self.checkpoint.seq) if self.checkpoint else (0, 0)
        checkpoints, groups, log = (self.path / name for name in ("checkpoints", "groups", "events.jsonl"))
        with disk(self.path):
            checkpoints.mkdir(exist_ok=True)
            groups.mkdir(exist_ok=True)
            for folder in (self.path, checkpoints):
                drop_unfinished(folder)
            forget_after(groups, step)
            for path in later_checkpoints(checkpoints, step):
                self._set_aside(path, f"checkpoint {path.name} was set aside; the run continues from step {step}")
            for path in damaged_groups(groups):
                self._set_aside(path, f"groups/{path.name} is damaged; training does not need it")
            # The checkpoint counts on events that are not there: a log with a gap would be no log.
            if self.checkpoint is not None and not log_reaches(events, self.checkpoint):
                if log.exists():
                    self._set_aside(log, f"the event log is damaged after event {len(events)} and was set aside")
                return EventLog(log)
        return EventLog(log, keep=seq)

    def _rebuild_log(self, step: int) -> None:
        """Begin a lost log with what the group files know of the steps up to `step`."""
        found = []
        for number in kept_steps(self.path / "groups"):
            with suppress(RunError):
                metrics = rewards_of(read_step(self.path / "groups", number) or ())
                if metrics and number <= step:
                    found.append((number, metrics))
        for number, metrics in found:
            self.emit("step", number, {"metrics": metrics, "timing": {}, "totals": {}})
        rebuilt = f", with the rewards of {len(found)} earlier steps from the group files" if found else ""
        self.warnings.append(f"the event log was lost: a new one begins at step {step}{rebuilt}")

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

    def save(
        self, step: int, model: Mapping[str, Any], state: Mapping[str, Any], limit: int, shards: Path | None = None
    ) -> Path:
        """Save a checkpoint that agrees with the event log as it is now; `shards` is a folder that all ranks wrote."""
        # Log and groups must be on disk before the checkpoint that counts on them.
        self._log.sync()
        with disk(self.path / "groups"):
            self._groups.sync()
        folder = self.path / "checkpoints"
        path = save_checkpoint(folder, step, self._log.count, model, state, shards)
        prune_checkpoints(folder, limit)
        return path

    def write_groups(self, step: int, records: Sequence[GroupRecord], limit: int = 0) -> None:
        self._groups.write(step, records, limit)

    def set_status(self, state: str, step: int, total: int, **more: Any) -> None:
        status = {
            "v": 1, "run": self.id, "state": state, "step": step, "total": total, "seq": self.seq,
            "attempt": self.attempt, "pid": os.getpid(), "updated": time.time(), "metrics": self._metrics, **more,
        }  # fmt: skip
        write_atomic(self.path / "status.json", _json(status), durable=state != "running")

    def commands(self) -> Iterable[ControlCommand]:
        """The commands in control.jsonl that have not been carried out yet, each once."""
        for command in pending_commands(self.path / "control.jsonl", self._handled):
            self._handled.add(command.id)
            yield command

    def close(self) -> None:
        self._log.close()
        self._lock.release()


class FollowedRun:
    """A run folder as ranks other than 0 see it: they read its checkpoint and write nothing."""

    def __init__(self, path: Path, checkpoint: Path | None, attempt: int) -> None:
        if not path.is_dir():
            raise RunError(
                f"{path} is not there on this machine",
                hint="Ranks on several machines need one run folder: set run.output_dir to a shared file system.",
            )
        self.path, self.id, self.attempt = path, path.name, attempt
        self.checkpoint = None if checkpoint is None else load_checkpoint(checkpoint)
        self.warnings: list[str] = []
        self.notes: list[str] = []

    def emit(self, kind: str, step: int, data: Mapping[str, Any]) -> Event:
        return Event(self.id, 0, self.attempt, time.time(), step, kind, data)

    def write_groups(self, step: int, records: Sequence[GroupRecord], limit: int = 0) -> None:
        """Rank 0 does."""

    def set_status(self, state: str, step: int, total: int, **more: Any) -> None:
        """Rank 0 does."""

    def close(self) -> None:
        """There is no lock to release."""


def _outline(path: Path) -> list[Event]:
    """The events of the log; of steps and evaluations, which may be millions, without their numbers."""
    found: list[Event] = []
    for event, _ in sound_events(path):
        found.append(replace(event, data=NOTHING) if event.type in ("step", "eval") else event)
    return found


def _last_attempt(lock: FileLock) -> int:
    """The attempt that the previous process wrote into the lock, or 0."""
    try:
        return int(json.loads(lock.read())["attempt"])
    except (ValueError, KeyError, TypeError):
        return 0


def _json(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(plain(value), ensure_ascii=False) + "\n").encode()
