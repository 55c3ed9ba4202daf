"""When do groups pay? Four suites, one for each case for which GRPO was planned, beside PPO with the same steps.

    python benchmarks/when_to_use.py --json                 # five fresh seeds, about 40 minutes on one core
    python benchmarks/when_to_use.py --json --cases lengths --seeds 2 --out /tmp/when

`grouped` keeps every task on its own scale and weighs tasks by 1/√steps (configs/grpo/reward-scales.toml), `ppo` is the
baseline (configs/ppo/reward-scales.toml); per case each has the best of the three settings in `TRIED`, found by
`--tune 7`. Scores are greedy means over unseen starts, 0 as untrained and 1 as solved. A claim is a difference, grouped
minus PPO, paired by seed with Student's 95% interval: above 0 groups win, below 0 PPO does, and where the interval
spans 0 neither may be said to.
"""

from __future__ import annotations

import argparse
import os
import sys

os.environ["OMP_NUM_THREADS"] = "1"

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from record import print_result

from groupwise.config import TrainingConfig, load_config
from groupwise.control.comparison.arms import KNOWN_SCALES, budget
from groupwise.control.comparison.campaign import Entry, product_module, run_campaign
from groupwise.reporting import statistics as st
from groupwise.reporting.comparison import Comparison
from groupwise.reporting.comparison_table import progress_bar
from groupwise.reporting.statistics import Difference

CONFIGS = Path(__file__).parent.parent / "configs"
FILES = {"grouped": "grpo", "ppo": "ppo"}
TRIED: Mapping[str, Mapping[str, Sequence[str]]] = {
    "grouped": {
        "usual": (),
        "slower": ("optim.learning_rate=3e-4",),
        "critic-free": ("advantage.estimator=group_rtg",),
    },
    "ppo": {
        "usual": (),
        "faster": ("optim.learning_rate=1e-3", "advantage.gamma=0.99"),
        "scaled": ("optim.learning_rate=1e-3", "advantage.gamma=0.99", "advantage.normalize_returns=true"),
    },
}


@dataclass(frozen=True, slots=True)
class Case:
    """What differs between the tasks, the suite that shows it, its steps, and what solves its tasks."""

    suite: str
    steps: int
    solved: Mapping[str, float]
    chosen: Mapping[str, str]


CASES = {
    "reward_scales": Case(
        "reward-scales",
        300_000,
        {"cartpole": 47_500, "cartpole-long": 475, "cartpole-short-reversed": 4.75},
        {"grouped": "usual", "ppo": "scaled"},
    ),
    # What counts is the last level, the usual mountain car; the levels before it are the way there.
    "curriculum": Case(
        "curriculum", 200_000, {"mountain-car-at-rest": -110}, {"grouped": "critic-free", "ppo": "scaled"}
    ),
    "lengths": Case(
        "lengths",
        150_000,
        {"cartpole-50": 47.5, "cartpole-500": 475, "cartpole-2000": 1900},
        {"grouped": "critic-free", "ppo": "scaled"},
    ),
    "capability": Case(
        "capability",
        80_000,
        dict.fromkeys(("cartpole-strong", "cartpole-weak", "cartpole-weakest"), 475),
        {"grouped": "critic-free", "ppo": "scaled"},
    ),
}


def settings(case: Case, arm: str, tried: str) -> TrainingConfig:
    cfg = load_config(CONFIGS / FILES[arm] / "reward-scales.toml", list(TRIED[arm][tried]))
    quiet = {"group_log_steps": 0, "eval_steps": 4 if arm == "ppo" else 1, "eval_episodes": 30}
    return cfg.replace(environment=case.suite, **budget(case.steps), **quiet)


def tune(case: Case, folder: Path, seed: int, jobs: int) -> dict[str, list[float]]:
    """Mean sample efficiency and final score of every setting tried, from one seed."""
    names = [(arm, tried) for arm, settings in TRIED.items() for tried in settings]
    entries = [entry(f"{arm} {tried}", settings(case, arm, tried)) for arm, tried in names]
    found = comparison(case, folder, entries, [seed], jobs)
    return {s.algorithm: [s.efficiency.value, s.final["mean"].value] for s in found.standings}


def entry(name: str, cfg: TrainingConfig) -> Entry:
    return Entry(name, cfg, product_module(cfg))


def comparison(case: Case, folder: Path, entries: Sequence[Entry], seeds: Sequence[int], jobs: int) -> Comparison:
    with progress_bar() as bar:
        outcome = run_campaign(folder / case.suite, entries, seeds, jobs=jobs, progress=bar)
    judged = tuple(course for course in outcome.courses if course.task in case.solved)
    return Comparison(judged, outcome.failures, case.solved, known=KNOWN_SCALES)


def worst_difference(found: Comparison) -> Difference:
    """The score of each seed's worst task, grouped minus PPO."""
    tasks, seeds = found.shared(["grouped", "ppo"])
    ours, theirs = (found.table(name, tasks, seeds, "final").min(1, keepdims=True) for name in ("grouped", "ppo"))
    return st.paired_difference(ours, theirs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=4000)
    parser.add_argument("--cases", nargs="+", choices=tuple(CASES), default=tuple(CASES))
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--out", type=Path, help="keep the comparisons here, and go on with them")
    parser.add_argument("--tune", type=int, metavar="SEED", help="try every setting from this seed instead")
    parser.add_argument("--json", action="store_true", help="accepted for uniformity: JSON is printed always")
    options = parser.parse_args()
    claims: dict[str, Any] = {}
    intervals: dict[str, Sequence[float]] = {}
    raw: dict[str, Any] = {}
    seeds = list(range(options.first, options.first + options.seeds))
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.out or Path(scratch)
        for name in options.cases:
            case = CASES[name]
            if options.tune is not None:
                raw[name] = tune(case, folder / "tune", options.tune, options.jobs)
                print(name, raw[name], file=sys.stderr, flush=True)
                continue
            entries = [entry(arm, settings(case, arm, case.chosen[arm])) for arm in TRIED]
            found = comparison(case, folder, entries, seeds, options.jobs)
            duel = found.duels[0]
            measures = {"final": duel.final, "efficiency": duel.efficiency, "worst_task": worst_difference(found)}
            for measure, difference in measures.items():
                claims[f"{name}_{measure}"] = difference.interval.value
                intervals[f"{name}_{measure}"] = [difference.interval.low, difference.interval.high]
            raw[name] = {**found.to_dict(), "finals": finals(found), "chosen": dict(case.chosen)}
            print(name, duel.verdict, file=sys.stderr, flush=True)
    print_result("when_to_use", claims, seeds=seeds, intervals=intervals, raw=raw)


def finals(found: Comparison) -> dict[str, dict[str, list[float]]]:
    """By arm and task the final score of every seed, as the task counts it."""
    return {arm: {task: [c.final for c in found.of(arm, task)] for task in found.tasks} for arm in found.algorithms}


if __name__ == "__main__":
    main()
