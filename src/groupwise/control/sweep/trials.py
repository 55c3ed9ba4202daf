"""The score of every combination, from the courses of its runs.

A run's score is its final one: the mean of its evaluations in the last tenth of its steps. With several tasks, each is
normalised first (0 random, 1 solved) and the score is their mean.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

import numpy as np

from groupwise.control.comparison.arms import KNOWN_SCALES
from groupwise.control.comparison.campaign import CampaignOutcome
from groupwise.control.sweep.axes import Axis, plain_value
from groupwise.control.sweep.candidates import Combination
from groupwise.reporting import statistics as st
from groupwise.reporting.comparison import Comparison, Course
from groupwise.reporting.statistics import Interval

State = Literal["waiting", "running", "finished", "failed"]


@dataclass(frozen=True, slots=True)
class SeedScore:
    """One run: how it stands, and if it is finished its score, whether that solves the task, and what it took."""

    seed: int
    state: State
    score: float | None = None
    efficiency: float | None = None
    solved: bool | None = None
    steps: int | None = None
    wall_seconds: float | None = None
    message: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name in self.__slots__ if (value := getattr(self, name)) not in (None, "")}


@dataclass(frozen=True)
class SweepTrial:
    """One combination and its runs, in the order of the seeds."""

    candidate: Combination
    runs: tuple[SeedScore, ...]

    @property
    def scores(self) -> list[float]:
        return [run.score for run in self.runs if run.score is not None]

    @property
    def mean(self) -> float | None:
        return fmean(self.scores) if self.scores else None

    @property
    def efficiency(self) -> float:
        return fmean(run.efficiency for run in self.runs if run.efficiency is not None)

    @property
    def complete(self) -> bool:
        return len(self.scores) == len(self.runs)

    @property
    def state(self) -> State:
        """The least finished state of its runs."""
        states = {run.state for run in self.runs}
        if states <= {"finished", "failed"}:
            return "failed" if "failed" in states else "finished"
        return "waiting" if states == {"waiting"} else "running"

    def interval(self) -> Interval | None:
        """The mean score with its 95% interval over seeds, by the bootstrap."""
        return st.estimate(st.mean, np.array(self.scores)[:, np.newaxis]) if self.scores else None

    def to_dict(self, axes: Sequence[Axis], solved: float | None) -> dict[str, Any]:
        mean = self.mean
        return {
            "id": self.candidate.name,
            "algorithm": self.candidate.algorithm,
            "number": self.candidate.number,
            "settings": named(axes, self.candidate.values),
            "state": self.state,
            "mean": mean,
            "solves": None if mean is None or solved is None or not self.complete else mean >= solved,
            "seeds": [run.to_dict() for run in self.runs],
        }


def named(axes: Sequence[Axis], values: Sequence[Any]) -> dict[str, Any]:
    """Values by the names of their settings, as JSON has them."""
    return {axis.name: plain_value(value) for axis, value in zip(axes, values, strict=True)}


@dataclass(frozen=True)
class ScoreMeaning:
    """What the scores mean: those of one task as they are, or the mean of several normalised ones."""

    tasks: tuple[str, ...] = ()
    solved: float | None = None

    @property
    def meaning(self) -> str:
        if len(self.tasks) > 1:
            return (
                f"mean over {len(self.tasks)} tasks of the final score, each normalised: 0 is random play, 1 is solved"
            )
        return (
            f"final score{f' in {self.tasks[0]}' if self.tasks else ''}: mean evaluation in the last tenth of the steps"
        )

    def to_dict(self) -> dict[str, Any]:
        return {"meaning": self.meaning, "better": "higher", "solved": self.solved, "tasks": list(self.tasks)}


def score_trials(
    candidates: Sequence[Combination],
    seeds: Sequence[int],
    outcome: CampaignOutcome,
    begun: Mapping[tuple[str, int], bool],
    thresholds: Mapping[str, float],
) -> tuple[list[SweepTrial], ScoreMeaning]:
    """The trials, and what their scores mean. `begun` says which runs without a result have started."""
    courses: dict[tuple[str, int], list[Course]] = {}
    for course in outcome.courses:
        courses.setdefault((course.algorithm, course.seed), []).append(course)
    failures = {(failure.algorithm, failure.seed): failure.message for failure in outcome.failures}
    comparison = Comparison(outcome.courses, thresholds=thresholds, known=KNOWN_SCALES) if courses else None
    scale = _scale(comparison)

    def run(candidate: Combination, seed: int) -> SeedScore:
        key = (candidate.name, seed)
        if candidate.refused:
            return SeedScore(seed, "failed", message=candidate.refused)
        if key in courses and comparison is not None:
            return _score(comparison, scale, courses[key])
        if key in failures:
            return SeedScore(seed, "failed", message=failures[key])
        return SeedScore(seed, "running" if begun.get(key) else "waiting")

    return [SweepTrial(one, tuple(run(one, seed) for seed in seeds)) for one in candidates], scale


def _scale(comparison: Comparison | None) -> ScoreMeaning:
    if comparison is None:
        return ScoreMeaning()
    tasks = tuple(comparison.tasks)
    thresholds = [scale.solved for scale in comparison.scales.values()]
    if len(tasks) > 1:
        return ScoreMeaning(tasks, None if None in thresholds else 1.0)
    return ScoreMeaning(tasks, thresholds[0])


def _score(comparison: Comparison, scale: ScoreMeaning, courses: Sequence[Course]) -> SeedScore:
    several = len(scale.tasks) > 1
    finals = [comparison.final(course) if several else course.final for course in courses]
    score = fmean(finals)
    # A run over several tasks solves them only if it solves every one.
    solved = None if scale.solved is None else min(finals) >= scale.solved
    efficiency = fmean(comparison.efficiency(course) for course in courses)
    steps, wall = max(course.budget for course in courses), max(course.wall_seconds for course in courses)
    return SeedScore(courses[0].seed, "finished", score, efficiency, solved, steps, wall)
