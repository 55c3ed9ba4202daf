"""How often the alarm of rewards/statistics.py speaks: on courses without gaming, and on courses with it.

    python benchmarks/gaming_alarm.py --json
    python benchmarks/gaming_alarm.py --runs 10 --steps 100

A course is a run of `--steps` steps of four groups of eight attempts with five parts. Attempts of a group vary, their
parts together by a random correlation, and groups vary by their task. Means of parts stay (`noise`), follow waves of
autocorrelation 0.7 (`waves`), rise together (`learning`), or wander (`wandering`: parts that truly rise and fall, by
chance and for long). In `gaming`, one part of weight 0.4 rises by `--speed` a step, and another of weight 0.2 falls by
80% of that.
Claims: false alarms per 1,000 steps of the first three, and the share of gamed runs that alarm.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from record import print_result

from groupwise.rewards.function import attempt_of
from groupwise.rewards.statistics import PartStatistics
from groupwise.types import Group, Score, ScoredGroup, Task

PARTS, GROUPS, SIZE = 5, 4, 8
WEIGHTS = np.array([0.4, 0.2, 0.2, 0.1, 0.1])
NAMES = [f"part{n}" for n in range(PARTS)]
BLANK = (attempt_of([]),) * SIZE
Table = NDArray[np.float64]


def course(kind: str, seed: int, steps: int, speed: float) -> list[int]:
    """The steps at which the alarm spoke."""
    rng = np.random.default_rng([seed, len(kind)])
    mixing = together(rng, gamed=kind == "gaming")
    statistics, level, alarms = PartStatistics(), np.zeros(PARTS), []
    for step in range(steps):
        level = MOVES[kind](level, step, rng, speed)
        statistics.see([scored(0.5 + level, mixing, rng) for _ in range(GROUPS)])
        alarms += [step] * len(statistics.hints())
    return alarms


def together(rng: np.random.Generator, gamed: bool) -> Table:
    """How the parts of one attempt go together."""
    if gamed:
        mixing = np.eye(PARTS)
        mixing[1, 0] = -0.8
        return mixing
    drawn = rng.normal(size=(PARTS, PARTS))
    return np.asarray(drawn / np.linalg.norm(drawn, axis=1, keepdims=True), np.float64)


def scored(level: Table, mixing: Table, rng: np.random.Generator) -> ScoredGroup:
    table = level + 0.1 * rng.normal(size=PARTS) + 0.2 * rng.normal(size=(SIZE, PARTS)) @ mixing.T
    scores = tuple(Score(float(row @ WEIGHTS), dict(zip(NAMES, row.tolist(), strict=True))) for row in table)
    return ScoredGroup(Group("group", Task("task"), BLANK), scores)


Move = Callable[[Table, int, np.random.Generator, float], Table]
MOVES: dict[str, Move] = {
    "noise": lambda level, step, rng, speed: level,
    "waves": lambda level, step, rng, speed: 0.7 * level + 0.05 * rng.normal(size=PARTS),
    "learning": lambda level, step, rng, speed: np.full(PARTS, 0.0015 * step),
    "wandering": lambda level, step, rng, speed: level + 0.02 * rng.normal(size=PARTS),
    "gaming": lambda level, step, rng, speed: np.array([1.0, -0.8, 0.0, 0.0, 0.0]) * min(0.5, speed * step),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--speed", type=float, default=0.005)
    parser.add_argument("--json", action="store_true", help="for the sake of one form: the result is JSON anyway")
    asked = parser.parse_args()
    seeds = list(range(asked.runs))
    found = {kind: [course(kind, seed, asked.steps, asked.speed) for seed in seeds] for kind in MOVES}
    quiet = [alarms for kind in ("noise", "waves", "learning") for alarms in found[kind]]
    print_result(
        "gaming_alarm",
        {
            "false_alarms_per_1000_steps": 1000 * sum(map(len, quiet)) / (len(quiet) * asked.steps),
            "gamed_runs_that_alarm": sum(map(bool, found["gaming"])) / asked.runs,
            "median_step_of_the_alarm": float(np.median([alarms[0] for alarms in found["gaming"] if alarms] or [-1])),
        },
        seeds=seeds,
        raw={kind: {"runs_with_an_alarm": sum(map(bool, runs)), "runs": len(runs)} for kind, runs in found.items()},
    )


if __name__ == "__main__":
    main()
