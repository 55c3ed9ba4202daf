"""Better schedules than HEFT's within a number of evaluations; one evaluation is one schedule worked out.

The first is HEFT itself, so what is found is never worse. The second is the policy's mean, then come samples of the
policy, and then the best so far with some of its corrections drawn anew, kept where that is not worse: how many, and by
how much, is drawn anew each time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from groupwise.errors import ConfigError
from groupwise.workflows.evaluation.encoding import Floats
from groupwise.workflows.evaluation.schedule import Schedule, TaskGraph
from groupwise.workflows.scheduling.decoder import makespans, schedule
from groupwise.workflows.scheduling.features import Case, case_of
from groupwise.workflows.scheduling.policy import RankPolicy
from groupwise.workflows.scheduling.shipped import load_policy

SAMPLED = 0.5
"""The share of the evaluations that are samples of the policy; the rest refine the best."""
BOLDNESS = 2.0
"""What the policy's spreads are multiplied by, times a factor between the following two that is drawn each time."""
LEAST_STEP, MOST_STEP = 0.5, 2.0


@dataclass(frozen=True)
class Found:
    """The best correction [tasks] and how long its schedule takes."""

    correction: Floats
    makespan: float


def search(case: Case, policy: RankPolicy, evaluations: int, seed: int, boldness: float = BOLDNESS) -> Found:
    rng = np.random.default_rng(seed)
    size = case.problem.size
    best = Found(np.zeros(size), case.heft)
    if evaluations == 1 or size < 2:
        return best
    mean, spread = policy.see(case)
    spread = spread * boldness
    samples = max(round(evaluations * SAMPLED) - 2, 0)
    noise = np.stack([np.zeros(size), *(_noise(size, rng) for _ in range(samples))])
    best = _better(case, best, mean + spread * noise)
    for _ in range(evaluations - 2 - samples):
        best = _better(case, best, (best.correction + spread * _noise(size, rng) * _some(size, rng))[None])
    return best


def _better(case: Case, best: Found, corrections: Floats) -> Found:
    """The best of some corrections [B, tasks] if it is not worse than the best so far."""
    found = makespans(case.problem, case.problem.ranks * np.exp(corrections))
    first = int(found.argmin())
    return Found(corrections[first], float(found[first])) if found[first] <= best.makespan else best


def _noise(size: int, rng: np.random.Generator) -> Floats:
    """Noise for all tasks, of a size that differs from time to time."""
    noise: Floats = rng.standard_normal(size) * math.exp(rng.uniform(math.log(LEAST_STEP), math.log(MOST_STEP)))
    return noise


def _some(size: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Some tasks, from one to all of them, few as often as many."""
    chosen: NDArray[np.bool_] = rng.random(size) < float(size) ** -rng.random()
    chosen[rng.integers(size)] = True
    return chosen


def improve(work: TaskGraph, *, evaluations: int = 1000, seed: int = 0, policy: RankPolicy | None = None) -> Schedule:
    """A schedule of the work that is never longer than HEFT's, the best of so many that are worked out.

    `policy` is the one that comes with Groupwise unless given: a run's `product.build(cfg).policy`, trained.
    """
    if evaluations < 1:
        raise ConfigError(f"evaluations = {evaluations} must be at least 1", hint="1 is HEFT itself.")
    case = case_of(work)
    found = search(case, policy or load_policy(), evaluations, seed)
    return schedule(case.problem, case.problem.ranks * np.exp(found.correction))
