"""HalfCheetah and Hopper within ten minutes each: does GRPO improve on random play?

    python benchmarks/locomotion.py --json --figure docs/images/locomotion.svg

Settings are configs/grpo/HalfCheetah-v5.toml and Hopper-v5.toml, six fresh seeds, one thread each. Judged are the
returns of 16 unseen starts by the policy's likeliest actions, and by uniformly random ones. A claim is the mean over
seeds of the difference, with Student's 95% interval over seeds; the curves are the training returns. Needs
`pip install "groupwise[mujoco]"`.
"""

from __future__ import annotations

import argparse
import os

os.environ["OMP_NUM_THREADS"] = "1"

import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from atari import play_by_chance
from record import kept, print_result

from groupwise.config import TrainingConfig, load_config
from groupwise.control import grpo as product
from groupwise.control.environments import make_environment
from groupwise.reporting.canvas import MANY, MUTED, render
from groupwise.reporting.statistics import student_quantile
from groupwise.rollout.episodes import evaluate_greedy
from groupwise.training.folder import create_run
from groupwise.training.session import Parts, execute

CONFIGS = Path(__file__).parent.parent / "configs" / "grpo"
ENVIRONMENTS = ("HalfCheetah-v5", "Hopper-v5")
STARTS = list(range(70_000, 70_016))


def train(environment: str, seed: int, steps: int | None) -> dict[str, Any]:
    made: list[Parts] = []

    def build(cfg: TrainingConfig) -> Parts:
        made.append(product.build(cfg))
        return made[0]

    wall, cpu = time.perf_counter(), time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        cfg = load_config(CONFIGS / f"{environment}.toml").replace(
            seed=seed, output_dir=folder, eval_steps=0, group_log_steps=0, save_steps=10**6
        )
        cfg = cfg.replace(total_samples=steps) if steps else cfg
        taken = [event.data for event in execute(create_run(cfg), build) if event.type == "step"]
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    judge = make_environment(cfg.task)
    return {
        "environment": environment,
        "seed": seed,
        "wall_seconds": wall,
        "cpu_seconds": cpu,
        "steps": [step["totals"]["samples"] for step in taken],
        "training": [step["metrics"]["reward/mean"] for step in taken],
        "greedy": evaluate_greedy(judge, made[0].policy, STARTS)[0].tolist(),
    }


def run(job: tuple[str, int, int | None, str | None]) -> dict[str, Any]:
    environment, seed, steps, folder = job
    return kept(folder, f"{environment}-{seed}", lambda: train(environment, seed, steps))


def over_seeds(values: Sequence[float]) -> tuple[float, list[float]]:
    mean, reach = float(np.mean(values)), 0.0
    if len(values) > 1:
        reach = student_quantile(0.975, len(values) - 1) * float(np.std(values, ddof=1)) / len(values) ** 0.5
    return mean, [mean - reach, mean + reach]


def draw(found: Sequence[dict[str, Any]], chance: dict[str, float], width: float) -> Any:
    """Training returns over steps, a line for each seed, beside random play."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, width * 0.36), layout="constrained")
    for axes, environment in zip(figure.subplots(1, len(chance), squeeze=False)[0], chance, strict=True):
        for row, colour in zip((r for r in found if r["environment"] == environment), MANY, strict=False):
            steps = np.array(row["steps"]) / 1000
            axes.plot(steps, row["training"], color=colour, label=f"seed {row['seed']}")
        axes.axhline(chance[environment], color=MUTED, linestyle="--", linewidth=1, label="random play")
        axes.set_title(environment, loc="left", fontsize=9)
        axes.set_xlabel("thousand steps")
        axes.legend(frameon=False, fontsize=7)
    figure.axes[0].set_ylabel("return of an episode")
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environments", nargs="+", default=ENVIRONMENTS, choices=ENVIRONMENTS)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--first", type=int, default=4000)
    parser.add_argument("--steps", type=int, help="other than the settings say")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    parser.add_argument("--folder", help="keeps what is done, so that a campaign can go on another time")
    parser.add_argument("--figure", type=Path, help="draw the curves into this SVG file")
    parser.add_argument("--json", action="store_true", help="accepted for uniformity: JSON is printed always")
    options = parser.parse_args()
    seeds = list(range(options.first, options.first + options.seeds))
    if find_spec("mujoco") is None:
        print_result("locomotion", {}, seeds=seeds, not_run=dict.fromkeys(options.environments, "groupwise[mujoco]"))
        return
    jobs = [(name, seed, options.steps, options.folder) for name in options.environments for seed in seeds]
    with ProcessPoolExecutor(options.jobs) as pool:
        found = list(pool.map(run, jobs))
    claims: dict[str, Any] = {}
    intervals: dict[str, list[float]] = {}
    chance: dict[str, float] = {}
    for environment in options.environments:
        rows = [row for row in found if row["environment"] == environment]
        task = load_config(CONFIGS / f"{environment}.toml").task
        chance[environment] = float(np.mean(play_by_chance(make_environment(task), STARTS)))
        name = environment.split("-")[0].lower()
        gains = [float(np.mean(row["greedy"])) - chance[environment] for row in rows]
        claims[f"{name}_over_chance"], intervals[f"{name}_over_chance"] = over_seeds(gains)
        claims[f"{name}_chance"] = chance[environment]
        claims[f"{name}_greedy"] = float(np.mean([np.mean(row["greedy"]) for row in rows]))
        claims[f"{name}_cpu_seconds"] = float(np.max([row["cpu_seconds"] for row in rows]))
        claims[f"{name}_wall_seconds"] = float(np.max([row["wall_seconds"] for row in rows]))
    if options.figure:
        options.figure.parent.mkdir(parents=True, exist_ok=True)
        options.figure.write_bytes(render(partial(draw, found, chance), 8.0, "svg"))
    print_result("locomotion", claims, seeds=seeds, intervals=intervals, raw=found)


if __name__ == "__main__":
    main()
