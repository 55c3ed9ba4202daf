"""Three Atari games from their memory (128 bytes), in a minute or two each: is that enough to beat random play?

    python benchmarks/atari.py --json

Settings are examples/atari_ram.toml, for every game the same and tuned for none; attempts are cut after 300 steps of
four frames. Returns of 32 unseen starts: actions drawn by the trained policy, drawn by chance, and the trained policy's
likeliest ones. A claim is the difference of the first two, with Welch's 95% interval over attempts: of this run, not
of others. Needs `pip install "groupwise[atari]"`.
"""

from __future__ import annotations

import argparse
import os
import sys

os.environ["OMP_NUM_THREADS"] = "1"

import tempfile
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from record import print_result

from groupwise.config import TrainingConfig, load_config
from groupwise.control import grpo as product
from groupwise.control.environments import make_environment
from groupwise.reporting.statistics import student_quantile
from groupwise.rollout.contract import random_actions
from groupwise.rollout.episodes import collect_groups, evaluate_greedy
from groupwise.training.folder import create_run
from groupwise.training.session import Parts, execute
from groupwise.types import Array, Task, VectorEnvironment

SETTINGS = Path(__file__).parent.parent / "examples" / "atari_ram.toml"
GAMES = ("ALE/Breakout-v5", "ALE/SpaceInvaders-v5", "ALE/Boxing-v5")
STARTS = range(70_000, 70_032)


def play_by_chance(environment: VectorEnvironment, starts: Sequence[int]) -> Array:
    """The returns of uniformly random actions from these starts."""
    rng = np.random.default_rng(0)
    environment.reset(starts)
    returns, running = np.zeros(len(starts)), np.ones(len(starts), np.bool_)
    while running.any():
        _, rewards, terminated, truncated = environment.step(random_actions(environment, rng, len(starts)))
        returns += np.where(running, rewards, 0.0)
        running &= ~(terminated | truncated)
    return returns


def train(game: str, seed: int, steps: int) -> dict[str, Any]:
    made: list[Parts] = []

    def build(cfg: TrainingConfig) -> Parts:
        made.append(product.build(cfg))
        return made[0]

    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        cfg = load_config(SETTINGS).replace(
            environment=game, seed=seed, output_dir=folder, total_samples=steps, group_log_steps=0, save_steps=10**6
        )
        events = list(execute(create_run(cfg), build))
    seconds, policy = time.perf_counter() - began, made[0].policy
    environment = make_environment(cfg.task)
    tasks = [Task(f"{game}/{start}", game, start) for start in STARTS]
    groups = collect_groups(environment, policy, tasks, 1, np.random.default_rng(1), version=0, prefix="judged")
    return {
        "game": game,
        "seconds": seconds,
        "steps": [e.data["totals"]["samples"] for e in events if e.type == "step"][-1],
        "training": [e.data["metrics"]["reward/mean"] for e in events if e.type == "step"],
        "drawn": [float(group.members[0].rewards.sum()) for group in groups],
        "greedy": evaluate_greedy(environment, policy, list(STARTS))[0].tolist(),
        "chance": play_by_chance(environment, STARTS).tolist(),
    }


def welch(ours: list[float], theirs: list[float]) -> tuple[float, float, float]:
    """The difference of two means with its 95% interval."""
    parts = [np.var(values, ddof=1) / len(values) for values in (ours, theirs)]
    value, error = float(np.mean(ours) - np.mean(theirs)), float(np.sqrt(sum(parts)))
    degrees = sum(part**2 / (len(ours) - 1) for part in parts)
    freedom = max(int(sum(parts) ** 2 / degrees), 1) if degrees > 0 else 1
    reach = error * student_quantile(0.975, freedom)
    return value, value - reach, value + reach


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=6000)
    parser.add_argument("--steps", type=int, default=60_000)
    parser.add_argument("--games", nargs="+", default=GAMES)
    parser.add_argument("--json", action="store_true", help="accepted for uniformity: JSON is printed always")
    options = parser.parse_args()
    claims: dict[str, Any] = {}
    intervals: dict[str, list[float]] = {}
    raw, not_run = [], {}
    for game in options.games:
        if find_spec("ale_py") is None:
            not_run[game] = 'pip install "groupwise[atari]"'
            continue
        found = train(game, options.seed, options.steps)
        raw.append(found)
        name = game.split("/")[1].split("-")[0].lower()
        value, *interval = welch(found["drawn"], found["chance"])
        claims[f"{name}_over_chance"], intervals[f"{name}_over_chance"] = value, interval
        claims |= {f"{name}_{arm}": float(np.mean(found[arm])) for arm in ("drawn", "greedy", "chance")}
        print(game, claims, intervals, round(found["seconds"]), file=sys.stderr, flush=True)
    print_result("atari", claims, seeds=[options.seed], intervals=intervals, raw=raw, not_run=not_run)


if __name__ == "__main__":
    main()
