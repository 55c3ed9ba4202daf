"""A memory that a training run uses: every attempt of the run finds it as the run's first attempt did."""

import json
from pathlib import Path

from groupwise.errors import RunError
from groupwise.files import read_small, write_atomic
from groupwise.memory.store import Store

# In a run's folder: the generation at which the run found its memory.
FOUND_AT = "memory.json"


def rewind_for_run(store: Store, generation: int) -> None:
    """Take a memory back to a generation of the run; one that has lost its past is refused."""
    if store.now < generation:
        raise RunError(
            f"the run's memory, {store.path}, is at generation {store.now}, but the run counts on generation "
            f"{generation}",
            hint="Restore the file, or go on without it: --set task.options.memory=''",
        )
    store.rewind(generation)


def start_from(run_dir: Path, store: Store, begun: bool) -> None:
    """Make every attempt of a run start from the memory that its first one found.

    A run that ends before its first checkpoint has already remembered something. `begun` says that it has a checkpoint,
    which then knows the generation to go back to.
    """
    note = run_dir / FOUND_AT
    if not note.exists():
        if not begun:
            write_atomic(note, json.dumps({"generation": store.now}).encode())
        return
    if begun:
        return
    try:
        generation = int(json.loads(read_small(note))["generation"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{note} is damaged", hint=f"Delete it to start from {store.path} as it is now.") from error
    rewind_for_run(store, generation)
