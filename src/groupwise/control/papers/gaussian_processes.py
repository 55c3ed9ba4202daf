"""Gaussian processes, and an infinite mixture of them that tells tasks apart by how the world answers.

"Task-Agnostic Online Reinforcement Learning with an Infinite Mixture of Gaussian Processes" (arXiv 2006.11441). A
stream of x → y comes from tasks that change unannounced; each task's answers are a Gaussian process, and how many there
are is found:

    p(k | x, y)   ∝ (n_k + κ·[k is the one before]) · N(y; μ_k(x), σ²_k(x))      a task already met
    p(new | x, y) ∝ α · N(y; 0, s² + ν²)                                         one never met

n_k is how much task k has explained, κ the stickiness, α the concentration, μ_k and σ²_k the prediction of its process
with kernel s² exp(−|x − x'|² / 2ℓ²) and noise ν².

Departures: every point joins the likeliest task for good, where the paper keeps a variational distribution; a process
remembers its last `capacity` points, where the paper keeps inducing points; the kernel is given and not learned.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from groupwise.core.grouping.kmeans import Floats


@dataclass(frozen=True, slots=True)
class Kernel:
    """ℓ, s and ν: how far a point tells about others, how large answers are, and how noisy."""

    length: float = 1.0
    signal: float = 1.0
    noise: float = 0.1

    def __call__(self, ours: Floats, theirs: Floats) -> Floats:
        """Covariances [N, M] of points [N, D] and [M, D]."""
        squared = np.square(ours[:, np.newaxis] - theirs[np.newaxis]).sum(2)
        covariances: Floats = self.signal**2 * np.exp(-squared / (2 * self.length**2))
        return covariances


def predict(kernel: Kernel, seen: Floats, answers: Floats, points: Floats) -> tuple[Floats, Floats]:
    """The posterior at `points`: means [M, Q], and variances of an answer there [M], noise included.

    μ(x) = k(x, X) (K + ν²I)⁻¹ Y,   σ²(x) = s² + ν² − k(x, X) (K + ν²I)⁻¹ k(X, x)

    Args:
      seen: X, [N, D]; N may be 0, then the answer is the prior's.
      answers: Y, [N, Q]: Q numbers with one kernel, each a process of its own.
      points: [M, D].
    """
    if len(seen) != len(answers):
        raise ValueError(f"{len(answers)} answers for {len(seen)} points; there must be one for each")
    across = kernel(points, seen)
    weights = np.linalg.solve(kernel(seen, seen) + kernel.noise**2 * np.eye(len(seen)), across.T)
    variances = kernel.signal**2 + kernel.noise**2 - (across * weights.T).sum(1)
    return weights.T @ answers, np.maximum(variances, kernel.noise**2)


def log_density(answer: Floats, mean: Floats, variance: float) -> float:
    """log N(answer; mean, variance·I), all [Q]."""
    squared = float(np.square(answer - mean).sum())
    return -0.5 * (squared / variance + len(answer) * math.log(2 * math.pi * variance))


class ProcessMixture:
    """A mixture that grows: hand it a stream, and it says of every point which task it is from.

    Args:
      kernel: of every task's process.
      concentration: α; larger finds more tasks.
      stickiness: κ; larger holds on to the task of the point before. A young process knows little, so that now and
        then an old one guesses better by chance: κ must outweigh that, and the sizes of all others.
      capacity: points that a process remembers. Time per point grows with its cube.
    """

    def __init__(
        self, kernel: Kernel, *, concentration: float = 1.0, stickiness: float = 1e4, capacity: int = 100
    ) -> None:
        self.kernel = kernel
        self.concentration = concentration
        self.stickiness = stickiness
        self.capacity = capacity
        self.seen: list[Floats] = []
        self.answers: list[Floats] = []
        self.sizes: list[int] = []
        self.current = -1

    def __len__(self) -> int:
        return len(self.sizes)

    def expect(self, point: Floats) -> Floats:
        """What answer [Q] the task of the point before would give at `point` [D]; 0 where nothing was seen."""
        if self.current < 0:
            return np.zeros(1)
        mean, _ = predict(self.kernel, self.seen[self.current], self.answers[self.current], point[np.newaxis])
        answer: Floats = mean[0]
        return answer

    def see(self, point: Floats, answer: Floats) -> int:
        """Learn that `point` [D] was answered by `answer` [Q]; the number of the task that this is."""
        scores = [self._score(number, point, answer) for number in range(len(self))]
        scores.append(math.log(self.concentration) + log_density(answer, np.zeros_like(answer), self._prior_variance))
        self.current = int(np.argmax(scores))
        if self.current == len(self):
            self.seen.append(np.zeros((0, len(point))))
            self.answers.append(np.zeros((0, len(answer))))
            self.sizes.append(0)
        self._remember(self.current, point, answer)
        return self.current

    @property
    def _prior_variance(self) -> float:
        return self.kernel.signal**2 + self.kernel.noise**2

    def _score(self, number: int, point: Floats, answer: Floats) -> float:
        mean, variance = predict(self.kernel, self.seen[number], self.answers[number], point[np.newaxis])
        weight = self.sizes[number] + self.stickiness * (number == self.current)
        return math.log(weight) + log_density(answer, mean[0], float(variance[0]))

    def _remember(self, number: int, point: Floats, answer: Floats) -> None:
        self.seen[number] = np.vstack([self.seen[number], point])[-self.capacity :]
        self.answers[number] = np.vstack([self.answers[number], answer])[-self.capacity :]
        self.sizes[number] += 1
