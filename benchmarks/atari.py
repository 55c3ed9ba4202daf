"""Three Atari games, from pixels and from memory (128 bytes): is that enough to beat random play?

    python benchmarks/atari.py --plan                       # what is done, and the hours that the rest takes
    python benchmarks/atari.py --json                       # go on where the journal ends, then print the table
    python benchmarks/atari.py --json --arms ram

`pixels` is our PPO at configs/ppo/ALE/Pong-v5.toml (the values of Stable-Baselines3's zoo for Atari) for 300,000 steps
of four frames, and `sb3` Stable-Baselines3's at the same values on one of the games. `ram` is examples/atari_ram.toml,
groups for 60,000 steps with attempts cut after 300. Nothing was tuned for a game. Judged are the returns of unseen
starts, with actions drawn by the trained policy and by chance. A claim is the difference, over three seeds with
Student's 95% interval.

A run from pixels takes long, so it saves checkpoints under --runs and goes on from the newest one after a kill; what
Stable-Baselines3 was doing is then lost. Needs `pip install "groupwise[atari,sb3]"`; what is missing is left out.
"""

from __future__ import annotations

import argparse
import os

os.environ["OMP_NUM_THREADS"] = "1"

import json
import time
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import journal
import numpy as np
import torch
from journal import Job, Journal, over_seeds
from record import print_result

from groupwise.config import TrainingConfig, load_config
from groupwise.control import grpo, ppo
from groupwise.control.environments import make_environment
from groupwise.control.model import tuned_settings
from groupwise.files import write_output
from groupwise.rollout.contract import random_actions
from groupwise.rollout.episodes import collect_groups
from groupwise.training.folder import create_run, run_folders
from groupwise.training.session import Parts, execute
from groupwise.types import Array, Task, VectorEnvironment

ROOT = Path(__file__).parent.parent
GAMES = ("ALE/Breakout-v5", "ALE/SpaceInvaders-v5", "ALE/Boxing-v5")
BESIDE = ("ALE/Breakout-v5",)
STEPS = {"pixels": 300_000, "sb3": 300_000, "ram": 60_000}
# Unseen starts, and processor seconds of a run before any was measured.
STARTS = {"pixels": 10, "sb3": 10, "ram": 32}
GUESS = {"pixels": 3_000.0, "sb3": 3_000.0, "ram": 90.0}
SB3 = {
    "n_steps": 128, "batch_size": 256, "n_epochs": 4, "learning_rate": 2.5e-4, "clip_range": 0.1, "ent_coef": 0.01,
}  # fmt: skip


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


def train(runs: Path, job: Job) -> dict[str, Any]:
    torch.set_num_threads(1)
    arm, game = job.arm.split("/", 1)
    cfg = tuned_settings(game, "ppo") if arm != "ram" else load_config(ROOT / "examples" / "atari_ram.toml")
    quiet = {"eval_steps": 0, "group_log_steps": 0, "save_steps": 20, "threads": 1, "num_episodes": 10**6}
    cfg = cfg.replace(environment=game, seed=job.seed, total_samples=job.steps, **quiet)
    environment, starts = make_environment(cfg.task), range(70_000, 70_000 + STARTS[arm])
    found: dict[str, Any]
    if arm == "sb3":
        found, policy = {"taken": job.steps}, train_sb3(game, job)
        drawn = play(environment, policy, starts)
    else:
        found, parts = train_ours(cfg.replace(output_dir=str(runs / f"{arm}-{game}-{job.seed}".replace("/", "-"))))
        tasks = [Task(f"{game}/{start}", game, start) for start in starts]
        rng = np.random.default_rng(1)
        groups = collect_groups(environment, parts.policy, tasks, 1, rng, version=0, prefix="judged")
        drawn = np.array([float(group.members[0].rewards.sum()) for group in groups])
    return {**found, "drawn": drawn.tolist(), "chance": play_by_chance(environment, starts).tolist()}


def train_ours(cfg: TrainingConfig) -> tuple[dict[str, Any], Parts]:
    """Train, or go on with a run that was killed; processor seconds are counted up to each checkpoint."""
    made: list[Parts] = []

    def build(cfg: TrainingConfig) -> Parts:
        made.append((ppo if cfg.task.product == "ppo" else grpo).build(cfg))
        return made[0]

    folder = Path(cfg.run.output_dir)
    old = run_folders(folder) if folder.is_dir() else []
    spent = folder / "processor_seconds.json"
    before = json.loads(spent.read_text()) if spent.is_file() else 0.0
    began, taken = time.process_time(), 0
    for event in execute(old[0] if old else create_run(cfg), build):
        if event.type == "step":
            taken = int(event.data["totals"]["samples"])
        if event.type in ("checkpoint", "end"):
            write_output(spent, json.dumps(before + time.process_time() - began).encode())
    return {"taken": taken, "cpu_seconds": round(before + time.process_time() - began, 1)}, made[0]


def train_sb3(game: str, job: Job) -> Any:
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import VecFrameStack

    name = game.split("/")[1].replace("-v5", "NoFrameskip-v4")
    env = VecFrameStack(make_atari_env(name, 8, seed=job.seed), 4)
    model = PPO("CnnPolicy", env, seed=job.seed, device="cpu", **SB3)
    return model.learn(job.steps)


def play(environment: VectorEnvironment, model: Any, starts: Sequence[int]) -> Array:
    """Returns of a model of Stable-Baselines3 in our form of the game, which gives shares of 255, frames first."""
    obs = environment.reset(starts)
    returns, running = np.zeros(len(starts)), np.ones(len(starts), np.bool_)
    while running.any():
        frames = np.rint(obs * 255).astype(np.uint8).reshape(len(starts), 4, 84, 84)
        obs, rewards, terminated, truncated = environment.step(model.predict(frames, deterministic=False)[0])
        returns += np.where(running, rewards, 0.0)
        running &= ~(terminated | truncated)
    return returns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=6000)
    parser.add_argument("--steps", type=int, help="other than each arm says")
    parser.add_argument("--arms", nargs="+", choices=tuple(STEPS), default=tuple(STEPS))
    parser.add_argument("--games", nargs="+", default=GAMES)
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "atari", help="checkpoints of runs under way")
    journal.add_options(parser, "atari")
    options = parser.parse_args()
    seeds = list(range(options.first, options.first + options.seeds))
    missing = {} if find_spec("ale_py") else dict.fromkeys(options.arms, "pip install 'groupwise[atari]'")
    if find_spec("stable_baselines3") is None or find_spec("cv2") is None:
        missing["sb3"] = "pip install 'stable-baselines3==2.9.*' opencv-python-headless"
    kept, claims, rows = Journal(options.journal), dict[str, Any](), list[dict[str, Any]]()
    intervals: dict[str, list[float | None]] = {}
    for arm in options.arms:
        games = [game for game in options.games if arm != "sb3" or game in BESIDE]
        told = SB3 if arm == "sb3" else {"starts": STARTS[arm]}
        jobs = [Job(f"{arm}/{game}", seed, options.steps or STEPS[arm], told) for seed in seeds for game in games]
        if arm not in missing:
            rows += journal.run(kept, jobs, partial(train, options.runs), options)
            claims |= {f"{arm}_{n}": value for n, value in journal.left_over(kept, jobs, GUESS[arm]).items()}
    for arm in dict.fromkeys(row["arm"] for row in rows):
        own = [row for row in rows if row["arm"] == arm]
        name = arm.replace("/ALE/", "_").split("-")[0].lower()
        above = [float(np.mean(row["drawn"]) - np.mean(row["chance"])) for row in own]
        claims[f"{name}_over_chance"], intervals[f"{name}_over_chance"] = over_seeds(above)
        claims |= {f"{name}_{who}": float(np.mean([row[who] for row in own])) for who in ("drawn", "chance")}
    print_result("atari", claims, seeds=seeds, intervals=intervals, raw=rows, not_run=missing)


if __name__ == "__main__":
    main()
