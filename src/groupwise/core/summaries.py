"""What a grouping may look at: a few numbers for each trajectory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from groupwise.core.kmeans import Floats, Ints
from groupwise.types import Trajectory


@dataclass(frozen=True, slots=True)
class Summaries:
    """What a grouping may look at, of N trajectories: features [N, F] and, all [N], the rest. Nothing may be NaN."""

    features: Floats
    tasks: NDArray[np.str_]
    returns: Floats
    lengths: Ints
    seeds: Ints

    def __post_init__(self) -> None:
        count = len(self.features)
        for name in ("tasks", "returns", "lengths", "seeds"):
            if (shape := np.shape(getattr(self, name))) != (count,):
                raise ValueError(f"{name} has shape {shape}; there are {count} rows of features")
        for name in ("features", "returns"):
            values = getattr(self, name)
            if not np.isfinite(values).all():
                row = int(np.argwhere(~np.isfinite(values))[0][0])
                raise ValueError(f"{name} of trajectory {row} hold {values[row]}; groups need finite numbers")

    def __len__(self) -> int:
        return len(self.features)


def selected(attempts: Summaries, rows: NDArray[np.bool_]) -> Summaries:
    """The summaries of those rows alone."""
    return Summaries(*(getattr(attempts, name)[rows] for name in Summaries.__slots__))


def summarise(
    members: Sequence[Trajectory],
    tasks: Sequence[str],
    seeds: Sequence[int] | None = None,
    returns: Sequence[float] | None = None,
    *,
    features: bool = True,
) -> Summaries:
    """Summaries of trajectories; without `returns`, what each earned by its own rewards.

    Features: reward per step, log(1 + length), and the mean and standard deviation of every observed quantity. Without
    `features` there are none, for strategies that do not use them.
    """
    totals = [float(np.sum(m.rewards)) for m in members] if returns is None else list(returns)
    lengths = np.array([len(m) for m in members], np.int64)
    return Summaries(
        features=_features(members, totals) if features else np.zeros((len(members), 0)),
        tasks=np.array(list(tasks), np.str_),
        returns=np.array(totals, np.float64),
        lengths=lengths,
        seeds=np.array(list(seeds or [0] * len(members)), np.int64),
    )


def _features(members: Sequence[Trajectory], totals: Sequence[float]) -> Floats:
    seen = [np.asarray(m.obs, np.float64).reshape(len(m), -1) if len(m) else np.zeros((1, 1)) for m in members]
    width = max((obs.shape[1] for obs in seen), default=0)
    features = np.zeros((len(members), 2 + 2 * width))
    for row, obs, total, member in zip(features, seen, totals, members, strict=True):
        row[0], row[1] = total / max(len(member), 1), np.log1p(len(member))
        row[2 : 2 + obs.shape[1]] = obs.mean(axis=0)
        row[2 + width : 2 + width + obs.shape[1]] = obs.std(axis=0)
    return features
