"""An infinite mixture of Gaussian processes tells apart and recognises tasks that change unannounced.

"Task-Agnostic Online Reinforcement Learning with an Infinite Mixture of Gaussian Processes" (arXiv 2006.11441). A
stream of x → y comes from tasks that change without notice. Each task's answers are a Gaussian process, and the number
of tasks is inferred:

    p(k | x, y)   ∝ (n_k + κ·[k was the previous task]) · N(y; μ_k(x), σ²_k(x))      a known task
    p(new | x, y) ∝ α · N(y; 0, s² + ν²)                                               a new task

n_k counts the points assigned to task k, κ is the stickiness, α the concentration, and μ_k and σ²_k the prediction of
its process with kernel s² exp(−|x − x'|² / 2ℓ²) and noise ν².

Departures: every point joins the likeliest task for good, where the paper keeps a variational distribution; a process
remembers its last `capacity` points, where the paper keeps inducing points; the kernel is given, not learned.

The experiment: a cart with a pole is pushed at random while its world changes without notice: the usual one, one with
left and right swapped, and one with a longer pole and twice the force; then all three again. Before every step a model
must predict how the two speeds will change. Arms: one Gaussian process over everything seen, one over the most recent
steps, the mixture, and one process per task with the task given.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from groupwise.control.classic.cartpole import CartPole
from groupwise.control.papers.paper_result import PaperFinding, Progress, cell, mean_of, ratio, with_interval
from groupwise.core.grouping.kmeans import Floats, Ints


@dataclass(frozen=True, slots=True)
class Kernel:
    """ℓ, s and ν: the distance over which points are correlated, the size of answers, and their noise."""

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
      seen: X, [N, D]; with N = 0 the prediction is the prior.
      answers: Y, [N, Q]: Q independent processes with the same kernel.
      points: [M, D].
    """
    if len(seen) != len(answers):
        raise ValueError(f"{len(answers)} answers for {len(seen)} points; there must be one for each")
    # Solving for the M points at once costs one factorisation of [N, N].
    across = kernel(points, seen)
    weights = np.linalg.solve(kernel(seen, seen) + kernel.noise**2 * np.eye(len(seen)), across.T)
    variances = kernel.signal**2 + kernel.noise**2 - (across * weights.T).sum(1)
    return weights.T @ answers, np.maximum(variances, kernel.noise**2)


def log_density(answer: Floats, mean: Floats, variance: float) -> float:
    """log N(answer; mean, variance·I), all [Q]."""
    squared = float(np.square(answer - mean).sum())
    return -0.5 * (squared / variance + len(answer) * math.log(2 * math.pi * variance))


class ProcessMixture:
    """A growing mixture: given a stream of points, it assigns each one to a task.

    Args:
      kernel: the kernel of every task's process.
      concentration: α; larger finds more tasks.
      stickiness: κ; larger stays with the task of the previous point. A new process has seen little, so an old one
        sometimes predicts better by chance: κ must outweigh that, and the sizes of all other tasks.
      capacity: points that a process remembers. The time per point grows with its cube.
    """

    def __init__(
        self, kernel: Kernel, *, concentration: float = 1.0, stickiness: float = 1e4, capacity: int = 100
    ) -> None:
        self.kernel, self.concentration, self.stickiness = kernel, concentration, stickiness
        self.capacity = capacity
        self.seen: list[Floats] = []
        self.answers: list[Floats] = []
        self.sizes: list[int] = []
        self.current = -1

    def __len__(self) -> int:
        return len(self.sizes)

    def expect(self, point: Floats) -> Floats:
        """The answer [Q] that the previous point's task would give at `point` [D]; 0 before any point."""
        if self.current < 0:
            return np.zeros(1)
        mean, _ = predict(self.kernel, self.seen[self.current], self.answers[self.current], point[np.newaxis])
        answer: Floats = mean[0]
        return answer

    def see(self, point: Floats, answer: Floats) -> int:
        """Learn that the answer at `point` [D] is `answer` [Q]; return the number of its task."""
        # Log of the unnormalised posterior of each task, the last entry for a new one.
        scores = [self._score(number, point, answer) for number in range(len(self))]
        prior = self.kernel.signal**2 + self.kernel.noise**2
        scores.append(math.log(self.concentration) + log_density(answer, np.zeros_like(answer), prior))
        self.current = now = int(np.argmax(scores))
        if now == len(self):
            self.seen.append(np.zeros((0, len(point))))
            self.answers.append(np.zeros((0, len(answer))))
            self.sizes.append(0)
        self.seen[now] = np.vstack([self.seen[now], point])[-self.capacity :]
        self.answers[now] = np.vstack([self.answers[now], answer])[-self.capacity :]
        self.sizes[now] += 1
        return now

    def _score(self, number: int, point: Floats, answer: Floats) -> float:
        mean, variance = predict(self.kernel, self.seen[number], self.answers[number], point[np.newaxis])
        weight = self.sizes[number] + self.stickiness * (number == self.current)
        return math.log(weight) + log_density(answer, mean[0], float(variance[0]))


WORLDS: tuple[Mapping[str, float], ...] = ({"force": 10.0}, {"force": -10.0}, {"force": 20.0, "half_length": 1.0})
# How often each world is visited, and for how many steps.
VISITS, STAY = 2, 40
KERNEL = Kernel(length=3.0, signal=2.0, noise=0.15)
# Bring observations and speed changes to a size of about 1, as the kernel expects.
SEEN_SCALE = np.array([1.0, 1.0, 0.1, 1.0])
CHANGE_SCALE = np.array([0.2, 0.3])
MEMORY, RECENT = 200, 20


@dataclass(frozen=True, slots=True)
class Stream:
    """Observations and pushes [T, 5], changes of the two speeds [T, 2], and the world's number [T]."""

    points: Floats
    answers: Floats
    worlds: Ints


def stream(seed: int) -> Stream:
    rng = np.random.default_rng(seed)
    points, answers = [], []
    worlds = [world for _ in range(VISITS) for world in range(len(WORLDS))]
    for world in worlds:
        cart, ended = CartPole(**WORLDS[world]), True  # type: ignore[arg-type]
        for _ in range(STAY):
            if ended:
                before = cart.reset([int(rng.integers(2**31))])[0]
            push = int(rng.integers(2))
            after, _, over, cut = cart.step(np.array([push]))
            points.append([*(before / SEEN_SCALE), 2 * push - 1])
            # The answer is the change of the two speeds; positions follow from them.
            answers.append((after[0, [1, 3]] - before[[1, 3]]) / CHANGE_SCALE + 0.05 * rng.normal(size=2))
            before, ended = after[0], bool(over[0] or cut[0])
    return Stream(np.array(points), np.array(answers), np.repeat(worlds, STAY).astype(np.int64))


def mixture_errors(seen: Stream) -> tuple[Floats, Ints, int]:
    """Squared errors of the predictions [T], the mixture's labels [T], and how many tasks it found."""
    mixture = ProcessMixture(KERNEL)
    errors, labels = [], []
    for point, answer in zip(seen.points, seen.answers, strict=True):
        errors.append(np.square(mixture.expect(point) - answer).mean())
        labels.append(mixture.see(point, answer))
    return np.array(errors), np.array(labels, np.int64), len(mixture)


def process_errors(seen: Stream, *, memory: int, known_worlds: bool = False) -> Floats:
    """The same for one process over the last `memory` steps, or over those of the current world if that is known."""
    errors = []
    for now in range(len(seen.points)):
        past = np.flatnonzero(seen.worlds[:now] == seen.worlds[now]) if known_worlds else np.arange(now)
        past = past[-memory:]
        mean, _ = predict(KERNEL, seen.points[past], seen.answers[past], seen.points[now : now + 1])
        errors.append(np.square(mean[0] - seen.answers[now]).mean())
    return np.array(errors)


def agreement(labels: Ints, worlds: Ints) -> float:
    """The share of steps that carry their world's most frequent label; 0 if two worlds share a label."""
    names = [int(np.bincount(labels[worlds == world]).argmax()) for world in np.unique(worlds)]
    right = sum(int((labels[worlds == world] == name).sum()) for world, name in enumerate(names))
    return right / len(labels) if len(set(names)) == len(names) else 0.0


def experiment(seeds: Sequence[int], progress: Progress) -> PaperFinding:
    # Errors count from the second visit on, when every world has been seen once.
    known = slice(len(WORLDS) * STAY, None)
    errors: dict[str, list[float]] = {}
    agreed, found = [], []
    for done, seed in enumerate(seeds):
        progress(done, len(seeds))
        seen = stream(seed)
        mixed, labels, count = mixture_errors(seen)
        arms = {
            "one process over everything": process_errors(seen, memory=MEMORY),
            f"one over the last {RECENT} steps": process_errors(seen, memory=RECENT),
            "the mixture": mixed,
            "one per task, task given": process_errors(seen, memory=MEMORY, known_worlds=True),
        }
        for name, made in arms.items():
            errors.setdefault(name, []).append(float(made[known].mean()))
        agreed.append(agreement(labels, seen.worlds))
        found.append(count)
    one, recent, mixed_errors, oracle = errors.values()
    effects = {
        "error_vs_one_process": ratio(mixed_errors, one),
        "error_vs_recent": ratio(mixed_errors, recent),
        "error_vs_told": ratio(mixed_errors, oracle),
        "agreement": mean_of(agreed),
        "tasks_found": mean_of(found),
    }
    return PaperFinding(
        "gpmixture",
        "Infinite Mixture of Gaussian Processes (arXiv 2006.11441)",
        "A growing mixture finds how many worlds there are and recognises one that returns, so it predicts better than "
        "one model of everything",
        effects["error_vs_one_process"].high < 1 and effects["agreement"].value > 0.9,
        f"with {with_interval(effects['error_vs_one_process'], 3)} times its error when worlds return, and "
        f"{with_interval(effects['tasks_found'], 1)} of {len(WORLDS)} worlds found",
        'grouping.group_strategy = "dirichlet" is the same kind of mixture, over complete trajectories.',
        ("model of the world", "squared error"),
        tuple((name, cell(made, 3)) for name, made in errors.items()),
        effects,
        tuple(seeds),
        {"errors": errors, "agreement": agreed, "found": found},
    )
