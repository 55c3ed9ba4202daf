"""A sticky Dirichlet-process mixture, which finds the number of latent tasks itself.

Trajectories come in a stream, and each joins the most likely cluster or starts a new one:

    p(k | x)   ∝ (n_k + κ·[k is the cluster of the previous trajectory]) · t_k(x)      an existing cluster
    p(new | x) ∝ α · t_0(x)                                                            a new one

n_k is the size of cluster k, κ the stickiness, α the concentration, and t the predictive density of a Gaussian
whose mean and variance, dimension by dimension, have a normal-inverse-gamma prior (a Student t). After a batch, pairs
of clusters are merged as long as that raises the total likelihood. The assignment is that of "Task-Agnostic Online
Reinforcement Learning with an Infinite Mixture of Gaussian Processes" (arXiv 2006.11441), with Gaussians instead
of the processes. Departure: sizes and sums decay with half-life `window`·ln 2, so that a cluster follows a task
that drifts and disappears when its task is no longer seen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from groupwise.core.grouping.kmeans import Floats, Ints

# κ₀ of the prior, in points: it counts like a twentieth of a point at 0.
MEAN_STRENGTH = 0.05
# a₀ of the prior: the smallest whole number for which the expected variance is finite.
SHAPE = 2.0
# Clusters that weigh less than half a trajectory are dropped.
FORGOTTEN = 0.5


@dataclass(frozen=True, slots=True)
class Cluster:
    """The size, mean [F] and summed squared deviation [F] of a cluster's points; its name never changes."""

    name: int
    size: float
    mean: Floats
    deviation: Floats

    def joined_by(self, point: Floats) -> Cluster:
        # Welford's update: exact without keeping the points.
        size = self.size + 1
        mean = self.mean + (point - self.mean) / size
        return replace(self, size=size, mean=mean, deviation=self.deviation + (point - self.mean) * (point - mean))

    def merged_with(self, other: Cluster) -> Cluster:
        # Chan's formula for the sum of squared deviations of two samples together.
        size = self.size + other.size
        gap = other.mean - self.mean
        mean = self.mean + gap * other.size / size
        deviation = self.deviation + other.deviation + gap**2 * self.size * other.size / size
        return Cluster(min(self.name, other.name), size, mean, deviation)

    def faded(self, factor: float) -> Cluster:
        return replace(self, size=self.size * factor, deviation=self.deviation * factor)


class DirichletMixture:
    """Assigns trajectories to latent tasks, online.

    Args:
      concentration: α; larger finds more clusters.
      stickiness: κ; larger favours the cluster of the previous trajectory.
      spread: the expected width of a cluster, as a share of the spread of the first batch. Data soon
        outweigh it.
      window: the number of trajectories after which about a third of a cluster's weight is left.
    """

    def __init__(
        self, *, concentration: float = 1.0, stickiness: float = 1.0, spread: float = 0.25, window: int = 1000
    ) -> None:
        self.concentration, self.stickiness, self.spread = concentration, stickiness, spread
        self.keep = 1.0 - 1.0 / max(window, 2)
        self.clusters: list[Cluster] = []
        self.founded = 0
        self.previous = -1
        self.frame: tuple[Floats, Floats] | None = None

    def __len__(self) -> int:
        return len(self.clusters)

    def assign(self, points: Floats) -> Ints:
        """The name of each point's cluster [N], in order of arrival; names last from batch to batch."""
        return self._assign(points)[1]

    def assign_one_by_one(self, points: Floats) -> list[Ints]:
        """What `assign` knew after each trajectory, −1 for those still to come; the last are the merged clusters."""
        placed, found = self._assign(points)
        waiting = np.arange(len(points))
        return [*(np.where(waiting <= at, placed, -1) for at in waiting), found]

    def _assign(self, points: Floats) -> tuple[Ints, Ints]:
        """Each point's cluster as it arrived, and after clusters were merged."""
        if not len(points):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        names = [self._place(point) for point in self._framed(points)]
        renamed = self._merge()
        found = np.array([renamed.get(name, name) for name in names], np.int64)
        self.previous = int(found[-1])
        faded = (cluster.faded(self.keep ** len(points)) for cluster in self.clusters)
        self.clusters = [c for c in faded if c.size >= FORGOTTEN or c.name == self.previous]
        return np.array(names, np.int64), found

    def _framed(self, points: Floats) -> Floats:
        """Points in units of the first batch, fixed for good: a task must not seem to move when another appears."""
        if self.frame is None:
            spread = points.std(axis=0)
            self.frame = points.mean(axis=0), np.where(spread > 1e-12, spread, 1.0)
        return (points - self.frame[0]) / self.frame[1]

    def _place(self, point: Floats) -> int:
        weights = [c.size + self.stickiness * (c.name == self.previous) for c in self.clusters]
        fits = [math.log(w) + self._density(point, c) for w, c in zip(weights, self.clusters, strict=True)]
        blank = Cluster(self.founded, 0.0, np.zeros_like(point), np.zeros_like(point))
        alone = math.log(self.concentration) + self._density(point, blank)
        if not fits or alone > max(fits):
            self.clusters.append(blank.joined_by(point))
            self.founded += 1
            self.previous = blank.name
            return blank.name
        best = int(np.argmax(fits))
        self.clusters[best] = self.clusters[best].joined_by(point)
        self.previous = self.clusters[best].name
        return self.previous

    def _posterior(self, cluster: Cluster) -> tuple[float, float, Floats, Floats]:
        """κ, a, m and b of the normal-inverse-gamma posterior; the prior is κ₀ = 0.05, a₀ = 2, m₀ = 0."""
        strength = MEAN_STRENGTH + cluster.size
        shape = SHAPE + cluster.size / 2
        mean = cluster.size * cluster.mean / strength
        pull = MEAN_STRENGTH * cluster.size * cluster.mean**2 / strength
        return strength, shape, mean, SHAPE * self.spread**2 + (cluster.deviation + pull) / 2

    def _density(self, point: Floats, cluster: Cluster) -> float:
        """log t_k(x): a Student t with 2a degrees of freedom in every dimension."""
        strength, shape, mean, rate = self._posterior(cluster)
        variance = rate * (strength + 1) / (shape * strength)
        constant = math.lgamma(shape + 0.5) - math.lgamma(shape) - 0.5 * math.log(2 * shape * math.pi)
        terms = (
            constant - 0.5 * np.log(variance) - (shape + 0.5) * np.log1p((point - mean) ** 2 / (2 * shape * variance))
        )
        return float(terms.sum())

    def _evidence(self, cluster: Cluster) -> float:
        """log p(points of the cluster) + log of its factor α Γ(n) in the Dirichlet process."""
        strength, shape, _, rate = self._posterior(cluster)
        terms = SHAPE * math.log(SHAPE * self.spread**2) - shape * np.log(rate)
        constant = math.lgamma(shape) - math.lgamma(SHAPE) + 0.5 * math.log(MEAN_STRENGTH / strength)
        constant -= 0.5 * cluster.size * math.log(2 * math.pi)
        return float((terms + constant).sum()) + math.log(self.concentration) + math.lgamma(cluster.size)

    def _merge(self) -> dict[int, int]:
        """Merge all clusters if that gains, else pair by pair as long as one gains; old names → new names."""
        renamed: dict[int, int] = {}
        if len(self.clusters) > 2:
            whole = reduce(Cluster.merged_with, self.clusters)
            if self._evidence(whole) > sum(self._evidence(cluster) for cluster in self.clusters):
                renamed = {cluster.name: whole.name for cluster in self.clusters}
                self.clusters = [whole]
        while len(self.clusters) > 1:
            evidence = [self._evidence(cluster) for cluster in self.clusters]
            gains = {
                (i, j): self._evidence(self.clusters[i].merged_with(self.clusters[j])) - evidence[i] - evidence[j]
                for j in range(len(self.clusters))
                for i in range(j)
            }
            i, j = max(gains, key=lambda pair: gains[pair])
            if gains[i, j] <= 0:
                break
            one, gone = sorted((self.clusters[i], self.clusters.pop(j)), key=lambda cluster: cluster.name)
            self.clusters[i] = one.merged_with(gone)
            renamed = {name: one.name if kept == gone.name else kept for name, kept in renamed.items()}
            renamed[gone.name] = one.name
        return renamed

    def state_dict(self) -> dict[str, Any]:
        rows = [(c.name, c.size, c.mean.tolist(), c.deviation.tolist()) for c in self.clusters]
        frame = None if self.frame is None else [part.tolist() for part in self.frame]
        return {"clusters": rows, "founded": self.founded, "previous": self.previous, "frame": frame}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.clusters = [Cluster(n, size, np.array(mean), np.array(dev)) for n, size, mean, dev in state["clusters"]]
        self.founded, self.previous = state["founded"], state["previous"]
        frame = state["frame"]
        self.frame = None if frame is None else (np.array(frame[0]), np.array(frame[1]))
