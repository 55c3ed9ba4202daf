"""Checkpoints: `checkpoints/<step>/{model.safetensors, state.pt, COMPLETE}`, and the random states they keep.

A run with a sharded optimiser adds a folder `shards`, which all ranks write (`ranks.optimizer_shards`).
"""

import hashlib
import json
import pickle
import random
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from groupwise.errors import CheckpointError, ContractError, StorageError
from groupwise.files import disk, open_regular, read_small, sync_file, sync_folder
from groupwise.types import Event


def capture_randomness() -> dict[str, Any]:
    version, internal, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)  # noqa: NPY002
    return {
        "python": [version, list(internal), gauss],
        "numpy": [name, torch.tensor(np.asarray(keys).astype(np.int64)), position, has_gauss, cached],
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def restore_randomness(state: Mapping[str, Any]) -> None:
    # Captured as lists and tensors; `random` wants tuples and NumPy wants arrays.
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), position, has_gauss, cached))  # noqa: NPY002
    torch.set_rng_state(state["torch"])
    if state["cuda"] and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["cuda"])


def seed_everything(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    torch.manual_seed(seed)


FILES = ("model.safetensors", "state.pt")
SHARDS = "shards"
BUFFER = 1 << 20  # bytes
UNREADABLE = (
    ValueError, KeyError, TypeError, AttributeError, IndexError, RuntimeError, EOFError, pickle.UnpicklingError,
    SafetensorError,
)  # fmt: skip


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint in memory: the policy's weights, and everything else as plain values and tensors.

    The state of a sharded optimiser stays in `path / SHARDS`, where each rank reads what it needs.
    """

    step: int
    seq: int
    path: Path
    model: Mapping[str, Tensor]
    state: Mapping[str, Any]


def save_checkpoint(
    folder: Path, step: int, seq: int, model: Mapping[str, Tensor], state: Mapping[str, Any],
    shards: Path | None = None,
) -> Path:  # fmt: skip
    """Write checkpoint `step` to `folder`; `seq` is the number of events before it.

    `shards` is a folder that was written already; it becomes part of the checkpoint.
    """
    target, temporary = folder / f"{step:06d}", folder / f".{step:06d}.tmp"
    tensors, aliases = without_aliases(model)
    content = {"step": step, "seq": seq, "aliases": aliases, **plain_state(state)}
    with disk(target):
        try:
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
            save_file(tensors, temporary / FILES[0])
            # Through Python's own file: fewer and larger writes, and an error of the disk comes as what it is.
            with open(temporary / FILES[1], "wb", BUFFER) as file:
                torch.save(content, file)
            names = [*FILES]
            if shards is not None:
                shards.rename(temporary / SHARDS)
                names += sorted(f"{SHARDS}/{path.name}" for path in (temporary / SHARDS).iterdir())
            # COMPLETE comes last and vouches for the others; the rename publishes all of them in one step.
            marks = {name: _mark(temporary / name) for name in names}
            (temporary / "COMPLETE").write_text(json.dumps(marks) + "\n")
            for name in (*names, "COMPLETE"):
                sync_file(temporary / name)
            for place in [temporary, *([temporary / SHARDS] if shards is not None else [])]:
                sync_folder(place)
            if target.exists():
                _discard(target)
            temporary.rename(target)
            sync_folder(folder)
        except Exception:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
    return target


def load_checkpoint(path: Path) -> Checkpoint:
    """Read the checkpoint at `path`, or raise an error that says why it cannot be trusted.

    Damaged files raise `CheckpointError`; a disk that cannot read them right now raises `StorageError`.
    """
    try:
        marks = json.loads(read_small(path / "COMPLETE"))
        for name in (*FILES, *(name for name in marks if name.startswith(f"{SHARDS}/"))):
            if marks[name] != _mark(path / name):
                raise CheckpointError(f"checkpoint {path.name} is damaged: {name} has changed since it was written")
        state = torch.load(path / FILES[1], map_location="cpu", weights_only=True)
        model = load_file(path / FILES[0])
        if type(state["step"]) is not int or type(state["seq"]) is not int or min(state["step"], state["seq"]) < 0:
            raise CheckpointError(f"checkpoint {path.name} is damaged: its step or event number is not a count")
        model |= {name: model[original] for name, original in state["aliases"].items()}
        return Checkpoint(state["step"], state["seq"], path, model, state)
    except FileNotFoundError as error:
        missing = Path(str(error.filename)).name
        raise CheckpointError(f"checkpoint {path.name} is incomplete: {missing} is missing") from error
    except OSError as error:
        raise StorageError(
            f"cannot read checkpoint {path}: {error.strerror or error}", hint="Nothing was changed; try again."
        ) from error
    except UNREADABLE as error:
        raise CheckpointError(f"checkpoint {path.name} cannot be read: {error}") from error


def without_aliases(model: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors to store, each once, and names that share a tensor (tied embeddings, for example)."""
    tensors: dict[str, Tensor] = {}
    aliases: dict[str, str] = {}
    seen: dict[tuple[Any, ...], str] = {}
    for name, value in model.items():
        # Equal memory, shape and strides: the same tensor. Empty ones have no memory to compare.
        place = (value.device, value.data_ptr(), tuple(value.shape), value.stride(), value.dtype)
        original = seen.setdefault(place, name) if value.numel() else name
        if original == name:
            tensors[name] = value.detach().cpu().contiguous().clone()
        else:
            aliases[name] = original
    return tensors, aliases


def plain_state(value: Any, path: str = "state") -> Any:
    """`value` reduced to what can be loaded safely: plain values, lists, dictionaries, tensors.

    Anything else is refused by name now, rather than found unreadable when it is needed.
    """
    if isinstance(value, Mapping):
        return {key: plain_state(item, f"{path}[{key!r}]") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(plain_state(item, f"{path}[{n}]") for n, item in enumerate(value))
    if isinstance(value, np.generic):
        return value.item()
    if type(value) in (bool, int, float, str, bytes, type(None)) or isinstance(value, Tensor):
        return value
    raise ContractError(
        f"{path} is a {type(value).__name__}, which cannot be saved safely in a checkpoint",
        hint="Return only plain values, lists, dictionaries and tensors from state_dict().",
    )


def checkpoint_folders(folder: Path) -> Iterator[Path]:
    """The checkpoints in `folder`, newest first, damaged ones included."""
    steps = [p for p in folder.glob("[0-9]*") if p.is_dir() and re.fullmatch("[0-9]+", p.name)]
    yield from sorted(steps, key=lambda p: int(p.name), reverse=True)


def prune_checkpoints(folder: Path, limit: int) -> None:
    """Keep the newest `limit` checkpoints."""
    for path in list(checkpoint_folders(folder))[limit:]:
        _discard(path)


def _discard(path: Path) -> None:
    # Renamed first: half a checkpoint must never bear the name of one.
    with suppress(OSError):
        path.rename(path.with_name(f".{path.name}.old.tmp"))
    # A disk may fail once: then try again; what still remains goes with the next checkpoint.
    for _ in range(2):
        for aside in path.parent.glob(".*.old.tmp"):
            shutil.rmtree(aside, ignore_errors=True)


def later_checkpoints(folder: Path, after: int) -> list[Path]:
    return [path for path in checkpoint_folders(folder) if int(path.name) > after]


def drop_unfinished(folder: Path) -> None:
    """Remove files and folders that a crash left half-written."""
    for path in folder.glob(".*.tmp"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _mark(path: Path) -> dict[str, Any]:
    with open_regular(path) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"bytes": path.stat().st_size, "sha256": digest}


def choose_checkpoint(path: Path, step: int | None = None) -> Checkpoint:
    """The checkpoint of `step`, or the newest readable one, of the run at `path`."""
    folders = list(checkpoint_folders(path / "checkpoints"))
    wanted = [folder for folder in folders if step is None or int(folder.name) == step]
    problems = []
    for folder in wanted:
        try:
            return load_checkpoint(folder)
        except CheckpointError as error:
            problems.append(error.message)
    known = ", ".join(str(int(folder.name)) for folder in reversed(folders)) or "none"
    reason = "; ".join(problems) or (f"none for step {step}" if step is not None else "none was saved yet")
    raise CheckpointError(f"run {path.name} has no usable checkpoint: {reason}", hint=f"Its checkpoints: {known}.")


def newest_sound_checkpoint(path: Path, events: Sequence[Event], warnings: list[str]) -> Checkpoint | None:
    """Where the run at `path` resumes: the newest readable checkpoint that its log reaches, else the newest readable.

    A damaged checkpoint is passed over, and `warnings` gets the reason. A damaged or lost log costs no weights: if it
    reaches no checkpoint, the newest is taken, and the run begins a new log.
    """
    folders = list(checkpoint_folders(path / "checkpoints"))
    newest = None
    for folder in folders:
        try:
            checkpoint = load_checkpoint(folder)
        except CheckpointError as error:
            warnings.append(error.message)
            continue
        if log_reaches(events, checkpoint):
            return checkpoint
        newest = newest or folder
    if newest is None and folders:
        hint = "Nothing was changed. To start the run over, move its checkpoints folder away."
        what = f"none of the {len(folders)} checkpoints of run {path.name} can be read"
        raise CheckpointError(f"{what}: {'; '.join(warnings)}", hint=hint)
    return load_checkpoint(newest) if newest else None


def log_reaches(events: Sequence[Event], checkpoint: Checkpoint) -> bool:
    """Whether a log has the events that the checkpoint counts on: the last one is from the checkpoint's own step."""
    count = checkpoint.seq
    return count <= len(events) and (count == 0 or events[count - 1].step == checkpoint.step)
