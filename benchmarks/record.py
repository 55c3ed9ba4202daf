"""The one shape of a benchmark's result: a JSON object, printed last. Long campaigns keep what is done."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from groupwise.training.machine import bench_result


def print_result(name: str, claims: Mapping[str, Any], **rest: Any) -> None:
    """Print `bench_result` with the command of this process."""
    command = " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]])
    # At once: what a benchmark has started may take the process down while it ends.
    print(json.dumps(bench_result(name, command, claims, **rest)), flush=True)


def kept(folder: str | None, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What a job found: from its file in `folder` if it was done before, otherwise made, and kept there whole."""
    if folder is None:
        return make()
    path = Path(folder) / f"{name.replace('/', '-')}.json"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".part")
        unfinished.write_text(json.dumps(make()))
        os.replace(unfinished, path)
    found: dict[str, Any] = json.loads(path.read_text())
    return found
