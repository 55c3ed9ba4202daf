"""How surely and how fast the demo learns: examples/cartpole.toml from many seeds, and a placebo beside it.

    python benchmarks/cartpole.py --seeds 40 --first 1000

Claims: share of seeds whose greedy policy reaches a mean of 475 over 100 unseen starts, the same mean for sampled
actions in the last step of training, seconds per run (one thread, two runs at a time), and environment steps until
the mean reward of a step is first 475. The placebo hands the advantages of each step to random members of the group.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from record import print_result
from rich.progress import track

from groupwise.config import load_config
from groupwise.control.grpo import build
from groupwise.training.batch_source import BatchRows
from groupwise.training.estimators import Attempts
from groupwise.training.folder import create_run
from groupwise.training.session import Parts, execute

SETTINGS = Path(__file__).parent.parent / "examples" / "cartpole.toml"


def run_seed(job: tuple[int, bool]) -> dict[str, Any]:
    seed, placebo = job
    with tempfile.TemporaryDirectory() as folder:
        cfg = load_config(SETTINGS, [f"run.seed={seed}", f"run.output_dir={folder}"])
        clock = time.perf_counter()
        events = list(execute(create_run(cfg), placebo_build if placebo else build))
        seconds = time.perf_counter() - clock
    evals = [e.data["metrics"]["eval/reward_mean"] for e in events if e.type == "eval"]
    steps = [e for e in events if e.type == "step"]
    solved = next((e.data["totals"]["samples"] for e in steps if e.data["metrics"]["reward/mean"] >= 475), None)
    last = steps[-1].data["metrics"]["reward/mean"]
    return {
        "seed": seed,
        "before": evals[0],
        "after": evals[-1],
        "sampled": last,
        "seconds": seconds,
        "solved_at": solved,
    }


def placebo_build(cfg: Any) -> Parts:
    """The same run, but at every step the members of a group get each other's advantages, at random."""
    parts = build(cfg)
    source: Any = parts.source
    collate, rng = source.collate, np.random.default_rng(cfg.run.seed)

    def shuffled(attempts: Attempts) -> BatchRows:
        rows = collate(attempts)
        return replace(rows, pick=lambda table: rows.pick(shuffle(attempts, table)))

    def shuffle(attempts: Attempts, table: torch.Tensor) -> torch.Tensor:
        table = table.clone()
        for number in attempts.group.unique():
            members = attempts.group == number
            for step in range(table.shape[1]):
                alive = torch.nonzero(members & attempts.mask[:, step]).flatten()
                if len(alive) > 1:
                    table[alive, step] = table[alive[rng.permutation(len(alive))], step]
        return table

    source.collate = shuffled
    return parts


def interval(values: list[float]) -> list[float]:
    """A bootstrap interval of the mean, 95%."""
    rng = np.random.default_rng(0)
    means = rng.choice(values, (10_000, len(values))).mean(1)
    return [round(float(x), 3) for x in np.percentile(means, [2.5, 97.5])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--first", type=int, default=1000)
    parser.add_argument("--placebo", type=int, default=10, help="how many of the seeds also run as placebo")
    parser.add_argument("--json", action="store_true", help="accepted for uniformity: JSON is printed always")
    options = parser.parse_args()
    seeds = list(range(options.first, options.first + options.seeds))
    jobs = [(seed, False) for seed in seeds] + [(seed, True) for seed in seeds[: options.placebo]]
    with ProcessPoolExecutor(2) as pool:
        found = list(track(pool.map(run_seed, jobs), "runs", len(jobs), disable=not sys.stderr.isatty()))
    real, placebo = found[: len(seeds)], found[len(seeds) :]
    after, seconds = [r["after"] for r in real], [r["seconds"] for r in real]
    print_result(
        "cartpole",
        {
            "solved": sum(a >= 475 for a in after),
            "of": len(real),
            "sampled_solved": sum(r["sampled"] >= 475 for r in real),
            "before": float(np.mean([r["before"] for r in real])),
            "after": float(np.mean(after)),
            "after_worst": min(after),
            "seconds_median": float(np.median(seconds)),
            "samples_to_475_median": float(np.median([r["solved_at"] or np.inf for r in real])),
            "placebo_after": float(np.mean([r["after"] for r in placebo])) if placebo else None,
            "placebo_sampled": float(np.mean([r["sampled"] for r in placebo])) if placebo else None,
        },
        seeds=seeds,
        intervals={"after": interval(after), "seconds": interval(seconds)},
        raw=found,
    )


if __name__ == "__main__":
    main()
