"""Which checkpoint of a run to use, when nobody is writing to it: one by its step, or the newest that is sound."""

from __future__ import annotations

from pathlib import Path

from groupwise.errors import CheckpointError
from groupwise.training.checkpoint import Checkpoint, checkpoint_folders, load_checkpoint


def choose_checkpoint(path: Path, step: int | None = None) -> Checkpoint:
    """The checkpoint of `step`, or the newest that can be read, of the run at `path`."""
    folders = list(checkpoint_folders(path / "checkpoints"))
    wanted = [folder for folder in folders if step is None or int(folder.name) == step]
    problems = []
    for folder in wanted:
        try:
            return load_checkpoint(folder)
        except CheckpointError as error:
            problems.append(error.message)
    known = ", ".join(str(int(folder.name)) for folder in reversed(folders)) or "none"
    reason = "; ".join(problems) or (f"it has none for step {step}" if step is not None else "it has none yet")
    raise CheckpointError(f"run {path.name} has no checkpoint to use: {reason}", hint=f"Checkpoints there: {known}.")
