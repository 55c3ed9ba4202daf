"""Does a language model learn to use tools from scores, and does GRPO beat simpler ways to learn? Judged greedily.

    python benchmarks/agent_learning.py --seeds 101 102 103 --json

Per seed, from one warm start (`orders_sft.toml`: conversations that are right in form and mostly ask for the status):

    grpo       `orders.toml`
    rejection  the same run, but it imitates its own correct conversations and ignores all others (rejection sampling)
    placebo    the same run, with the scores shuffled inside every group, so that they carry no information
    sft        more of the warm start, for as much processor time as GRPO took

All are judged greedily on the same held-out scenarios, whose order numbers and customers never occur in training. Then
the same for sums of reasoning-gym (`chain_sum_sft.toml`, `chain_sum.toml`). One thread each. Claims: mean success
before and after, the share of well-formed conversations before, and the gains of the other arms.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from lm_learning import replace_target, run
from placebo import OnlyCorrect, Shuffled, imitation_of_correct
from record import print_result

from groupwise.agents import agent_product, warm_start
from groupwise.agents.commands import SETTINGS
from groupwise.config import TrainingConfig, load_config
from groupwise.training.session import Parts

TASKS = ("orders", "chain_sum")
ARMS = ("grpo", "rejection", "placebo", "sft")


def placebo(cfg: TrainingConfig) -> Parts:
    parts = agent_product.build(cfg)
    source: Any = parts.source
    source.reward = Shuffled(source.reward, cfg.run.seed)
    return parts


def rejection(cfg: TrainingConfig) -> Parts:
    parts = agent_product.build(cfg)
    source: Any = parts.source
    source.reward = OnlyCorrect(source.reward)
    return parts


def warm(job: Job) -> dict[str, Any]:
    cfg = load_config(SETTINGS / f"{job.task}_sft.toml", [*_common(job), f"run.run_name={job.start}", *job.changes])
    return run(cfg, warm_start.build)


def arm(job: Job) -> dict[str, Any]:
    """One arm from the warm start of its seed; the supervised one stops after so much processor time."""
    start = [*_common(job), f"policy.model_name={job.folder}/{job.start}"]
    grpo = load_config(SETTINGS / f"{job.task}.toml", [*start, *job.changes])
    if job.arm == "rejection":
        return run(imitation_of_correct(grpo), rejection)
    if job.arm != "sft":
        build: Callable[[TrainingConfig], Parts] = placebo if job.arm == "placebo" else agent_product.build
        return run(grpo, build)
    judged = {name: getattr(grpo.run, name) for name in ("eval_episodes", "eval_seed")}
    more = replace_target(load_config(SETTINGS / f"{job.task}_sft.toml", start)).replace(
        num_episodes=100_000, eval_steps=100_000, save_steps=100_000, **judged
    )
    return run(more, warm_start.build, seconds=job.seconds)


@dataclass(frozen=True)
class Job:
    task: str
    seed: int
    folder: str
    arm: str
    changes: tuple[str, ...] = ()
    seconds: float | None = None

    @property
    def start(self) -> str:
        return f"{self.task}-warm-{self.seed}"


def done(job: Job) -> dict[str, Any]:
    """The outcome of a job, from its folder if it was done before."""
    record = Path(job.folder) / f"{job.task}-{job.arm}-{job.seed}.json"
    if not record.is_file():
        found = warm(job) if job.arm == "warm" else arm(job)
        record.write_text(json.dumps(found))
    outcome: dict[str, Any] = json.loads(record.read_text())
    return outcome


def _common(job: Job) -> list[str]:
    return [f"run.seed={job.seed}", f"run.output_dir={job.folder}", "run.group_log_steps=0"]


def run_task(task: str, options: argparse.Namespace, folder: str) -> list[Any]:
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.processes, mp_context=spawn) as pool:
        started = list(pool.map(done, [Job(task, s, folder, "warm", tuple(options.warm)) for s in options.seeds]))
        learning = [name for name in options.arms if name != "sft"]
        jobs = [Job(task, s, folder, name, tuple(options.set)) for name in learning for s in options.seeds]
        found = {(job.arm, job.seed): outcome for job, outcome in zip(jobs, pool.map(done, jobs), strict=True)}
        if "sft" in options.arms:
            more = [Job(task, s, folder, "sft", (), found["grpo", s]["cpu_seconds"]) for s in options.seeds]
            found |= {("sft", job.seed): outcome for job, outcome in zip(more, pool.map(done, more), strict=True)}
    return [
        {"task": task, "seed": seed, "warm_start": begun, **{name: found[name, seed] for name in options.arms}}
        for seed, begun in zip(options.seeds, started, strict=True)
    ]


def claims_of(task: str, found: Sequence[Any], arms: Sequence[str]) -> dict[str, float]:
    before, after = np.array([_ends(r["grpo"]["curve"]) for r in found]).T
    name = "tool_success" if task == "orders" else task
    gains = {
        arm: float(np.mean([last - first for first, last in (_ends(r[arm]["curve"]) for r in found)]))
        for arm in arms
        if arm != "grpo"
    }
    prefix = "" if task == "orders" else f"{task}_"
    cpu = [r["warm_start"]["cpu_seconds"] + r["grpo"]["cpu_seconds"] for r in found]
    wall = [r["warm_start"]["seconds"] + r["grpo"]["seconds"] for r in found]
    return {
        f"{name}_before": float(before.mean()),
        f"{name}_after": float(after.mean()),
        f"{name}_worst_gain": float((after - before).min()),
        f"{name}_format_before": float(np.mean([r["grpo"]["curve"][0][2] or 0.0 for r in found])),
        **{f"{prefix}{arm}_gain": gain for arm, gain in gains.items()},
        f"{name}_cpu_seconds": float(np.mean(cpu)),
        f"{name}_seconds": float(np.mean(wall)),
    }


def _ends(curve: Any) -> tuple[float, float]:
    return curve[0][1], curve[-1][1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[101, 102, 103])
    parser.add_argument("--tasks", nargs="+", default=TASKS, choices=TASKS)
    parser.add_argument("--arms", nargs="+", default=ARMS, choices=ARMS)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--warm", nargs="*", default=[], help="changes of the warm start's settings")
    parser.add_argument("--set", nargs="*", default=[], help="changes of GRPO's settings")
    parser.add_argument("--json", action="store_true", help="print only the JSON object")
    parser.add_argument("--folder", help="keep what is done here, and go on from it another time")
    options = parser.parse_args()
    raw: dict[str, Any] = {}
    claims: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as passing:
        folder = options.folder or passing
        Path(folder).mkdir(parents=True, exist_ok=True)
        for task in options.tasks:
            raw[task] = run_task(task, options, folder)
            claims |= claims_of(task, raw[task], options.arms)
            if not options.json:
                show(raw[task], options.arms)
    missing = {task: "not asked for" for task in TASKS if task not in options.tasks}
    missing |= {name: "not asked for" for name in ARMS if name not in options.arms}
    print_result("agent_learning", claims, seeds=options.seeds, raw=raw, not_run=missing)


def show(found: Sequence[Any], arms: Sequence[str]) -> None:
    for r in found:
        print(f"{r['task']}, seed {r['seed']}")
        for name in ("warm_start", *arms):
            spent = f"{r[name]['cpu_seconds']:.0f} s of processor, {r[name]['seconds']:.0f} s, {r[name]['steps']} steps"
            course = " ".join(f"{step}:{right:.3f}/{form or 0:.2f}" for step, right, form in r[name]["curve"])
            print(f"  {name:10} {spent}: {course}", flush=True)


if __name__ == "__main__":
    main()
