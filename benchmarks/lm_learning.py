"""Does the tiny model learn addition: a supervised warm start, then GRPO from it, judged greedily on held-out sums.

    python benchmarks/lm_learning.py --seeds 0 1 --warm-steps 420 --steps 200 --learning-rate 3e-4

Claims per seed: greedy accuracy and share of well-formed answers after the warm start and after GRPO, and seconds of
each. One thread; the seeds one after the other.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from record import print_result

from groupwise.agents import product, warm_start
from groupwise.config import TrainingConfig
from groupwise.language.loading import LanguageModel, save_model
from groupwise.training.folder import create_run
from groupwise.training.session import Parts, execute


def run_seed(seed: int, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    common = {
        "environment": options.task, "output_dir": str(folder), "seed": seed, "threads": 1, "max_new_tokens": 8,
        "eval_episodes": 200, "group_log_steps": 0, "gradient_accumulation_steps": 1,
    }  # fmt: skip
    warm = TrainingConfig(
        **common, product="warm-start", num_episodes=options.warm_steps, tasks_per_step=64, learning_rate=3e-3,
        lr_scheduler_type=options.warm_schedule, per_device_train_batch_size=64, eval_steps=options.warm_steps,
    )  # fmt: skip
    made: list[Parts] = []

    def build(cfg: TrainingConfig) -> Parts:
        made.append(warm_start.build(cfg))
        return made[0]

    before, warm_seconds = accuracies(warm, build)
    source: Any = made[0].source
    model = folder / f"warm-{seed}"
    save_model(LanguageModel(source.policy.model, source.tokenizer, "tiny"), model)
    grpo = TrainingConfig(
        **common, product="language", model_name=str(model), num_episodes=options.steps, num_generations=16,
        tasks_per_step=16, learning_rate=options.learning_rate, lr_scheduler_type="constant", warmup_ratio=0.02,
        per_device_train_batch_size=128, eval_steps=25, adam_beta2=0.99,
    )  # fmt: skip
    curve, seconds = accuracies(grpo, product.build)
    return {
        "seed": seed, "warm": before[-1], "after": curve[-1], "curve": curve, "warm_seconds": round(warm_seconds, 1),
        "seconds": round(seconds, 1),
    }  # fmt: skip


def accuracies(cfg: TrainingConfig, build: Any) -> tuple[list[dict[str, float]], float]:
    clock = time.perf_counter()
    events = [e for e in execute(create_run(cfg), build) if e.type == "eval"]
    found = [{n: round(e.data["metrics"][f"eval/{n}"], 3) for n in ("accuracy", "format")} for e in events]
    return found, time.perf_counter() - clock


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--task", default="addition")
    parser.add_argument("--warm-steps", type=int, default=420)
    parser.add_argument("--warm-schedule", default="constant")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    parser.add_argument("--json", action="store_true", help="accepted for uniformity: JSON is printed always")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = [run_seed(seed, options, Path(folder)) for seed in options.seeds]
    print_result(
        "lm_learning",
        {
            "before": float(np.mean([r["warm"]["accuracy"] for r in found])),
            "after": float(np.mean([r["after"]["accuracy"] for r in found])),
            "warm_format": float(np.mean([r["warm"]["format"] for r in found])),
        },
        seeds=options.seeds,
        raw=found,
        not_run={"placebo_gain": "pointless while nothing is learned", "sft_gain": "likewise"},
    )


if __name__ == "__main__":
    main()
