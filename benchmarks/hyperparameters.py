"""How much do settings matter? CartPole over a grid of learning rates and discounts, by GRPO and by PPO.

    python benchmarks/hyperparameters.py --json             # 9 settings, 2 seeds each, 60,000 steps a run

All else is configs/grpo/CartPole-v1.toml and configs/ppo/CartPole-v1.toml, whose own values lie on the grid or beside
it (GRPO's 3e-3 and 0.99, PPO's 1e-3 and 0.98). A run solves CartPole when its greedy policy has a mean of 475 over 100
unseen starts at the end. The share of settings that do has a 95% interval by a bootstrap over settings, whose seeds
stay together; the difference is paired by setting, with Student's interval.
"""

from __future__ import annotations

import argparse
import os
import sys

os.environ["OMP_NUM_THREADS"] = "1"

import tempfile
from itertools import product as pairs
from pathlib import Path
from typing import Any

import numpy as np
from record import print_result
from rich.progress import track

from groupwise.config import load_config
from groupwise.control import grpo as product
from groupwise.control import ppo
from groupwise.control.comparison.arms import budget
from groupwise.reporting import statistics as st
from groupwise.training.folder import create_run
from groupwise.training.session import execute

CONFIGS = Path(__file__).parent.parent / "configs"
RATES = (3e-4, 1e-3, 3e-3)
DISCOUNTS = (0.95, 0.99, 0.999)
SOLVED, STEPS = 475.0, 60_000


def run(algorithm: str, rate: float, gamma: float, seed: int, steps: int) -> dict[str, Any]:
    """One training, and the greedy mean at its end."""
    build = ppo.build if algorithm == "ppo" else product.build
    with tempfile.TemporaryDirectory() as folder:
        cfg = load_config(CONFIGS / algorithm / "CartPole-v1.toml").replace(
            learning_rate=rate, gamma=gamma, seed=seed, output_dir=folder, **budget(steps),
            eval_steps=10**6, eval_episodes=100, group_log_steps=0, threads=1,
        )  # fmt: skip
        events = list(execute(create_run(cfg), build))
    final = [event for event in events if event.type == "eval"][-1].data["metrics"]["eval/reward_mean"]
    return {"algorithm": algorithm, "rate": rate, "gamma": gamma, "seed": seed, "final": final}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first", type=int, default=5000)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--json", action="store_true", help="accepted for uniformity: JSON is printed always")
    options = parser.parse_args()
    seeds = list(range(options.first, options.first + options.seeds))
    grid = list(pairs(RATES, DISCOUNTS))
    jobs = [(name, *setting, seed) for setting in grid for seed in seeds for name in ("grpo", "ppo")]
    found = []
    for job in track(jobs, "runs", disable=not sys.stderr.isatty()):
        found.append(run(*job, options.steps))
        print(found[-1], file=sys.stderr, flush=True)
    # [settings, seeds]: a setting is what a bootstrap draws, as it draws seeds elsewhere.
    solved = {
        name: np.array([r["final"] >= SOLVED for r in found if r["algorithm"] == name], float).reshape(len(grid), -1)
        for name in ("grpo", "ppo")
    }
    scores = {name: np.array([r["final"] for r in found if r["algorithm"] == name]) for name in solved}
    shares = {name: st.estimate(st.mean, table, strata=[0] * len(seeds)) for name, table in solved.items()}
    difference = st.paired_difference(solved["grpo"], solved["ppo"], strata=[0] * len(seeds)).interval
    print_result(
        "hyperparameters",
        {
            **{f"{name}_solved_share": share.value for name, share in shares.items()},
            "solved_share_difference": difference.value,
            **{f"{name}_final_mean": float(values.mean()) for name, values in scores.items()},
            **{f"{name}_final_worst": float(values.min()) for name, values in scores.items()},
        },
        seeds=seeds,
        intervals={
            **{f"{name}_solved_share": [share.low, share.high] for name, share in shares.items()},
            "solved_share_difference": [difference.low, difference.high],
        },
        raw=found,
    )


if __name__ == "__main__":
    main()
