"""What the policy knows of a task: numbers without units, so that seconds and hours, 10 and 500 tasks, look alike.

A change of `NAMES`, or of what one of them means, makes trained weights worthless: say so by `VERSION`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from groupwise.workflows.evaluation.encoding import Floats, Ints
from groupwise.workflows.evaluation.schedule import TaskGraph
from groupwise.workflows.scheduling.decoder import Problem, makespans, problem_of

VERSION = 1
NAMES = (
    "upward_rank", "downward_rank", "slack", "duration", "duration_of_span", "duration_in_level", "fan_in", "fan_out",
    "handed_in", "handed_on", "level", "level_width", "level_load", "heterogeneity", "work_after", "work_before",
    "gap_in_order", "place_in_order", "joins_next", "rank_next", "load", "tasks", "machines",
)  # fmt: skip
SCHEMA = hashlib.sha256(f"{VERSION}:{','.join(NAMES)}".encode()).hexdigest()[:16]


@dataclass(frozen=True, eq=False)
class Case:
    """A problem with what the policy sees of it, [tasks, features], and how long HEFT takes."""

    problem: Problem
    features: NDArray[np.float32]
    heft: float


def case_of(work: TaskGraph) -> Case:
    problem = problem_of(work)
    return Case(problem, features_of(problem), float(makespans(problem, problem.ranks[None])[0]))


def features_of(problem: Problem) -> NDArray[np.float32]:
    """[tasks, features], in the order of `NAMES`."""
    count, machines = problem.durations.shape
    if count == 0:
        return np.zeros((0, len(NAMES)), np.float32)
    mean, spread = _durations(problem)
    order = np.argsort(problem.place)
    down, level, above = _from_the_start(problem, mean, order)
    span = max(float((problem.ranks + down).max()), 1e-12)
    total, width = max(float(mean.sum()), 1e-12), np.bincount(level)[level]
    in_level = (np.bincount(level, mean) / np.bincount(level))[level]
    fan_in, fan_out = np.diff(problem.first_before), np.diff(problem.first_after)
    handed_in = np.bincount(_row_of(problem.first_before), problem.hands, count)
    handed_on = np.bincount(problem.before, problem.hands, count)
    gap, position = _in_order_of_rank(problem)
    joins_next, rank_next = np.zeros(count), np.zeros(count)
    np.maximum.at(joins_next, _row_of(problem.first_after), fan_in[problem.after])
    np.maximum.at(rank_next, _row_of(problem.first_after), problem.ranks[problem.after])
    columns = (
        problem.ranks / span, down / span, 1 - (problem.ranks + down) / span,
        _ratio(mean, total / count), mean / span, _ratio(mean, in_level), np.log1p(fan_in) / 2, np.log1p(fan_out) / 2,
        handed_in / (handed_in + mean + 1e-12), handed_on / (handed_on + mean + 1e-12),
        level / max(int(level.max()), 1), np.log(width) / 3, np.log(width / machines) / 3, spread,
        above.T @ mean / total, above @ mean / total, gap, position,
        np.log1p(joins_next) / 2, rank_next / span,
        np.full(count, np.log(total / span / machines)), np.full(count, np.log(count) / 5),
        np.full(count, np.log(machines) / 2),
    )  # fmt: skip
    return np.stack(columns, 1).astype(np.float32)


def _durations(problem: Problem) -> tuple[Floats, Floats]:
    """What each task takes on the mean of its machines, and how much that differs between them."""
    able = np.isfinite(problem.durations)
    many = np.maximum(able.sum(1), 1)
    times = np.where(able, problem.durations, 0.0)
    mean = times.sum(1) / many
    spread = np.sqrt((np.where(able, problem.durations - mean[:, None], 0.0) ** 2).sum(1) / many)
    nobody = ~np.isnan(problem.alone)
    return np.where(nobody, problem.alone, mean), np.where(nobody, 0.0, spread / np.maximum(mean, 1e-12))


def _from_the_start(problem: Problem, mean: Floats, order: Ints) -> tuple[Floats, Ints, NDArray[np.bool_]]:
    """Of each task the longest way to it, in time and in tasks, and all that come before it."""
    count = problem.size
    down, level, above = np.zeros(count), np.zeros(count, np.int64), np.zeros((count, count), np.bool_)
    for task in order:
        rows = slice(problem.first_before[task], problem.first_before[task + 1])
        before = problem.before[rows]
        if len(before):
            down[task] = (down[before] + mean[before] + problem.hands[rows]).max()
            level[task] = level[before].max() + 1
            above[task] = above[before].any(0)
            above[task, before] = True
    return down, level, above


def _in_order_of_rank(problem: Problem) -> tuple[Floats, Floats]:
    """How close the next task in HEFT's order is, beside the mean, and the place in that order."""
    count = problem.size
    order = np.lexsort((problem.place, -problem.ranks))
    steps = -np.diff(problem.ranks[order], append=0.0)
    gap, position = np.empty(count), np.empty(count)
    gap[order] = np.log1p(steps / max(float(steps.mean()), 1e-12))
    position[order] = np.arange(count) / count
    return gap, position


def _row_of(first: Ints) -> Ints:
    return np.repeat(np.arange(len(first) - 1), np.diff(first))


def _ratio(value: Floats, other: Floats | float) -> Floats:
    """How many times as large, as a logarithm between −3 and 3."""
    found: Floats = np.clip(np.log((value + 1e-9) / (np.asarray(other) + 1e-9)), -3, 3)
    return found
