"""How far requirements are from those that the policy was trained on, and how to search where it knows little."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from groupwise.config.sections import GenerationSettings
from groupwise.designer.features import ACTIVITY, POOL, SCHEMA_HASH, WHOLE, features_of, whole_of
from groupwise.designer.problem import DesignProblem, Floats
from groupwise.designer.synthetic_requirements import SIZES
from groupwise.designer.weights import load_weights, save_weights

WARY = GenerationSettings(batch_size=8)
"""Small generations: the policy's first ideas are tried beside rules of thumb, and search soon goes on from them."""
SEEN = tuple(f"{name} ({things})" for things, names in (("activities", ACTIVITY), ("pools", POOL)) for name in names)
PORTRAIT = (*WHOLE, *SEEN, *(f"differences in {name}" for name in SEEN))
FLOOR = 0.02  # of a number's standard deviation in training, so that what never varied may vary a little
SHRINKAGE = 0.05
TRAINED = Path(__file__).with_name("range.safetensors")


@dataclass(frozen=True, slots=True)
class TrainedRange:
    """A number of requirements: what training had of it, and how far from that a policy can still be relied on."""

    name: str
    trained: tuple[float, float]
    near: tuple[float, float]
    words: str

    def far(self, value: float) -> bool:
        return not self.near[0] <= value <= self.near[1]

    def told(self, value: float) -> str:
        low, high = (f"{end:.2g}" for end in self.trained)
        return f"{self.words} {value:.3g} (trained: {low} to {high})"


TRAINED_RANGES = (
    TrainedRange("activities", SIZES, (3, 200), "activities:"),
    TrainedRange("pools", (1, 8), (0, 16), "pools:"),
    TrainedRange("load", (0.04, 0.75), (0.005, 0.95), "share of all capacity that the work needs:"),
    TrainedRange("failure", (0.0, 0.14), (0.0, 0.35), "mean probability that a try fails:"),
    TrainedRange("cases", (0.5, 52.0), (0.05, 1000.0), "cases in progress, were there no waiting:"),
    TrainedRange("branches", (0.0, 0.14), (0.0, 0.4), "branches per activity:"),
)


def numbers_of(problem: DesignProblem) -> dict[str, float]:
    """What `TRAINED_RANGES` compare."""
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
    """What requirements of training look like: mean and scale of every number of a portrait, how they go together
    (the inverse of their correlations), and the Mahalanobis distance that 99 in 100 of others like them keep."""

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
        """What each number adds to the square of the distance; some take away from it."""
        off = (seen - self.mean) / self.scale
        found: Floats = off * (self.precision @ off)
        return found

    def save(self, path: Path = TRAINED) -> None:
        import torch

        parts = {"mean": self.mean, "scale": self.scale, "precision": self.precision, "limit": np.array([self.limit])}
        save_weights({name: torch.from_numpy(part).float() for name, part in parts.items()}, path, SCHEMA_HASH)


@cache
def training_statistics() -> RequirementStatistics:
    """What was seen in training, as it ships."""
    parts = {
        name: part.numpy() for name, part in load_weights(TRAINED, SCHEMA_HASH, "benchmarks/train_designer.py").items()
    }
    return RequirementStatistics(parts["mean"], parts["scale"], parts["precision"], float(parts["limit"][0]))


def portrait(problem: DesignProblem) -> Floats:
    """The whole as the policy sees it, and mean and spread of what it sees of activities and of pools."""
    nodes, acts = features_of(problem).nodes, len(problem.names)
    activities, pools = nodes[:acts, : len(ACTIVITY)], nodes[acts:-1, : len(POOL)]
    pools = pools if len(pools) else np.zeros((1, len(POOL)), np.float32)
    parts = nodes[-1, : len(WHOLE)], activities.mean(0), pools.mean(0), activities.std(0), pools.std(0)
    return np.concatenate(parts).astype(np.float64)


def far_outside(problem: DesignProblem) -> tuple[str, ...]:
    """In words, how the requirements are unlike anything that was trained on; nothing where they are near enough."""
    return tuple(_far(problem))


def _far(problem: DesignProblem) -> Iterator[str]:
    if problem.requirements.demand.arrivals_per_second is None:
        # Times and loads of a single run are its own, so nothing else is compared but its size.
        yield "a single run (trained: cases that keep arriving)"
    found = numbers_of(problem)
    spans = TRAINED_RANGES if problem.requirements.demand.arrivals_per_second is not None else TRAINED_RANGES[:1]
    yield from (span.told(found[span.name]) for span in spans if span.far(found[span.name]))


def unfamiliar(problem: DesignProblem) -> str:
    """In words, how the requirements differ from those of training taken together; nothing where they are like them."""
    known = training_statistics()
    shares = known.shares(portrait(problem))
    distance = float(shares.sum()) ** 0.5
    if distance <= known.limit:
        return ""
    most = ", ".join(PORTRAIT[number] for number in np.argsort(-shares)[:3])
    return f"most in {most} (distance {distance:.0f}; of training 99 in 100 are below {known.limit:.0f})"


def notes(problem: DesignProblem) -> tuple[str, ...]:
    """What is to be said of it to who asked for a design."""
    if far := far_outside(problem):
        return (f"far from what the policy was trained on: {'; '.join(far)}. It searches in small steps instead.",)
    if words := unfamiliar(problem):
        return (f"rules of thumb were tried too, because the policy was trained on other requirements: {words}",)
    return ()
