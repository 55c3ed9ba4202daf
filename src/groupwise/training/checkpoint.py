"""Checkpoints: `checkpoints/<step>/{model.safetensors, state.pt, COMPLETE}`.

A checkpoint is written beside its place, synced, and renamed into it; `COMPLETE` holds the size and the
SHA-256 of each file. So a checkpoint is either whole or known not to be, whatever happened in between.
`state.pt` is read with `weights_only=True`: plain values and tensors, never code.
"""

from __future__ import annotations

import errno
import hashlib
import json
import pickle
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from groupwise.errors import CheckpointError
from groupwise.training.storage import disk, sync_file, sync_folder

FILES = ("model.safetensors", "state.pt")
UNREADABLE = (
    ValueError, KeyError, TypeError, OSError, RuntimeError, EOFError, pickle.UnpicklingError, SafetensorError
)  # fmt: skip


@dataclass(frozen=True)
class Checkpoint:
    """A whole checkpoint, read: the policy's weights, and everything else as plain values and tensors."""

    step: int
    seq: int
    path: Path
    model: Mapping[str, Tensor]
    state: Mapping[str, Any]


def save_checkpoint(folder: Path, step: int, seq: int, model: Mapping[str, Tensor], state: Mapping[str, Any]) -> Path:
    """Write checkpoint `step` below `folder`; `seq` is the number of events that came before it."""
    target = folder / f"{step:06d}"
    temporary = folder / f".{step:06d}.tmp"
    with disk(target):
        try:
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
            tensors = {name: value.detach().cpu().contiguous() for name, value in model.items()}
            _write(lambda: save_file(tensors, temporary / FILES[0]))
            _write(lambda: torch.save({"step": step, "seq": seq, **state}, temporary / FILES[1]))
            marks = {name: _mark(temporary / name) for name in FILES}
            (temporary / "COMPLETE").write_text(json.dumps(marks) + "\n")
            for name in (*FILES, "COMPLETE"):
                sync_file(temporary / name)
            sync_folder(temporary)
            shutil.rmtree(target, ignore_errors=True)
            temporary.rename(target)
            sync_folder(folder)
        except OSError:
            with suppress(OSError):
                shutil.rmtree(temporary, ignore_errors=True)
            raise
    return target


def load_checkpoint(path: Path) -> Checkpoint:
    """Read the checkpoint at `path`, or say why it cannot be trusted."""
    try:
        marks = json.loads((path / "COMPLETE").read_text())
        for name in FILES:
            if marks[name] != _mark(path / name):
                raise CheckpointError(f"checkpoint {path.name} is damaged: {name} is not what was written")
        state = torch.load(path / FILES[1], map_location="cpu", weights_only=True)
        return Checkpoint(state["step"], state["seq"], path, load_file(path / FILES[0]), state)
    except FileNotFoundError as error:
        missing = Path(str(error.filename)).name
        raise CheckpointError(f"checkpoint {path.name} is incomplete: {missing} is missing") from error
    except UNREADABLE as error:
        raise CheckpointError(f"checkpoint {path.name} cannot be read: {error}") from error


def checkpoint_folders(folder: Path) -> Iterator[Path]:
    """The checkpoints below `folder`, newest first, sound or not."""
    steps = [p for p in folder.glob("[0-9]*") if p.is_dir() and p.name.isdigit()]
    yield from sorted(steps, key=lambda p: int(p.name), reverse=True)


def prune_checkpoints(folder: Path, limit: int) -> None:
    """Keep the newest `limit` checkpoints."""
    for path in list(checkpoint_folders(folder))[limit:]:
        shutil.rmtree(path, ignore_errors=True)


def drop_checkpoints(folder: Path, after: int) -> None:
    """Remove what a crash left behind: checkpoints past step `after`, and half-written ones."""
    for path in checkpoint_folders(folder):
        if int(path.name) > after:
            shutil.rmtree(path, ignore_errors=True)
    for path in folder.glob(".*.tmp"):
        shutil.rmtree(path, ignore_errors=True)


def _write(save: Callable[[], None]) -> None:
    """Serialisers report a full disk in their own way; make it an `OSError` like everybody's."""
    try:
        save()
    except (SafetensorError, RuntimeError) as error:
        raise OSError(_errno(error), str(error)) from error


def _errno(error: Exception) -> int:
    text = str(error)
    full = "No space left" in text or "os error 28" in text or "unexpected pos" in text
    return errno.ENOSPC if full else errno.EIO


def _mark(path: Path) -> dict[str, Any]:
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"bytes": path.stat().st_size, "sha256": digest}
