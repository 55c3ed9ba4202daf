"""Three CartPoles under one policy, rewards × 100, × 1 and × 0.01: what do scales, groups and gradient surgery give?

    python benchmarks/multitask.py --plan                   # what is done, and the hours that the rest takes
    python benchmarks/multitask.py --json                   # go on where the journal ends, then print the table

Arms are named algorithm-scale-surgery. Algorithms: `ppo`; `groups`, complete episodes in groups of eight with a critic;
`relative`, the same without a critic, each step against its group (there is nothing that PopArt could scale).
Scales: `one` for all tasks; `task`, advantages divided by their task's own; `popart`, the critic in each task's own
units besides. Surgery: `pcgrad` or `none`.

A task is solved when the mean length of its last 100 training episodes is 475 of 500, at the end of the budget or when
all three are, which ends a run. Tuning comes first and is part of the journal: two learning rates for each algorithm
and scale, on seeds that the table does not use; the better one (by mean score, then by steps) is used with surgery too.
Everything else is configs/ppo/reward-scales.toml and configs/grpo/reward-scales.toml, with one limit of the KL.

`ppo_known` is PPO on the same tasks with every reward brought to 1 a step, and `ppo_vecnormalize` Stable-Baselines3's
PPO with VecNormalize: rivals outside of the table, run if named (`--arms`).
"""

from __future__ import annotations

import argparse
import os

os.environ["OMP_NUM_THREADS"] = "1"

import tempfile
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import journal
import numpy as np
import torch
from journal import Job, Journal, over_seeds
from record import print_result

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
# Processor seconds of a run, before any was measured.
GUESS = 90.0
FIRST, TUNING, RATES = 5000, (0, 1), (1e-3, 3e-4)
SCALES: Mapping[str, Mapping[str, Any]] = {
    "one": {"advantage_scale": "batch_std", "estimator": "gae"},
    "task": {"advantage_scale": "task_rms", "estimator": "gae"},
    "popart": {"advantage_scale": "task_rms", "estimator": "group_gae"},
}
CELLS = (*((who, scale) for who in ("ppo", "groups") for scale in SCALES), ("relative", "one"), ("relative", "task"))
SURGERY = ("none", "pcgrad")
ARMS = tuple(f"{who}-{scale}-{surgery}" for who, scale in CELLS for surgery in SURGERY)
RIVALS = ("ppo_known", "ppo_vecnormalize")
SB3 = {
    "n_steps": 128, "batch_size": 512, "gamma": 0.98, "gae_lambda": 0.95, "n_epochs": 10,
    "learning_rate": 1e-3,
}  # fmt: skip
COPIES = 24
PARTS_AS_SHIPPED = dict(PARTS)


def settings_of(arm: str, rate: float) -> dict[str, Any]:
    """What differs from the shipped settings."""
    if arm == "ppo_vecnormalize":
        return {**SB3, "learning_rate": rate}
    who, scale, surgery = arm.split("-") if "-" in arm else ("ppo", "one", "none")
    changes: dict[str, Any] = {**SCALES[scale], "gradient_surgery": surgery, "kl_stop": 0.03, "learning_rate": rate}
    return changes | ({"estimator": "group_rtg"} if who == "relative" else {})


def job_of(arm: str, seed: int, rate: float, steps: int) -> Job:
    return Job(arm, seed, steps, settings_of(arm, rate))


def tuning_jobs(steps: int) -> list[Job]:
    return [
        job_of(f"{who}-{scale}-none", seed, rate, steps) for seed in TUNING for who, scale in CELLS for rate in RATES
    ]


def better_rate(done: Mapping[Any, dict[str, Any]], who: str, scale: str, steps: int) -> float | None:
    """The learning rate that did better on the tuning seeds; None until all are done."""
    found = []
    for rate in RATES:
        keys = [job_of(f"{who}-{scale}-none", seed, rate, steps).key for seed in TUNING]
        if not all(key in done for key in keys):
            return None
        rows = [done[key] for key in keys]
        found.append((-np.mean([score(row) for row in rows]), np.mean([row["taken"] for row in rows]), rate))
    return min(found)[2]


def study_jobs(journal: Journal, seeds: Sequence[int], arms: Sequence[str], steps: int) -> list[Job]:
    """Seed by seed, so that a campaign that is stopped has whole blocks. Without tuning, an arm has no jobs yet."""
    done = journal.rows()
    rates = {f"{who}-{scale}": better_rate(done, who, scale, steps) for who, scale in CELLS}
    # The rates of the rivals were tuned before (docs/experiments.md).
    wanted = {arm: 1e-3 if arm in RIVALS else rates[arm.rpartition("-")[0]] for arm in arms}
    return [job_of(arm, seed, rate, steps) for seed in seeds for arm, rate in wanted.items() if rate is not None]


def score(row: Mapping[str, Any]) -> float:
    """The mean over tasks of the share of 475 steps that the last 100 episodes lasted; 1 is solved."""
    return float(np.mean([min(1.0, length / SOLVED) for length in row["lengths"].values()]))


class Lengths:
    """The lengths of the last training episodes of every task."""

    def __init__(self, kinds: Iterable[str]) -> None:
        self.last: dict[str, deque[int]] = {kind: deque(maxlen=WINDOW) for kind in kinds}

    def see(self, kind: str, length: int) -> None:
        self.last[kind].append(length)

    def means(self) -> dict[str, float]:
        return {kind: round(float(np.mean(seen)), 2) if seen else 0.0 for kind, seen in self.last.items()}

    def all_solved(self) -> bool:
        full = all(len(seen) == WINDOW for seen in self.last.values())
        return full and min(self.means().values()) >= SOLVED

    def result(self, steps: int) -> dict[str, Any]:
        means = self.means()
        return {"taken": steps, "solved": sum(mean >= SOLVED for mean in means.values()), "lengths": means}


def train(job: Job) -> dict[str, Any]:
    torch.set_num_threads(1)
    if job.arm == "ppo_vecnormalize":
        return train_sb3(job)
    if job.arm == "ppo_known":
        with patch.dict(PARTS, {SUITE: equal_scales}):  # type: ignore[arg-type]
            return train_ours(job)
    return train_ours(job)


def train_ours(job: Job) -> dict[str, Any]:
    lengths = Lengths(make_suite(SUITE).kinds)

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
    algorithm = "ppo" if job.arm.startswith("ppo") else "grpo"
    with tempfile.TemporaryDirectory() as folder:
        quiet = {"eval_steps": 0, "save_steps": 10**9, "group_log_steps": 0, "threads": 1, "output_dir": folder}
        limits = {"total_samples": job.steps, "num_episodes": 10**6, "seed": job.seed}
        cfg = load_config(CONFIGS / algorithm / f"{SUITE}.toml").replace(**job.settings, **quiet, **limits)
        for event in execute(create_run(cfg), build):
            if event.type == "step":
                steps = event.data["totals"]["samples"]
                if lengths.all_solved():
                    break
    return lengths.result(steps)


def equal_scales() -> list[SuiteTask]:
    return [replace(part, reward_scale=1.0) for part in PARTS_AS_SHIPPED[SUITE]()]


def train_sb3(job: Job) -> dict[str, Any]:
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

    settings = dict(job.settings)
    rate = settings.pop("learning_rate")
    env = VecNormalize(suite_for_sb3(suite, job.seed), gamma=settings["gamma"])
    model = PPO("MlpPolicy", env, seed=job.seed, device="cpu", learning_rate=lambda left: rate * left, **settings)
    model.learn(job.steps, callback=Watch())
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


def claims_of(rows: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, list[float | None]]]:
    """The table, and the effects over seeds for which all their arms are done."""
    claims: dict[str, Any] = {}
    intervals: dict[str, list[float | None]] = {}
    table: dict[str, dict[int, dict[str, Any]]] = {}
    for row in rows:
        table.setdefault(row["arm"], {})[row["seed"]] = row
    for arm, by_seed in table.items():
        claims[f"{arm}_solved"] = f"{sum(row['solved'] for row in by_seed.values())}/{3 * len(by_seed)}"
        claims[f"{arm}_score"], intervals[f"{arm}_score"] = over_seeds([score(row) for row in by_seed.values()])
        claims[f"{arm}_steps_median"] = float(np.median([row["taken"] for row in by_seed.values()]))
        for kind in next(iter(by_seed.values()))["lengths"]:
            claims[f"{arm}_length_{kind}"] = float(np.mean([row["lengths"][kind] for row in by_seed.values()]))
    for name, pairs in EFFECTS.items():
        needed = {arm for pair in pairs for arm in pair}
        seeds = sorted(set.intersection(*(set(table.get(arm, {})) for arm in needed)))
        if seeds:
            of = [
                float(np.mean([score(table[one][seed]) - score(table[other][seed]) for one, other in pairs]))
                for seed in seeds
            ]
            claims[name], intervals[name] = over_seeds(of)
            claims[f"{name}_seeds"] = len(seeds)
    return claims, intervals


def against(axis: int, one: str, other: str, **only: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs of arms that differ in nothing but one place of their names."""
    pairs = []
    for arm in ARMS:
        parts = arm.split("-")
        changed = "-".join([*parts[:axis], other, *parts[axis + 1 :]])
        if parts[axis] == one and changed in ARMS and all(arm.split("-")[0] in names for names in only.values()):
            pairs.append((arm, changed))
    return pairs


WITH_CRITIC = ("ppo", "groups")
EFFECTS: Mapping[str, list[tuple[str, str]]] = {
    "scale_effect": against(1, "popart", "one"),
    "scale_effect_of_advantages": against(1, "task", "one", who=WITH_CRITIC),
    "scale_effect_of_critic": against(1, "popart", "task"),
    "scale_effect_without_critic": against(1, "task", "one", who=("relative",)),
    "group_effect": against(0, "groups", "ppo"),
    "group_effect_without_critic": against(0, "relative", "ppo"),
    "surgery_effect": against(2, "pcgrad", "none", who=WITH_CRITIC),
    "surgery_effect_without_critic": against(2, "pcgrad", "none", who=("relative",)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=FIRST)
    parser.add_argument("--steps", type=int, default=BUDGET)
    parser.add_argument("--arms", nargs="+", choices=(*ARMS, *RIVALS), default=ARMS)
    journal.add_options(parser, "multitask")
    options = parser.parse_args()
    kept = Journal(options.journal)
    tuning = tuning_jobs(options.steps) if set(options.arms) - set(RIVALS) else []
    journal.run(kept, tuning, train, options)
    seeds = list(range(options.first, options.first + options.seeds))
    jobs = study_jobs(kept, seeds, options.arms, options.steps)
    rows = journal.run(kept, jobs, train, options)
    claims, intervals = claims_of(rows)
    # Before it is tuned, an arm has no settings; its jobs are counted with any rate.
    known = {(job.arm, job.seed) for job in jobs}
    unknown = [
        job_of(arm, seed, RATES[0], options.steps) for seed in seeds for arm in options.arms if (arm, seed) not in known
    ]
    claims |= journal.left_over(kept, [*tuning, *jobs, *unknown], GUESS)
    rates = {f"{who}-{scale}": better_rate(kept.rows(), who, scale, options.steps) for who, scale in CELLS}
    print_result("multitask", claims, seeds=seeds, intervals=intervals, raw={"rates": rates, "runs": rows})


if __name__ == "__main__":
    main()
