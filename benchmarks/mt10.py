"""Meta-World's MT10 under one policy, five tasks with rewards × 100 and five with × 0.01: PPO, groups, and PopArt.

    make metaworld                                          # an environment of its own: Meta-World pins MuJoCo 3.3
    .venv-metaworld/bin/python benchmarks/mt10.py --plan    # what is done, and the hours that the rest takes
    .venv-metaworld/bin/python benchmarks/mt10.py --json    # go on where the journal ends, then print the table

Arms are `ppo` and `groups` (four complete episodes from each start, with a critic), each with `one` scale for all tasks
(returns divided by their running spread, as VecNormalize does) or `popart` (the critic in each task's own units, and
advantages by each task's own spread). Everything else is the same and tuned for none: 256 × 256 units, a batch of
10,000 steps, learning rate 3e-4. Meta-World draws a task's goals without its reset's seed; here the seed says which of
50 goals it is, so that the members of a group start alike. Success is Meta-World's own, at any time in an episode, over
ten episodes of each task with goals from another draw, by the policy's likeliest actions.
"""

from __future__ import annotations

import argparse
import os

os.environ["OMP_NUM_THREADS"] = "1"

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any

import gymnasium
import journal
import numpy as np
import torch
from journal import Job, Journal, over_seeds
from record import print_result

from groupwise import ControlModel
from groupwise.control.multitask import SuiteTask

TASKS = (
    "reach-v3", "push-v3", "pick-place-v3", "door-open-v3", "drawer-open-v3", "drawer-close-v3",
    "button-press-topdown-v3", "peg-insert-side-v3", "window-open-v3", "window-close-v3",
)  # fmt: skip
LIMIT, BUDGET = 500, 1_000_000
GOALS, UNSEEN_GOALS = 0, 1
# Processor seconds of a run, before any was measured.
GUESS = 1_500.0
COMMON = {"hidden_sizes": [256, 256], "learning_rate": 3e-4, "gamma": 0.99, "gae_lambda": 0.95, "value_clip": None}
ALGORITHMS: Mapping[str, Mapping[str, Any]] = {
    "ppo": {"algorithm": "ppo", "num_envs": 20, "num_steps": LIMIT},
    "groups": {"algorithm": "grpo", "num_generations": 4, "tasks_per_step": 5, "group_weight_method": "balanced"},
}
SCALES: Mapping[str, Mapping[str, Any]] = {
    "one": {"estimator": "gae", "advantage_scale": "batch_std", "normalize_returns": True},
    "popart": {"estimator": "group_gae", "advantage_scale": "task_rms", "normalize_returns": False},
}
ARMS = tuple(f"{who}-{scale}" for who in ALGORITHMS for scale in SCALES)


def settings_of(arm: str, episodes: int) -> dict[str, Any]:
    who, scale = arm.split("-")
    return {**COMMON, **ALGORITHMS[who], **SCALES[scale], "tasks": TASKS, "episodes": episodes}


@cache
def goals(task: str, draw: int) -> tuple[type[Any], list[Any]]:
    """The class of a task and 50 goals."""
    import metaworld

    made = metaworld.MT1(task, seed=draw)
    return made.train_classes[task], made.train_tasks


class OneTask(gymnasium.Env[Any, Any]):
    """A task of Meta-World, whose goal the seed of the reset chooses."""

    def __init__(self, task: str, draw: int) -> None:
        made, self.goals = goals(task, draw)
        self.inner = made()
        # Meta-World's own limits depend on the goal.
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (39,), np.float64)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (4,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.inner.set_task(self.goals[int(self.np_random.integers(len(self.goals)))])
        obs, _ = self.inner.reset(seed=seed)
        return obs, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, _, _, info = self.inner.step(np.asarray(action, np.float32))
        return obs, float(reward), False, False, {"success": float(info["success"])}


def maker(task: str) -> Callable[[], Any]:
    return lambda: gymnasium.wrappers.TimeLimit(OneTask(task, GOALS), LIMIT)


def train(job: Job) -> dict[str, Any]:
    torch.set_num_threads(1)
    settings = {name: value for name, value in job.settings.items() if name not in ("tasks", "episodes")}
    tasks: list[Any] = [
        SuiteTask(task, maker(task), reward_scale=(100.0, 0.01)[number % 2])  # type: ignore[arg-type]
        for number, task in enumerate(TASKS)
    ]
    model = ControlModel(tasks, seed=job.seed, **settings).learn(job.steps)
    success = {task: succeeded(model, number, job.settings["episodes"]) for number, task in enumerate(TASKS)}
    return {"taken": model.num_timesteps, "success": success}


def succeeded(model: ControlModel, number: int, episodes: int) -> float:
    """The share of episodes of a task that succeed."""
    environment, found = OneTask(TASKS[number], UNSEEN_GOALS), []
    which = np.eye(len(TASKS), dtype=np.float32)[number]
    for seed in range(episodes):
        obs, _ = environment.reset(seed=seed)
        success = 0.0
        for _ in range(LIMIT):
            row = np.concatenate([obs, which]).astype(np.float32)
            obs, _, _, _, info = environment.step(model.predict(row)[0])
            success = max(success, info["success"])
        found.append(success)
    return round(float(np.mean(found)), 3)


def claims_of(rows: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, list[float | None]]]:
    claims: dict[str, Any] = {}
    intervals: dict[str, list[float | None]] = {}
    mean = {(row["arm"], row["seed"]): float(np.mean(list(row["success"].values()))) for row in rows}
    for arm in ARMS:
        own = [row for row in rows if row["arm"] == arm]
        if own:
            claims[f"{arm}_success"], intervals[f"{arm}_success"] = over_seeds([mean[arm, r["seed"]] for r in own])
            for task in TASKS:
                claims[f"{arm}_{task}"] = float(np.mean([row["success"][task] for row in own]))
    for name, pairs in EFFECTS.items():
        seeds = sorted({seed for _, seed in mean if all((arm, seed) in mean for pair in pairs for arm in pair)})
        if seeds:
            differences = [np.mean([mean[a, seed] - mean[b, seed] for a, b in pairs]) for seed in seeds]
            claims[name], intervals[name] = over_seeds([float(value) for value in differences])
    return claims, intervals


EFFECTS: Mapping[str, Sequence[tuple[str, str]]] = {
    "scale_effect": [("ppo-popart", "ppo-one"), ("groups-popart", "groups-one")],
    "group_effect": [("groups-one", "ppo-one"), ("groups-popart", "ppo-popart")],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=BUDGET)
    parser.add_argument("--episodes", type=int, default=10, help="of each task, to judge a run")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=ARMS)
    journal.add_options(parser, "mt10")
    options = parser.parse_args()
    seeds = list(range(options.first, options.first + options.seeds))
    if find_spec("metaworld") is None:
        print_result("mt10", {}, seeds=seeds, not_run=dict.fromkeys(options.arms, "make metaworld"))
        return
    kept = Journal(options.journal)
    jobs = [Job(arm, seed, options.steps, settings_of(arm, options.episodes)) for seed in seeds for arm in options.arms]
    rows = journal.run(kept, jobs, train, options)
    claims, intervals = claims_of(rows)
    claims |= journal.left_over(kept, jobs, GUESS)
    print_result("mt10", claims, seeds=seeds, intervals=intervals, raw=rows)


if __name__ == "__main__":
    main()
