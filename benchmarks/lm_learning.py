"""Does the demo's language model learn from scores, and does GRPO beat simpler ways to learn? Judged greedily.

    python benchmarks/lm_learning.py --seeds 101 102 103 --json

Per seed, from one warm start (`column_addition_sft.toml`):

    grpo       `column_addition.toml`
    rejection  the same run, but it imitates its own correct answers and ignores all others (rejection sampling)
    placebo    the same run, with the scores shuffled inside every group, so that they carry no information
    sft        supervised training on correct answers, for as much processor time as GRPO took

All are judged on the same 400 held-out sums, answered greedily. One thread each, two seeds at a time. Claims: mean
accuracy before and after, and the gains of the other arms.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from placebo import OnlyCorrect, Shuffled, imitation_of_correct
from record import print_result

from groupwise.agents import language_product as product
from groupwise.agents import warm_start
from groupwise.agents.commands import SETTINGS
from groupwise.config import TrainingConfig, load_config
from groupwise.training.folder import create_run
from groupwise.training.session import Parts, execute
from groupwise.training.stop_conditions import StopFlag

ARMS = ("grpo", "rejection", "placebo", "sft")


def placebo(cfg: TrainingConfig) -> Parts:
    parts = product.build(cfg)
    source: Any = parts.source
    source.reward = Shuffled(source.reward, cfg.run.seed)
    return parts


def rejection(cfg: TrainingConfig) -> Parts:
    parts = product.build(cfg)
    source: Any = parts.source
    source.reward = OnlyCorrect(source.reward)
    return parts


def run_seed(seed: int, arms: Sequence[str] = ARMS) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        common = [f"run.seed={seed}", f"run.output_dir={folder}", "run.group_log_steps=0"]
        warm = load_config(SETTINGS / "column_addition_sft.toml", [*common, "run.run_name=warm"])
        before = run(warm, warm_start.build)
        start = [*common, f"policy.model_name={folder}/warm"]
        grpo = load_config(SETTINGS / "column_addition.toml", start)
        courses = {"grpo": run(grpo, product.build)}
        if "rejection" in arms:
            courses["rejection"] = run(imitation_of_correct(grpo), rejection)
        if "placebo" in arms:
            courses["placebo"] = run(grpo, placebo)
        judged = {name: getattr(grpo.run, name) for name in ("eval_episodes", "eval_seed")}
        more = replace_target(load_config(SETTINGS / "column_addition_sft.toml", start)).replace(
            num_episodes=100_000, eval_steps=100_000, **judged
        )
        if "sft" in arms:
            courses["sft"] = run(more, warm_start.build, seconds=courses["grpo"]["cpu_seconds"])
    return {"seed": seed, "warm_start": before, **courses}


def replace_target(cfg: TrainingConfig) -> TrainingConfig:
    return cfg.replace(target_reward=None)


def run(cfg: TrainingConfig, build: Callable[[TrainingConfig], Parts], seconds: float | None = None) -> dict[str, Any]:
    """A run's course; with `seconds` of processor time it is stopped when they are spent, and judged then."""
    stop, clock, wall = StopFlag(), time.process_time(), time.perf_counter()
    made: list[Parts] = []

    def keep(settings: TrainingConfig) -> Parts:
        made.append(build(settings))
        return made[0]

    curve: list[Any] = []
    steps = 0
    for event in execute(create_run(cfg), keep, stop=stop):
        steps = event.step
        if event.type == "eval":
            curve.append([event.step, *judged(event.data["metrics"])])
        if seconds is not None and time.process_time() - clock >= seconds and not stop.raised:
            stop.raised = True
            evaluate = made[0].evaluate
            assert evaluate is not None
            curve.append([steps, *judged(evaluate(made[0].policy))])
    spent = {"steps": steps, "cpu_seconds": time.process_time() - clock, "seconds": time.perf_counter() - wall}
    return {**spent, "curve": curve}


def judged(metrics: Any) -> tuple[float, float | None]:
    return round(metrics["eval/accuracy"], 4), round(metrics["eval/format"], 4) if "eval/format" in metrics else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[101, 102, 103])
    parser.add_argument("--arms", choices=ARMS, nargs="+", default=ARMS, help="GRPO always runs")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="print only the JSON object")
    options = parser.parse_args()
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        found = pool.starmap(run_seed, [(seed, options.arms) for seed in options.seeds], chunksize=1)
    arms = {arm: [ends(r[arm]["curve"]) for r in found] for arm in ARMS if arm in found[0]}
    if not options.json:
        for r in found:
            course = {arm: " → ".join(f"{accuracy:.1%}" for accuracy in ends(r[arm]["curve"])) for arm in arms}
            print(f"seed {r['seed']}: {course}")
    before, after = np.array(arms["grpo"]).T
    print_result(
        "lm_learning",
        {
            "before": float(before.mean()),
            "after": float(after.mean()),
            "worst_after": float(after.min()),
            "worst_gain": float((after - before).min()),
            "format_before": float(np.mean([r["grpo"]["curve"][0][2] for r in found])),
            **{f"{arm}_gain": float(np.mean([last - first for first, last in arms[arm]])) for arm in arms},
            "seconds": float(np.mean([r["warm_start"]["seconds"] + r["grpo"]["seconds"] for r in found])),
        },
        seeds=options.seeds,
        raw=found,
    )


def ends(curve: Any) -> tuple[float, float]:
    return curve[0][1], curve[-1][1]


if __name__ == "__main__":
    main()
