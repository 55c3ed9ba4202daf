"""A run of a million small steps: how much it keeps, and what it costs to look at it.

    python benchmarks/long_run.py                    # a million steps
    python benchmarks/long_run.py --steps 50000      # the short form

The log has the metrics that a run of CartPole writes, groups of every 200th step go through the run folder's own
writer, and `show` and `report` are the commands. Times are processor seconds.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from record import print_result

from groupwise.config import TrainingConfig
from groupwise.training.events import encode
from groupwise.training.folder import create_run
from groupwise.training.run import Run
from groupwise.types import Event, GroupRecord

NAMES = (
    "optim/grad_norm", "optim/skipped", "loss/total", "loss/policy", "policy/entropy", "policy/kl", "policy/clip_low",
    "policy/clip_high", "policy/ratio_max", "optim/steps", "optim/epochs", "optim/learning_rate", "optim/kl_coef",
    "groups/count", "groups/failed_share", "attempt/length_mean", "attempt/length_max", "attempt/truncated_share",
    "reward/part/environment", "reward/mean", "reward/std", "reward/min", "reward/max", "groups/zero_spread_share",
    "advantage/std", "advantage/abs_mean",
)  # fmt: skip
TIMING = ("rollout", "score", "advantage", "update", "total", "processor", "memory", "samples_per_second")
SHARE = 200  # every so many steps, groups are saved
RECORDS = [
    GroupRecord(
        f"g{n // 4}", "t", f"g{n // 4}/m{n % 4}", float(n), {"environment": float(n)}, (), 0.5, 9, "terminated", "", 1,
    )
    for n in range(8)
]  # fmt: skip


def write(base: Path, steps: int) -> Path:
    cfg = TrainingConfig.from_dict({"output_dir": str(base), "run_name": "long", "num_episodes": steps})
    run = Run(create_run(cfg))
    run.emit("start", 0, {"total_steps": steps, "config": cfg.to_dict()})
    for step in range(SHARE, steps + 1, SHARE):
        run.write_groups(step, RECORDS, cfg.run.group_log_limit)
    run.set_status("finished", steps, steps)
    run.close()
    data = {
        "metrics": {name: 0.6931466 + n / 1e17 for n, name in enumerate(NAMES, 7)},
        "timing": {name: 0.0123456789012345 for name in TIMING}, "totals": {"samples": 1000, "attempts": 500},
    }  # fmt: skip
    line = encode(Event("long", 987654321, 1, 1.7e9, 987654321, "step", data)).decode().replace("%", "%%")
    line = line.replace("987654321", "%d").replace('"reward/mean": 0.69314660000000', '"reward/mean": %d.6931466000000')
    assert len(re.findall("%d", line)) == 3
    with open(run.path / "events.jsonl", "a") as log:
        for step in range(1, steps + 1):
            log.write(line % (step, step, step % 1000))
            if step % 100_000 == 0:
                print(f"{step:,} steps", file=sys.stderr)
        log.write(encode(Event("long", steps + 1, 1, 1.7e9 + steps, steps, "end", {"reason": "finished"})).decode())
    return run.path


def seconds(*words: str) -> float:
    """Processor seconds of a command."""
    before = os.times()
    subprocess.run([sys.executable, "-m", "groupwise", *words], check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1_000_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        path = write(Path(folder), asked.steps)
        written = time.process_time() - began
        files = [file for file in path.rglob("*") if file.is_file()]
        claims = {
            "files": len(files), "gigabytes": round(sum(file.stat().st_size for file in files) / 1e9, 3),
            "show_cpu_s": round(seconds("show", str(path)), 2), "report_cpu_s": round(seconds("report", str(path)), 2),
            "show_json_cpu_s": round(seconds("show", str(path), "--json"), 2),
        }  # fmt: skip
    print_result("long_run", claims, raw={"steps": asked.steps, "writing_cpu_s": round(written, 1)})


if __name__ == "__main__":
    main()
