"""Three CartPoles under one policy, whose rewards differ by a factor of 10,000: who still learns all three?

    python benchmarks/multitask.py --json                   # ten fresh seeds, 600,000 steps each
    python benchmarks/multitask.py --json --seeds 2 --arms grouped ppo

Arms: `grouped` is configs/grpo/reward-scales.toml, every task on its own scale; `ppo` is ours, with the same epochs and
minibatches; `ppo_equal` is the same PPO on the same tasks with every reward brought to 1 a step, which shows how much
of the difference is due to the scale per task; `ppo_vecnormalize` is Stable-Baselines3's PPO with VecNormalize over
observations and rewards, `sb3_ppo` without. A task is solved when the mean length of its last 100 training episodes is
475 of 500, at the end of the budget or when all three are, which ends a run. Settings were tuned on seeds below 100,
three settings for each arm (docs/experiments.md).
"""

from __future__ import annotations

import argparse
import os
import sys

os.environ["OMP_NUM_THREADS"] = "1"

import tempfile
import time
from collections import deque
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from record import kept, print_result
from rich.progress import track

from groupwise.config import TrainingConfig, load_config
from groupwise.control import grpo as product
from groupwise.control import ppo
from groupwise.control.multitask import PARTS, MultiTask, SuiteTask, make_suite
from groupwise.training.folder import create_run
from groupwise.training.session import Parts, execute
from groupwise.types import Batch

CONFIGS = Path(__file__).parent.parent / "configs"
SUITE = "reward-scales"
SOLVED, WINDOW, BUDGET = 475.0, 100, 600_000
SB3 = {
    "n_steps": 128, "batch_size": 512, "gamma": 0.98, "gae_lambda": 0.95, "n_epochs": 10,
    "learning_rate": 1e-3,
}  # fmt: skip
COPIES = 24
PARTS_AS_SHIPPED = dict(PARTS)


class Lengths:
    """The lengths of the last training episodes of every task."""

    def __init__(self, kinds: Iterable[str]) -> None:
        self.last: dict[str, deque[int]] = {kind: deque(maxlen=WINDOW) for kind in kinds}
        self.began = time.perf_counter()

    def see(self, kind: str, length: int) -> None:
        self.last[kind].append(length)

    def means(self) -> dict[str, float]:
        return {kind: float(np.mean(seen)) if seen else 0.0 for kind, seen in self.last.items()}

    def all_solved(self) -> bool:
        full = all(len(seen) == WINDOW for seen in self.last.values())
        return full and min(self.means().values()) >= SOLVED

    def result(self, steps: int) -> dict[str, Any]:
        means = self.means()
        solved = sum(mean >= SOLVED for mean in means.values())
        return {"steps": steps, "wall": time.perf_counter() - self.began, "solved": solved, "lengths": means}


def train_ours(algorithm: str, seed: int, budget: int, tried: list[str]) -> dict[str, Any]:
    suite = make_suite(SUITE)
    lengths = Lengths(suite.kinds)

    def build(cfg: TrainingConfig) -> Parts:
        parts = (ppo if cfg.task.product == "ppo" else product).build(cfg)
        source, original = parts.source, parts.source.next

        def watched() -> Batch:
            batch = original()
            for record in batch.records:
                lengths.see(record.task_id.rpartition("/")[0], record.length)
            return batch

        source.next = watched  # type: ignore[method-assign]
        return parts

    steps = 0
    with tempfile.TemporaryDirectory() as folder:
        quiet = {"eval_steps": 0, "save_steps": 10**9, "group_log_steps": 0, "threads": 1, "output_dir": folder}
        limits = {"total_samples": budget, "num_episodes": 10**6, "seed": seed}
        cfg = load_config(CONFIGS / algorithm / f"{SUITE}.toml", tried).replace(**quiet, **limits)
        for event in execute(create_run(cfg), build):
            if event.type == "step":
                steps = event.data["totals"]["samples"]
                if lengths.all_solved():
                    break
    return lengths.result(steps)


def equal_scales() -> list[SuiteTask]:
    return [replace(part, reward_scale=1.0) for part in PARTS_AS_SHIPPED[SUITE]()]


def train_sb3(normalise: bool, seed: int, budget: int, tried: list[str]) -> dict[str, Any]:
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.vec_env import VecNormalize

    suite = make_suite(SUITE)
    lengths = Lengths(suite.kinds)

    class Watch(BaseCallback):
        def _on_step(self) -> bool:
            for copy in np.flatnonzero(self.locals["dones"]):
                lengths.see(suite.kinds[copy % len(suite.kinds)], self.locals["infos"][copy]["episode"]["l"])
            return not (self.locals["dones"].any() and lengths.all_solved())

    settings: dict[str, Any] = {**SB3, **{name: float(value) for name, value in (t.split("=") for t in tried)}}
    rate = settings.pop("learning_rate")
    env: Any = suite_for_sb3(suite, seed)
    env = VecNormalize(env, gamma=settings["gamma"]) if normalise else env
    model = PPO("MlpPolicy", env, seed=seed, device="cpu", learning_rate=lambda left: rate * left, **settings)
    model.learn(budget, callback=Watch())
    return lengths.result(model.num_timesteps)


def suite_for_sb3(suite: MultiTask, seed: int) -> Any:
    """The suite as Stable-Baselines3 wants it: copies that keep to one task each."""
    import gymnasium
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import DummyVecEnv

    class OneTask(gymnasium.Env[Any, Any]):
        def __init__(self, copy: int) -> None:
            self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (suite.observation_size,), np.float32)
            self.action_space = gymnasium.spaces.Discrete(suite.action_count)
            self.inner, self.copy, self.episodes = make_suite(SUITE), copy, 0

        def reset(self, **ignored: Any) -> Any:
            start = product.fresh_start(seed, COPIES * self.episodes + self.copy)
            self.episodes += 1
            return self.inner.reset([suite.seed_of(self.copy % len(suite.kinds), start)])[0], {}

        def step(self, action: Any) -> Any:
            obs, rewards, terminated, truncated = self.inner.step(np.array([action]))
            return obs[0], float(rewards[0]), bool(terminated[0]), bool(truncated[0]), {}

    return DummyVecEnv([lambda copy=copy: Monitor(OneTask(copy)) for copy in range(COPIES)])


def run(job: tuple[str, int, int, list[str], str | None]) -> dict[str, Any]:
    arm, seed, budget, tried, folder = job
    return kept(folder, f"{arm}-{seed}", lambda: train(arm, seed, budget, tried))


def train(arm: str, seed: int, budget: int, tried: list[str]) -> dict[str, Any]:
    torch.set_num_threads(1)
    if arm == "ppo_equal":
        with patch.dict(PARTS, {SUITE: equal_scales}):  # type: ignore[arg-type]
            found = train_ours("ppo", seed, budget, tried)
    elif arm in ("grouped", "ppo"):
        found = train_ours("grpo" if arm == "grouped" else "ppo", seed, budget, tried)
    else:
        found = train_sb3(arm == "ppo_vecnormalize", seed, budget, tried)
    return {"arm": arm, "seed": seed, **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arms = ("grouped", "ppo", "ppo_vecnormalize", "sb3_ppo", "ppo_equal")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=BUDGET)
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    parser.add_argument("--arms", nargs="+", choices=arms, default=arms[:3])
    parser.add_argument(
        "--set", nargs="+", default=[], help="settings to try: advantage.gamma=0.99, for Stable-Baselines3 gamma=0.99"
    )
    parser.add_argument("--folder", help="keeps what is done, so that a campaign can go on another time")
    parser.add_argument("--json", action="store_true", help="accepted for uniformity: JSON is printed always")
    options = parser.parse_args()
    not_run = {}
    if find_spec("stable_baselines3") is None:
        missing = [arm for arm in options.arms if arm in ("ppo_vecnormalize", "sb3_ppo")]
        not_run = dict.fromkeys(missing, "pip install 'stable-baselines3==2.9.*'")
    seeds = list(range(options.first, options.first + options.seeds))
    wanted = [arm for arm in options.arms if arm not in not_run]
    jobs = [(arm, seed, options.steps, options.set, options.folder) for seed in seeds for arm in wanted]
    with ProcessPoolExecutor(options.jobs) as pool:
        found = list(track(pool.map(run, jobs), "runs", len(jobs), disable=not sys.stderr.isatty()))
    claims: dict[str, Any] = {"of": 3 * len(seeds)}
    for arm in dict.fromkeys(row["arm"] for row in found):
        rows = [row for row in found if row["arm"] == arm]
        claims[f"{arm}_solved"] = sum(row["solved"] for row in rows)
        claims[f"{arm}_steps_median"] = float(np.median([row["steps"] for row in rows]))
        for kind in rows[0]["lengths"]:
            claims[f"{arm}_length_{kind}"] = float(np.mean([row["lengths"][kind] for row in rows]))
    print_result("multitask", claims, seeds=seeds, raw=found, not_run=not_run)


if __name__ == "__main__":
    main()
