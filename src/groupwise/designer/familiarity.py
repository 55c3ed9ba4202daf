"""How far requirements are from the policy's training data, and how to search where the policy knows little."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from groupwise.designer.declaration import GenerationSettings
from groupwise.designer.features import ACTIVITY, POOL, SCHEMA_HASH, WHOLE, features_of, whole_of
from groupwise.designer.policy import load_weights, save_weights
from groupwise.designer.problem import DesignProblem, Floats
from groupwise.designer.tasks import SIZES

# Small generations: the search soon improves on the policy's first designs instead of sampling many of them.
WARY = GenerationSettings(batch_size=8)
_ACTIVITY_SUBJECTS = (
    "durations", "variability of durations", "failure rates", "knock-out rates", "knock-out rates",
    "frequency of activities", "optional activities", "pools per activity", "automatic activities", "activity costs",
    "CPU demand", "memory demand", "precedence rules", "precedence rules", "precedence rules", "precedence rules",
    "branches", "wages", "workload", "separation of duties", "documentation", "names of activities",
)  # fmt: skip
_POOL_SUBJECTS = (
    "minimum staffing", "maximum staffing", "wages", "pool speeds", "machines", "opening hours", "pool load",
    "skills of pools", "skills of pools", "wages",
)  # fmt: skip
_WHOLE_SUBJECTS = (
    "objective", "objective", "objective", "objective", "number of activities", "number of pools", "precedence rules",
    "knock-out rates", "deadline", "deadline", "load", "single runs", "failure rates", "cases in progress", "wages",
    "branches", "precedence rules",
)  # fmt: skip
# What each feature is about, in the user's words.
SUBJECTS = {
    **{f"{name} (activities)": words for name, words in zip(ACTIVITY, _ACTIVITY_SUBJECTS, strict=True)},
    **{f"{name} (pools)": words for name, words in zip(POOL, _POOL_SUBJECTS, strict=True)},
    **dict(zip(WHOLE, _WHOLE_SUBJECTS, strict=True)),
}
SEEN = tuple(f"{name} ({things})" for things, names in (("activities", ACTIVITY), ("pools", POOL)) for name in names)
PORTRAIT = (*WHOLE, *SEEN, *(f"differences in {name}" for name in SEEN))
# The least standard deviation of a feature: what never varied in training may vary a little.
FLOOR = 0.02
# Added to the diagonal of the correlations, which keeps them invertible.
SHRINKAGE = 0.05
TRAINED = Path(__file__).with_name("range.safetensors")


@dataclass(frozen=True, slots=True)
class TrainedRange:
    """A quantity of requirements: its range in training, and the wider range in which the policy is still reliable."""

    name: str
    trained: tuple[float, float]
    near: tuple[float, float]
    words: str

    def far(self, value: float) -> bool:
        return not self.near[0] <= value <= self.near[1]

    def describe(self, value: float) -> str:
        low, high = (f"{end:.2g}" for end in self.trained)
        return f"{self.words} {value:.3g} (training: {low} to {high})"


TRAINED_RANGES = (
    TrainedRange("activities", SIZES, (3, 200), "activities:"),
    TrainedRange("pools", (1, 8), (0, 16), "pools:"),
    TrainedRange("load", (0.04, 0.75), (0.005, 0.95), "load (share of total capacity):"),
    TrainedRange("failure", (0.0, 0.14), (0.0, 0.35), "mean failure rate:"),
    TrainedRange("cases", (0.5, 52.0), (0.05, 1000.0), "cases in progress without waiting:"),
    TrainedRange("branches", (0.0, 0.14), (0.0, 0.4), "branches per activity:"),
)


def numbers_of(problem: DesignProblem) -> dict[str, float]:
    """The quantities that `TRAINED_RANGES` compare."""
    whole = dict(zip(WHOLE, whole_of(problem), strict=True))
    return {
        "activities": len(problem.names),
        "pools": len(problem.pool_names),
        "load": whole["load"],
        "failure": float(problem.failure.mean()),
        "cases": problem.rate * float((problem.mean * problem.share).sum()),
        "branches": len(problem.forks) / len(problem.names),
    }


@dataclass(frozen=True, slots=True)
class RequirementStatistics:
    """Statistics of the training requirements: mean and scale of every feature of a portrait, the inverse of the
    features' correlations, and the Mahalanobis distance below which 99% of such requirements lie."""

    mean: Floats
    scale: Floats
    precision: Floats
    limit: float

    @classmethod
    def of(cls, seen: Sequence[DesignProblem], others: Sequence[DesignProblem]) -> RequirementStatistics:
        table = np.array([portrait(problem) for problem in seen])
        mean, scale = table.mean(0), np.maximum(table.std(0), FLOOR)
        correlations = np.cov((table - mean).T / scale[:, None]) + SHRINKAGE * np.eye(len(mean))
        found = cls(mean, scale, np.linalg.inv(correlations).astype(np.float64), 0.0)
        limit = float(np.quantile([found.shares(portrait(one)).sum() ** 0.5 for one in others], 0.99))
        return replace(found, limit=limit)

    def shares(self, seen: Floats) -> Floats:
        """What each feature adds to the squared distance; some contributions are negative."""
        off = (seen - self.mean) / self.scale
        found: Floats = off * (self.precision @ off)
        return found

    def save(self, path: Path = TRAINED) -> None:
        import torch

        parts = {"mean": self.mean, "scale": self.scale, "precision": self.precision, "limit": np.array([self.limit])}
        save_weights({name: torch.from_numpy(part).float() for name, part in parts.items()}, path, SCHEMA_HASH)


@cache
def training_statistics() -> RequirementStatistics:
    """The statistics of the shipped policy's training data."""
    stored = load_weights(TRAINED, SCHEMA_HASH, "benchmarks/train_designer.py")
    parts = {name: part.numpy() for name, part in stored.items()}
    return RequirementStatistics(parts["mean"], parts["scale"], parts["precision"], float(parts["limit"][0]))


def portrait(problem: DesignProblem) -> Floats:
    """The features of the requirements as one vector: global ones, then means and spreads over activities and pools."""
    nodes, acts = features_of(problem).nodes, len(problem.names)
    activities, pools = nodes[:acts, : len(ACTIVITY)], nodes[acts:-1, : len(POOL)]
    pools = pools if len(pools) else np.zeros((1, len(POOL)), np.float32)
    parts = nodes[-1, : len(WHOLE)], activities.mean(0), pools.mean(0), activities.std(0), pools.std(0)
    return np.concatenate(parts).astype(np.float64)


def far_outside(problem: DesignProblem) -> tuple[str, ...]:
    """How the requirements are outside the training range, in words; empty if they are near enough."""
    once = problem.requirements.demand.arrivals_per_second is None
    found = numbers_of(problem)
    # Training has no runs that start at once, so their times and loads cannot be compared: only the size is.
    spans = TRAINED_RANGES[:1] if once else TRAINED_RANGES
    far = [span.describe(found[span.name]) for span in spans if span.far(found[span.name])]
    runs = problem.requirements.demand.runs
    started = "a single run" if runs == 1 else f"{runs} runs that start at once"
    return (*([f"{started} (training: cases that keep arriving)"] if once else []), *far)


@dataclass(frozen=True, slots=True)
class TrainingDistance:
    """The Mahalanobis distance of requirements from the training data, and the features that add most to it."""

    distance: float
    limit: float
    features: tuple[str, ...]

    @property
    def unfamiliar(self) -> bool:
        return self.distance > self.limit


def training_distance(problem: DesignProblem) -> TrainingDistance:
    known = training_statistics()
    shares = known.shares(portrait(problem))
    largest = tuple(PORTRAIT[number] for number in np.argsort(-shares)[:8])
    return TrainingDistance(float(shares.sum()) ** 0.5, known.limit, largest)


def search_settings(problem: DesignProblem) -> GenerationSettings:
    """How to search: as usual, or in small generations where the policy was trained on something else."""
    return WARY if far_outside(problem) else GenerationSettings()


def notes(problem: DesignProblem) -> tuple[str, ...]:
    """What to tell the user about the difference from the training data."""
    if far := far_outside(problem):
        outside = f"These requirements are far from the policy's training data: {'; '.join(far)}."
        return (f"{outside} The search relies less on the policy and uses small generations.",)
    if (found := training_distance(problem)).unfamiliar:
        names = (feature.removeprefix("differences in ") for feature in found.features)
        *first, last = list(dict.fromkeys(SUBJECTS[name] for name in names))[:3]
        mainly = f"{', '.join(first)} and {last}" if first else last
        differ = f"These requirements differ from the policy's training data (mainly {mainly})"
        return (f"{differ}, so heuristic designs were tried as well.",)
    return ()


def details(problem: DesignProblem) -> tuple[str, ...]:
    """The figures behind `notes`."""
    found = training_distance(problem)
    distance = f"Distance from the training data: {found.distance:.1f} (99% of it lies below {found.limit:.1f})."
    return (f"{distance} Largest differences: {'; '.join(found.features[:3])}.",)
