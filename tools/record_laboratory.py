"""Train the two runs that the laboratory shows, and write what it needs of them: dashboard/src/learn/recorded/*.json.

    python tools/record_laboratory.py                      half a minute on one core

Both learn three CartPoles whose rewards differ by a factor of 10,000. One divides advantages by one standard deviation
for all tasks, the other by each task's own.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from groupwise.config import load_config
from groupwise.core.grouping.strategies import STRATEGIES
from groupwise.reporting.history import History
from groupwise.reporting.live_run import start_run
from groupwise.reporting.recorded_step import MOST_GROUPS, read_step, regroup

ROOT = Path(__file__).parents[1]
PLACE = ROOT / "dashboard" / "src" / "learn" / "recorded"
STEPS = (1, 12, 60)
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
SETTINGS = (
    "task.max_episode_steps=150", "advantage.estimator=group_rtg", "training.num_episodes=60",
    "training.total_samples=null", "optim.num_epochs=6", "loss.value_coef=0", "run.eval_steps=5",
    "run.eval_episodes=30", "run.group_log_steps=1", "run.save_steps=1000", "run.seed=0",
)  # fmt: skip
ARMS = {
    "one-scale": ("advantage.advantage_scale=batch_std", "grouping.group_weight_method=none"),
    "own-scale": ("advantage.advantage_scale=task_rms", "grouping.group_weight_method=adaptive"),
}
# Strategies whose number of groups is theirs to find, or always that of the tasks.
FIXED = ("task", "dirichlet")
NAMES = ("group/*", "eval/*/reward_mean", "policy/kl", "policy/entropy", "reward/mean", "eval/reward_mean")


def recorded(name: str, run: Path) -> dict[str, Any]:
    """What the page shows of a run without a service."""
    return {
        "name": name, "environment": "reward-scales",
        "series": series(run), "steps": list(STEPS),
        "attempts": {str(step): shortened(read_step(run, step).as_dict()) for step in STEPS},
        "groupings": {str(step): groupings(run, step) for step in STEPS},
    }  # fmt: skip


def series(run: Path) -> dict[str, Any]:
    history = History.read(run)
    found = {}
    for name in history.names():
        if any(fnmatchcase(name, pattern) for pattern in NAMES):
            steps, values = history.series(name)
            found[name] = {"steps": list(steps), "values": [digits(value, 6) for value in values]}
    return found


def shortened(attempts: dict[str, Any]) -> dict[str, Any]:
    """Five digits of what is only drawn; scores, lengths and rewards stay exact."""
    for name in ("features", "values"):
        attempts[name] = [[digits(value, 5) for value in row] for row in attempts[name]]
    return attempts


def groupings(run: Path, step: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for strategy in STRATEGIES:
        counts = (1,) if strategy in FIXED else range(1, MOST_GROUPS + 1)
        found[strategy] = {str(count): grouping(run, step, strategy, count) for count in counts}
    return found


def grouping(run: Path, step: int, strategy: str, count: int) -> dict[str, Any]:
    """Iterations as strings, one character per attempt; `-` is none yet."""
    made = regroup(run, step, strategy, count).as_dict()
    made["iterations"] = ["".join("-" if one < 0 else DIGITS[one] for one in groups) for groups in made["iterations"]]
    return made


def digits(value: float, count: int) -> float:
    return float(f"{value:.{count}g}")


def main() -> int:
    PLACE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, arm in ARMS.items():
            changes = (*SETTINGS, *arm, f"run.run_name={name}", f"run.output_dir={folder}")
            cfg = load_config(ROOT / "configs" / "grpo" / "reward-scales.toml", changes)
            _, failed = start_run(cfg, json=False, quiet=True)
            assert not failed, f"{name} failed"
            path = PLACE / f"{name}.json"
            path.write_text(json.dumps(recorded(name, Path(folder, name)), separators=(",", ":"), ensure_ascii=False))
            print(path.relative_to(ROOT), path.stat().st_size)
    return 0


if __name__ == "__main__":
    sys.exit(main())
