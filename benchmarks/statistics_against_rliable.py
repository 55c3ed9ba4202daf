"""The statistics of a comparison against rliable 1.2.0, the library of the paper they come from.

    python benchmarks/statistics_against_rliable.py --json
    python benchmarks/statistics_against_rliable.py --python /path/to/a/venv/bin/python

rliable does not import with pandas 3, so it gets an environment of its own (made anew unless --python names one).
Claims: the largest differences of points, interval ends and profiles over three tables of scores, at 20,000
repetitions (5,000 for the probability of improvement), and how many times faster ours are. rliable takes no notice of
its seed, so its interval ends are means over `--rounds` calls; the largest distance of a single one of them from that
mean is reported beside.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parent.parent
RLIABLE = ("rliable==1.2.0", "pandas<3")
REPETITIONS = 20_000


def tables() -> dict[str, np.ndarray]:
    """Scores as comparisons give them: [seeds, tasks], even, skewed with many solved, and one task alone."""
    rng = np.random.default_rng(7)
    return {
        "even": rng.normal(rng.uniform(0.2, 1.0, 8), 0.2, (10, 8)),
        "solved": np.minimum(rng.gamma(2.0, 0.5, (20, 5)), 1.05),
        "single": rng.normal(0.7, 0.1, (20, 1)),
    }


def inside(rounds: int) -> dict[str, Any]:
    """Both sides in one process, inside the environment that has rliable."""
    from rliable import library, metrics

    from groupwise.reporting import statistics as ours

    theirs: dict[str, Callable[..., float]] = {
        "iqm": metrics.aggregate_iqm,
        "mean": metrics.aggregate_mean,
        "median": metrics.aggregate_median,
        "optimality_gap": metrics.aggregate_optimality_gap,
    }
    rows = []
    for label, scores in tables().items():
        for name, function in theirs.items():
            rows.append(compare(f"{label}/{name}", ours.AGGREGATES[name], function, (scores,), rounds, ours, library))
        rival = np.roll(scores, 1, 1) - 0.1
        improvement = (ours.probability_of_improvement, metrics.probability_of_improvement)
        rows.append(compare(f"{label}/improvement", *improvement, (scores, rival), rounds, ours, library, 5_000))
    levels = np.linspace(-0.5, 1.5, 51)
    profiles = []
    for scores in tables().values():
        want, _ = library.create_performance_profile({"a": scores}, levels, reps=10)
        profiles.append(float(np.abs(ours.performance_profile(scores, levels) - want["a"]).max()))
    return {"rows": rows, "profile_difference": max(profiles)}


def compare(
    name: str, mine: Any, peer: Any, scores: tuple[np.ndarray, ...], rounds: int, ours: Any, library: Any,
    repetitions: int = REPETITIONS,
) -> dict[str, Any]:  # fmt: skip
    clock = time.perf_counter()
    found = ours.estimate(mine, *scores, repetitions=repetitions)
    seconds = time.perf_counter() - clock
    given = {"a": scores[0] if len(scores) == 1 else scores}
    clock = time.perf_counter()
    answers = [
        library.get_interval_estimates(given, lambda *x: np.array([peer(*x)]), reps=repetitions) for _ in range(rounds)
    ]
    peer_seconds = (time.perf_counter() - clock) / rounds
    ends = np.array([intervals["a"][:, 0] for _, intervals in answers])
    return {
        "name": name,
        "point_difference": abs(found.value - float(answers[0][0]["a"][0])),
        "interval_difference": float(np.abs(ends.mean(0) - [found.low, found.high]).max()),
        "peer_noise": float(np.abs(ends - ends.mean(0)).max()),
        "seconds": seconds,
        "peer_seconds": peer_seconds,
    }


def isolated(python: str | None, rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        if python is None:
            venv.create(folder, with_pip=True)
            python = str(Path(folder) / "bin" / "python")
            subprocess.run([python, "-m", "pip", "install", "-q", *RLIABLE], check=True, stdout=sys.stderr)
        command = [python, __file__, "--inside", "--rounds", str(rounds)]
        environment = {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", help="the Python of an environment that has rliable 1.2.0 and pandas below 3")
    parser.add_argument("--rounds", type=int, default=2, help="calls of rliable per number")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="accepted for uniformity: JSON is printed always")
    options = parser.parse_args()
    if options.inside:
        print(json.dumps(inside(options.rounds)))
        return
    from record import print_result

    result = isolated(options.python, options.rounds)
    rows = result["rows"]
    print_result(
        "statistics_against_rliable",
        {
            "point_difference": max(row["point_difference"] for row in rows),
            "interval_difference": max(row["interval_difference"] for row in rows),
            "rliable_noise": max(row["peer_noise"] for row in rows),
            "profile_difference": result["profile_difference"],
            "speed_ratio": sum(row["peer_seconds"] for row in rows) / sum(row["seconds"] for row in rows),
            "speed_ratio_worst": min(row["peer_seconds"] / row["seconds"] for row in rows),
        },
        peers={"rliable": "1.2.0"},
        raw=rows,
    )


if __name__ == "__main__":
    main()
