"""Commands to a running run: one JSON object per line in `control.jsonl`, applied between steps.

    {"id": "…", "op": "stop" | "checkpoint" | "scale", "args": {…}}

Resuming a run by hand appends `{"op": "resume"}`, which cancels all commands to stop before it.
"""

import json
import os
import re
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from groupwise.errors import RunError
from groupwise.files import disk, read_small

OPERATIONS = ("stop", "checkpoint", "scale", "resume")
LONGEST_LINE = 10_000


@dataclass(frozen=True)
class ControlCommand:
    id: str
    op: str
    args: Mapping[str, Any] = field(default_factory=dict)


def send_command(run_path: Path, op: str, args: Mapping[str, Any] | None = None) -> ControlCommand:
    """Append a command to the run's control file."""
    if op not in OPERATIONS:
        raise RunError(f"unknown command {op!r}", hint=f"Use one of {', '.join(OPERATIONS)}.")
    command = ControlCommand(uuid.uuid4().hex, op, dict(args or {}))
    line = json.dumps({"id": command.id, "op": op, "args": command.args}) + "\n"
    path = run_path / "control.jsonl"
    with disk(path), open(path, "ab+") as file:
        # A writer that was killed may have left a line without its end.
        if file.seek(0, os.SEEK_END) and _last_byte(file) != b"\n":
            line = "\n" + line
        file.write(line.encode())
    return command


def pending_commands(path: Path, handled: Collection[str]) -> list[ControlCommand]:
    """Commands after the last `resume` that are complete, known and not in `handled`."""
    if not path.exists():
        return []
    commands: list[ControlCommand] = []
    for line in read_small(path).splitlines(keepends=True):
        command = _parse(line) if line.endswith(b"\n") else None
        if command is None:
            continue
        # `resume` cancels everything before it except a change of scale.
        if command.op == "resume":
            commands = [c for c in commands if c.op == "scale"]
        elif command.id not in handled:
            commands.append(command)
    return commands


def _parse(line: bytes) -> ControlCommand | None:
    try:
        raw = json.loads(line[:LONGEST_LINE])
        command = ControlCommand(str(raw["id"]), str(raw["op"]), dict(raw.get("args") or {}))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return command if command.op in OPERATIONS and re.fullmatch(r"[\w-]{1,64}", command.id, re.ASCII) else None


def _last_byte(file: Any) -> bytes:
    file.seek(-1, os.SEEK_END)
    return bytes(file.read(1))
