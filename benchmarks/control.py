"""Groupwise beside Stable-Baselines3 on the same machine, in the same hour: CartPole-v1 and LunarLander-v3.

    python benchmarks/control.py --json                     # both, ten fresh seeds each
    python benchmarks/control.py --json --parts cartpole --seeds 5

CartPole: wall seconds and environment steps until the mean return of the last 100 training episodes is 475; ours is
configs/grpo/CartPole-v1.toml, theirs PPO at the values of their zoo. `same_env` repeats ours on Gymnasium's own
environments, which are theirs anyway. LunarLander: greedy return over 50 episodes after 500,000 steps, and steps per
second; ours is configs/grpo/LunarLander-v3.toml, `ppo` our PPO at the zoo's values.

One thread per run. For every seed ours and theirs follow each other in the same worker, in changing order, so that
whatever else the machine does falls on both. Settings were tuned on seeds below 100. A run that does not reach 475
counts with the steps and seconds of its whole budget: its ratio is a bound.
Needs `pip install stable-baselines3==2.9.* "gymnasium[box2d]"`; what is missing is left out and named in `not_run`.
"""

from __future__ import annotations

import argparse
import os
import sys

os.environ["OMP_NUM_THREADS"] = "1"

import tempfile
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from record import kept, print_result
from rich.progress import track

from groupwise.config import TrainingConfig, load_config
from groupwise.control import environments, ppo
from groupwise.control import grpo as product
from groupwise.rollout.episodes import evaluate_greedy
from groupwise.training.folder import create_run
from groupwise.training.session import Parts, execute
from groupwise.types import Array, Batch

CONFIGS = Path(__file__).parent.parent / "configs"
TARGET, WINDOW = 475.0, 100
CARTPOLE_BUDGET = 100_000
EVALUATION = range(50_000, 50_050)
ZOO: dict[str, dict[str, Any]] = {
    "CartPole-v1": {
        "n_envs": 8, "n_steps": 32, "batch_size": 256, "gamma": 0.98, "gae_lambda": 0.8, "n_epochs": 20,
        "ent_coef": 0.0, "learning_rate": lambda left: 1e-3 * left, "clip_range": lambda left: 0.2 * left,
    },
    "LunarLander-v3": {
        "n_envs": 16, "n_steps": 1024, "batch_size": 64, "gamma": 0.999, "gae_lambda": 0.98, "n_epochs": 4,
        "ent_coef": 0.01,
    },
}  # fmt: skip


Job = tuple[str, int, int, Sequence[str]]
Kept = tuple[str, int, int, Sequence[str], str | None]


class Window:
    """The returns of the last training episodes, and when their mean first reached the target."""

    def __init__(self, target: float) -> None:
        self.target = target
        self.last: deque[float] = deque(maxlen=WINDOW)
        self.began, self.cpu = time.perf_counter(), time.process_time()
        self.reached: tuple[int, float] | None = None

    def see(self, returns: Sequence[float], steps: int) -> bool:
        """True once the target is reached."""
        self.last.extend(returns)
        if self.reached is None and len(self.last) == WINDOW and np.mean(self.last) >= self.target:
            self.reached = steps, time.perf_counter() - self.began
        return self.reached is not None

    def result(self, steps: int) -> dict[str, Any]:
        at, wall = self.reached or (steps, time.perf_counter() - self.began)
        cpu = time.process_time() - self.cpu
        return {
            "solved": self.reached is not None, "steps": at, "wall": wall, "steps_per_s": at / wall,
            "last_training": float(np.mean(self.last)), "cpu_seconds": cpu, "steps_per_cpu_s": steps / cpu,
        }  # fmt: skip


def settings(path: str, seed: int, folder: str, tried: Sequence[str], **changes: Any) -> TrainingConfig:
    quiet = {"eval_steps": 0, "save_steps": 10**9, "group_log_steps": 0, "threads": 1}
    return load_config(CONFIGS / path, list(tried)).replace(seed=seed, output_dir=folder, **quiet, **changes)


def train_ours(cfg: TrainingConfig, target: float) -> tuple[dict[str, Any], Any]:
    """Train until the window is content or the budget is spent; also returns the policy."""
    window = Window(target)
    made: list[Parts] = []

    def build(cfg: TrainingConfig) -> Parts:
        parts = (ppo if cfg.task.product == "ppo" else product).build(cfg)
        source, original = parts.source, parts.source.next

        def watched() -> Batch:
            batch = original()
            returns.extend(r.total for r in batch.records if r.total is not None)
            return batch

        source.next = watched  # type: ignore[method-assign]
        made.append(parts)
        return parts

    returns: list[float] = []
    steps = 0
    for event in execute(create_run(cfg), build):
        if event.type == "step":
            steps = event.data["totals"]["samples"]
            if window.see(returns, steps):
                break
            returns.clear()
    return window.result(steps), made[0].policy


def train_sb3(name: str, seed: int, budget: int, target: float) -> tuple[dict[str, Any], Any]:
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env

    class Watch(BaseCallback):
        def _on_step(self) -> bool:
            ended = [info["episode"]["r"] for info in self.locals["infos"] if "episode" in info]
            return not (ended and window.see(ended, self.num_timesteps))

    window, zoo = Window(target), dict(ZOO[name])
    model = PPO("MlpPolicy", make_vec_env(name, zoo.pop("n_envs"), seed=seed), seed=seed, device="cpu", **zoo)
    model.learn(budget, callback=Watch())
    return window.result(model.num_timesteps), model


class GreedySB3:
    def __init__(self, model: Any) -> None:
        self.model = model

    def greedy(self, obs: Array) -> Array:
        actions: Array = self.model.predict(obs, deterministic=True)[0]
        return actions


def run(job: Job) -> dict[str, Any]:
    """One arm of the benchmark from one seed."""
    arm, seed, budget, tried = job
    torch.set_num_threads(1)
    part, who = arm.split("/")
    name, target = {"cartpole": ("CartPole-v1", TARGET), "lunar": ("LunarLander-v3", np.inf)}[part]
    if who == "sb3":
        found, model = train_sb3(name, seed, budget, target)
        policy: Any = GreedySB3(model)
    else:
        changes: dict[str, Any] = {"options": {"gymnasium": True}} if who == "same_env" else {}
        changes |= {"total_samples": budget, "num_episodes": 10**6}
        with tempfile.TemporaryDirectory() as folder:
            algorithm = "ppo" if who == "ppo" else "grpo"
            found, policy = train_ours(settings(f"{algorithm}/{name}.toml", seed, folder, tried, **changes), target)
    if part == "lunar":
        returns, _ = evaluate_greedy(environments.make(name), policy, EVALUATION)
        found["score"] = float(np.mean(returns))
    return {"arm": arm, "seed": seed, **found}


def pair(jobs: list[Kept]) -> list[dict[str, Any]]:
    """All arms of one seed, one after the other."""
    return [kept(folder, f"{job[0]}-{job[1]}", partial(run, tuple(job))) for *job, folder in jobs]


def iqm(values: Array) -> float:
    """The mean of the middle half."""
    ordered = np.sort(values)
    cut = len(ordered) // 4
    return float(ordered[cut : len(ordered) - cut].mean())


def bootstrap(measure: Any, count: int) -> list[float]:
    """A 95% interval of `measure`, which takes the numbers of the seeds drawn."""
    rng = np.random.default_rng(0)
    drawn = [measure(rng.integers(0, count, count)) for _ in range(5000)]
    return [round(float(x), 4) for x in np.percentile(drawn, [2.5, 97.5])]


def column(found: list[dict[str, Any]], arm: str, name: str) -> Array:
    return np.array([row[name] for row in found if row["arm"] == arm], np.float64)


def claims_of(found: list[dict[str, Any]], seeds: int) -> tuple[dict[str, Any], dict[str, list[float]]]:
    claims: dict[str, Any] = {}
    intervals: dict[str, list[float]] = {}

    def ratio(claim: str, ours: str, theirs: str, name: str) -> None:
        a, b = column(found, ours, name), column(found, theirs, name)
        if len(a) and len(b):
            claims[claim] = float(np.median(a) / np.median(b))
            intervals[claim] = bootstrap(lambda rows: np.median(a[rows]) / np.median(b[rows]), seeds)

    ratio("cartpole_wall_vs_sb3", "cartpole/ours", "cartpole/sb3", "wall")
    ratio("cartpole_steps_vs_sb3", "cartpole/ours", "cartpole/sb3", "steps")
    ratio("cartpole_wall_same_env", "cartpole/same_env", "cartpole/sb3", "wall")
    ratio("cartpole_ppo_steps_vs_sb3", "cartpole/ppo", "cartpole/sb3", "steps")
    ratio("cartpole_ppo_wall_vs_sb3", "cartpole/ppo", "cartpole/sb3", "wall")
    ratio("lunar_speed_vs_sb3", "lunar/ours", "lunar/sb3", "steps_per_s")
    ratio("lunar_cpu_speed_vs_sb3", "lunar/ours", "lunar/sb3", "steps_per_cpu_s")
    ratio("lunar_ppo_speed_vs_sb3", "lunar/ppo", "lunar/sb3", "steps_per_s")
    for claim, arm in (("lunar_iqm_difference", "lunar/ours"), ("lunar_ppo_iqm_difference", "lunar/ppo")):
        a, b = column(found, arm, "score"), column(found, "lunar/sb3", "score")
        if len(a) and len(b):
            claims[claim] = iqm(a) - iqm(b)
            intervals[claim] = bootstrap(lambda rows, a=a, b=b: iqm(a[rows]) - iqm(b[rows]), seeds)
    for arm in sorted({row["arm"] for row in found}):
        name = arm.replace("/", "_")
        claims[f"{name}_solved"] = f"{int(column(found, arm, 'solved').sum())}/{seeds}"
        for measure in ("steps", "wall", "cpu_seconds", "steps_per_s"):
            claims[f"{name}_{measure}_median"] = float(np.median(column(found, arm, measure)))
        if arm.startswith("lunar"):
            claims[f"{name}_iqm"] = iqm(column(found, arm, "score"))
    return claims, intervals


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=2, help="seeds at a time")
    parser.add_argument("--parts", nargs="+", choices=("cartpole", "lunar"), default=("cartpole", "lunar"))
    parser.add_argument("--arms", nargs="+", choices=("ours", "same_env", "ppo", "sb3"), help="only these")
    parser.add_argument("--set", nargs="+", default=[], help="settings to try on our arms: optim.learning_rate=0.002")
    parser.add_argument("--folder", help="keeps what is done, so that a campaign can go on another time")
    parser.add_argument("--lunar-steps", type=int, default=500_000)
    parser.add_argument("--json", action="store_true", help="accepted for uniformity: JSON is printed always")
    options = parser.parse_args()

    not_run = {}
    arms = {"cartpole": ["ours", "same_env", "ppo"], "lunar": ["ours", "ppo"]}
    if find_spec("stable_baselines3") is None:
        not_run["sb3"] = "stable-baselines3 is not installed: pip install 'stable-baselines3==2.9.*'"
    else:
        for part in arms:
            arms[part].append("sb3")
    if find_spec("Box2D") is None and "lunar" in options.parts:
        not_run["lunar"] = "Box2D is not installed: pip install 'gymnasium[box2d]'"
    budgets = {"cartpole": CARTPOLE_BUDGET, "lunar": options.lunar_steps}
    seeds = list(range(options.first, options.first + options.seeds))
    blocks = []
    for part in options.parts:
        if part in not_run:
            continue
        for seed in seeds:
            wanted = [who for who in arms[part] if not options.arms or who in options.arms]
            jobs = [(f"{part}/{who}", seed, budgets[part], options.set, options.folder) for who in wanted]
            blocks.append(jobs if seed % 2 else jobs[::-1])
    with ProcessPoolExecutor(options.jobs) as pool:
        rows = track(pool.map(pair, blocks), "seeds", len(blocks), disable=not sys.stderr.isatty())
        found = [row for block in rows for row in block]
    claims, intervals = claims_of(found, len(seeds))
    print_result(
        "control", claims, seeds=seeds, intervals=intervals, peers=peers(), raw=found, not_run=not_run
    )  # fmt: skip


def peers() -> dict[str, str]:
    found = {}
    for name in ("stable-baselines3", "gymnasium", "torch", "Box2D"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


if __name__ == "__main__":
    main()
