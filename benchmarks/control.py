"""Groupwise beside Stable-Baselines3: CartPole-v1, LunarLander-v3, MuJoCo; and what a bare environment name learns.

    python benchmarks/control.py --plan                     # what is done, and the hours that the rest takes
    python benchmarks/control.py --json                     # go on where the journal ends, then print the table
    python benchmarks/control.py --json --parts cartpole --seeds 5

`cartpole`: processor seconds and environment steps until the mean return of the last 100 training episodes is 475; ours
is configs/grpo/CartPole-v1.toml, theirs PPO at the values of their zoo. `same_env` is ours on Gymnasium's own
environment, which is theirs anyway. A run that does not reach 475 counts with the steps and seconds of its whole
budget: its ratio is a bound. `lunar`: greedy return over 50 episodes after 500,000 steps, and steps per processor
second; `ppo` is our PPO at the zoo's values. `bare`: settings that name only an environment, 20 seeds of CartPole
and five of the others; solved is the mean of the last 100 training episodes, at any time within the budget.
`mujoco`: HalfCheetah, Hopper and Walker2d, five seeds, 500,000 steps, the mean return of 20 unseen starts; `groups` and
`ppo` are what `ControlModel` uses by default, theirs is PPO at its defaults with VecNormalize.

Tuned settings were tuned on seeds below 100, the defaults of MuJoCo's PPO not at all. One thread per run.
Needs `pip install "groupwise[sb3,box2d,mujoco]"`; what is missing is left out and named in `not_run`.
"""

from __future__ import annotations

import argparse
import os

os.environ["OMP_NUM_THREADS"] = "1"

import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

import journal
import numpy as np
import torch
from journal import Job, Journal
from record import print_result

from groupwise.config import TrainingConfig
from groupwise.control import environments, ppo
from groupwise.control import grpo as product
from groupwise.control.model import Algorithm, tuned_settings
from groupwise.rollout.episodes import evaluate_greedy
from groupwise.training.folder import create_run
from groupwise.training.session import Parts, execute
from groupwise.types import Array, Batch

TARGET, WINDOW = 475.0, 100
EVALUATION = range(50_000, 50_050)
# Environment, steps, and the mean of the last 100 training episodes that counts as solved (None: never ends early).
BARE: Mapping[str, tuple[int, float, int]] = {
    "CartPole-v1": (100_000, TARGET, 20),
    "Acrobot-v1": (100_000, -100.0, 5),
    "Pendulum-v1": (200_000, -200.0, 5),
    "LunarLander-v3": (500_000, 200.0, 5),
}
MUJOCO = ("HalfCheetah-v5", "Hopper-v5", "Walker2d-v5")
STEPS = {"cartpole": 100_000, "lunar": 500_000, "mujoco": 500_000}
# Processor seconds of a run, before any was measured.
GUESS = {"cartpole": 10.0, "lunar": 200.0, "bare": 40.0, "mujoco": 300.0}
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


class Window:
    """The returns of the last training episodes, and when their mean first reached the target."""

    def __init__(self, target: float) -> None:
        self.target = target
        self.last: deque[float] = deque(maxlen=WINDOW)
        self.began = time.process_time()
        self.reached: tuple[int, float] | None = None

    def see(self, returns: Sequence[float], steps: int) -> bool:
        """True once the target is reached."""
        self.last.extend(returns)
        if self.reached is None and len(self.last) == WINDOW and np.mean(self.last) >= self.target:
            self.reached = steps, time.process_time() - self.began
        return self.reached is not None

    def result(self, steps: int) -> dict[str, Any]:
        """`cpu` and `taken` until the target was reached, or at the end."""
        at, cpu = self.reached or (steps, time.process_time() - self.began)
        return {
            "solved": self.reached is not None, "taken": at, "cpu": round(cpu, 2), "steps_per_cpu_s": round(at / cpu),
            "last_training": round(float(np.mean(self.last)), 2) if self.last else None,
        }  # fmt: skip


def train_ours(cfg: TrainingConfig, target: float, budget: int) -> tuple[dict[str, Any], Any]:
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
            if window.see(returns, steps) or steps >= budget:
                break
            returns.clear()
    return window.result(steps), made[0].policy


def train_sb3(name: str, seed: int, budget: int, target: float) -> tuple[dict[str, Any], Any]:
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    class Watch(BaseCallback):
        def _on_step(self) -> bool:
            ended = [info["episode"]["r"] for info in self.locals["infos"] if "episode" in info]
            return not (ended and window.see(ended, self.num_timesteps))

    window, zoo = Window(target), dict(ZOO.get(name, {}))
    env: Any = make_vec_env(name, zoo.pop("n_envs", 1), seed=seed)
    env = VecNormalize(env) if name in MUJOCO else env
    model = PPO("MlpPolicy", env, seed=seed, device="cpu", **zoo)
    model.learn(budget, callback=Watch())
    return window.result(model.num_timesteps), GreedySB3(model, env if name in MUJOCO else None)


class GreedySB3:
    def __init__(self, model: Any, normalised: Any) -> None:
        self.model, self.normalised = model, normalised

    def greedy(self, obs: Array) -> Array:
        seen = obs if self.normalised is None else self.normalised.normalize_obs(obs)
        actions: Array = self.model.predict(seen, deterministic=True)[0]
        return actions


def train(job: Job) -> dict[str, Any]:
    """One arm from one seed. Arms are PART/WHO, or PART/WHO/ENVIRONMENT."""
    torch.set_num_threads(1)
    name, target = job.settings["environment"], job.settings["target"]
    if job.settings["who"] == "sb3":
        found, policy = train_sb3(name, job.seed, job.steps, target)
    else:
        with tempfile.TemporaryDirectory() as folder:
            found, policy = train_ours(settings(job, folder), target, job.steps)
    if job.settings["starts"]:
        environment = environments.make(name)
        returns, _ = evaluate_greedy(environment, policy, EVALUATION[: job.settings["starts"]])
        found["score"] = round(float(np.mean(returns)), 2)
    return found


def settings(job: Job, folder: str) -> TrainingConfig:
    """The tuned settings where there are any, else the defaults; for `bare` always the defaults."""
    told, quiet = job.settings, {"eval_steps": 0, "save_steps": 10**9, "group_log_steps": 0, "threads": 1}
    algorithm: Algorithm = "ppo" if told["who"] == "ppo" else "grpo"
    quiet |= {"seed": job.seed, "output_dir": folder}
    if job.arm.startswith("bare"):
        # As a file with this one line: even the length of the run, and so of its schedules, is the default.
        return TrainingConfig.from_dict({"task": {"environment": told["environment"]}}).replace(**quiet)
    limits = {"total_samples": job.steps, "num_episodes": 10**6, "options": told["options"]}
    return tuned_settings(told["environment"], algorithm).replace(**quiet, **limits)


def jobs_of(part: str, first: int, seeds: int | None, sb3: bool) -> list[Job]:
    """Seed by seed, so that a campaign that is stopped has all arms of some seeds."""
    made = []

    def add(who: str, name: str, count: int, steps: int, target: float, starts: int, **options: Any) -> None:
        arm = "/".join([part, who, *([name] if part in ("bare", "mujoco") else [])])
        told = {"environment": name, "who": who, "target": target, "starts": starts, "options": options}
        made.extend(Job(arm, seed, steps, told) for seed in range(first, first + (seeds or count)))

    if part == "cartpole":
        add("ours", "CartPole-v1", 10, STEPS[part], TARGET, 0)
        add("same_env", "CartPole-v1", 10, STEPS[part], TARGET, 0, gymnasium=True)
        for who in ("ppo", *(("sb3",) if sb3 else ())):
            add(who, "CartPole-v1", 10, STEPS[part], TARGET, 0)
    if part == "lunar":
        for who in ("ours", "ppo", *(("sb3",) if sb3 else ())):
            add(who, "LunarLander-v3", 10, STEPS[part], np.inf, 50)
    if part == "bare":
        for name, (steps, target, count) in BARE.items():
            add("defaults", name, count, steps, target, 0)
    if part == "mujoco":
        for name in MUJOCO:
            for who in ("groups", "ppo", *(("sb3",) if sb3 else ())):
                add(who, name, 5, STEPS[part], np.inf, 20)
    return sorted(made, key=lambda job: job.seed)


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


class Claims:
    """Claims with their intervals, from the rows of a campaign."""

    def __init__(self, found: list[dict[str, Any]]) -> None:
        self.found = found
        self.claims: dict[str, Any] = {}
        self.intervals: dict[str, list[float]] = {}

    def compare(self, claim: str, ours: str, theirs: str, name: str, measure: Callable[[Array, Array], float]) -> None:
        """Over the seeds that both arms have done."""
        one, other = ({row["seed"]: row[name] for row in self.found if row["arm"] == arm} for arm in (ours, theirs))
        both = sorted(set(one) & set(other))
        if not both:
            return
        a, b = (np.array([rows[seed] for seed in both], np.float64) for rows in (one, other))
        self.claims |= {claim: float(measure(a, b)), f"{claim}_seeds": len(both)}
        if len(both) > 1:
            self.intervals[claim] = bootstrap(lambda drawn: measure(a[drawn], b[drawn]), len(both))

    def describe(self, arm: str) -> None:
        rows = [row for row in self.found if row["arm"] == arm]
        name = arm.replace("/", "_")
        if arm.startswith(("cartpole", "bare")):
            self.claims[f"{name}_solved"] = f"{sum(row['solved'] for row in rows)}/{len(rows)}"
        for measure in ("taken", "cpu", "steps_per_cpu_s"):
            self.claims[f"{name}_{measure}_median"] = float(np.median([row[measure] for row in rows]))
        if "score" in rows[0]:
            self.claims[f"{name}_iqm"] = iqm(np.array([row["score"] for row in rows]))


def ratio(a: Array, b: Array) -> float:
    return float(np.median(a) / np.median(b))


def claims_of(found: list[dict[str, Any]]) -> Claims:
    made = Claims(found)
    made.compare("cartpole_cpu_vs_sb3", "cartpole/same_env", "cartpole/sb3", "cpu", ratio)
    made.compare("cartpole_steps_vs_sb3", "cartpole/same_env", "cartpole/sb3", "taken", ratio)
    made.compare("cartpole_own_env_cpu_vs_sb3", "cartpole/ours", "cartpole/sb3", "cpu", ratio)
    made.compare("cartpole_ppo_cpu_vs_sb3", "cartpole/ppo", "cartpole/sb3", "cpu", ratio)
    made.compare("cartpole_ppo_steps_vs_sb3", "cartpole/ppo", "cartpole/sb3", "taken", ratio)
    for who, claim in (("ours", "lunar"), ("ppo", "lunar_ppo")):
        made.compare(f"{claim}_cpu_speed_vs_sb3", f"lunar/{who}", "lunar/sb3", "steps_per_cpu_s", ratio)
        made.compare(f"{claim}_iqm_difference", f"lunar/{who}", "lunar/sb3", "score", lambda a, b: iqm(a) - iqm(b))
    for name in MUJOCO:
        for who in ("groups", "ppo"):
            ours, theirs = (f"mujoco/{one}/{name}" for one in (who, "sb3"))
            short = f"mujoco_{who}_{name.split('-')[0].lower()}"
            made.compare(f"{short}_vs_sb3", ours, theirs, "score", lambda a, b: iqm(a) / iqm(b))
            made.compare(f"{short}_cpu_speed_vs_sb3", ours, theirs, "steps_per_cpu_s", ratio)
    for arm in dict.fromkeys(row["arm"] for row in found):
        made.describe(arm)
    if (solved := made.claims.get("bare_defaults_CartPole-v1_solved")) is not None:
        made.claims["bare_cartpole_solved"] = solved
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = ("cartpole", "bare", "lunar", "mujoco")
    parser.add_argument("--parts", nargs="+", choices=parts, default=parts)
    parser.add_argument("--seeds", type=int, help="other than each part says")
    parser.add_argument("--first", type=int, default=1000)
    parser.add_argument("--only", nargs="+", default=[], help="arms that contain one of these words")
    journal.add_options(parser, "control")
    options = parser.parse_args()
    not_run = {
        name: f"pip install 'groupwise[{extra}]'"
        for name, module, extra in (
            ("sb3", "stable_baselines3", "sb3"), ("lunar", "Box2D", "box2d"), ("mujoco", "mujoco", "mujoco"),
        )
        if find_spec(module) is None
    }  # fmt: skip
    kept, jobs, left = Journal(options.journal), [], {}
    rows: list[dict[str, Any]] = []
    for part in options.parts:
        if part in not_run:
            continue
        own = [
            job for job in jobs_of(part, options.first, options.seeds, "sb3" not in not_run)
            if not options.only or any(word in job.arm for word in options.only)
        ]  # fmt: skip
        rows += journal.run(kept, own, train, options)
        left |= {f"{part}_{name}": value for name, value in journal.left_over(kept, own, GUESS[part]).items()}
        jobs += own
    made, seeds = claims_of(rows), sorted({job.seed for job in jobs})
    print_result(
        "control", made.claims | left, seeds=seeds, intervals=made.intervals, peers=peers(), raw=rows, not_run=not_run
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
