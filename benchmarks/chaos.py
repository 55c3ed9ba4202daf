"""What a run survives: SIGKILL at random moments, and every file cut at every byte of its last record.

    python benchmarks/chaos.py --kills 200 --stride 1

A survivor is a run that, resumed, ends with the same weights, steps, evaluations and groups as one that was
never disturbed, each step once and the events numbered without gaps. Only a damaged file of groups may be missing
in the end: it is a record, and no reason to give up newer weights. About forty minutes on two cores.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from record import print_result
from rich.progress import track

from groupwise.config import TrainingConfig
from groupwise.control.grpo import build
from groupwise.errors import CheckpointError
from groupwise.training.checkpoint import load_checkpoint
from groupwise.training.control_file import send_command
from groupwise.training.events import read_events
from groupwise.training.folder import create_run
from groupwise.training.group_files import read_groups
from groupwise.training.session import execute

SETTINGS = {
    "hidden_sizes": [4], "num_generations": 4, "tasks_per_step": 2, "estimator": "group_rtg",
    "advantage_scale": "batch_std", "learning_rate": 3e-3, "per_device_train_batch_size": 64,
    "gradient_accumulation_steps": 1, "num_epochs": 1, "num_episodes": 6, "eval_steps": 2, "eval_episodes": 4,
    "save_steps": 2,
}  # fmt: skip


def new_run(folder: Path, name: str) -> Path:
    return create_run(TrainingConfig.from_dict({**SETTINGS, "output_dir": str(folder), "run_name": name}))


def numbers(path: Path, without: str = "") -> str:
    """A digest of all that two equal runs agree on; `without` one file of groups, if that was damaged."""
    events = read_events(path / "events.jsonl")
    assert [e.seq for e in events] == list(range(len(events)))
    newest = max((path / "checkpoints").iterdir(), key=lambda p: p.name)
    kept = [(e.type, e.step, e.data["metrics"]) for e in events if e.type in ("step", "eval")]
    groups = [(p.name, read_groups(p)) for p in sorted((path / "groups").glob("*.parquet")) if p.name != without]
    digest = hashlib.sha256((newest / "model.safetensors").read_bytes())
    digest.update(repr((newest.name, kept, groups)).encode())
    return digest.hexdigest()


def kill_one(job: tuple[Path, int, float, str]) -> bool:
    folder, number, delay, wanted = job
    path = new_run(folder, f"kill-{number}")
    child = os.fork()
    if child == 0:
        try:
            list(execute(path, build))
        finally:
            os._exit(0)
    time.sleep(delay)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    list(execute(path, build))
    survived = numbers(path) == wanted
    shutil.rmtree(path)
    return survived


def cut_one(job: tuple[Path, Path, Path, int]) -> str | None:
    """None if the run survives `name` cut at byte `cut`, else what happened."""
    source, whole, name, cut = job
    lost = name.name if name.parts[0] == "groups" else ""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / source.name
        shutil.copytree(source, path)
        os.truncate(path / name, cut)
        try:
            list(execute(path, build))
            return None if numbers(path, lost) == numbers(whole, lost) else f"{name} cut at {cut}: other numbers"
        except Exception as error:
            return f"{name} cut at {cut}: {type(error).__name__}: {error}"


def cuts(source: Path, stride: int) -> list[tuple[Path, int]]:
    """Every byte of the last record of every file; of checkpoints and groups, the newest."""
    newest, groups = max(source.glob("checkpoints/*")).name, max(source.glob("groups/*")).name
    found = []
    for file in sorted(p for p in source.rglob("*") if p.is_file()):
        name = file.relative_to(source)
        if name.parts[0] in ("checkpoints", "groups") and newest not in name.parts and name.name != groups:
            continue
        content = file.read_bytes()
        begin = content.rstrip(b"\n").rfind(b"\n") + 1 if file.suffix == ".jsonl" else 0
        step = stride if len(content) - begin > 4096 else 1
        found += [(name, cut) for cut in range(begin, len(content), step)]
    return found


def unnoticed_cuts(run: Path) -> tuple[int, list[str]]:
    """Cut the files of a checkpoint and of groups at every single byte: how many cuts, and which pass for whole."""
    checkpoint, groups = max(run.glob("checkpoints/*")), max(run.glob("groups/*.parquet"))
    tried, accepted = 0, []
    for file in (*sorted(checkpoint.iterdir()), groups):
        whole = file.read_bytes()
        for cut in range(len(whole)):
            file.write_bytes(whole[:cut])
            tried += 1
            if is_whole(file, checkpoint) and whole[:cut].strip() != whole.strip():
                accepted.append(f"{file.name} cut at {cut}")
        file.write_bytes(whole)
    return tried, accepted


def is_whole(file: Path, checkpoint: Path) -> bool:
    try:
        read_groups(file) if file.suffix == ".parquet" else load_checkpoint(checkpoint)
    except (CheckpointError, pa.ArrowInvalid, OSError):
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--stride", type=int, default=1, help="cut records over 4 KiB at every n-th byte")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="accepted for uniformity: JSON is printed always")
    options = parser.parse_args()
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp())
    whole = new_run(folder, "whole")
    clock = time.perf_counter()
    list(execute(whole, build))
    length = time.perf_counter() - clock
    wanted = numbers(whole)

    source = new_run(folder, "cut")
    send_command(source, "checkpoint")
    for event in execute(source, build):
        if event.type == "step" and event.step == 5:
            break
    rng = random.Random(options.seed)
    kills: list[Any] = [(folder, n, rng.uniform(0, 1.1 * length), wanted) for n in range(options.kills)]
    places: list[Any] = [(source, whole, name, cut) for name, cut in cuts(source, options.stride)]
    with ProcessPoolExecutor(2) as pool:
        show = {"disable": not sys.stderr.isatty()}
        killed = list(track(pool.map(kill_one, kills), "kills", len(kills), **show))
        cut = list(track(pool.map(cut_one, places, chunksize=50), "cuts", len(places), **show))
    tried, accepted = unnoticed_cuts(whole)
    shutil.rmtree(folder)
    files = sorted({str(name) for _, _, name, _ in places})
    print_result(
        "chaos",
        {
            "kills": len(killed),
            "kills_survived": sum(killed),
            "cuts": len(cut),
            "cuts_survived": cut.count(None),
            "bytes_cut_at": tried,
            "cuts_unnoticed": len(accepted),
        },
        seeds=[options.seed],
        raw={"files": files, "failures": [failure for failure in cut if failure][:20] + accepted[:20]},
    )


if __name__ == "__main__":
    main()
